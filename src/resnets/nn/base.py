"""What every network of this package has: a description, what a file says about it, and a check of its input."""

from __future__ import annotations

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

    def extra_repr(self) -> str:
        return self.spec.name
