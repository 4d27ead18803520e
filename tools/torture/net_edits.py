"""Random networks, and random changes to them of every kind that a user may make with PyTorch."""

import random

import torch
from torch import nn
from torch.nn.utils import parametrize, prune

import resnets
from resnets.nn import ResNet, Unit
from resnets.unit_spec import KERNELS, ORDERS, Order, parse_shortcut


class SqueezeExcite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.linear = nn.Linear(channels, channels)

    def forward(self, x):
        return x * torch.sigmoid(self.linear(x.mean((2, 3))))[:, :, None, None]


class DoubledUnit(Unit):
    def forward(self, x):
        return 2 * super().forward(x)


class ShiftedConv(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) + 0.25


class WarmNorm(nn.BatchNorm2d):
    def forward(self, x):
        return super().forward(x) * 1.5


class HalvedShortcut(nn.Module):
    def forward(self, x, r):
        return 0.5 * x + r


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


def add_one(module, args, output):
    return output + 1


def clamp_input(module, args):
    return tuple(x.clamp(-1, 1) for x in args)


def scale_gradient(module, gradients, outputs):
    return tuple(None if g is None else 0.5 * g for g in gradients)


def scale_gradient_before(module, gradients):
    return tuple(None if g is None else 0.5 * g for g in gradients)


def swap(module, old, new):
    """Put `new` in the place of the first child `old` anywhere in a module."""
    for parent in module.modules():
        for name, child in parent.named_children():
            if child is old:
                setattr(parent, name, new)
                return


def pick(unit, kind, draw):
    return draw.choice([m for m in unit.modules() if isinstance(m, kind)])


def _replace_conv(unit, draw, **changes):
    old = pick(unit.residual, nn.Conv2d, draw)
    settings = {
        "kernel_size": old.kernel_size, "stride": old.stride, "padding": old.padding, "bias": False, **changes,
    }  # fmt: skip
    kind = settings.pop("kind", nn.Conv2d)
    new = kind(old.in_channels, old.out_channels, **settings)
    with torch.no_grad():
        new.weight.copy_(old.weight[:, : new.weight.shape[1]])
    swap(unit, old, new)


def _dilate(unit, draw):
    conv = draw.choice([m for m in unit.residual.modules() if isinstance(m, nn.Conv2d)])
    pad = conv.kernel_size[0] // 2
    conv.dilation, conv.padding = (2, 2), (2 * pad, 2 * pad)


def _replace(kind, make):
    def edit(unit, draw):
        old = pick(unit.residual, kind, draw)
        swap(unit, old, make(old))

    return edit


def _norm_in_subclass(old):
    new = WarmNorm(old.num_features)
    new.load_state_dict(old.state_dict())
    return new


def _set_norm(name, value):
    def edit(unit, draw):
        setattr(pick(unit, nn.BatchNorm2d, draw), name, value)

    return edit


def _patch_forward(unit, draw):
    layer = pick(unit.residual, (nn.Conv2d, nn.BatchNorm2d, nn.ReLU), draw)
    forward = layer.forward
    layer.forward = lambda x: forward(x) * 0.5


def _hook(register, function):
    def edit(unit, draw):
        module = draw.choice([unit, *unit.residual.modules()])
        getattr(module, register)(function)

    return edit


def _freeze_some(unit, draw):
    for parameter in unit.parameters():
        parameter.requires_grad_(draw.random() < 0.5)


def _share(unit, draw):
    norms = [m for m in unit.residual.modules() if isinstance(m, nn.BatchNorm2d)]
    first = draw.choice(norms)
    same = [m for m in norms if m.num_features == first.num_features and m is not first]
    if same:
        swap(unit, draw.choice(same), first)


UNIT_EDITS = {
    "squeeze-excite": lambda unit, draw: unit.residual.add_module("se", SqueezeExcite(_out_channels(unit))),
    "unit in a subclass": lambda unit, draw: setattr(unit, "__class__", DoubledUnit),
    "GELU": _replace(nn.ReLU, lambda old: nn.GELU()),
    "leaky ReLU": _replace(nn.ReLU, lambda old: nn.LeakyReLU(0.1)),
    "GroupNorm": _replace(nn.BatchNorm2d, lambda old: nn.GroupNorm(1, old.num_features)),
    "InstanceNorm": _replace(nn.BatchNorm2d, lambda old: nn.InstanceNorm2d(old.num_features, affine=True)),
    "norm in a subclass": _replace(nn.BatchNorm2d, _norm_in_subclass),
    "no norm": _replace(nn.BatchNorm2d, lambda old: nn.Identity()),
    "conv in a subclass": lambda unit, draw: _replace_conv(unit, draw, kind=ShiftedConv),
    "bias": lambda unit, draw: _replace_conv(unit, draw, bias=True),
    "groups": lambda unit, draw: _replace_conv(unit, draw, groups=2),
    "padding mode": lambda unit, draw: (
        setattr(pick(unit.residual, nn.Conv2d, draw), "padding_mode", "reflect") or _reset_padding(unit)
    ),
    "dilation": _dilate,
    "shortcut of its own": lambda unit, draw: setattr(unit, "shortcut", HalvedShortcut()),
    "residual replaced": lambda unit, draw: setattr(unit, "residual", nn.Sequential(*unit.residual.children())),
    "after replaced": lambda unit, draw: setattr(unit, "after", nn.Tanh()),
    "shared replaced": lambda unit, draw: setattr(unit, "shared", nn.Softplus()),
    "forward patched": _patch_forward,
    "unit's forward patched": lambda unit, draw: setattr(unit, "forward", lambda x: Unit.forward(unit, x) - 1),
    "forward hook": _hook("register_forward_hook", add_one),
    "forward pre-hook": _hook("register_forward_pre_hook", clamp_input),
    "backward hook": _hook("register_full_backward_hook", scale_gradient),
    "backward pre-hook": _hook("register_full_backward_pre_hook", scale_gradient_before),
    "parametrization": lambda unit, draw: parametrize.register_parametrization(
        pick(unit.residual, nn.Conv2d, draw), "weight", Doubled()
    ),
    "weight norm": lambda unit, draw: nn.utils.parametrizations.weight_norm(pick(unit.residual, nn.Conv2d, draw)),
    "pruned": lambda unit, draw: prune.random_unstructured(pick(unit.residual, nn.Conv2d, draw), "weight", amount=0.5),
    "eps": _set_norm("eps", 0.5),
    "momentum": _set_norm("momentum", 0.9),
    "cumulative average": _set_norm("momentum", None),
    "norm in testing": lambda unit, draw: pick(unit, nn.BatchNorm2d, draw).eval(),
    "frozen parameters": _freeze_some,
    "all frozen": lambda unit, draw: unit.requires_grad_(False),
    "shared norm": _share,
    "new parameter": lambda unit, draw: setattr(
        (norm := pick(unit, nn.BatchNorm2d, draw)), "bias", nn.Parameter(torch.randn(norm.num_features))
    ),
    "nothing": lambda unit, draw: None,
    "an attribute that nobody reads": lambda unit, draw: setattr(unit, "note", "mine"),
}


