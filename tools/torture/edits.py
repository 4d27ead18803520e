"""Edited networks must compute what PyTorch computes, in every engine, or be refused."""

from __future__ import annotations

import importlib.util
import random
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets.engine import MODES, freeze, prepare
from resnets.engine.onnx import export
from resnets.errors import UserError
from resnets.nn import ResNet, Unit
from tools.torture.net_edits import random_edit, random_net
from tools.torture.promises import BrokenPromiseError


class Squared(nn.Module):
    """Any function that the package does not know."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * x * x


Edit = Callable[[ResNet, random.Random], None]


def layers(net: nn.Module, kind: type[nn.Module]) -> list[tuple[nn.Module, str]]:
    """Every layer of a kind: the module that has it, and its name there."""
    return [
        (module, name) for module in net.modules() for name, child in module.named_children() if isinstance(child, kind)
    ]


def replace_norm(net: ResNet, draw: random.Random) -> None:
    module, name = draw.choice(layers(net, nn.BatchNorm2d))
    channels = getattr(module, name).num_features
    kinds = (
        nn.SyncBatchNorm(channels),
        nn.BatchNorm2d(channels, affine=False),
        nn.BatchNorm2d(channels, track_running_stats=False),
    )
    setattr(module, name, draw.choice(kinds))


def replace_activation(net: ResNet, draw: random.Random) -> None:
    module, name = draw.choice(layers(net, nn.ReLU))
    setattr(module, name, draw.choice((nn.ReLU(inplace=True), nn.SiLU(), nn.PReLU(), nn.ReLU6(), Squared())))


def add_old_weight_norm(net: ResNet, draw: random.Random) -> None:
    module, name = draw.choice(layers(net, nn.Conv2d))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.utils.weight_norm(getattr(module, name))  # type: ignore[no-untyped-call]


def bind_forward(net: ResNet, draw: random.Random) -> None:
    """Replace the forward of one object by a bound method, which a deep copy takes along to the copy."""
    module, name = draw.choice(layers(net, draw.choice((nn.Conv2d, nn.BatchNorm2d, Unit))))

    def forward(self: nn.Module, *given: Tensor) -> Tensor:
        return 1.1 * type(self).forward(self, *given)

    layer = getattr(module, name)
    layer.forward = types.MethodType(forward, layer)


def change_dtype(net: ResNet, draw: random.Random) -> None:
    """Let a layer compute in another dtype, and cast its input and output."""
    module, name = draw.choice(layers(net, draw.choice((nn.Conv2d, nn.BatchNorm2d))))

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        return type(self).forward(self, x.to(next(self.parameters()).dtype)).to(x.dtype)

    layer = getattr(module, name)
    layer.to(draw.choice((torch.float64, torch.bfloat16))).forward = types.MethodType(forward, layer)


def share_residual(net: ResNet, draw: random.Random) -> None:
    """Let a unit use the residual branch of another unit of the same shape, if there is one."""
    one = draw.choice(list(net.units))
    shapes = [p.shape for p in one.parameters()]
    for other in net.units:
        if other is not one and [p.shape for p in other.parameters()] == shapes:
            other.residual = one.residual


def append_to_residual(net: ResNet, draw: random.Random) -> None:
    made = draw.choice((Squared(), nn.Dropout(0.0), nn.Tanh()))
    draw.choice(list(net.units)).residual.append(made)  # type: ignore[operator]


def drop_head_bias(net: ResNet, draw: random.Random) -> None:
    if isinstance(net.classifier, nn.Linear):
        net.classifier = nn.Linear(net.classifier.in_features, net.spec.num_classes, bias=False)


MORE_EDITS: dict[str, Edit] = {  # those that `net_edits` does not have
    "another norm": replace_norm,
    "another activation": replace_activation,
    "older weight norm": add_old_weight_norm,
    "bound forward": bind_forward,
    "another dtype": change_dtype,
    "shared residual": share_residual,
    "appended module": append_to_residual,
    "classifier without bias": drop_head_bias,
}


def apply_edit(net: ResNet, draw: random.Random) -> str:
    """Edit the network in place, and return a name of the edit."""
    if draw.random() < 0.7:
        return random_edit(net, draw).partition(" in unit ")[0]
    name = draw.choice(sorted(MORE_EDITS))
    MORE_EDITS[name](net, draw)
    return name


# --- comparison -------------------------------------------------------------------------------


def batch(net: ResNet, dtype: torch.dtype, seed: int = 2) -> tuple[Tensor, Tensor]:
    x = torch.randn(6, net.spec.in_channels, 20, 16, generator=torch.Generator().manual_seed(seed))
    return x.to(dtype), torch.arange(6) % net.spec.num_classes


def gradients(model: nn.Module, net: ResNet, dtype: torch.dtype = torch.float32, seed: int = 2) -> list[Tensor | None]:
    """The loss, the scores, and the gradients of the images of a seed and of all parameters."""
    x, y = batch(net, dtype, seed)
    x.requires_grad_()
    net.zero_grad()
    torch.manual_seed(3)
    out = model(x)
    loss = functional.cross_entropy(out, y)
    loss.backward()
    return [loss.detach(), out.detach(), x.grad, *(p.grad for p in net.parameters())]


def error(found: Tensor, wanted: Tensor, least: float = 1e-6) -> float:
    """Relative to the size of what is wanted, or to `least` where that is smaller."""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm().clamp_min(least))


def errors(found: list[Tensor | None], true: list[Tensor | None]) -> list[float]:
    """One for each pair; a gradient that only one of them has is infinitely wrong.

    A gradient that is nothing but rounding, as that of a bias in front of BN, is measured by the largest of all.
    """
    pairs = zip(found, true, strict=True)
    least = 1e-3 * max(float(tensor.norm()) for tensor in true if tensor is not None)
    return [
        0.0 if a is b is None else error(a, b, least) if a is not None and b is not None else float("inf")
        for a, b in pairs
    ]


def close(ours: list[float], theirs: list[float], slack: float) -> bool:
    """As near to float64 as PyTorch in float32 is. A number next to 0 may fall on either side of a ReLU, so that the
    root of the mean of squares counts, as in tests/engine/test_native.py."""

    def spread(values: list[float]) -> float:
        return (sum(value * value for value in values) / len(values)) ** 0.5

    return spread(ours) <= 4 * spread(theirs) + slack


class Edits:
    """One network with one to three edits, in one engine."""

    engines = staticmethod(prepare)  # a test puts a wrong one here

    def __init__(self, folder: Path) -> None:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        self.ways = [*MODES, "freeze"] + ["onnx"] * all(map(importlib.util.find_spec, ("onnx", "onnxruntime")))
        for way in self.ways:
            self.compare(lambda: (random_net(random.Random(0)), "nothing"), way)

    def attack(self, draw: random.Random, folder: Path) -> None:
        warnings.simplefilter("ignore")
        count, way = draw.choice((1, 1, 1, 2, 3)), draw.choice(self.ways)
        numbers = draw.getstate()

        def build() -> tuple[ResNet, str]:
            """The same network with the same edits each time: not every edited network can be copied."""
            again = random.Random()
            again.setstate(numbers)
            torch.manual_seed(again.randrange(10**9))
            net = random_net(again)
            return net, " and ".join(sorted({apply_edit(net, again) for _ in range(count)}))

        self.compare(build, way)

    def compare(self, build: Callable[[], tuple[ResNet, str]], way: str) -> None:
        """Compare on a batch. A number next to 0 that falls on another side of a ReLU is no fault, but changes
        gradients by a thousandth; so what is wrong must be wrong on a second batch too."""
        try:
            self._compare(build, way, seed=2)
        except BrokenPromiseError:
            self._compare(build, way, seed=5)

    def _compare(self, build: Callable[[], tuple[ResNet, str]], way: str, seed: int) -> None:
        try:
            net, done = build()
            true = gradients(*[build()[0].double()] * 2, torch.float64, seed)
            theirs = errors(gradients(net, net, seed=seed), true)
        except Exception:
            return  # PyTorch itself refuses such an edit
        try:
            if way in MODES:
                self._training(build()[0], net, true, theirs, mode=way, what=done, seed=seed)
            else:
                self._testing(net.eval(), build()[0].eval(), build()[0].double().eval(), way, done)
        except UserError:
            return  # refused in a sentence

    def _training(
        self,
        net: ResNet,
        plain: ResNet,
        true: list[Tensor | None],
        theirs: list[float],
        *,
        mode: str,
        what: str,
        seed: int,
    ) -> None:
        """`plain` has made the same step by PyTorch."""
        found = gradients(self.engines(net, memory=mode), net, seed=seed)
        if not close(errors(found, true), theirs, 2e-5):
            raise BrokenPromiseError("wrong numbers", f"training in mode {mode}, {what}")
        for (key, ours), wanted in zip(net.state_dict().items(), plain.state_dict().values(), strict=True):
            if not torch.allclose(ours.double(), wanted.double(), rtol=1e-3, atol=1e-3, equal_nan=True):
                raise BrokenPromiseError("wrong numbers", f"{key.split('.')[-1]} in mode {mode}, {what}")

    def _testing(self, plain: ResNet, net: ResNet, double: ResNet, way: str, what: str) -> None:
        """`plain` was trained a step, so that the others take its parameters and statistics."""
        x = batch(net, torch.float32)[0]
        for other in (net, double):
            other.load_state_dict(plain.state_dict())
        with torch.no_grad():
            wanted, true = plain(x), double(x.double())
            found = freeze(net)(x) if way == "freeze" else by_onnx(net, x)
        if error(found, true) > 4 * error(wanted, true) + 1e-4:
            raise BrokenPromiseError("wrong numbers", f"{way}, {what}")


def by_onnx(net: ResNet, x: Tensor) -> Tensor:
    data = export(net, folded=False, about={})
    session = importlib.import_module("onnxruntime").InferenceSession(data, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"images": x.numpy()})[0])
