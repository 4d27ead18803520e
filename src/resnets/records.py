"""Check every JSON file that this package reads back against its shape. No torch here.

A shape is data: a dict for an object (a key that ends in "?" may be missing), a tuple for a list of fixed length, and
`Kind`, `ListOf`, `Named`, `OrNull` and `IfHas` for the rest. Keys that a shape does not name are allowed, as newer
versions may write more. The error for a wrong file names the file and the key:
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

from resnets.chain import Chain, NetworkSpec, parse_network
from resnets.errors import UserError
from resnets.recipe import Recipe
from resnets.spec import Spec

MOST_BYTES = 64 << 20  # of a JSON file
MOST_METRICS = 1 << 30  # bytes of a file with a line for each step
MOST_NESTING = 64  # json.dumps fails on values that json.loads still reads
_SHOWN = 60  # characters of a wrong value
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


# --- shapes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A single value: a description for errors, and a test."""

    words: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class ListOf:
    of: Any
    least: int = 0  # items


@dataclass(frozen=True)
class Named:
    """An object with any keys and values of one shape."""

    of: Any


@dataclass(frozen=True)
class OrNull:
    of: Any


@dataclass(frozen=True)
class IfHas:
    """An object of one shape if it has a key, otherwise of another."""

    key: str
    then: Any
    otherwise: Any


def whole(low: int, high: int) -> Kind:
    words = f"a whole number from {low:,} to {high:,}"
    return Kind(words, lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high)


def number(low: float, high: float, words: str) -> Kind:
    """A number within bounds, so not NaN."""
    return Kind(
        words, lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
    )


