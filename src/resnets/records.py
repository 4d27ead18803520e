"""Every JSON file that this package reads back: what it must hold, and one reader for all of them. No torch here.

A shape is written as data: an object as a dict (a key that ends in "?" may be missing), a list of fixed length as a
tuple, and `Kind`, `ListOf`, `Named` and `OrNull` for the rest. Keys that a shape does not name are allowed, as newer
versions may write more. A file of another shape is refused in a sentence that names the file and the key:
`config.json: run.recipe.lr must be a finite number, not "x".`
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resnets.errors import UserError
from resnets.recipe import Recipe
from resnets.spec import Spec

MOST_BYTES = 64 << 20  # of a JSON file
MOST_METRICS = 1 << 30  # of a file with a line for each step
MOST_NESTING = 64  # json.dumps fails on values that json.loads still reads
_SHOWN = 60  # characters of a wrong value
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


# --- shapes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """One value: what it must be, in words, and whether a value is that."""

    words: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class ListOf:
    of: Any
    least: int = 0  # items


@dataclass(frozen=True)
class Named:
    """An object with keys of any name and values of one shape."""

    of: Any


@dataclass(frozen=True)
class OrNull:
    of: Any


@dataclass(frozen=True)
class IfHas:
    """An object of one shape if it has a key, else of another."""

    key: str
    then: Any
    otherwise: Any


def whole(low: int, high: int) -> Kind:
    words = f"a whole number from {low:,} to {high:,}"
    return Kind(words, lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high)


def number(low: float, high: float, words: str) -> Kind:
    """A number within bounds; NaN is in no bounds."""
    return Kind(
        words, lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
    )


TEXT = Kind("text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
COUNT, POSITIVE = whole(0, 2**53), whole(1, 2**53)
SEED = whole(-(2**63), 2**64 - 1)
NUMBER = number(-1e300, 1e300, "a finite number")  # such that sums of them are finite too
ABOVE_0 = number(math.ulp(0.0), 1e300, "a finite number above 0")
AT_LEAST_0 = number(0.0, 1e300, "a finite number of at least 0")
LOSS = number(-3.5e38, 3.5e38, "a finite number of float32")
TOLD_LOSS = Kind(  # of a test, which is told and not computed with: it may overflow where the error is known
    "a number", lambda value: value is None or isinstance(value, float) or COUNT.fits(value)
)
PERCENT = number(0.0, 100.0, "a number from 0 to 100")
NUMBERS = ListOf(OrNull(NUMBER))


def fields_of(record: type) -> dict[str, Any]:
    """The shape of a dataclass: each field by its type, which may be missing where it has a default."""
    kinds = {"str": TEXT, "int": whole(-(2**53), 2**53), "float": NUMBER, "bool": FLAG, "Shortcut": TEXT}
    kinds["tuple[int, ...]"] = ListOf(kinds["int"])  # type: ignore[assignment]
    missing = dataclasses.MISSING
    return {
        field.name + "?" * (field.default is not missing or field.default_factory is not missing): kinds[
            str(field.type)
        ]
        for field in dataclasses.fields(record)
    }


def check(value: Any, shape: Any, at: str = "") -> None:
    """Refuse a value of another shape; `at` leads to it from the top of the file."""
    for part, of, where in _parts(value, shape, at):
        check(part, of, where)


def _parts(value: Any, shape: Any, at: str) -> Iterator[tuple[Any, Any, str]]:
    """What a value is made of, once it is known to be of the right kind: each part, its shape and its place."""
    match shape:
        case Kind():
            require(shape.fits(value), at, shape.words, value)
        case OrNull():
            yield from [] if value is None else [(value, shape.of, at)]
        case IfHas():
            yield value, shape.then if isinstance(value, dict) and shape.key in value else shape.otherwise, at
        case ListOf():
            require(isinstance(value, list), at, "a list", value)
            require(len(value) >= shape.least, at, f"a list of at least {shape.least}", value)
            yield from ((item, shape.of, f"{at}[{i}]") for i, item in enumerate(value))
        case tuple():
            require(isinstance(value, list) and len(value) == len(shape), at, f"a list of {len(shape)}", value)
            yield from ((item, of, f"{at}[{i}]") for i, (item, of) in enumerate(zip(value, shape, strict=True)))
        case Named():
            require(isinstance(value, dict), at, "an object", value)
            yield from ((item, shape.of, join(at, name)) for name, item in value.items())
        case _:
            require(isinstance(value, dict), at, "an object", value)
            yield from _fields(value, shape, at)


def _fields(value: dict[str, Any], shape: dict[str, Any], at: str) -> Iterator[tuple[Any, Any, str]]:
    for key, of in shape.items():
        name = key.removesuffix("?")
        if name in value:
            yield value[name], of, join(at, name)
        elif name == key:
            raise UserError(f"{join(at, name)} is missing.")


def join(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key


def require(fits: bool, at: str, words: str, value: Any) -> None:
    if not fits:
        raise UserError(f"{at or 'its content'} must be {words}, not {_shown(value)}.")


def require_equal_lengths(lists: Iterable[tuple[str, list[Any]]]) -> None:
    """Lists that belong together, each with its place."""
    lists = list(lists)
    for at, other in lists[1:]:
        first, values = lists[0]
        if len(other) != len(values):
            raise UserError(f"{at} has {len(other)} values and {first} has {len(values)}; they must be as many.")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# --- reading ----------------------------------------------------------------------------------


@contextmanager
def name_file(path: Path) -> Iterator[None]:
    """Let what is refused inside begin with the file's name."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def load(path: Path) -> Any:
    """The value that a JSON file holds, of whatever shape."""
    data = _bytes(path, MOST_BYTES)
    try:
        return parse(data)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except ValueError as error:
        raise UserError(f"{path} cannot be read as JSON ({error}).") from None