def _out_channels(unit):
    return [m for m in unit.residual.modules() if isinstance(m, nn.Conv2d)][-1].out_channels


def _reset_padding(unit):
    """PyTorch pads by what a convolution computed when it was made."""
    for conv in unit.residual.modules():
        if isinstance(conv, nn.Conv2d) and conv.padding_mode != "zeros":
            conv._reversed_padding_repeated_twice = [p for p in reversed(conv.padding) for _ in range(2)]


class OtherNet(ResNet):
    def forward(self, x):
        return super().forward(x) * 3


NET_EDITS = {
    "net in a subclass": lambda net, draw: setattr(net, "__class__", OtherNet),
    "head patched": lambda net, draw: setattr(net, "forward_head", lambda x: net.classifier(x.amax((2, 3)))),
    "hook on the net": lambda net, draw: net.register_forward_hook(add_one),
    "hook on the units": lambda net, draw: net.units.register_forward_hook(add_one),
    "hook on the stem": lambda net, draw: net.stem.register_forward_hook(add_one),
    "end replaced": lambda net, draw: setattr(net, "last", nn.Tanh()),
    "end frozen": lambda net, draw: net.last.eval(),
    "classifier replaced": lambda net, draw: setattr(
        net, "classifier", nn.Sequential(nn.Linear(net.classifier.in_features, 7), nn.Tanh(), nn.Linear(7, 10))
    ),
    "a unit left out": lambda net, draw: net.units.pop(-1) if net.spec.blocks[-1] > 1 else None,
    "a unit twice": lambda net, draw: net.units.append(net.units[-1]) if net.spec.blocks[-1] > 1 else None,
    "stem replaced": lambda net, draw: net.stem.append(nn.Tanh()),
}

OWN_ORDERS = {
    "relu then bn": Order(("relu", "bn"), (), (), "own"),
    "bn alone": Order(("bn",), (), (), "own"),
    "relu at the end of F": Order(("bn", "relu"), ("relu",), (), "own"),
    "relu then bn at the end of F": Order((), ("relu", "bn"), ("relu",), "own"),
    "all of it": Order(("bn", "relu"), ("bn",), ("relu",), "own"),
    "relu then bn behind": Order((), (), ("relu", "bn"), "own"),
}


def random_net(draw: random.Random) -> ResNet:
    """A small network of a random kind, in training, with BN weights of both signs."""
    own = draw.random() < 0.15
    order = draw.choice(list(OWN_ORDERS if own else ORDERS))
    if own:
        ORDERS[order] = OWN_ORDERS[order]
    try:
        kinds = ["identity"] * 4 + ["scale:0.7:-1.2", "exclusive_gate:-1", "shortcut_gate:-1", "conv1x1", "dropout:0.3"]
        net = resnets.create(
            "resnet20",
            blocks=draw.choice((1, 2, 3)),
            widths=draw.choice(((8, 8, 16), (8, 16, 24), (4, 6, 10))),
            order=order,
            kernels=draw.choice(list(KERNELS.values())),
            shortcut=parse_shortcut(draw.choice(kinds)),
            resize=draw.choice(("pad", "project")),
            stem_activation=draw.random() < 0.7 or not ORDERS[order].preactivated,
            seed=draw.randrange(2**31),
        )
    except BaseException:
        ORDERS.pop(order if own else "", None)
        raise
    numbers = torch.Generator().manual_seed(draw.randrange(2**31))
    for name, tensor in net.named_parameters():
        if tensor.dim() == 1:
            tensor.data.normal_(0.5 if name.endswith("weight") else 0, 0.5, generator=numbers)
    return net.train()


def random_edit(net: ResNet, draw: random.Random) -> str:
    """Change a network, and return a name of the change."""
    if draw.random() < 0.15:
        name = draw.choice(list(NET_EDITS))
        NET_EDITS[name](net, draw)
        return name
    name, place = draw.choice(list(UNIT_EDITS)), draw.randrange(len(net.units))
    try:
        UNIT_EDITS[name](net.units[place], draw)
    except IndexError:  # the unit has no such layer
        return "nothing"
    return f"{name} in unit {place}"