TEXT = Kind("text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
INT, COUNT, POSITIVE = whole(-(2**53), 2**53), whole(0, 2**53), whole(1, 2**53)
SEED = whole(-(2**63), 2**64 - 1)
NUMBER = number(-1e300, 1e300, "a finite number")  # sums of them are finite too
ABOVE_0 = number(math.ulp(0.0), 1e300, "a finite number above 0")
AT_LEAST_0 = number(0.0, 1e300, "a finite number of at least 0")
LOSS = number(-3.5e38, 3.5e38, "a finite number of float32")
TEST_LOSS = Kind(  # only printed, so it may have overflowed
    "a number", lambda value: value is None or isinstance(value, float) or COUNT.fits(value)
)
PERCENT = number(0.0, 100.0, "a number from 0 to 100")
NUMBERS = ListOf(OrNull(NUMBER))
_TYPES: dict[str, Any] = {"str": TEXT, "int": INT, "float": NUMBER, "bool": FLAG, "Shortcut": TEXT}
_TYPES |= {"tuple[int, ...]": ListOf(INT), "tuple[str, ...]": ListOf(TEXT, 1)}


def shape_of(record: type) -> dict[str, Any]:
    """The shape of a dataclass; a field with a default may be missing."""
    missing = dataclasses.MISSING
    return {
        field.name + "?" * (field.default is not missing or field.default_factory is not missing): _TYPES[
            str(field.type)
        ]
        for field in dataclasses.fields(record)
    }


def check(value: Any, shape: Any, at: str = "") -> None:
    """Raise `UserError` if a value is not of this shape; `at` is its path in the file."""
    match shape:
        case Kind():
            _require(shape.fits(value), at, shape.words, value)
        case OrNull():
            if value is not None:
                check(value, shape.of, at)
        case IfHas():
            check(value, shape.then if isinstance(value, dict) and shape.key in value else shape.otherwise, at)
        case ListOf():
            _require(isinstance(value, list), at, "a list", value)
            _require(len(value) >= shape.least, at, f"a list of at least {shape.least}", value)
            for i, item in enumerate(value):
                check(item, shape.of, f"{at}[{i}]")
        case tuple():
            _require(isinstance(value, list) and len(value) == len(shape), at, f"a list of {len(shape)}", value)
            for i, (item, of) in enumerate(zip(value, shape, strict=True)):
                check(item, of, f"{at}[{i}]")
        case Named():
            _require(isinstance(value, dict), at, "an object", value)
            for name, item in value.items():
                check(item, shape.of, _join(at, name))
        case _:
            _check_object(value, shape, at)


def _check_object(value: Any, shape: dict[str, Any], at: str) -> None:
    _require(isinstance(value, dict), at, "an object", value)
    for key, of in shape.items():
        name = key.removesuffix("?")
        if name in value:
            check(value[name], of, _join(at, name))
        elif name == key:
            raise UserError(f"{_join(at, name)} is missing.")


def _join(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key


def _require(fits: bool, at: str, words: str, value: Any) -> None:
    if not fits:
        raise UserError(f"{at or 'its content'} must be {words}, not {_shown(value)}.")


def require_equal_lengths(lists: Iterable[tuple[str, list[Any]]]) -> None:
    """Compare the lengths of lists, each given with its path in the file."""
    lists = list(lists)
    for at, other in lists[1:]:
        first, values = lists[0]
        if len(other) != len(values):
            raise UserError(f"{at} has {len(other)} values and {first} has {len(values)}; they must have equally many.")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# --- reading ----------------------------------------------------------------------------------


class NotJsonError(UserError):
    """A file, or a line of it, is not JSON at all."""


@contextmanager
def prefix_errors(prefix: str) -> Iterator[None]:
    """Put a prefix, such as the name of a file, before the errors inside."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{prefix}{error}") from None


def load(path: Path) -> Any:
    """Read a JSON file of any shape."""
    return _parse(_read_bytes(path, MOST_BYTES), path)


def _parse(data: bytes, where: Path) -> Any:
    """Parse JSON; refuse what could not be written or printed again."""
    try:
        with prefix_errors(f"{where}: "):
            text = data.decode("utf-8")
            value = json.loads(text, object_pairs_hook=_make_object)
            _require_shallow(value)
            if _SURROGATE.search(text):  # \udc80 to \udcff are allowed: the bytes of a path that are not UTF-8
                json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")
    except UserError:
        raise
    except RecursionError:
        raise UserError(f"{where}: its values are nested deeper than {MOST_NESTING} levels.") from None
    except UnicodeEncodeError:
        raise UserError(f"{where}: it holds half of a character (a lone UTF-16 surrogate).") from None
    except ValueError as error:
        raise NotJsonError(f"{where} cannot be read as JSON ({error}).") from None
    return value


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise UserError(f"the key {_shown(name)} stands twice in one object.")
        found[name] = value
    return found


def _require_shallow(value: Any, level: int = 0) -> None:
    if level > MOST_NESTING:
        raise RecursionError
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(item, (dict, list)):
            _require_shallow(item, level + 1)


def _read_bytes(path: Path, most: int) -> bytes:
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):  # opening a pipe would block
            raise UserError(f"{path} is not a file but {'a folder' if stat.S_ISDIR(found.st_mode) else 'a device'}.")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}.") from None
    except ValueError as error:  # a null byte or half a character in the name
        raise UserError(f"cannot read {str(path)!r}: {error}.") from None
    if len(data) > most:
        raise UserError(f"{path} is larger than {most >> 20} MiB; this is not a file that resnets wrote.")
    return data


@dataclass(frozen=True)
class Record:
    """A kind of file: its shape, and a check across its parts."""

    shape: Any
    check_whole: Callable[[Any], object] = lambda value: None

    def read(self, path: Path) -> Any:
        return self.check(load(path), path)

    def check(self, value: Any, path: Path) -> Any:
        """Check a value that was loaded from a file."""
        with prefix_errors(f"{path}: "):
            check(value, self.shape)
            self.check_whole(value)
        return value


NETWORK = IfHas("kind", {"kind": TEXT, **shape_of(Chain), "rows": ListOf(TEXT, 1)}, shape_of(Spec))

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
    "loss?": TEST_LOSS,
    "top5?": {"error": PERCENT, "interval": (PERCENT, PERCENT)},
    "mirrored?": {"error": PERCENT, "interval": (PERCENT, PERCENT)},
    "shifted?": {"error": PERCENT, "interval": (PERCENT, PERCENT)},
}
CONFIG = Record(
    {
        "run": {
            "network": IfHas(
                "module",
                {"name": TEXT, "module": TEXT},
                IfHas("backbone", {"name": TEXT, "num_classes": POSITIVE}, NETWORK),
            ),
            "data": {"name": TEXT, "digest": TEXT},
            "recipe": {"name": TEXT, **shape_of(Recipe)},
            "seed": SEED,
            "weights?": TEXT,
            "task?": TEXT,
            "teacher?": TEXT,
        },
        "steps": POSITIVE,
        "engine?": {"engine?": TEXT, "memory?": TEXT},
        "data_path?": TEXT,
        **PROVENANCE,
    }
)
RESULT = Record(
    IfHas(
        "task",  # not classification; it has other scores
        {"steps": COUNT, "task": TEXT, "train?": Named(LOSS)},
        {"steps": COUNT, "train?": {"loss": LOSS, "error": PERCENT}, "validation?": SCORE, "test?": SCORE},
    )
)

_MEASURED = {"step": COUNT, "epoch?": AT_LEAST_0, "loss": LOSS, "error?": PERCENT}
_SCORED = {"step": COUNT, "epoch?": AT_LEAST_0, "loss?": TEST_LOSS, "error?": PERCENT}
_SIGNAL = ("rms", "growth", "share", "product", "truncated")


def _check_signal(line: dict[str, Any]) -> None:
    require_equal_lengths([(name, line[name]) for name in _SIGNAL])


LINES = {  # of metrics, by kind; other kinds, which newer versions may write, are skipped
    "train": Record({**_MEASURED, "lr?": NUMBER, "images_per_second": AT_LEAST_0, "memory?": OrNull(COUNT)}),
    "epoch": Record(_MEASURED),
    "validation": Record(_SCORED),
    "test": Record(_SCORED),
    "signal": Record({"step": COUNT, **dict.fromkeys(_SIGNAL, ListOf(OrNull(NUMBER), 1))}, _check_signal),
}


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a known kind. A kill or crash may have cut off the last line, which is then skipped."""
    found = []
    lines = _read_bytes(path, MOST_METRICS).split(b"\n")
    last = max((i for i, line in enumerate(lines) if line.strip(b" \r\0")), default=-1)
    for i, line in enumerate(lines[: last + 1]):
        where = Path(f"{path}, line {i + 1}")
        try:
            value = Record({"kind": TEXT}).check(_parse(line, where), where)
        except NotJsonError:
            if i == last:
                break
            raise
        if value["kind"] in LINES:
            found.append(LINES[value["kind"]].check(value, where))
    return found


# --- results ----------------------------------------------------------------------------------

_OLD_SCORE = {f"{key.removesuffix('?')}?": of for key, of in SCORE.items()} | {"error": PERCENT}  # may lack intervals
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


def _check_training(result: dict[str, Any]) -> NetworkSpec:
    """Check the network, that seeds differ and that curves have as many steps as values; returns the network."""
    with prefix_errors("network: "):
        spec = parse_network(result["network"])
    seeds = [run["seed"] for run in result["runs"]]
    if len(set(seeds)) < len(seeds):
        raise UserError(f"runs has the seed {max(seeds, key=seeds.count)} twice.")
    for i, run in enumerate(result["runs"]):
        for kind, (steps, values) in run.get("curves", {}).items():
            at = f"runs[{i}].curves.{kind}"
            require_equal_lengths([(f"{at}[0]", steps), (f"{at}[1]", values)])
    return spec


TRAINING = Record(  # as `resnets results` writes it
    {
        "network": NETWORK,
        "data": {"name": TEXT},
        "recipe": {"name": TEXT},
        "runs": ListOf({**_ENTRY, "result": {"test": SCORE}}, 1),
    },
    _check_training,
)


def _check_groups(result: dict[str, Any]) -> None:
    for i, group in enumerate(result["groups"]):
        with prefix_errors(f"groups[{i}]."):
            _check_training(group)


TRAININGS = Record({"groups": ListOf(TRAINING.shape, 1)}, _check_groups)  # of several variants in one file


def check_trainings(value: Any, path: Path) -> list[dict[str, Any]]:
    """The variants in a file that `resnets results` wrote; a file may be a single variant."""
    if isinstance(value, dict) and "groups" in value:
        return TRAININGS.check(value, path)["groups"]
    return [TRAINING.check(value, path)]


def _check_row(row: dict[str, Any]) -> None:
    spec, tests = _check_training(row), row.get("tests", [])
    units = sum(spec.blocks) if isinstance(spec, Spec) else -1
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
            if units < 0:
                raise UserError(f"{at}.signal is of residual units, and {spec.name} has none.")
            if (count := len(run["signal"][name])) != units + 1:
                raise UserError(f"{at}.signal.{name} has {count} values for {units} units; it must have one more.")
        if "responses" in run.get("signal", {}):
            responses.append((f"{at}.signal.responses", run["signal"]["responses"]))
    if responses:
        require_equal_lengths(responses)


RERUN = Record(  # what `resnets rerun` needs of a result, of `resnets reproduce` or `resnets results`
    {
        "network": NETWORK,
        "data": {"name": TEXT, "digest": TEXT},
        "recipe": {"name": TEXT, "validation": COUNT},
        "weights?": TEXT,
        "teacher?": TEXT,
        "runs": ListOf({"seed": SEED, "result": {"failed?": TEXT, "validation?": _OLD_SCORE, "test?": _OLD_SCORE}}, 1),
    }
)
ROW = Record(  # as `resnets reproduce` writes it
    {
        "row": TEXT,
        "budget": TEXT,
        "scaled": ListOf(TEXT),
        "fails_above": PERCENT,
        "tests?": ListOf(TEXT),
        "network": NETWORK,
        "data": {"name": TEXT, "digest": TEXT},
        "recipe": {"name": TEXT, "validation": COUNT},
        "runs": ListOf(
            {
                **_ENTRY,
                "curves": Named(_CURVE),
                "steps": POSITIVE,
                "result": {"failed?": TEXT, "validation?": _OLD_SCORE, "test?": _OLD_SCORE},
                "tests?": Named({**_OLD_SCORE, "top5": {"error": PERCENT}}),
                "signal?": {"size": ListOf(LOSS), "zeros": ListOf(LOSS), "responses?": ListOf(LOSS, 1)},
            },
            1,
        ),
    },
    _check_row,
)

MAPS = ("rms", "missed", "gradient", "cosine", "product", "predicted_product")  # those that are drawn
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

CURVES, STARTS = ("rms", "gradient", "product"), ("predicted", "missed", "cosine")


def _check_signals(data: dict[str, Any]) -> None:
    for i, one in enumerate(data["signals"]):
        require_equal_lengths([("at", data["at"]), *((f"signals[{i}].{name}", one[name]) for name in CURVES)])
        require_equal_lengths([("spans", data["spans"]), *((f"signals[{i}].{name}", one[name]) for name in STARTS)])


SIGNALS = Record(  # as `resnets reproduce signals` writes them
    {
        "layers": POSITIVE,
        "kernels": TEXT,
        "data": TEXT,
        "images": COUNT,
        "seed": SEED,
        "spans": ListOf((COUNT, COUNT), 1),
        "at": ListOf(COUNT, 1),
        "signals": ListOf({"shortcut": TEXT, "order": TEXT, **dict.fromkeys(CURVES + STARTS, NUMBERS)}, 1),
        "row?": TEXT,
        "budget?": TEXT,
        "trained_with_seed?": SEED,
        "provenance": PROVENANCE,
    },
    _check_signals,
)

INDEX = Record(Named(TEXT))  # the sha256 of each weights file inside the package
