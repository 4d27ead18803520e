"""Networks that somebody has edited must compute what PyTorch computes, in every engine, or be refused."""

from __future__ import annotations

import importlib.util
import random
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune

import resnets
from resnets.engine import MODES, freeze, prepare
from resnets.engine.onnx import export, need
from resnets.errors import UserError
from resnets.nn import ResNet, Unit
from resnets.unit_spec import ORDERS, parse_shortcut
from tools.torture.promises import BrokenPromiseError

# --- networks ---------------------------------------------------------------------------------

SHORTCUTS = ("identity", "identity", "identity", "scale:0.7:-1.2", "exclusive_gate:-1", "conv1x1")


def random_net(draw: random.Random) -> ResNet:
    """A small network in training mode, with weights and statistics as training leaves them."""
    options: dict[str, Any] = {
        "order": draw.choice(list(ORDERS)),
        "widths": draw.choice(((4, 6, 8), (8, 16, 24), (16, 16))),
        "blocks": draw.choice((1, 2)),
        "kernels": draw.choice(("basic", "basic", "bottleneck")),
        "shortcut": parse_shortcut(draw.choice(SHORTCUTS)),
        "resize": draw.choice(("pad", "project")),
    }
    net = resnets.create("resnet20", seed=draw.randrange(100), **options)
    generator = torch.Generator().manual_seed(draw.randrange(10**6))
    for name, tensor in net.named_parameters():
        if tensor.dim() == 1:
            tensor.data.normal_(0.5 if name.endswith("weight") else 0, 0.5, generator=generator)
    net.train()
    with torch.no_grad():
        for _ in range(2):
            net(torch.randn(8, 3, 20, 16, generator=generator))
    return net


# --- edits ------------------------------------------------------------------------------------


