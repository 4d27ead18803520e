"""Weights in and out of networks.

Our own files are safetensors with the net's spec in the header, so that the net is rebuilt from the file alone.
`load_weights` also fills a net from the files of other libraries, and takes nothing that does not fit.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from resnets.chain import NetworkSpec, parse_network
from resnets.errors import UserError, one_of
from resnets.metadata import Metadata
from resnets.nn import Network, ResNet, build
from resnets.nn.network import renew_shortcuts
from resnets.nn.structure import find_change
from resnets.version import __version__
from resnets.weights import files
from resnets.weights.compare import find_differing_fields, format_creation, format_fields
from resnets.weights.files import AnyPath, WeightsFile, some
from resnets.weights.layout import Layout
from resnets.weights.layouts import OURS, PEERS, layout_of, recognise

FORMATS = ("resnets", *PEERS)
_ARRAYS = "preprocessing."  # begins the names of what is no weight


@dataclass(frozen=True)
class LoadReport:
    """What was loaded from a file."""

    source: str  # whose names its tensors have
    tensors: int
    wrapper: str  # the key under which they stood, if any
    prefix: str  # what stood before every name, if anything

    def __str__(self) -> str:
        under = f" from under {self.wrapper!r}" if self.wrapper else ""
        without = f", the prefix {self.prefix!r} taken off" if self.prefix else ""
        return f"Loaded {self.tensors} tensors named as in {self.source}{under}{without}."


def load_weights(net: Network, path: AnyPath, source: str = "auto") -> LoadReport:
    """Fill a net from a file of weights: all of it, or nothing and a `UserError`.

    The file is safetensors or a torch file with a state dict, from `resnets`, `torchvision`, `timm` (its
    `resnet*` and `resnetv2_*` with BatchNorm), `akamaster` or `chenyaofo` (CIFAR); `source` insists on one of them. The
    values are converted to the net's dtype and device.

    >>> net = resnets.create("resnet20", resize="pad_both")  # as the library of that file has it
    >>> report = resnets.load_weights(net, "resnet20.th")
    """
    if any(tensor.is_meta for tensor in net.state_dict().values()):
        raise UserError("a net on the meta device has no memory for weights; move it with net.to_empty(device='cpu').")
    file, _ = split_arrays(files.read(path))
    return fill(net, file, layout_of_file(file, source), source)


def fill(net: Network, file: WeightsFile, layout: Layout, source: str = "auto") -> LoadReport:
    """Copy the tensors of a file into a net, all or none."""
    if layout.is_ours:
        _require_same(net.spec, file)
    else:
        layout.require(net.spec, f"{file.path} holds weights of")
    found = _match_tensors(net, file, layout)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():  # these are the net's own tensors
            if name in found:
                tensor.copy_(found[name])
            else:  # a counter of batches that an old file lacks
                tensor.zero_()
    return LoadReport(layout.sources[0] if source == "auto" else source, len(found), file.wrapper, file.prefix)


def layout_in(path: AnyPath, source: str = "auto") -> Layout:
    """Whose weights a file holds, with the conventions behind them."""
    return layout_of_file(files.read(path), source)


def build_from_file(file: WeightsFile) -> Network:
    """The net of a file that `save_weights` wrote, with its weights and their dtype."""
    path, spec = file.path, _spec_in(file.metadata, file.path)
    file, arrays = split_arrays(file)
    if spec.depth > len(file.tensors):  # a false description could make us build forever
        raise UserError(f"{path} describes {spec.depth} layers of weights and holds {len(file.tensors)} tensors.")
    try:
        net: Network = build(spec, device="meta")
    except (RuntimeError, OverflowError, TypeError) as error:
        raise UserError(f"{path} describes a network that is too large to build.") from error
    found = _match_tensors(net, file, OURS)
    if isinstance(net, ResNet):
        renew_shortcuts(net, torch.Generator())  # what a module of a user's own has besides tensors
    net.load_state_dict({name: tensor.to("cpu", copy=True) for name, tensor in found.items()}, assign=True)
    net.metadata = Metadata(arrays=arrays)
    return net


def split_arrays(file: WeightsFile) -> tuple[WeightsFile, dict[str, Tensor]]:
    """The weights of a file, and the tensors of its preprocessing."""
    arrays = {name: tensor for name, tensor in file.tensors.items() if name.startswith(_ARRAYS)}
    weights = {name: tensor for name, tensor in file.tensors.items() if name not in arrays}
    found = {name.removeprefix(_ARRAYS): tensor for name, tensor in arrays.items()}
    return dataclasses.replace(file, tensors=weights), found


def read_spec(path: AnyPath) -> NetworkSpec:
    """The spec in the header of a file that `save_weights` wrote; no tensor is read."""
    return _spec_in(files.read_metadata(path), path)


def save_weights(
    net: Network,
    path: AnyPath,
    *,
    format: str = "resnets",
    metadata: Mapping[str, str] | None = None,
    arrays: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a net's weights as safetensors, atomically.

    In the format `resnets` the header carries the net's spec; `torchvision`, `timm` and `akamaster` write these
    libraries' names for a net that follows their conventions. `metadata` is added to the header; by default that is
    what the net itself knows, its classes and preprocessing. `arrays` are tensors of its preprocessing, which the file
    keeps beside the weights.

    >>> net = resnets.create("preresnet20", seed=0)
    >>> resnets.save_weights(net, "net.safetensors")
    """
    header = {"format": "pt", "resnets.version": __version__}
    if format == "resnets":
        header["resnets.spec"] = json.dumps(net.spec.to_dict())
    for key, value in (net.metadata.to_metadata() if metadata is None else metadata).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise UserError(f"metadata must map text to text, not {key!r} to {value!r}.")
        if key == "format" or key.startswith("resnets."):
            raise UserError(f"metadata key {key!r} is taken; choose another name.")
        header[key] = value
    if format != "resnets":
        return files.write(path, to_peer(net, format), header)
    kept = net.metadata.arrays if arrays is None else arrays
    beside = {f"{_ARRAYS}{name}": tensor.detach().cpu().contiguous() for name, tensor in kept.items()}
    files.write(path, {**_export_state(net, OURS), **beside}, header)


