"""A network that is a chain of layers with branches, as frozen data: no torch here.

The papers compare themselves with networks that have no residual units. Such a network is a `Chain`: rows of words,
as `conv:192:5 relu` or `mix(conv:64:1 relu | conv:96:1 relu conv:128:3 relu)`. `WORDS` lists the words; each knows
how it is written and what it does to the shape of a map. `resnets.nn.chain` builds the layers.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from resnets.errors import UserError, one_of, shown
from resnets.options import fields_of, option
from resnets.spec import Spec, check_channels, check_whole
from resnets.unit_spec import check_number

Shape = tuple[int, int, int]  # channels, height, width
Sides = tuple[int, int]  # height, width
Branch = tuple["Word", ...]

MOST_NESTING, MOST_WORDS = 6, 10_000
CLASSES = "K"  # stands for the number of classes


class TooSmallError(Exception):
    """A map has too few pixels for a layer."""


class UnevenMapsError(UserError):
    """The branches of a mix leave maps of different sizes."""


# --- the words --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Word:
    """A layer. The fields without a default are written in their order, the others by a letter or a flag."""

    word: ClassVar[str]
    form: ClassVar[str]  # how it is written
    text: ClassVar[str]  # what it does
    branches: tuple[Branch, ...] = dataclasses.field(default=(), kw_only=True)

    def __str__(self) -> str:
        words = [self.word]
        for field in _written(type(self)):
            value, known = getattr(self, field.name), field.metadata
            if "flag" in known:
                words += [known["flag"]] * (value != field.default)
            elif field.default is dataclasses.MISSING or value != field.default:
                words.append(known.get("letter", "") + known["write"](value))
        inside = " | ".join(write_words(branch) for branch in self.branches)
        return ":".join(words) + (f"({inside})" if self.branches else "")

    def shape(self, into: Shape) -> Shape:
        """The shape of the map that it leaves, on a map of this shape; also checks that it fits."""
        return into

    @property
    def depth(self) -> int:
        """Layers of weights on the longest path through it."""
        return 0


def _sides(text: str) -> Sides:
    """`3` or `1x7`."""
    match = re.fullmatch(r"([0-9]{1,4})(?:x([0-9]{1,4}))?", text)
    if not match:
        raise ValueError
    return int(match[1]), int(match[2] or match[1])


def _write_sides(sides: Sides) -> str:
    return str(sides[0]) if sides[0] == sides[1] else f"{sides[0]}x{sides[1]}"


def _count(text: str) -> int | str:
    return CLASSES if text == CLASSES else _natural(text)


def _natural(text: str) -> int:
    if not re.fullmatch("[0-9]{1,10}", text) or int(text) < 1:
        raise ValueError
    return int(text)


def _number(text: str) -> float:
    if not re.fullmatch(r"-?[0-9]*\.?[0-9]+(e-?[0-9]{1,3})?", text):
        raise ValueError
    return float(text)


_KINDS: dict[str, tuple[str, Callable[[str], Any], Callable[[Any], str]]] = {
    "sides": ("a size such as 3 or 1x7", _sides, _write_sides),
    "count": (f"a whole number above 0, or {CLASSES} for the classes", _count, str),
    "natural": ("a whole number above 0", _natural, str),
    "number": ("a number", _number, lambda value: f"{value:g}"),
    "word": ("a word", str, str),
}


def _part(kind: str, default: Any = dataclasses.MISSING, letter: str = "") -> Any:
    """A value of a word; with a default it is written behind its letter, as in `s2`."""
    _, read, write = _KINDS[kind]
    known = {"kind": kind, "read": read, "write": write, **({"letter": letter} if letter else {})}
    return dataclasses.field(default=default, metadata=known)


def _flag(word: str, default: bool = False) -> Any:
    """A value that is either there or not."""
    return dataclasses.field(default=default, metadata={"flag": word})


def _written(kind: type[Word]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(kind) if field.metadata]


WORDS: dict[str, type[Word]] = {}


def _word(kind: type[Word]) -> type[Word]:
    WORDS[kind.word] = kind
    return kind


def cover(sides: Sides, kernel: Sides, stride: Sides, pads: tuple[int, int, int, int], ceil: bool = False) -> Sides:
    """How many windows fit into a map, as torch counts; `pads` are above, below, left and right.

    With `ceil` a last window may hang over the edge, if it begins inside of the map or of what pads it before.
    """
    found = []
    for side, size, step, before, after in zip(sides, kernel, stride, pads[::2], pads[1::2], strict=True):
        out = (side + before + after - size + (step - 1 if ceil else 0)) // step + 1
        if ceil and (out - 1) * step >= side + before:
            out -= 1
        if out < 1:
            raise TooSmallError
        found.append(out)
    return found[0], found[1]


@_word
@dataclass(frozen=True)
class Conv(Word):
    word = "conv"
    form = "conv:FILTERS:KERNEL[:sSTRIDE][:pPAD][:nobias]"
    text = "a convolution, padded to keep the map but for its stride; p0 does not pad"
    out: int | str = _part("count")
    kernel: tuple[int, int] = _part("sides")
    stride: tuple[int, int] = _part("sides", (1, 1), "s")
    padding: tuple[int, int] | None = _part("sides", None, "p")
    bias: bool = _flag("nobias", True)
    classifies: bool = False  # its outputs are the classes

    @property
    def pads(self) -> tuple[int, int, int, int]:
        """Above, below, left and right. An even kernel that keeps the map has one more after than before."""
        if self.padding is None:
            (high, wide) = self.kernel
            return (high - 1) // 2, high // 2, (wide - 1) // 2, wide // 2
        return self.padding[0], self.padding[0], self.padding[1], self.padding[1]

    def shape(self, into: Shape) -> Shape:
        assert isinstance(self.out, int)
        return (self.out, *cover(into[1:], self.kernel, self.stride, self.pads))

    @property
    def depth(self) -> int:
        return 1


@_word
@dataclass(frozen=True)
class Linear(Word):
    word = "linear"
    form = "linear:OUTPUTS"
    text = "a fully connected layer that reads the whole map; on larger maps a convolution of that size"
    out: int | str = _part("count")
    classifies: bool = False  # its outputs are the classes

    def shape(self, into: Shape) -> Shape:
        assert isinstance(self.out, int)
        return self.out, 1, 1

    @property
    def depth(self) -> int:
        return 1


@_word
@dataclass(frozen=True)
class Pool(Word):
    word = "pool"
    form = "pool:max|avg:KERNEL|all|toN[:sSTRIDE][:pPAD][:ceil][:nopad]"
    text = (
        "pooling by windows, of the whole map (all) or to a map of a side (to4); ceil: a last window may hang over "
        "the edge; nopad: averages do not count the padding"
    )
    by: str = _part("word")
    window: str = _part("word")
    stride: tuple[int, int] = _part("sides", (1, 1), "s")
    padding: tuple[int, int] = _part("sides", (0, 0), "p")
    ceil: bool = _flag("ceil")
    nopad: bool = _flag("nopad")

    def __post_init__(self) -> None:
        if self.by not in ("max", "avg"):
            raise UserError(f"pool takes max or avg, not {shown(self.by)}.")
        try:
            if min(self.kernel or (self.side or 1,)) < 1:
                raise ValueError
        except ValueError:
            raise UserError(
                f"pool takes a window such as 3, all of the map or a side such as to4, not {shown(self.window)}."
            ) from None
        if self.kernel and any(2 * pad > size for pad, size in zip(self.padding, self.kernel, strict=True)):
            raise UserError(f"{self}: the padding of a pool must be at most half of its window.")

    @property
    def kernel(self) -> Sides | None:
        """The window; None where the map decides."""
        return None if self.window == "all" or self.side else _sides(self.window)

    @property
    def side(self) -> int | None:
        """Of the map that it leaves, if that is what the word says."""
        return _natural(self.window[2:]) if self.window.startswith("to") else None

    def shape(self, into: Shape) -> Shape:
        if self.kernel is None:
            side = self.side or 1
            return into[0], side, side
        pads = self.padding[0], self.padding[0], self.padding[1], self.padding[1]
        return (into[0], *cover(into[1:], self.kernel, self.stride, pads, self.ceil))


@_word
@dataclass(frozen=True)
class Pyramid(Word):
    word = "pyramid"
    form = "pyramid:SIDE,SIDE,..."
    text = "spatial pyramid pooling: the maxima of grids of these sides, one after the other"
    sides: str = _part("word")

    def __post_init__(self) -> None:
        try:
            _ = self.grids
        except ValueError:
            raise UserError(f"pyramid takes sides such as 7,3,2,1, not {shown(self.sides)}.") from None

    @property
    def grids(self) -> tuple[int, ...]:
        return tuple(map(_natural, self.sides.split(",")))

    def shape(self, into: Shape) -> Shape:
        return into[0] * sum(side * side for side in self.grids), 1, 1


@_word
@dataclass(frozen=True)
class Bn(Word):
    word = form = "bn"
    text = "batch normalization"


@_word
@dataclass(frozen=True)
class Relu(Word):
    word = form = "relu"
    text = "max(x, 0)"


@_word
@dataclass(frozen=True)
class Elu(Word):
    word = form = "elu"
    text = "x where it is above 0, else exp(x) - 1"


@_word
@dataclass(frozen=True)
class Prelu(Word):
    word = form = "prelu"
    text = "x where it is above 0, else a x, with a learned a for each channel that starts at 0.25"


@_word
@dataclass(frozen=True)
class Maxout(Word):
    word = "maxout"
    form = "maxout:PIECES"
    text = "the largest of this many neighbouring channels"
    pieces: int = _part("natural")

    def shape(self, into: Shape) -> Shape:
        if into[0] % self.pieces:
            raise UserError(f"{self} cannot divide {into[0]} channels into pieces.")
        return (into[0] // self.pieces, *into[1:])


@_word
@dataclass(frozen=True)
class Lrn(Word):
    word = "lrn"
    form = "lrn:CHANNELS:ALPHA:BETA"
    text = "local response normalization: x / (1 + ALPHA / CHANNELS * sum of squares of neighbours) ** BETA"
    size: int = _part("natural")
    alpha: float = _part("number")
    beta: float = _part("number")


@_word
@dataclass(frozen=True)
class Drop(Word):
    word = "drop"
    form = "drop:P[:unscaled]"
    text = "dropout; unscaled: a 0/1 mask in training, (1 - P) x in testing"
    p: float = _part("number")
    unscaled: bool = _flag("unscaled")

    def __post_init__(self) -> None:
        check_number("drop", "P", self.p, 0.0, 1.0)


@_word
@dataclass(frozen=True)
class Highway(Word):
    word = "highway"
    form = "highway:KERNEL:BIAS"
    text = "t h + (1 - t) x, with h = relu(conv(x)) and t = sigmoid(conv(x)), whose bias starts at BIAS"
    kernel: tuple[int, int] = _part("sides")
    bias: float = _part("number")

    def __post_init__(self) -> None:
        if any(side % 2 == 0 for side in self.kernel):
            raise UserError(f"{self}: the kernel of a highway layer must be odd, so that the map keeps its size.")

    @property
    def depth(self) -> int:
        return 1


@_word
@dataclass(frozen=True)
class Mix(Word):
    word = "mix"
    form = "mix(WORDS | WORDS ...)"
    text = "branches that read the same map; their channels one after the other"

    def shape(self, into: Shape) -> Shape:
        found = [shape_after(branch, into) for branch in self.branches]
        if len({shape[1:] for shape in found}) > 1:
            sizes = ", ".join(f"{height}x{width}" for _, height, width in found)
            raise UnevenMapsError(f"the branches of a mix leave maps of different sizes ({sizes}): {shown(str(self))}.")
        return (sum(shape[0] for shape in found), *found[0][1:])

    @property
    def depth(self) -> int:
        return max(map(depth_of, self.branches))


@_word
@dataclass(frozen=True)
class Sum(Word):
    word = "sum"
    form = "sum:SCALE(WORDS)"
    text = "x + SCALE times what the words make of x"
    scale: float = _part("number")

    def shape(self, into: Shape) -> Shape:
        if (found := shape_after(self.branches[0], into)) != into:
            raise UserError(f"the words of a sum make {found} of {into}, and must keep the shape: {shown(str(self))}.")
        return into

    @property
    def depth(self) -> int:
        return depth_of(self.branches[0])


@_word
@dataclass(frozen=True)
class Aux(Word):
    word = "aux"
    form = "aux:WEIGHT(WORDS)"
    text = "class scores of this map, whose loss times WEIGHT is added in training; the map itself goes on"
    weight: float = _part("number")

    def shape(self, into: Shape) -> Shape:
        shape_after(self.branches[0], into)
        return into


def shape_after(words: Branch, into: Shape) -> Shape:
    for word in words:
        into = word.shape(into)
    return into


def depth_of(words: Branch) -> int:
    return sum(word.depth for word in words)


def walk(words: Branch) -> Iterator[Word]:
    """All words, those of branches behind the word that has them."""
    for word in words:
        yield word
        for branch in word.branches:
            yield from walk(branch)


def named_words(chain: Chain) -> Iterator[tuple[str, Word]]:
    """All words with the names of their modules, as `rows.conv1.conv1`, in the order in which they are built."""
    for name, words in chain.parts:
        yield from _named(words, f"rows.{name}.")


def _named(words: Branch, place: str) -> Iterator[tuple[str, Word]]:
    seen: dict[str, int] = {}
    for word in words:
        seen[word.word] = seen.get(word.word, 0) + 1
        here = f"{place}{word.word}{seen[word.word]}"
        yield here, word
        for i, branch in enumerate(word.branches):
            inside = {"mix": str(i), "sum": "branch", "aux": "head"}[word.word]
            yield from _named(branch, f"{here}.{inside}.")


# --- reading ----------------------------------------------------------------------------------

_BRANCHES = {"mix": (1, 64), "sum": (1, 1), "aux": (1, 1)}  # how many each may have
_TOKEN = re.compile(r"\s*(?:([^\s()|]+)(\()?|([()|]))")


class _Reader:
    """Reads one row."""

    def __init__(self, row: str) -> None:
        self.row, self.at, self.count = row, 0, 0

    def fail(self, what: str) -> UserError:
        return UserError(f"row {shown(self.row)}: {what}")

    def read_all(self) -> Branch:
        words = self.words(0)
        if self.at < len(self.row.rstrip()):
            raise self.fail("a ) or | stands without a word that opens branches; write mix(... | ...).")
        return words

    def words(self, level: int) -> Branch:
        found: list[Word] = []
        while (match := _TOKEN.match(self.row, self.at)) and match[1]:
            self.at, self.count = match.end(), self.count + 1
            if self.count > MOST_WORDS:
                raise self.fail(f"it has more than {MOST_WORDS:,} words.")
            found.append(self.word(match[1], bool(match[2]), level))
        return tuple(found)

    def word(self, text: str, opens: bool, level: int) -> Word:
        name, *values = text.split(":")
        if name not in WORDS:
            raise self.fail(str(one_of("word", name, WORDS)))
        kind, branches = WORDS[name], self.branches(name, level) if opens else ()
        least, most = _BRANCHES.get(name, (0, 0))
        if not least <= len(branches) <= most:
            raise self.fail(f"{name} is written as {kind.form}.")
        if name == "aux" and level:
            raise self.fail("aux stands in a row, not in a branch.")
        try:
            return kind(**_read_values(kind, values), branches=branches)
        except _MistakeError as mistake:
            raise self.fail(f"{shown(text)} is no {name}, which is written as {kind.form}{mistake}.") from None
        except UserError as error:
            raise self.fail(str(error)) from None

    def branches(self, name: str, level: int) -> tuple[Branch, ...]:
        if level == MOST_NESTING:
            raise self.fail(f"branches stand in each other more than {MOST_NESTING} deep.")
        found = [self.words(level + 1)]
        while (match := _TOKEN.match(self.row, self.at)) and match[3] == "|":
            self.at = match.end()
            found.append(self.words(level + 1))
        if not match or match[3] != ")":
            raise self.fail(f"the branches of {name} are not closed by a ).")
        self.at = match.end()
        return tuple(found)


class _MistakeError(Exception):
    """What is wrong with a value of a word."""


def _read_values(kind: type[Word], values: Sequence[str]) -> dict[str, Any]:
    fields = _written(kind)
    needed = [field for field in fields if field.default is dataclasses.MISSING]
    if len(values) < len(needed):
        raise _MistakeError
    found = {field.name: _read_value(field, text) for field, text in zip(needed, values, strict=False)}
    for text in values[len(needed) :]:
        field = next((f for f in fields if f not in needed and _announces(f, text)), None)
        if field is None or field.name in found:
            raise _MistakeError
        known = field.metadata
        found[field.name] = not field.default if "flag" in known else _read_value(field, text[len(known["letter"]) :])
    return found


def _announces(field: dataclasses.Field[Any], text: str) -> bool:
    known = field.metadata
    if "flag" in known:
        return text == known["flag"]
    return text.startswith(known["letter"]) and text[len(known["letter"]) :][:1].isdigit()


def _read_value(field: dataclasses.Field[Any], text: str) -> Any:
    try:
        return field.metadata["read"](text)
    except ValueError:
        words = _KINDS[field.metadata["kind"]][0]
        raise _MistakeError(f"; {field.name} must be {words}, not {shown(text)}") from None


@lru_cache(maxsize=4096)
def parse_row(row: str) -> tuple[str, Branch]:
    """`pool1: pool:max:3:s2 drop:0.5` as the name of the row, which may be missing, and its words."""
    match = re.match(r"\s*([^\s:()|]+):(?=\s)", row)
    return (match[1], _Reader(row[match.end() :]).read_all()) if match else ("", _Reader(row).read_all())


def write_words(words: Branch) -> str:
    return " ".join(map(str, words))


# --- a chain ----------------------------------------------------------------------------------

ROW_NAME = re.compile("[A-Za-z][A-Za-z0-9_]{0,40}")


@dataclass(frozen=True)
class Chain:
    """A network of the tables that has no residual units of ours: rows of words, read from the first to the last.

    >>> mine = resnets.Chain("mine", ("body: conv:64:3 bn relu pool:max:2:s2", "head: pool:avg:all linear:K"))
    >>> net = resnets.nn.build(mine, seed=0)
    """

    name: str = option("", "name of the network", metavar="NAME")
    rows: tuple[str, ...] = option((), "the layers, in words", metavar="ROWS")
    num_classes: int = option(10, "number of classes", metavar="N")
    in_channels: int = option(3, "channels of the images", metavar="N")
    input_size: int = option(32, "side of the images that its fully connected layers are made for", metavar="N")
    aux: bool = option(True, "the auxiliary heads of a network that has some")
    bn_eps: float = option(1e-5, "added to BN's variance", metavar="X")
    bn_momentum: float = option(0.1, "weight of a new batch in BN's running statistics", metavar="X")

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise UserError(f"name must be text, not {self.name!r}.")
        if not isinstance(self.aux, bool):
            raise UserError(f"aux must be true or false, not {self.aux!r}.")
        for name in ("num_classes", "in_channels", "input_size"):
            check_whole(name, getattr(self, name))
        check_number("network", "bn_eps", self.bn_eps, 1e-30, 1.0)
        check_number("network", "bn_momentum", self.bn_momentum, 0.0, 1.0)
        if not isinstance(self.rows, tuple) or not self.rows or not all(isinstance(row, str) for row in self.rows):
            raise UserError(f"rows must be a non-empty tuple of texts, not {shown(self.rows)}.")
        self._check_rows()

    def _check_rows(self) -> None:
        names = [name for name, _ in self.parts]
        for name in names:
            if not ROW_NAME.fullmatch(name) or names.count(name) > 1:
                raise UserError(f"{self.name}: each row needs a name of its own, of letters and digits, not {name!r}.")
        words = [word for _, branch in self.parts for word in walk(branch)]
        if len(words) > MOST_WORDS:
            raise UserError(f"{self.name} has more than {MOST_WORDS:,} words.")
        try:
            shapes = self.shapes(self.input_size)
        except TooSmallError:
            raise UserError(
                f"{self.name} cannot read images of {self.input_size}x{self.input_size} pixels: the map becomes too "
                "small for a layer; give a larger input_size."
            ) from None
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from None
        outputs = [self.parts[-1][1], *(w.branches[0] for w in words if isinstance(w, Aux))]
        if shapes[-1] != (self.num_classes, 1, 1) or any(not _ends_in_classes(branch) for branch in outputs):
            raise UserError(
                f"{self.name} must end in scores of its {self.num_classes} classes, as in linear:{CLASSES}, and so "
                f"must its auxiliary heads; it ends in {_write_shape(shapes[-1])}."
            )

    @property
    def parts(self) -> tuple[tuple[str, Branch], ...]:
        """The rows that are built: their names and words. Rows without a name have a number."""
        return _parts(self)

    def shapes(self, size: int | Sides) -> list[Shape]:
        """What each row leaves of an image of `size`; raises `TooSmallError`."""
        return _shapes(self, (size, size) if isinstance(size, int) else size)

    @property
    def depth(self) -> int:
        """Weight layers on the longest path."""
        return sum(depth_of(words) for _, words in self.parts)

    @property
    def heads(self) -> int:
        """Auxiliary heads that are built."""
        return sum(isinstance(word, Aux) for _, words in self.parts for word in words)

    @property
    def is_small(self) -> bool:
        """Whether it is for images such as CIFAR's."""
        return self.input_size < _LARGE

    @property
    def open_size(self) -> bool:
        """Whether exported graphs can leave the size of the images open: a pyramid's windows depend on it."""
        return not any(isinstance(word, Pyramid) for _, words in self.parts for word in walk(words))

    @property
    def min_size(self) -> int:
        """The smallest side of images that every layer can read."""
        return _min_size(self)

    def check_images(self, shape: Sequence[int]) -> None:
        """Refuse batches that the network cannot read."""
        check_channels(self.name, self.in_channels, shape)
        if min(shape[2:]) < self.min_size:
            raise UserError(
                f"{self.name} needs images of at least {self.min_size}x{self.min_size} pixels, not "
                f"{shape[2]}x{shape[3]}; enlarge them"
                + (f" or create the net with input_size={min(shape[2:])}." if self.min_size > 1 else ".")
            )
        if not _fits(self, (int(shape[2]), int(shape[3]))):
            raise UserError(
                f"{self.name} cannot read images of {shape[2]}x{shape[3]} pixels, as branches would leave maps of "
                f"different sizes; {self.input_size}x{self.input_size} fit."
            )

    def thin(self, divisor: int) -> Chain:
        """The same network with fewer filters: their numbers are divided, but for the classes."""
        return self if divisor == 1 else dataclasses.replace(self, rows=tuple(_thin(row, divisor) for row in self.rows))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `parse_network` reads it back."""
        data = {name: getattr(self, name) for name in fields_of(Chain)}
        return {"kind": "chain", **data, "rows": list(self.rows)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Chain:
        known = {"kind", *fields_of(cls)}
        if unknown := sorted(set(data) - known):
            raise UserError(f"a network's description has no field {', '.join(unknown)}; update resnets to read it.")
        if missing := sorted({"name", "rows"} - set(data)):
            raise UserError(f"a network's description lacks {', '.join(missing)}.")
        values = {key: value for key, value in data.items() if key != "kind"}
        if not isinstance(values["rows"], list | tuple):
            raise UserError(f"rows must be a list of texts, not {shown(values['rows'])}.")
        return cls(**{**values, "rows": tuple(values["rows"])})


_LARGE = 100  # pixels of a side


def _ends_in_classes(words: Branch) -> bool:
    """Whether the last layer with weights has an output for each class."""
    last = next((word for word in reversed(words) if isinstance(word, Conv | Linear)), None)
    return last is None or last.classifies


def _write_shape(shape: Shape) -> str:
    return f"{shape[0]} x {shape[1]}x{shape[2]}"


@lru_cache(maxsize=256)
def _parts(chain: Chain) -> tuple[tuple[str, Branch], ...]:
    found = []
    for number, row in enumerate(chain.rows, 1):
        name, words = parse_row(row)
        kept = tuple(word for word in words if chain.aux or not isinstance(word, Aux))
        found.append((name or f"row{number}", _fill_classes(kept, chain.num_classes)))
    return tuple(found)


def _fill_classes(words: Branch, classes: int) -> Branch:
    """`K` becomes the number of classes."""
    return tuple(_fill(word, classes) for word in words)


def _fill(word: Word, classes: int) -> Word:
    changes: dict[str, Any] = {}
    if word.branches:
        changes["branches"] = tuple(_fill_classes(branch, classes) for branch in word.branches)
    if isinstance(word, Conv | Linear) and word.out == CLASSES:
        changes |= {"out": classes, "classifies": True}
    return dataclasses.replace(word, **changes) if changes else word


@lru_cache(maxsize=1024)
def _shapes(chain: Chain, sides: Sides) -> list[Shape]:
    found, shape = [], (chain.in_channels, *sides)
    for _, words in chain.parts:
        shape = shape_after(words, shape)
        found.append(shape)
    return found


@lru_cache(maxsize=1024)
def _fits(chain: Chain, sides: Sides) -> bool:
    """Whether images of these sides leave every layer enough pixels, and fully connected layers their whole map."""
    try:
        wanted = _linear_maps(chain, (chain.input_size, chain.input_size))
        found = _linear_maps(chain, sides)
    except (TooSmallError, UnevenMapsError):
        return False
    return all(a >= b for one, other in zip(found, wanted, strict=True) for a, b in zip(one, other, strict=True))


def _linear_maps(chain: Chain, sides: Sides) -> list[Sides]:
    """The maps that fully connected layers read, one after the other; heads of training are left out."""
    shape, found = (chain.in_channels, *sides), []
    for _, words in chain.parts:
        for word in words:
            if isinstance(word, Linear):
                found.append(shape[1:])
            shape = shape if isinstance(word, Aux) else word.shape(shape)
    return found


@lru_cache(maxsize=256)
def _min_size(chain: Chain) -> int:
    return next(side for side in range(1, chain.input_size + 1) if _fits(chain, (side, side)))


def _thin(row: str, divisor: int) -> str:
    name, words = parse_row(row)
    text = write_words(tuple(_thin_word(word, divisor) for word in words))
    return f"{name}: {text}" if name else text


def _thin_word(word: Word, divisor: int) -> Word:
    changes: dict[str, Any] = {}
    if word.branches:
        changes["branches"] = tuple(tuple(_thin_word(w, divisor) for w in branch) for branch in word.branches)
    if isinstance(word, Conv | Linear) and isinstance(word.out, int):
        changes["out"] = max(word.out // divisor, 1)
    return dataclasses.replace(word, **changes) if changes else word


# --- both kinds -------------------------------------------------------------------------------

NetworkSpec = Spec | Chain


def parse_network(data: Any) -> NetworkSpec:
    """The description of a network from its plain data: without a kind it is a `Spec`, as in older files."""
    if not isinstance(data, dict) or "kind" not in data:
        return Spec.from_dict(data)
    if data["kind"] != "chain":
        raise UserError(f"a network's kind must be chain, not {shown(data['kind'])}; update resnets to read it.")
    return Chain.from_dict(data)


def require_residual(spec: NetworkSpec, what: str) -> Spec:
    """The network itself, if it is made of residual units; `what` needs them."""
    if not isinstance(spec, Spec):
        raise UserError(f"{what} residual units, and {spec.name} has none.")
    return spec