def parse(data: bytes) -> Any:
    """JSON, without what could not be written or printed again; a plain ValueError where it is no JSON."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_object)
        _require_shallow(value)
        if _HALF_CHARACTER.search(text):  # bytes of a path that are no UTF-8 come as \udc80 to \udcff, and may
            json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")
    except RecursionError:
        raise UserError(f"its values are nested deeper than {MOST_NESTING} levels.") from None
    except UnicodeEncodeError:
        raise UserError("it holds half of a character (a lone UTF-16 surrogate), which cannot be written.") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"the key {_shown(twice)} stands twice in one object.")
    return found


def _require_shallow(value: Any, level: int = 0) -> None:
    if level > MOST_NESTING:
        raise RecursionError
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(item, (dict, list)):
            _require_shallow(item, level + 1)


def _bytes(path: Path, most: int) -> bytes:
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):  # to open a pipe would wait for somebody to write
            raise UserError(f"{path} is not a file but {'a folder' if stat.S_ISDIR(found.st_mode) else 'a device'}.")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}.") from None
    except ValueError as error:  # of a null byte or half a character in the name
        raise UserError(f"cannot read {str(path)!r}: {error}.") from None
    if len(data) > most:
        raise UserError(f"{path} is larger than {most >> 20} MiB; this is not a file that resnets wrote.")
    return data


@dataclass(frozen=True)
class Record:
    """A kind of file: its shape, and a check of what its parts must have in common."""

    shape: Any
    check_whole: Callable[[Any], None] | None = None

    def read(self, path: Path) -> Any:
        return self.checked(load(path), path)

    def checked(self, value: Any, path: Path) -> Any:
        """A value that was loaded from a file."""
        with name_file(path):
            check(value, self.shape)
            if self.check_whole is not None:
                self.check_whole(value)
        return value


# --- runs -------------------------------------------------------------------------------------

PROVENANCE = {
    "command": TEXT,
    "commit": OrNull(TEXT),
    "began": TEXT,
    "versions": Named(OrNull(TEXT)),
    "machine": {"cpu": TEXT, "cores": OrNull(POSITIVE)},
}
SCORE = {
    "error": PERCENT,
    "interval": (PERCENT, PERCENT),
    "images?": POSITIVE,
    "wrong?": COUNT,
    "loss?": TOLD_LOSS,
    "top5?": {"error": PERCENT, "interval": (PERCENT, PERCENT)},
}
CONFIG = Record(
    {
        "run": {
            "network": IfHas("module", {"name": TEXT, "module": TEXT}, fields_of(Spec)),
            "data": {"name": TEXT, "digest": TEXT},
            "recipe": {"name": TEXT, **fields_of(Recipe)},
            "seed": SEED,
            "weights?": TEXT,
            "task?": TEXT,
        },
        "steps": POSITIVE,
        "engine?": {"engine?": TEXT, "memory?": TEXT},
        "data_path?": TEXT,
        **PROVENANCE,
    }
)
RESULT = Record(
    IfHas(
        "task",  # other than classification, with scores of its own
        {"steps": COUNT, "task": TEXT, "train?": Named(LOSS)},
        {"steps": COUNT, "train?": {"loss": LOSS, "error": PERCENT}, "validation?": SCORE, "test?": SCORE},
    )
)

_MEASURED = {"step": COUNT, "epoch?": AT_LEAST_0, "loss": LOSS, "error?": PERCENT}
_SCORED = {"step": COUNT, "epoch?": AT_LEAST_0, "loss?": TOLD_LOSS, "error?": PERCENT}
_SIGNAL = ("rms", "growth", "share", "product", "truncated")


def _check_signal(line: dict[str, Any]) -> None:
    require_equal_lengths([(name, line[name]) for name in _SIGNAL])


LINES = {  # of metrics, by kind; those of other kinds, which newer versions may write, are passed over
    "train": Record({**_MEASURED, "lr?": NUMBER, "images_per_second": AT_LEAST_0, "memory?": OrNull(COUNT)}),
    "epoch": Record(_MEASURED),
    "validation": Record(_SCORED),
    "test": Record(_SCORED),
    "signal": Record({"step": COUNT, **dict.fromkeys(_SIGNAL, ListOf(OrNull(NUMBER), 1))}, _check_signal),
}


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a known kind. Only the last may be torn, by a kill or a crash, and is then left out."""
    found = []
    lines = _bytes(path, MOST_METRICS).split(b"\n")
    last = max((i for i, line in enumerate(lines) if line.strip(b" \r\0")), default=-1)
    for i, line in enumerate(lines[: last + 1]):
        where = Path(f"{path}, line {i + 1}")
        try:
            value = parse(line)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        except ValueError as error:
            if i == last:
                break
            raise UserError(f"{where} cannot be read as JSON ({error}).") from None
        with name_file(where):
            check(value, {"kind": TEXT})
        if value["kind"] in LINES:
            found.append(LINES[value["kind"]].checked(value, where))
    return found


