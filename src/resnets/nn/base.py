"""What every network of this package has: a description, what a file says about it, and a check of its input."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
import torch.fx
from torch import Tensor, nn

from resnets.chain import NetworkSpec
from resnets.errors import UserError
from resnets.metadata import Metadata

if TYPE_CHECKING:
    from resnets.data.transform import Transform


def check_input(spec: NetworkSpec, x: Tensor) -> Tensor:
    """x, unless the network cannot read it."""
    if isinstance(x, torch.fx.Proxy):  # the network is being traced, and there is no shape yet
        return x
    if not isinstance(x, Tensor):
        raise UserError(f"{spec.name} reads a torch tensor, not {type(x).__name__}.")
    spec.check_images(x.shape)
    return x


class Network(nn.Module):
    """A network that a `Spec` or a `Chain` describes."""

    spec: NetworkSpec

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        self.metadata = Metadata()  # of a file that it was loaded from

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the scores; empty where they are not known."""
        return self.metadata.classes

    @property
    def transform(self) -> Transform:
        """What turns a picture (PIL, or a uint8 tensor) into what this network reads in testing."""
        from resnets.data.transform import transform_of

        return transform_of(self.metadata, self.spec)

    def reset_classifier(self, num_classes: int, *, seed: int | None = None) -> None:
        """Replace the layers whose sizes follow the number of classes, also in auxiliary heads; keep the others.

        The new layers are those of a new network of this seed. The names of the old classes are gone.

        >>> net = resnets.load("preresnet20.cifar10")
        >>> net.reset_classifier(5, seed=0)
        >>> net.spec.num_classes
        5
        """
        from resnets.nn.network import build

        if self.original is not self:
            raise UserError("a prepared network keeps its classifier: reset it before the network is prepared.")
        spec = dataclasses.replace(self.spec, num_classes=num_classes)
        new, like = build(spec, seed=seed), next(self.parameters())
        for name in self.class_modules:
            place, _, leaf = name.rpartition(".")
            layer = new.get_submodule(name).to(like.device, like.dtype).train(self.training)
            setattr(self.get_submodule(place), leaf, layer)
        self.spec = spec
        origin = (
            f"{self.metadata.origin}, with a new classifier for {num_classes} classes" if self.metadata.origin else ""
        )
        self.metadata = dataclasses.replace(self.metadata, classes=(), folders=(), origin=origin)

    @property
    def class_modules(self) -> tuple[str, ...]:
        """The names of the layers whose sizes follow the number of classes: `class_layers`, and BN behind one."""
        from resnets.nn.network import describe

        other = describe(dataclasses.replace(self.spec, num_classes=self.spec.num_classes + 1)).state_dict()
        own = describe(self.spec).state_dict()
        changed = [name.rpartition(".")[0] for name, tensor in own.items() if tensor.shape != other[name].shape]
        return tuple(dict.fromkeys(changed))

    @property
    def original(self) -> Network:
        """The network itself; a prepared network answers with the one that it runs."""
        return self

    @property
    def class_layers(self) -> tuple[str, ...]:
        """The names of the layers whose outputs are classes."""
        return ("classifier",)

    def forward_features(self, x: Tensor) -> Tensor:
        """The last map, as the pooling sees it."""
        raise NotImplementedError

    def forward_stages(self, x: Tensor) -> list[Tensor]:
        """The last map of each stage, from the largest to the smallest."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return self.spec.name
