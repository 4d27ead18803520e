"""OpenVINO as an engine: it reads the same ONNX graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from resnets.engine.onnx import export, need
from resnets.nn import Network
from resnets.nn.network import check_input

_ENGINE = "the engine openvino"


def openvino(net: Network) -> Callable[[Tensor], Tensor]:
    """The network's scores by OpenVINO, in float32 on as many threads as PyTorch has."""
    core, spec = need("openvino", "openvino", _ENGINE).Core(), net.spec
    settings = {
        "PERFORMANCE_HINT": "LATENCY",  # all threads on one batch
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": "f32",  # or it takes bfloat16 where the CPU has it
    }
    model = core.compile_model(core.read_model(export(net, extra="openvino", purpose=_ENGINE), b""), "CPU", settings)

    def scores(x: Tensor) -> Tensor:
        given = check_input(spec, x).detach().float().contiguous().numpy()
        return torch.from_numpy(model([given])[0].copy())  # the next call writes where this one's result is

    return scores
