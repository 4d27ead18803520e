"""Keras's ResNet-50 of 2015 in the form of TensorFlow.js: `model.json` with its shards of weights.

Its weights are those of the authors' Caffe net. It differs from ours in three things that are turned here without
changing what it computes: its convolutions have biases, which BN's running mean takes up; it reads BGR, so the first
kernel's channels are turned round; its kernels lie as (height, width, in, out). Its stride is on the first 1x1 and
its BN's epsilon is 1e-3, which a `Spec` can say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from resnets.chain import require_residual
from resnets.errors import UserError
from resnets.metadata import Metadata, Preprocessing
from resnets.nn import ResNet, build
from resnets.spec import Spec
from resnets.weights.classes import read_classes
from resnets.weights.files import some
from resnets.weights.tfjs import Array, read
from resnets.zoo import spec_of

CAFFE_MEAN = (123.68, 116.779, 103.939)  # of R, G, B in 0 to 255; the std is 1


@dataclass(frozen=True)
class Part:
    """A convolution of theirs with the BN behind it, and where both stand in our net."""

    conv: str
    bn: str
    our_conv: str
    our_bn: str
    kernel: int
    stride: int


def parts(spec: Spec) -> Iterator[Part]:
    """conv1, bn_conv1; res2a_branch2a, bn2a_branch2a ... res5c_branch2c, and branch1 for the projections."""
    yield Part("conv1", "bn_conv1", "stem.conv", "stem.act.bn", 7, 2)
    for unit in spec.units():
        name, place = f"{unit.stage + 2}{chr(ord('a') + unit.place)}_branch", f"units.{unit.index}"
        for k, (letter, conv) in enumerate(zip("abc", unit.convs, strict=True), 1):
            ours = (f"{place}.residual.conv{k}", f"{place}.residual.act{k}.bn")
            yield Part(f"res{name}2{letter}", f"bn{name}2{letter}", *ours, conv.kernel, conv.stride)
        if unit.projects:
            yield Part(f"res{name}1", f"bn{name}1", f"{place}.resize.conv", f"{place}.resize.bn", 1, unit.stride)


def load_keras(source: Path) -> tuple[ResNet, Metadata]:
    """The net of an npm package (`.tgz`), of its folder or of a `model.json`, with what is known about it."""
    stored = read(source)
    spec = _spec(stored.layers, stored.arrays, source)
    _require_same(stored.layers, spec, source)
    named = read_classes(stored.labels, spec.num_classes, "assets/labels.json") if stored.labels else ((), ())
    caffe = (tuple(m / 255 for m in CAFFE_MEAN), (1 / 255,) * 3)
    origin = {
        "source": f"Keras's ResNet-50 of 2015, from {source.name}",
        "sha256": stored.sha256,
        "turned": "conv biases into BN's running means, BGR into RGB",
    }
    about = Metadata(*named, Preprocessing.usual(spec, caffe), provenance=origin)
    return _fill(spec, stored.arrays, source), about


def _spec(layers: Mapping[str, Any], arrays: Mapping[str, Array], source: Path) -> Spec:
    """The same net as a spec: sizes from the tensors, BN's epsilon from the description."""
    try:
        blocks, widths = [], []
        for stage in "2345":
            first = (name[4] for name in arrays if name.startswith(f"res{stage}") and name.endswith("branch2a/kernel"))
            blocks.append(len(set(first)))
            widths.append(arrays[f"res{stage}a_branch2a/kernel"].shape[-1])
        eps = layers["bn_conv1"]["epsilon"]
        classes = arrays["fc1000/bias"].shape[0]
    except (KeyError, TypeError, IndexError) as error:
        raise UserError(f"{source} holds another net than Keras's ResNet-50 of 2015: it has no {error}.") from error
    spec = spec_of("resnet50", blocks=blocks, widths=widths, num_classes=classes, bn_eps=eps, stride_on="1x1")
    return require_residual(spec, "Keras's ResNet-50 has")


def _require_same(layers: Mapping[str, Any], spec: Spec, source: Path) -> None:
    """Refuse a net of the same names that computes something else."""
    wrong = []
    for part in parts(spec):
        conv, bn = (layers.get(name, {}) for name in (part.conv, part.bn))
        same = conv.get("kernel_size") == [part.kernel] * 2 and conv.get("strides") == [part.stride] * 2
        if not same or bn.get("epsilon") != spec.bn_eps:
            wrong.append(part.conv)
    if wrong:
        raise UserError(f"{source} holds another net than Keras's ResNet-50 of 2015: it differs in {some(wrong)}.")


def _fill(spec: Spec, arrays: Mapping[str, Array], source: Path) -> ResNet:
    net = build(spec, device="meta")
    state: dict[str, Tensor] = {}
    used: set[str] = set()

    def take(name: str, dimensions: int = 1) -> npt.NDArray[np.float64]:
        if name not in arrays:
            raise UserError(f"{source} lacks the tensor {name}.")
        if arrays[name].ndim != dimensions:
            raise UserError(f"{source}: {name} has {arrays[name].ndim} dimensions and not {dimensions}.")
        used.add(name)
        return arrays[name].astype(np.float64)

    for part in parts(spec):
        kernel = take(f"{part.conv}/kernel", 4).transpose(3, 2, 0, 1)
        if part.conv == "conv1":
            kernel = kernel[:, ::-1]  # BGR
        state[f"{part.our_conv}.weight"] = _tensor(kernel)
        bn = {ours: take(f"{part.bn}/{theirs}") for ours, theirs in _BN.items()}
        bias = take(f"{part.conv}/bias")
        if bias.shape != bn["running_mean"].shape:
            raise UserError(f"{source}: {part.conv} and {part.bn} have different sizes.")
        bn["running_mean"] -= bias
        state |= {f"{part.our_bn}.{leaf}": _tensor(values) for leaf, values in bn.items()}
        state[f"{part.our_bn}.num_batches_tracked"] = torch.tensor(0)
    state["classifier.weight"] = _tensor(take("fc1000/kernel", 2).T)
    state["classifier.bias"] = _tensor(take("fc1000/bias"))
    if left := [name for name in arrays if name not in used]:
        raise UserError(f"{source} holds {len(left)} tensors that ResNet-50 has no place for ({some(left)}).")
    if wrong := [name for name, own in net.state_dict().items() if state[name].shape != own.shape]:
        raise UserError(f"{source} holds tensors that do not fit ResNet-50 ({some(wrong)}).")
    if wrong := [name for name, tensor in state.items() if not torch.isfinite(tensor).all()]:
        raise UserError(f"{source} holds numbers that are not finite ({some(wrong)}).")
    net.load_state_dict(state, assign=True)
    return net


_BN = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


def _tensor(values: npt.NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))