def to_peer(net: Network, format: str) -> dict[str, Tensor]:
    """The state dict of the same net in `torchvision`, `timm` or `akamaster`, as contiguous tensors on the CPU.

    As in `state_dict`, tensors that are so already share the net's memory.
    """
    if format not in PEERS:
        raise one_of("format", format, FORMATS)
    layout = layout_of(format, net.spec)
    layout.require(net.spec, f"{net.spec.name} cannot be written as weights of")
    return _export_state(net, layout)


def _export_state(net: Network, layout: Layout) -> dict[str, Tensor]:
    state = net.state_dict()
    if any(tensor.is_meta for tensor in state.values()):
        raise UserError("a net on the meta device has no weights to write.")
    if change := find_change(net):
        what = f"the net is no longer the {net.spec.name} that net.spec describes"
        if change.tensors:
            raise UserError(
                f"{what}, which differs in {some(change.tensors)}: set net.spec to what it has become, so that it can "
                "be read back."
            )
        raise UserError(
            f"{what} ({change.sentence}), so its weights would be read back as another function; write "
            "net.state_dict() to a file of your own instead."
        )
    names = layout.names(net.spec, state)
    return {
        names[name]: tensor.detach().cpu().contiguous().reshape(layout.shape(name, tensor.shape))
        for name, tensor in state.items()
    }


# --- which library wrote the file -------------------------------------------------------------------------


def layout_of_file(file: WeightsFile, source: str = "auto") -> Layout:
    """Whose weights a file holds; `source` insists on one library."""
    if source not in ("auto", *FORMATS):
        raise one_of("source", source, ("auto", *FORMATS))
    layout = recognise(file.tensors)
    if layout is None:
        raise UserError(
            f"{file.path} has names that no known library gives ({some(file.tensors)}); "
            f"resnets reads weights of {', '.join(FORMATS)}."
        )
    if source not in ("auto", *layout.sources):
        raise UserError(f"{file.path} holds weights of {layout.title}, not of {source}; leave source at 'auto'.")
    return layout


