"""The network: stem, a flat sequence of units, head."""

from __future__ import annotations

import math
from typing import overload

import torch
from torch import Tensor, nn

from resnets.chain import Chain, require_residual
from resnets.errors import UserError
from resnets.nn import shortcuts
from resnets.nn.base import Network, check_input
from resnets.nn.chain import ChainNet, initialize_chain
from resnets.nn.unit import Unit, activation
from resnets.spec import Spec
from resnets.unit_spec import ORDERS

__all__ = ["ChainNet", "ResNet", "build", "check_input", "describe", "initialize", "renew_shortcuts", "require_units"]


class Stem(nn.Sequential):
    """3x3 for small images, 7x7/2 and 3x3/2 max pooling for large ones; BN, ReLU behind the convolution."""

    conv: nn.Conv2d

    def __init__(self, net: Spec) -> None:
        super().__init__()
        out = net.stem_channels
        large = net.stem == "imagenet"
        kernel, stride = (7, 2) if large else (3, 1)
        self.add_module("conv", nn.Conv2d(net.in_channels, out, kernel, stride, kernel // 2, bias=False))
        if net.stem_activation:
            self.add_module("act", activation(("bn", "relu"), out, net))
        if large:
            self.add_module("pool", nn.MaxPool2d(3, 2, 1))


class ResNet(Network):
    """A network of the papers, as its spec says.

    `units` is flat, so that its index is the papers' l. In pre-activation nets the activation that the
    first unit would have applied stands in the stem, and the one that a next unit would have applied
    closes the net (`last`).

    >>> import torch
    >>> net = resnets.create("preresnet20", seed=0).eval()
    >>> net(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    >>> len(list(net.forward_units(torch.zeros(1, 3, 32, 32))))  # x_0 ... x_L
    10
    """

    spec: Spec

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.stem = Stem(spec)
        self.units = nn.Sequential(*map(Unit, spec.units()))
        channels = spec.widths[-1] * spec.expansion
        self.last = activation(ORDERS[spec.order].before, channels, spec)
        self.classifier = nn.Linear(channels, spec.num_classes)

    @property
    def stages(self) -> tuple[tuple[Unit, ...], ...]:
        """The units of each map size."""
        units = iter(self.units)
        return tuple(tuple(next(units) for _ in range(n)) for n in self.spec.blocks)  # type: ignore[misc]

    @property
    def original(self) -> ResNet:
        """The network itself; a prepared network answers with the one that it runs."""
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def forward_features(self, x: Tensor) -> Tensor:
        """The last map, as the pooling sees it."""
        return self.last(self.units(self.stem(check_input(self.spec, x))))

    def forward_head(self, x: Tensor) -> Tensor:
        """Class scores from the last map: global average pooling and the linear classifier."""
        return self.classifier(x.mean((2, 3)))

    def forward_units(self, x: Tensor) -> list[Tensor]:
        """x_0 (what the first unit reads) to x_L (what the last unit leaves)."""
        maps = [self.stem(check_input(self.spec, x))]
        for unit in self.units:
            maps.append(unit(maps[-1]))
        return maps

    def forward_stages(self, x: Tensor) -> list[Tensor]:
        """What the last unit of each stage leaves, from the largest map to the smallest.

        In a pre-activation network these are sums, to which `net.last` has not been applied.

        >>> net = resnets.create("resnet50")
        >>> [tuple(map.shape[1:]) for map in net.forward_stages(torch.zeros(1, 3, 64, 64))]
        [(256, 16, 16), (512, 8, 8), (1024, 4, 4), (2048, 2, 2)]
        """
        x, maps = self.stem(check_input(self.spec, x)), []
        for stage in self.stages:
            for unit in stage:
                x = unit(x)
            maps.append(x)
        return maps


def initialize(net: ResNet, generator: torch.Generator | None = None) -> ResNet:
    """He's normal for convolutions (fan-out), 1 and 0 for BN, +-1/sqrt(fan_in) and 0 for the classifier.

    The modules of a user's own shortcut are built again, with their own initial weights.
    """
    renewed = set(renew_shortcuts(net, generator))
    with torch.no_grad():
        for module in net.modules():
            match module:
                case _ if module in renewed:
                    pass
                case nn.Conv2d():
                    fan_out = math.prod(module.kernel_size) * module.out_channels
                    module.weight.normal_(0, math.sqrt(2 / fan_out), generator=generator)
                    if isinstance(module, shortcuts.Gate) and module.bias is not None:
                        module.bias.fill_(module.initial_bias)
                case nn.BatchNorm2d():
                    module.reset_parameters()
                case nn.Linear():
                    bound = 1 / math.sqrt(module.in_features)
                    module.weight.uniform_(-bound, bound, generator=generator)
                    module.bias.zero_()
    return net


def renew_shortcuts(net: ResNet, generator: torch.Generator | None = None) -> list[nn.Module]:
    """Build users' own shortcuts again, since a net from the meta device has lost their initial values.

    One number of the generator decides all that a module draws. The modules that are new are returned.
    """
    renewed: list[nn.Module] = []
    like = net.classifier.weight
    for unit in net.units:
        if isinstance(unit, Unit) and unit.spec.shortcut.is_custom:
            seed = int(torch.randint(2**62, (), generator=generator))
            with torch.random.fork_rng(devices=()):
                torch.manual_seed(seed)
                fresh = shortcuts.make(unit.spec.shortcut, unit.spec.out)
            device = "cpu" if like.is_meta else like.device
            unit.shortcut = fresh.to(device, like.dtype).train(unit.training)
            renewed += unit.shortcut.modules()
    return renewed


@overload
def build(
    spec: Spec,
    *,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> ResNet: ...


@overload
def build(
    spec: Spec | Chain,
    *,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> ResNet | ChainNet: ...


def build(
    spec: Spec | Chain,
    *,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> ResNet | ChainNet:
    """The network of a description, initialised.

    The random numbers are drawn on the CPU in float32 whatever device and dtype the net ends on, so that
    one seed gives one net.
    """
    if seed is not None and generator is not None:
        raise UserError("give seed or generator, not both.")
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
    net = describe(spec)
    if device is not None and torch.device(device).type == "meta":
        return net.to(dtype=dtype) if dtype else net
    net = net.to_empty(device="cpu")
    made = initialize(net, generator) if isinstance(net, ResNet) else initialize_chain(net, generator)
    return made.to(device=device, dtype=dtype)


def describe(spec: Spec | Chain) -> ResNet | ChainNet:
    """The network on the meta device: no default initialisation, which would draw random numbers for nothing."""
    with torch.device("meta"):
        return ChainNet(spec) if isinstance(spec, Chain) else ResNet(spec)


def require_units(net: Network, what: str) -> ResNet:
    """The net itself, if it is made of residual units; `what` needs them."""
    require_residual(net.spec, what)
    assert isinstance(net, ResNet)
    return net