# --- results ----------------------------------------------------------------------------------

_LOOSE_SCORE = {**SCORE, "interval?": SCORE["interval"]}  # older results lack intervals
del _LOOSE_SCORE["interval"]
_CURVE = (ListOf(COUNT), ListOf(LOSS))
_ENTRY = {  # a run in a file of results
    "seed": SEED,
    "command?": TEXT,
    "commit?": OrNull(TEXT),
    "began?": TEXT,
    "versions?": Named(OrNull(TEXT)),
    "machine?": Named(OrNull(Kind("text or a number", lambda value: isinstance(value, (str, int, float))))),
    "curves?": Named(_CURVE),
}


def _check_described(result: dict[str, Any]) -> Spec:
    """The network that a result tells of; also that its seeds differ and its curves have as many steps as values."""
    try:
        spec = Spec.from_dict(result["network"])
    except UserError as error:
        raise UserError(f"network: {error}") from None
    seeds = [run["seed"] for run in result["runs"]]
    if len(set(seeds)) < len(seeds):
        raise UserError(f"runs has the seed {max(seeds, key=seeds.count)} twice.")
    for i, run in enumerate(result["runs"]):
        for kind, (steps, values) in run.get("curves", {}).items():
            at = f"runs[{i}].curves.{kind}"
            require_equal_lengths([(f"{at}[0]", steps), (f"{at}[1]", values)])
    return spec


def _check_training(result: dict[str, Any]) -> None:
    _check_described(result)


TRAINING = Record(  # as `resnets results` writes it
    {
        "network": fields_of(Spec),
        "data": {"name": TEXT},
        "recipe": {"name": TEXT},
        "runs": ListOf({**_ENTRY, "result": {"test": SCORE}}, 1),
    },
    _check_training,
)


def _check_groups(result: dict[str, Any]) -> None:
    for i, group in enumerate(result["groups"]):
        try:
            _check_described(group)
        except UserError as error:
            raise UserError(f"groups[{i}].{error}") from None


TRAININGS = Record({"groups": ListOf(TRAINING.shape, 1)}, _check_groups)  # of several variants in one file


def check_trainings(value: Any, path: Path) -> list[dict[str, Any]]:
    """The variants in a file that `resnets results` wrote; a file of one variant is a variant itself."""
    if isinstance(value, dict) and "groups" in value:
        return TRAININGS.checked(value, path)["groups"]
    return [TRAINING.checked(value, path)]


def _check_row(row: dict[str, Any]) -> None:
    units, tests = sum(_check_described(row).blocks), row.get("tests", [])
    split = "validation" if row["recipe"]["validation"] else "test"
    responses = []
    for i, run in enumerate(row["runs"]):
        at, failed = f"runs[{i}]", "failed" in run["result"]
        if not tests and not failed and split not in run["result"]:
            raise UserError(f"{at}.result.{split} is missing.")
        for test in tests if "tests" in run or not failed else ():
            if test not in run.get("tests", {}):
                raise UserError(f"{at}.tests.{test} is missing.")
        for name in ("size", "zeros") if "signal" in run else ():
            if (count := len(run["signal"][name])) != units + 1:
                raise UserError(f"{at}.signal.{name} has {count} values for {units} units; it must have one more.")
        if "responses" in run.get("signal", {}):
            responses.append((f"{at}.signal.responses", run["signal"]["responses"]))
    if responses:
        require_equal_lengths(responses)