def _spec_in(metadata: Mapping[str, str], path: AnyPath) -> NetworkSpec:
    if "resnets.spec" not in metadata:
        raise UserError(
            f"{path} does not say which network it holds: build that with resnets.create(name) and fill it with "
            "resnets.load_weights(net, path)."
        )
    try:
        return parse_network(json.loads(metadata["resnets.spec"]))
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path} describes its network in a way that cannot be read: {error}") from error


def _require_same(spec: NetworkSpec, file: WeightsFile) -> None:
    """Refuse a file of ours for a net that computes something else; without a spec only shapes are compared."""
    if "resnets.spec" not in file.metadata:
        return
    theirs = _spec_in(file.metadata, file.path)
    if wrong := find_differing_fields(theirs, spec):
        raise UserError(
            f"{file.path} holds weights of {theirs.name} with {format_fields(theirs, wrong)}, and the net is "
            f"{spec.name} with {format_fields(spec, wrong)}: use resnets.load(path), or build the net with "
            f"{format_creation(theirs)}."
        )


# --- matching the tensors ----------------------------------------------------------------


def _match_tensors(net: Network, file: WeightsFile, layout: Layout) -> dict[str, Tensor]:
    """The file's tensors under our names and in our shapes, or a refusal that names those that do not fit.

    Other libraries' old files lack BN's counter of batches, on which nothing depends while BN has a momentum.
    """
    state = net.state_dict()
    theirs = layout.names(net.spec, state)
    known = set(theirs.values())
    faults: dict[str, list[str]] = {"missing": [], "unexpected": [n for n in file.tensors if n not in known]}
    fitting = {}
    for name, own in state.items():
        shape = layout.shape(name, own.shape)
        tensor = file.tensors.get(theirs[name])
        if tensor is None:
            if layout.is_ours or not name.endswith(".num_batches_tracked"):
                faults["missing"].append(theirs[name])
        elif fault := _find_fault(tensor, shape, own):
            word, detail = fault
            faults.setdefault(word, []).append(theirs[name] + detail)
        else:
            fitting[name] = tensor.reshape(own.shape)
    if problems := [f"{_count(names)} {fault} ({some(names)})" for fault, names in faults.items() if names]:
        bias = file.tensors.get(theirs[f"{net.class_layers[-1]}.bias"])
        classes = len(bias) if bias is not None and bias.dim() == 1 else net.spec.num_classes
        advice = f"; build the net with num_classes={classes}" if classes != net.spec.num_classes else ""
        raise UserError(f"{file.path} does not fit {net.spec.name}: {'; '.join(problems)}{advice}.")
    return fitting


def _find_fault(tensor: Tensor, shape: torch.Size, own: Tensor) -> tuple[str, str] | None:
    """Why a tensor of a file cannot replace our own: a word and a detail; None if it can."""
    if tensor.shape != shape:
        return "misshaped", f" is {_by(tensor.shape)} and not {_by(shape)}"
    if tensor.layout != torch.strided or tensor.is_meta:
        return "not stored in full", ""
    if tensor.dtype != own.dtype and not (tensor.is_floating_point() and own.is_floating_point()):
        return "mistyped", f" is {_word(tensor.dtype)} and not {_word(own.dtype)}"
    dtype = tensor.dtype if own.is_meta else own.dtype  # the values must also survive conversion to a narrow type
    if not torch.isfinite(tensor.to(dtype).double()).all():
        return f"not finite in {_word(dtype)}", ""
    return None


def _by(shape: torch.Size) -> str:
    return "x".join(map(str, shape)) or "one number"


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _count(names: list[str]) -> str:
    return f"{len(names)} tensor{'s' if len(names) > 1 else ''}"
