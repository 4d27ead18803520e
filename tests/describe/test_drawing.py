"""A drawing never disagrees with the module: the same layers, and the same numbers when it is followed."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets import spec_of
from resnets.describe.drawing import Kind, Layer, Picture, draw, draw_kinds, kinds, picture
from resnets.describe.network import describe
from resnets.nn import Unit, build, shortcuts
from resnets.spec import RESIZES, SHARES, STRIDES, Spec
from resnets.unit_spec import KERNELS, ORDERS

GOLDEN = Path(__file__).parent.parent / "golden"

SHORTCUTS = (
    "identity",
    "scale:0.5:1",
    "scale:0.5:0.25",
    "scale:1:2",
    "exclusive_gate:-6",
    "shortcut_gate:-1.5",
    "conv1x1",
    "dropout:0.5",
    "dropout:0.3:true",
    "plain",
)


def specs() -> list[Spec]:
    """All orders, shortcuts and kernels, each with some of the switches that resize, share or stride."""
    switches = itertools.product(RESIZES, STRIDES, SHARES, (True, False))
    variants = itertools.product(ORDERS, SHORTCUTS, [*KERNELS.values(), (5, 3, 3), (1, 5)], switches)
    found = []
    for order, shortcut, kernels, (resize, stride_on, share, stem) in itertools.islice(variants, 0, None, 11):
        if shortcut == "plain" and order != "original":
            continue
        found.append(
            spec_of(
                "resnet20",
                order=order,
                shortcut=shortcut,
                kernels=kernels,
                resize=resize,
                stride_on=stride_on,
                share_activation=share,
                stem_activation=stem or not ORDERS[order].preactivated,
                widths=(4, 4, 9),  # a stage that only halves the map, and one that adds an odd number of channels
                blocks=2,
            )
        )
    return found


def names(part: nn.Module) -> list[str]:  # noqa: PLR0911, a table of modules
    """The layers of a part of a unit as a drawing names them, read off the modules alone."""
    match part:
        case shortcuts.Gate():
            return [f"1x1, {part.out_channels}", f"b_g = {part.initial_bias:g}", "sigmoid"]
        case nn.Conv2d():
            k = part.kernel_size[0]
            return [f"{k}x{k}, {part.out_channels}" + (f", /{part.stride[0]}" if part.stride[0] > 1 else "")]
        case nn.BatchNorm2d():
            return ["BN"]
        case nn.ReLU():
            return ["ReLU"]
        case shortcuts.Pad():
            *_, front, back = part.zeros
            smaller = [f"2x2 average, /{part.stride}" if part.pool else f"subsample, /{part.stride}"]
            zeros = [f"zero-pad both, {front + back}" if front else f"zero-pad, {back}"]
            return (smaller if part.stride > 1 else []) + (zeros if front + back else [])
        case shortcuts.Dropout():
            return [f"dropout {part.p:g}" + (" rescaled" if part.rescale else "")]
    return [name for child in part.children() for name in names(child)]


def factors(part: nn.Module) -> list[str]:
    match part:
        case shortcuts.Scale():
            return ["" if x == 1 else f"{x:g}" for x in (part.a, part.b)]
        case shortcuts.ExclusiveGate():
            return ["1 - g", "g"]
        case shortcuts.ShortcutGate():
            return ["1 - g", ""]
    return ["", ""]


def test_the_layers_drawn_are_those_of_the_module() -> None:
    seen = 0
    for spec in specs():
        with torch.device("meta"):
            for described in set(spec.units()):
                unit = Unit(described)
                gate = isinstance(unit.shortcut, (shortcuts.ExclusiveGate, shortcuts.ShortcutGate))
                assert picture(described).to_dict() == {
                    "shared": names(unit.shared),
                    "shortcut": names(unit.resize) + ([] if gate else names(unit.shortcut)),
                    "residual": names(unit.residual),
                    "gate": names(unit.shortcut) if gate else [],
                    "factors": factors(unit.shortcut),
                    "after": names(unit.after),
                    "plain": isinstance(unit.shortcut, shortcuts.Plain),
                }, described
                seen += 1
    assert seen > 1000


# --- following a drawing ----------------------------------------------------------------------


def follow(drawn: Picture, unit: Unit, x: Tensor) -> Tensor:
    """What the drawing says happens to x, with the unit's weights taken in the order of the drawing."""
    weights = {
        "shared": iter(unit.shared.modules()),
        "residual": iter(unit.residual.modules()),
        "shortcut": iter(unit.resize.modules()),
        "gate": iter(unit.shortcut.modules()),
        "after": iter(unit.after.modules()),
    }

    def path(name: str, y: Tensor) -> Tensor:
        for layer in getattr(drawn, name):
            y = apply(layer, y, weights[name])
        return y

    x = path("shared", x)
    r = path("residual", x)
    if drawn.plain:
        return path("after", r)
    x = path("shortcut", x)
    g = path("gate", x)
    of_x, of_r = (1 - g if f == "1 - g" else g if f == "g" else float(f or 1) for f in drawn.factors)
    return path("after", of_x * x + of_r * r)