class Doubled(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Shifted(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0.5


class Halved(Unit):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * super().forward(x)


class Squared(nn.Module):
    """Any function that the package does not know."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * x * x


class Scaled(nn.Module):
    """As a parametrization."""

    def forward(self, x: Tensor) -> Tensor:
        return 1.5 * x


Edit = Callable[[ResNet, random.Random], "str | None"]  # what was done, or None where it cannot be


def of_kind(net: nn.Module, kind: type[nn.Module] | tuple[type[nn.Module], ...]) -> list[tuple[str, nn.Module, str]]:
    """Every module of a kind: its name, what holds it, and under which word."""
    found = []
    for name, module in net.named_modules():
        for word, child in module.named_children():
            if isinstance(child, kind):
                found.append((f"{name}.{word}".lstrip("."), module, word))
    return found


def replace(
    kind: type[nn.Module] | tuple[type[nn.Module], ...], make: Callable[[Any, random.Random], nn.Module | None]
) -> Edit:
    """An edit that puts something else in the place of a module of a kind."""

    def edit(net: ResNet, draw: random.Random) -> str | None:
        places = of_kind(net, kind)
        if not places:
            return None
        name, holder, word = draw.choice(places)
        made = make(getattr(holder, word), draw)
        if made is None:
            return None
        setattr(holder, word, made)
        return f"{name} is {type(made).__name__}"

    return edit


def change(kind: type[nn.Module], do: Callable[[Any, random.Random], str | None]) -> Edit:
    """An edit that changes a module of a kind where it stands."""

    def edit(net: ResNet, draw: random.Random) -> str | None:
        places = of_kind(net, kind)
        if not places:
            return None
        name, holder, word = draw.choice(places)
        done = do(getattr(holder, word), draw)
        return f"{name}: {done}" if done else None

    return edit


def like_conv(conv: nn.Conv2d, kind: type[nn.Conv2d] = nn.Conv2d, **changes: Any) -> nn.Conv2d:
    """A convolution with the weights of another, and some settings changed."""
    given: dict[str, Any] = {
        "stride": conv.stride, "padding": conv.padding, "dilation": conv.dilation, "groups": conv.groups,
        "bias": conv.bias is not None, "padding_mode": conv.padding_mode,
    }  # fmt: skip
    made = kind(conv.in_channels, conv.out_channels, conv.kernel_size, **{**given, **changes})  # type: ignore[arg-type]
    with torch.no_grad():
        if made.weight.shape == conv.weight.shape:
            made.weight.copy_(conv.weight)
    return made


def dilated(conv: nn.Conv2d, draw: random.Random) -> nn.Module | None:
    if conv.kernel_size != (3, 3):
        return None
    return like_conv(conv, dilation=2, padding=2)


def grouped(conv: nn.Conv2d, draw: random.Random) -> nn.Module | None:
    if conv.in_channels % 2 or conv.out_channels % 2:
        return None
    return like_conv(conv, groups=2)


def subclassed(conv: nn.Conv2d, draw: random.Random) -> nn.Module:
    return like_conv(conv, Doubled)


def with_bias(conv: nn.Conv2d, draw: random.Random) -> str | None:
    if conv.bias is not None:
        return None
    conv.bias = nn.Parameter(torch.randn(conv.out_channels))
    return "a bias"


def another_norm(bn: nn.BatchNorm2d, draw: random.Random) -> nn.Module:
    channels = bn.num_features
    return draw.choice((
        nn.GroupNorm(2 if channels % 2 == 0 else 1, channels),
        nn.SyncBatchNorm(channels),
        nn.InstanceNorm2d(channels, affine=True),
        nn.BatchNorm2d(channels, affine=False),
        nn.BatchNorm2d(channels, track_running_stats=False),
        nn.Identity(),
        Shifted(channels),
    ))  # fmt: skip


def other_settings(bn: nn.BatchNorm2d, draw: random.Random) -> str:
    match draw.randrange(5):
        case 0:
            bn.eps = 0.1
            return "eps 0.1"
        case 1:
            bn.momentum = 0.7
            return "momentum 0.7"
        case 2:
            bn.momentum = None
            return "momentum None"
        case 3:
            bn.eval()
            return "in eval mode"
        case _:
            bn.weight.requires_grad_(False)
            bn.bias.requires_grad_(False)
            return "frozen"


def another_activation(relu: nn.Module, draw: random.Random) -> nn.Module:
    kinds = (nn.GELU(), nn.LeakyReLU(0.3), nn.ReLU(inplace=True), nn.SiLU(), nn.PReLU(), nn.ReLU6(), Squared())
    return draw.choice(kinds)


def hooked(module: nn.Module, draw: random.Random) -> str:
    match draw.randrange(4):
        case 0:
            module.register_forward_hook(lambda module, given, out: out * 1.1)
            return "a forward hook"
        case 1:
            module.register_forward_pre_hook(lambda module, given: (given[0] * 1.1, *given[1:]))
            return "a forward pre-hook"
        case 2:
            module.register_full_backward_hook(
                lambda module, into, out: tuple(g if g is None else 1.1 * g for g in into)
            )
            return "a backward hook"
        case _:
            module.register_full_backward_pre_hook(lambda module, out: tuple(1.1 * g for g in out))
            return "a backward pre-hook"


def parametrized(conv: nn.Conv2d, draw: random.Random) -> str | None:
    if "weight" not in conv._parameters:
        return None
    match draw.randrange(3):
        case 0:
            parametrizations.weight_norm(conv)
            return "weight_norm"
        case 1:
            nn.utils.parametrize.register_parametrization(conv, "weight", Scaled())
            return "a parametrization"
        case _:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nn.utils.weight_norm(conv)  # type: ignore[no-untyped-call]
            return "the older weight_norm"


def pruned(conv: nn.Conv2d, draw: random.Random) -> str | None:
    if "weight" not in conv._parameters:
        return None
    prune.random_unstructured(conv, "weight", 0.5)  # type: ignore[no-untyped-call]
    return "pruned"


def patched(module: nn.Module, draw: random.Random) -> str:
    """Another forward for one object alone. A deep copy takes a bound method along to the copy."""

    def forward(self: nn.Module, *given: Tensor) -> Tensor:
        return 1.1 * type(self).forward(self, *given)

    module.forward = types.MethodType(forward, module)  # type: ignore[method-assign]
    return "its forward is replaced"


def appended(net: ResNet, draw: random.Random) -> str:
    where, sequence = draw.choice((
        ("stem", net.stem), ("units", net.units), ("last", net.last), ("F", draw.choice(list(net.units)).residual),
    ))  # fmt: skip
    made = draw.choice((Squared(), nn.Dropout(0.0), nn.Tanh()))
    sequence.append(made)  # type: ignore[operator, union-attr]
    return f"{type(made).__name__} behind {where}"


def subclassed_unit(net: ResNet, draw: random.Random) -> str:
    unit = draw.choice(list(net.units))
    unit.__class__ = Halved
    return "a unit is Halved"


def frozen_part(net: ResNet, draw: random.Random) -> str:
    name, tensor = draw.choice(list(net.named_parameters()))
    tensor.requires_grad_(False)
    return f"{name} is frozen"


def shared(net: ResNet, draw: random.Random) -> str | None:
    """One unit twice, or one convolution in two units."""
    units = list(net.units)
    pairs = [
        (a, b) for a in units for b in units
        if a is not b and [p.shape for p in a.parameters()] == [p.shape for p in b.parameters()]
    ]  # fmt: skip
    if not pairs:
        return None
    one, other = draw.choice(pairs)
    if draw.random() < 0.5:
        other.residual = one.residual
        return "two units share F"
    conv = of_kind(one.residual, nn.Conv2d)[0][2]  # type: ignore[arg-type]
    setattr(other.residual, conv, getattr(one.residual, conv))
    return "two units share a convolution"


def another_dtype(layer: nn.Module, draw: random.Random) -> str:
    """A layer that computes in other numbers, and casts what it reads and what it leaves."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        return type(self).forward(self, x.to(next(self.parameters()).dtype)).to(x.dtype)

    kind = draw.choice((torch.float64, torch.bfloat16))
    layer.to(kind).forward = types.MethodType(forward, layer)  # type: ignore[method-assign]
    return str(kind)


def another_head(net: ResNet, draw: random.Random) -> str | None:
    if not isinstance(net.classifier, nn.Linear):
        return None
    features = net.classifier.in_features
    if draw.random() < 0.5:
        net.classifier = nn.Linear(features, 10, bias=False)
        return "a classifier without bias"
    net.classifier = nn.Sequential(nn.Linear(features, 7), nn.Tanh(), nn.Linear(7, 10))  # type: ignore[assignment]
    return "a classifier of two layers"


EDITS: dict[str, Edit] = {
    "appended module": appended,
    "another activation": replace(nn.ReLU, another_activation),
    "dilation": replace(nn.Conv2d, dilated),
    "groups": replace(nn.Conv2d, grouped),
    "padding mode": replace(nn.Conv2d, lambda conv, draw: like_conv(conv, padding_mode="reflect")),
    "subclass of a convolution": replace(nn.Conv2d, subclassed),
    "bias": change(nn.Conv2d, with_bias),
    "another norm": replace(nn.BatchNorm2d, another_norm),
    "settings of BN": change(nn.BatchNorm2d, other_settings),
    "subclass of a unit": subclassed_unit,
    "hooks on a layer": change(nn.Conv2d, hooked),
    "hooks on BN": change(nn.BatchNorm2d, hooked),
    "hooks on a unit": change(Unit, hooked),
    "hooks on a sequence": change(nn.Sequential, hooked),
    "parametrization": change(nn.Conv2d, parametrized),
    "pruned": change(nn.Conv2d, pruned),
    "patched layer": change(nn.Conv2d, patched),
    "patched BN": change(nn.BatchNorm2d, patched),
    "patched unit": change(Unit, patched),
    "frozen parameter": frozen_part,
    "shared modules": shared,
    "another dtype": change(nn.Conv2d, another_dtype),
    "another dtype of BN": change(nn.BatchNorm2d, another_dtype),
    "another head": another_head,
}


def random_edit(net: ResNet, draw: random.Random) -> str:
    """Edit the network in place, and say what was done."""
    while True:
        name = draw.choice(sorted(EDITS))
        done = EDITS[name](net, draw)
        if done is not None:
            return f"{name}: {done}"


# --- comparison -------------------------------------------------------------------------------


def batch(net: ResNet, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    x = torch.randn(6, net.spec.in_channels, 20, 16, generator=torch.Generator().manual_seed(2))
    return x.to(dtype), torch.arange(6) % net.spec.num_classes


def gradients(model: nn.Module, net: ResNet, dtype: torch.dtype = torch.float32) -> list[Tensor | None]:
    """The loss, the scores, and the gradients of the images and of all parameters."""
    x, y = batch(net, dtype)
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
            return net, "; ".join(random_edit(net, again) for _ in range(count))

        self.compare(build, way)

    def compare(self, build: Callable[[], tuple[ResNet, str]], way: str) -> None:
        net, done = build()
        try:
            true = gradients(*[build()[0].double()] * 2, torch.float64)
            theirs = errors(gradients(net, net), true)
        except Exception:
            return  # PyTorch itself refuses such a network
        try:
            if way in MODES:
                self._training(build()[0], net, true, theirs, mode=way, what=kinds(done))
            else:
                self._testing(net.eval(), build()[0].eval(), build()[0].double().eval(), way, kinds(done))
        except UserError:
            return  # refused in a sentence

    def _training(
        self, net: ResNet, plain: ResNet, true: list[Tensor | None], theirs: list[float], *, mode: str, what: str
    ) -> None:
        """`plain` has made the same step by PyTorch."""
        found = gradients(self.engines(net, memory=mode), net)
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


def kinds(done: str) -> str:
    """The kinds of edits alone, so that equal faults are counted as one."""
    return " and ".join(sorted({part.partition(":")[0] for part in done.split("; ")}))


def by_onnx(net: ResNet, x: Tensor) -> Tensor:
    data = export(net, folded=False, about={})
    session = need("onnxruntime", "onnx").InferenceSession(data, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"images": x.numpy()})[0])
