"""Write a network in eval mode as an ONNX graph, frozen or not, and run it by ONNX Runtime.

The graph is written step by step rather than traced: a thousand layers take no longer than their weights, and
batch and image size stay open.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from resnets.engine.chain_onnx import ChainGraph
from resnets.engine.frozen import Conv, FrozenUnit, ScaleShift, freeze
from resnets.errors import UserError
from resnets.nn import ChainNet, Network, ResNet, ShortcutModule, Unit, shortcuts
from resnets.nn.chain import UnevenConv
from resnets.nn.network import check_input
from resnets.nn.structure import SET_BY_USERS, find_change

_OPSET, _IR = 17, 8  # old enough for all readers of recent years
_END = 2**31 - 1
EXPORTING, _ENGINE = "exporting to ONNX", "the engine onnxruntime"  # what may need a package


def need(module: str, extra: str, purpose: str = EXPORTING) -> Any:
    """An optional dependency, imported; `purpose` is what needs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(f"{purpose} needs {module}; install it with pip install 'resnets[{extra}]'.") from None


class Graph(ChainGraph):
    """The nodes and weights of an ONNX graph; each method adds nodes and returns the name of their result."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, values: Tensor | float | list[int]) -> str:
        tensor = torch.as_tensor(values)
        array = (tensor.float() if tensor.is_floating_point() else tensor).cpu().contiguous().numpy()
        name = f"weight_{len(self.weights)}"
        self.weights.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def steps(self, modules: nn.Module, x: str) -> str:
        for module in modules.children():
            x = self.step(module, x)
        return x

    def step(self, module: nn.Module, x: str) -> str:  # noqa: PLR0911, a row for each kind
        match module:
            case nn.Sequential():
                return self.steps(module, x)
            case nn.Identity():
                return x
            case FrozenUnit():
                return self.frozen_unit(module, x)
            case Unit():
                return self.unit(module, x)
            case Conv() | nn.Conv2d():
                return self.conv(module, x)
            case nn.BatchNorm2d():
                names = ("weight", "bias", "running_mean", "running_var")
                given = [self.constant(getattr(module, name)) for name in names]
                return self.add("BatchNormalization", x, *given, epsilon=module.eps)
            case ScaleShift():
                return self.scale_shift(module, x)
            case nn.ReLU():
                return self.add("Relu", x)
            case nn.MaxPool2d() | nn.AvgPool2d():
                return self.pool(module, x)
            case shortcuts.Pad():
                return self.pad(module, x)
        result = self.write_chain_layer(module, x)
        if result is not None:
            return result
        raise TypeError(f"no ONNX for {type(module).__name__}")

    def pool(self, pool: nn.MaxPool2d | nn.AvgPool2d, x: str) -> str:
        sizes = [_pair(value) for value in (pool.kernel_size, pool.stride, pool.padding)]
        how: dict[str, Any] = {"kernel_shape": sizes[0], "strides": sizes[1], "pads": sizes[2] * 2}
        how |= {"ceil_mode": 1} if pool.ceil_mode else {}
        if isinstance(pool, nn.MaxPool2d):
            return self.add("MaxPool", x, **how)
        return self.add("AveragePool", x, **how, count_include_pad=int(pool.count_include_pad))

    def unit(self, unit: Unit, x: str) -> str:
        x = self.steps(unit.shared, x)
        h, r = self.step(unit.resize, x), self.steps(unit.residual, x)
        return self.steps(unit.after, self.shortcut(unit.shortcut, h, r))

    def frozen_unit(self, unit: FrozenUnit, x: str) -> str:
        x = self.steps(unit.shared, x)
        h, r = self.steps(unit.resize, x), self.steps(unit.residual, x)
        if unit.adds:
            assert isinstance(unit.last, Conv)
            return self.steps(unit.after, self.conv(unit.last, r, plus=h))
        return self.steps(unit.after, self.shortcut(unit.shortcut, h, self.step(unit.last, r)))

    def conv(self, conv: Conv | nn.Conv2d, x: str, plus: str | None = None) -> str:
        weights = [self.constant(t) for t in (conv.weight, conv.bias) if t is not None]
        pads = conv.pads[::2] + conv.pads[1::2] if isinstance(conv, UnevenConv) else [*map(int, conv.padding)] * 2
        y = self.add("Conv", x, *weights, strides=list(conv.stride), pads=pads)
        y = y if plus is None else self.add("Add", plus, y)
        return self.add("Relu", y) if isinstance(conv, Conv) and conv.relu else y

    def scale_shift(self, module: ScaleShift, x: str) -> str:
        """A BN of mean 0 and variance 1: runtimes keep it in their own memory layout."""
        scale, shift = module.scale.flatten(), module.shift.flatten()
        given = (scale, shift, torch.zeros_like(scale), torch.ones_like(scale))
        y = self.add("BatchNormalization", x, *map(self.constant, given), epsilon=0.0)
        return self.add("Relu", y) if module.relu else y

    def pad(self, pad: shortcuts.Pad, x: str) -> str:
        stride = [pad.stride] * 2
        if pad.stride > 1 and pad.pool:
            x = self.add("AveragePool", x, kernel_shape=stride, strides=stride, ceil_mode=1, count_include_pad=0)
        elif pad.stride > 1:
            x = self.add("Slice", x, *map(self.constant, ([0, 0], [_END, _END], [2, 3], stride)))
        front, back = pad.zeros[4:]
        return self.add("Pad", x, self.constant([0, front, 0, 0, 0, back, 0, 0]))

    def times(self, a: float | str, b: str) -> str:
        return self.add("Mul", a if isinstance(a, str) else self.constant(float(a)), b)

    def shortcut(self, shortcut: nn.Module, x: str, r: str) -> str:
        result = shortcut.onnx(self, x, r) if isinstance(shortcut, ShortcutModule) else None
        if result is None:
            raise UserError(
                f"the shortcut {type(shortcut).__name__} has no ONNX form: give its module a method onnx(self, graph, "
                "x, r), or export with --format torch-export or by torch.onnx.export."
            )
        return result

    def head(self, classifier: nn.Linear, x: str) -> str:
        pooled = self.add("Flatten", self.add("GlobalAveragePool", x))
        weights = self.constant(classifier.weight), self.constant(classifier.bias)
        return self.add("Gemm", pooled, *weights, output="scores", transB=1)


def _pair(value: int | tuple[int, ...]) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


def export(
    net: Network,
    *,
    folded: bool = True,
    about: Mapping[str, str] | None = None,
    extra: str = "onnx",
    purpose: str = EXPORTING,
) -> bytes:
    """The network in testing as an ONNX model: `images` (N, C, H, W) to class `scores` (N, classes), in float32.

    `folded` puts BN into the convolutions, `about` goes into the model's metadata; the error for a missing onnx package
    names `extra` and `purpose`.
    """
    if change := find_change(net, hooks=True, ignore=SET_BY_USERS):
        raise UserError(
            f"only the {net.spec.name} that net.spec describes can be written as ONNX, and this net was changed "
            f"({change.sentence}); torch.onnx.export can trace it."
        )
    graph, spec = Graph(need("onnx", extra, purpose)), net.spec
    sides: list[str | int] = ["height", "width"]
    with torch.no_grad():
        x = "images"
        if isinstance(net, ChainNet):
            sides = sides if net.spec.open_size else [net.spec.input_size] * 2
            scores = graph.chain(net, x)
        else:
            assert isinstance(net, ResNet)
            frozen = freeze(net) if folded else net
            for part in (frozen.stem, frozen.units, frozen.last):
                x = graph.steps(part, x)
            scores = graph.head(frozen.classifier, x)
    make = graph.onnx.helper
    real = graph.onnx.TensorProto.FLOAT
    images = make.make_tensor_value_info("images", real, ["batch", spec.in_channels, *sides])
    result = make.make_tensor_value_info(scores, real, ["batch", spec.num_classes])
    return write_model(graph, spec.name, [images], [result], about or {})


def write_model(graph: Graph, name: str, inputs: list[Any], outputs: list[Any], about: Mapping[str, str]) -> bytes:
    make = graph.onnx.helper
    body = make.make_graph(graph.nodes, name, inputs, outputs, graph.weights)
    model = make.make_model(
        body, opset_imports=[make.make_opsetid("", _OPSET)], ir_version=_IR, producer_name="resnets"
    )
    graph.onnx.helper.set_model_props(model, dict(about))
    return model.SerializeToString()


def onnxruntime(net: Network) -> Callable[[Tensor], Tensor]:
    """The network's scores by ONNX Runtime, on as many threads as PyTorch has."""
    runtime, spec = need("onnxruntime", "onnx", _ENGINE), net.spec
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(export(net, purpose=_ENGINE), options, providers=["CPUExecutionProvider"])

    def scores(x: Tensor) -> Tensor:
        given = check_input(spec, x).detach().float().contiguous().numpy()
        return torch.from_numpy(session.run(None, {"images": given})[0])

    return scores
