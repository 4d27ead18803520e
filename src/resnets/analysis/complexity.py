"""Parameters and multiply-adds, measured on the meta device: shapes travel, no number is computed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from resnets.chain import Chain, NetworkSpec
from resnets.errors import UserError, shown
from resnets.nn import ChainNet, Network
from resnets.nn.chain import Aux
from resnets.nn.network import ResNet, check_input
from resnets.nn.unit import Unit
from resnets.unit_spec import UnitSpec

Cost = tuple[int, int]  # parameters, multiply-adds


@dataclass(frozen=True)
class Stage:
    """One row of the papers' architecture table."""

    name: str
    output: tuple[int, int, int]  # channels, height, width
    units: int
    parameters: int
    multiply_adds: int


@dataclass(frozen=True)
class Complexity:
    input: tuple[int, int, int]
    parameters: int
    multiply_adds: int  # of convolutions and the linear layer, as the papers count
    stages: tuple[Stage, ...]


def complexity(net: Network | NetworkSpec, size: int | tuple[int, int] | None = None) -> Complexity:
    """Parameters and multiply-adds of one image of `size`, in all and for stem, stages and classifier.

    Of other systems the rows are the stages. Auxiliary heads count as parameters, and not as multiply-adds, which are
    those of testing.

    Units of one shape cost the same, so each shape is built and run once: 1001 layers take no longer than 20.

    >>> resnets.complexity(resnets.spec_of("preresnet20")).parameters
    269722
    """
    spec = net.spec if isinstance(net, Network) else net
    size = spec.input_size if size is None else size
    height, width = (size, size) if isinstance(size, int) else size
    if isinstance(spec, Chain):
        return _count_rows(spec, height, width)
    units = iter(spec.units())
    with torch.device("meta"), torch.no_grad():
        ends = ResNet(dataclasses.replace(spec, blocks=(1,) * len(spec.blocks))).eval()
        x = check_input(spec, torch.empty(1, spec.in_channels, height, width))
        x, cost = _run(ends.stem, x)
        rows = [_stage("stem", x, 0, [cost])]
        measured: dict[tuple[UnitSpec, torch.Size], tuple[Tensor, Cost]] = {}
        for i, count in enumerate(spec.blocks, 1):
            costs = []
            for unit in islice(units, count):
                key = unit, x.shape
                if key not in measured:
                    measured[key] = _run(Unit(unit), x)
                x, cost = measured[key]
                costs.append(cost)
            rows.append(_stage(f"stage {i}", x, count, costs))
        x, cost = _run(nn.Sequential(ends.last, nn.AdaptiveAvgPool2d(1), nn.Flatten(), ends.classifier), x)
        rows.append(_stage("head", x[:, :, None, None], 0, [cost]))
    return Complexity(
        (spec.in_channels, height, width),
        sum(row.parameters for row in rows),
        sum(row.multiply_adds for row in rows),
        tuple(rows),
    )


def _count_rows(spec: Chain, height: int, width: int) -> Complexity:
    rows = []
    with torch.device("meta"), torch.no_grad():
        net = ChainNet(spec).eval()
        x = check_input(spec, torch.empty(1, spec.in_channels, height, width))
        for name, row in net.rows.named_children():
            tested = nn.Sequential(*(layer for layer in row.children() if not isinstance(layer, Aux)))
            x, (_, counted) = _run(tested, x)
            rows.append(_stage(name, x, 0, [(sum(p.numel() for p in row.parameters()), counted)]))
    return Complexity(
        (spec.in_channels, height, width),
        sum(row.parameters for row in rows),
        sum(row.multiply_adds for row in rows),
        tuple(rows),
    )


def _run(part: nn.Module, x: Tensor) -> tuple[Tensor, Cost]:
    """What comes out of a part, its parameters, and the multiply-adds of its convolutions and linear layers."""
    counted = 0

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal counted
        filters = module.get_parameter("weight")
        counted += output.numel() * filters[0].numel()  # each number that comes out is a product with one filter

    hooks = [m.register_forward_hook(count) for m in part.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    try:
        out = part(x)
    except (RuntimeError, NotImplementedError) as error:
        if not (isinstance(part, Unit) and part.spec.shortcut.is_custom):
            raise
        kind = part.spec.shortcut.kind
        raise UserError(f"the shortcut {kind} cannot be counted from shapes alone: {shown(str(error))}.") from error
    finally:
        for hook in hooks:
            hook.remove()
    return out, (sum(p.numel() for p in part.parameters()), counted)


def _stage(name: str, x: Tensor, units: int, costs: list[Cost]) -> Stage:
    channels, height, width = x.shape[1:]
    return Stage(name, (channels, height, width), units, sum(p for p, _ in costs), sum(m for _, m in costs))