def apply(layer: Layer, x: Tensor, modules: Iterator[nn.Module]) -> Tensor:  # noqa: PLR0911, a table of layers
    match layer.name.split():
        case ["BN"]:
            return next(m for m in modules if isinstance(m, nn.BatchNorm2d))(x)
        case ["ReLU"]:
            return x.relu()
        case ["sigmoid"]:
            return x.sigmoid()
        case ["b_g", "=", _]:
            return x  # the convolution in front of it has the bias
        case ["dropout", p, *rescaled]:
            return x if rescaled else (1 - float(p)) * x  # in testing
        case ["subsample"]:
            return x[:, :, :: layer.stride, :: layer.stride]
        case ["2x2", "average"]:
            return functional.avg_pool2d(x, layer.stride)
        case ["zero-pad", *both]:
            assert layer.filters
            front = layer.filters // 2 if both else 0
            return torch.cat([x[:, :1] * 0] * front + [x] + [x[:, :1] * 0] * (layer.filters - front), 1)
    conv = next(m for m in modules if isinstance(m, nn.Conv2d))
    assert layer.name == f"{conv.kernel_size[0]}x{conv.kernel_size[0]}"
    return functional.conv2d(x, conv.weight, conv.bias, layer.stride, conv.kernel_size[0] // 2)


@pytest.mark.parametrize("order", ORDERS)
def test_following_the_drawing_gives_the_numbers_of_the_unit(order: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for spec in specs()[::3]:
        if spec.order != order:
            continue
        net = build(spec, seed=1).double().eval()
        for unit in net.units:
            assert isinstance(unit, Unit)
            x = torch.randn(1, unit.spec.into, 6, 6, generator=generator, dtype=torch.double)
            with torch.no_grad():
                torch.testing.assert_close(follow(picture(unit.spec), unit, x), unit(x))


def test_the_stem_and_the_end_described_are_those_of_the_module() -> None:
    for name, changes in (
        ("resnet20", {}),
        ("preresnet20", {"stem_activation": False}),
        ("preresnet50", {"order": "relu_preact"}),
        ("preresnet50", {"stem_activation": False}),
        ("resnet18", {"num_classes": 7}),
    ):
        spec = spec_of(name, **changes)
        net = build(spec, device="meta")
        stem, *_, head = describe(spec).rows
        pool = ["3x3 max pool, /2"] if spec.stem == "imagenet" else []
        assert stem.layers.split("; ") == names(net.stem) + pool
        assert head.layers.split("; ") == [*names(net.last), "average pool", f"fc, {net.classifier.out_features}"]


# --- as text ----------------------------------------------------------------------------------

DRAWINGS = {
    "resnet110": {},
    "preresnet164": {},
    "plain34": {},
    "resnet50": {},
    "resnet110-exclusive_gate": {"order": "bn_after_add", "shortcut": "exclusive_gate:-6"},
    "resnet110-shortcut_gate": {"shortcut": "shortcut_gate:0"},
    "resnet110-scale": {"shortcut": "scale:0.5:0.5", "resize": "pad_both"},
    "resnet110-dropout": {"shortcut": "dropout:0.5", "resize": "pad_pool"},
    "preresnet110-conv1x1": {"shortcut": "conv1x1"},
    "resnet110_1layer-relu_preact": {"order": "relu_preact"},
}


def found_in(name: str) -> list[Kind]:
    spec = spec_of(name.partition("-")[0], **DRAWINGS[name])
    return kinds(spec.units())


@pytest.mark.parametrize("name", DRAWINGS)
def test_golden_drawings(name: str) -> None:
    drawn = draw_kinds(found_in(name))
    assert drawn + "\n" == (GOLDEN / f"unit-{name}.txt").read_text(encoding="utf-8")
    assert max(map(len, drawn.splitlines())) <= 100


def test_the_ascii_form_has_the_same_shape() -> None:
    for name in DRAWINGS:
        drawn = draw_kinds(found_in(name))
        plain = draw_kinds(found_in(name), ascii_only=True)
        assert plain.isascii()
        assert [len(line) for line in plain.splitlines()] == [len(line) for line in drawn.splitlines()]


def test_every_layer_is_in_the_text_and_every_line_is_joined() -> None:
    """Each stroke that leaves a cell meets one in the next cell: no loose ends, no boxes over each other."""
    for spec in specs():
        for unit in map(picture, set(spec.units())):
            lines = draw(unit)
            text = "\n".join(lines)
            for layer in (*unit.shared, *unit.shortcut, *unit.residual, *unit.gate, *unit.after):
                assert str(layer) in text
            assert loose_ends(lines) == [], text


UP, DOWN, LEFT, RIGHT = "│┘└┴├", "│┌┐┬├", "─┐┘┴┬", "─┌└┴┬├"


def loose_ends(lines: list[str]) -> list[tuple[int, int, str]]:
    """Where a vertical stroke ends in empty space or meets one that does not point back."""
    width = max(map(len, lines))
    grid = [line.ljust(width) for line in lines]
    wrong = []
    for y, row in enumerate(grid):
        for x, c in enumerate(row):
            above = grid[y - 1][x] if y else " "
            below = grid[y + 1][x] if y + 1 < len(grid) else " "
            if c in UP and (above == " " or (above in UP + DOWN + LEFT + RIGHT and above not in DOWN)):
                wrong.append((y, x, c))
            if c in DOWN and (below == " " or (below in UP + DOWN + LEFT + RIGHT and below not in UP)):
                wrong.append((y, x, c))
            if c in RIGHT and row[x + 1 : x + 2] in ("", "│", "└", "┌", "├"):
                wrong.append((y, x, c))
            if c in LEFT and row[x - 1] in "│┘┐":
                wrong.append((y, x, c))
    return wrong


def test_units_of_one_kind_are_drawn_once() -> None:
    spec = spec_of("preresnet1001")
    typical, halving, first = kinds(spec.units())
    assert (len(typical.units), halving.units, first.units) == (330, (111, 222), (0,))
    assert [kind.title for kind in (typical, halving, first)] == [
        "units 1-110, 112-221, 223-332",
        "units 111, 222 halve the map",
        "unit 0, the first",
    ]
    assert [str(layer) for layer in halving.picture.shared] == ["BN", "ReLU"]


def test_drawings_stand_below_each_other_where_the_columns_end() -> None:
    found = found_in("preresnet164")
    assert max(map(len, draw_kinds(found, columns=60).splitlines())) <= 60
    assert len(draw_kinds(found, columns=60).splitlines()) > len(draw_kinds(found).splitlines())


def test_drawing_needs_no_torch() -> None:
    code = "import sys, resnets.describe.drawing, resnets.text; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_unit_that_halves_the_map_is_drawn_with_its_padding() -> None:
    unit = spec_of("resnet20").units()[3]
    assert picture(unit).shortcut == (Layer("subsample", stride=2), Layer("zero-pad", 16))
