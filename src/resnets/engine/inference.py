"""The engines that test a network: the same scores, by different means."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from resnets.engine.frozen import freeze
from resnets.errors import UserError, one_of
from resnets.nn import ResNet

ENGINES = {
    "auto": "frozen on a CPU, plain elsewhere",
    "plain": "the network itself",
    "frozen": "BN folded, fewer passes over memory",
    "onnxruntime": "ONNX Runtime (the onnx extra)",
    "openvino": "OpenVINO (the openvino extra)",
}
_CPU_ONLY = ("onnxruntime", "openvino")


def chosen(engine: str, device: torch.device | str) -> str:
    """The engine that a word means on a device; `auto` never needs an optional package."""
    if engine not in ENGINES:
        raise one_of("engine", engine, ENGINES)
    kind = torch.device(device).type
    if engine in _CPU_ONLY and kind != "cpu":
        raise UserError(f"engine {engine!r} runs on the CPU here, not on {kind}; choose device cpu or engine plain.")
    if engine == "auto":
        return "frozen" if kind == "cpu" else "plain"
    return engine


def inference(net: ResNet, engine: str = "auto", device: torch.device | str = "cpu") -> Callable[[Tensor], Tensor]:
    """A function from images on `device` to the class scores of the network as it is now, in testing.

    The network is left as it is, and what becomes of it later changes nothing.
    """
    match chosen(engine, device):
        case "frozen":
            return freeze(net).to(device)
        case "onnxruntime":
            from resnets.engine.onnx import onnxruntime

            return onnxruntime(net)
        case "openvino":
            from resnets.engine.openvino import openvino

            return openvino(net)
    still = copy.deepcopy(net).to(device).eval()
    return torch.no_grad()(still.forward)
