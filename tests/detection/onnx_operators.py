"""Single operators of ONNX Runtime, as oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch import Tensor

_KINDS = {torch.float32: TensorProto.FLOAT, torch.int64: TensorProto.INT64}


def run(operator: str, *inputs: Tensor, **attributes: Any) -> Tensor:
    """The first result of an operator."""
    names = [f"input{i}" for i in range(len(inputs))]
    given = [
        helper.make_tensor_value_info(name, _KINDS[value.dtype], list(value.shape))
        for name, value in zip(names, inputs, strict=True)
    ]
    kind = TensorProto.INT64 if operator == "NonMaxSuppression" else TensorProto.FLOAT
    result = helper.make_tensor_value_info("result", kind, None)
    graph = helper.make_graph([helper.make_node(operator, names, ["result"], **attributes)], "one", given, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    arrays = {name: np.ascontiguousarray(value.numpy()) for name, value in zip(names, inputs, strict=True)}
    return torch.from_numpy(session.run(None, arrays)[0])
