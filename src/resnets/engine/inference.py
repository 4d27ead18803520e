"""Inference engines: the same scores, computed in different ways."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from resnets.engine.allocator import keep_freed_memory
from resnets.engine.device import choose
from resnets.engine.frozen import freeze
from resnets.errors import UserError, one_of
from resnets.nn import Network, ResNet

ENGINES = {
    "auto": "frozen on a CPU for residual networks, else plain",
    "plain": "the network itself",
    "frozen": "BN folded, all layers in one call",
    "onnxruntime": "ONNX Runtime (the onnx extra)",
    "openvino": "OpenVINO (the openvino extra)",
}
_CPU_ONLY = ("onnxruntime", "openvino")


class Runner:
    """A function from images on `device` to class scores."""

    def __init__(self, scores: Callable[[Tensor], Tensor], engine: str, device: torch.device) -> None:
        self.scores, self.engine, self.device = scores, engine, device

    def __call__(self, x: Tensor) -> Tensor:
        return self.scores(x)


def choose_engine(engine: str, device: torch.device | str) -> str:
    """The engine that a word means on a device; `auto` never needs an optional package."""
    if engine not in ENGINES:
        raise one_of("engine", engine, ENGINES)
    kind = str(device).partition(":")[0]
    if engine in _CPU_ONLY and kind != "cpu":
        raise UserError(f"engine {engine!r} runs on the CPU here, not on {kind}; choose device cpu or engine plain.")
    if engine == "auto":
        return "frozen" if kind == "cpu" else "plain"
    return engine


def inference(net: Network, engine: str = "auto", device: torch.device | str = "cpu") -> Runner:
    """Make a runner of the network by an engine on a device; later changes of the network do not reach it."""
    if str(device) != "auto":
        choose_engine(engine, device)  # refuse a wrong engine before a wrong device
    keep_freed_memory()
    place = choose(device)
    named = choose_engine(engine, place)
    if named == "frozen" and not isinstance(net, ResNet):
        if engine == "frozen":
            raise UserError(
                f"engine frozen computes residual units, and {net.spec.name} has none; choose engine plain."
            )
        named = "plain"
    return Runner(_build(net, named, place), named, place)


def _build(net: Network, engine: str, device: torch.device) -> Callable[[Tensor], Tensor]:
    match engine:
        case "frozen":
            assert isinstance(net, ResNet)
            return freeze(net).to(device)
        case "onnxruntime":
            from resnets.engine.onnx import onnxruntime

            return onnxruntime(net)
        case "openvino":
            from resnets.engine.openvino import openvino

            return openvino(net)
    still = copy.deepcopy(net).to(device).eval()
    return torch.no_grad()(still.forward)
