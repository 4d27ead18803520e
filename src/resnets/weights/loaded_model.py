"""A network to test or to use, with what its file says about it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resnets.data import load as load_data
from resnets.data.augment import Normalize
from resnets.data.images import SPLIT_SEED, Images
from resnets.errors import UserError
from resnets.nn import ResNet, build
from resnets.weights.files import read_metadata
from resnets.metadata import Metadata, Preprocessing, about
from resnets.weights.networks import layout_in, load, load_weights
from resnets.zoo import spec_of


@dataclass(frozen=True)
class LoadedModel:
    net: ResNet
    what: str  # a sentence for the reader
    about: Metadata = dataclasses.field(default_factory=Metadata)

    @property
    def preprocessing(self) -> Preprocessing:
        """The file's, or what is usual for such a net."""
        return self.about.preprocessing or Preprocessing.usual(self.net.spec)


def subject(
    path: Path, network: str | None = None, changes: dict[str, Any] | None = None, source: str = "auto"
) -> LoadedModel:
    """The network of a run's folder, of a weights file of ours, or of another library's with the network named."""
    if path.is_dir():
        if not (path / "final.safetensors").exists():
            raise UserError(f"{path} has no final.safetensors: the run is not finished, or it is no run.")
        path = path / "final.safetensors"
    metadata = read_metadata(path)
    if "resnets.spec" in metadata:
        if network or changes:
            raise UserError(f"{path} says itself what its network is; leave out --network and what differs from it.")
        net = load(path)
        return LoadedModel(net, f"{net.spec.name} from {path}", about(metadata, net.spec, path))
    if network is None:
        raise UserError(
            f"{path} does not say which network it holds; name it with --network, as in --network resnet20."
        )
    changes = changes or {}
    layout = layout_in(path, source)
    spec = spec_of(network, **changes)
    # Another library's conventions are followed where the user has not decided otherwise.
    spec = dataclasses.replace(spec, **{k: v for k, v in layout.fitted(spec).items() if k not in changes})
    net = build(spec)
    known = Preprocessing.usual(spec, layout.mean_std) if layout.mean_std else None
    return LoadedModel(net, str(load_weights(net, path, source)), Metadata(preprocessing=known))


def normalization(given: LoadedModel, images: Images | None = None, per: str | None = None) -> Normalize:
    """As the weights were trained, unless `per` says otherwise; `images` are those at hand, if they have statistics."""
    known = given.about.preprocessing
    kind = per or (known.normalize if known else "channel")
    if kind == "channel" and per is None and (known or images is None):
        usual = given.preprocessing
        return Normalize.by_channel(usual.mean, usual.std)
    if images is None:  # a mean image, which only the training images can give
        if given.about.data is None:
            raise UserError(
                f"{given.what} needs the mean image of what it was trained on, and does not say what that is."
            )
        images = load_data(given.about.data)
    held_out = known.held_out if known and per is None and images.name == given.about.data else 0
    return Normalize.of(images, kind, images.split(held_out, SPLIT_SEED)[0])