_PART = {"error": PERCENT}
ROW = Record(  # as `resnets reproduce` writes it
    {
        "row": TEXT,
        "budget": TEXT,
        "scaled": ListOf(TEXT),
        "fails_above": PERCENT,
        "tests?": ListOf(TEXT),
        "network": fields_of(Spec),
        "data": {"name": TEXT, "digest": TEXT},
        "recipe": {"name": TEXT, "validation": COUNT},
        "runs": ListOf(
            {
                **_ENTRY,
                "curves": Named(_CURVE),
                "steps": POSITIVE,
                "result": {"failed?": TEXT, "validation?": _LOOSE_SCORE, "test?": _LOOSE_SCORE},
                "tests?": Named({**_LOOSE_SCORE, "top5": _PART}),
                "signal?": {"size": ListOf(LOSS), "zeros": ListOf(LOSS), "responses?": ListOf(LOSS, 1)},
            },
            1,
        ),
    },
    _check_row,
)

MAPS = ("rms", "missed", "gradient", "cosine", "product", "predicted_product")  # that are drawn
UNITS = ("growth", "share", "truncated")


def _check_analyses(data: dict[str, Any]) -> None:
    for i, net in enumerate(data["analyses"]):
        for part, names in (("maps", MAPS), ("units", UNITS)):
            require_equal_lengths([(f"analyses[{i}].{part}.{name}", net[part][name]) for name in names])


ANALYSES = Record(  # as `resnets analyze --out` writes them
    {
        "analyses": ListOf(
            {
                "label": TEXT,
                "data": TEXT,
                "images": COUNT,
                "seed": SEED,
                "statistics": TEXT,
                "spans": ListOf((COUNT, COUNT)),
                "maps": dict.fromkeys(MAPS, NUMBERS),
                "units": dict.fromkeys(UNITS, NUMBERS),
            },
            1,
        ),
        "provenance?": {"command?": TEXT, "commit?": OrNull(TEXT)},
    },
    _check_analyses,
)
TEST = Record(  # as `resnets eval -o` writes it, of folders of pictures
    {"network": {"name": TEXT}, "data": TEXT, "views": TEXT, **SCORE, "images": POSITIVE, "top5": SCORE["top5?"]}
)
TRANSFER = Record(  # as `benchmarks.transfer` writes it
    {
        "network": {"name": TEXT},
        "data": {"name": TEXT, "training_images": POSITIVE},
        "weights": {"name": TEXT},
        "steps": POSITIVE,
        "errors": Named(ListOf(PERCENT, 1)),
        "gains": Named({"mean": NUMBER, "bound_95": NUMBER}),
    }
)

# --- benchmarks -------------------------------------------------------------------------------

_MEASUREMENTS = ("seconds", "peak", "foretold", "build", "first")
_LINE = {
    "contestants": Named({"reason?": TEXT, **{f"{key}?": ListOf(OrNull(ABOVE_0)) for key in _MEASUREMENTS}}),
    "rounds": POSITIVE,
    **{key: of for key, of in PROVENANCE.items() if key != "command"},
}


def _check_rounds(section: dict[str, Any]) -> None:
    """Contestants are compared round by round, so that each must have been in all."""
    for name, line in section["lines"].items():
        if not line["contestants"]:
            raise UserError(f"lines.{name}.contestants must have at least one contestant.")
        for key in ("seconds", "peak"):
            there = {who: found[key] for who, found in line["contestants"].items() if found.get(key)}
            require_equal_lengths([(f"lines.{name}.contestants.{who}.{key}", each) for who, each in there.items()])


BENCH = Record({"lines": Named(_LINE)}, _check_rounds)
DEPTH = Record({"lines": Named({**_LINE, "layers": POSITIVE, "unit": TEXT, "order": TEXT})}, _check_rounds)
EPOCH = Record(  # as `benchmarks.epoch` writes it
    {
        "files": COUNT,
        "decoders": COUNT,
        "points": ListOf({"images": COUNT, "training": COUNT, "decoders": ListOf(COUNT)}, 2),
        "commit": OrNull(TEXT),
        "began": TEXT,
    }
)

INDEX = Record(Named(TEXT))  # of the weights inside the package: the sha256 of each
