"""A run: its identity, its folder, its metrics, where it came from. No torch here.

runs/preresnet20-cifar10-cifar-quick-s0-1a2b3c4d/
    config.json         what makes it this run, and the versions and the machine it began on
    metrics.jsonl       a line a log step, an epoch, an evaluation
    checkpoints/        the last two
    final.safetensors   the network
    result.json         its error, once it is finished
    curves.svg
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, TypeVar
from weakref import WeakSet

from resnets import records
from resnets.chain import NetworkSpec, parse_network
from resnets.detector_spec import DetectorSpec
from resnets.errors import UserError
from resnets.ownership import open_plain
from resnets.recipe import LATER, RECIPES, Recipe, is_boxed, recipe_of

Item = TypeVar("Item")


@dataclass(frozen=True)
class ModuleKey:
    """A module that no spec describes: its class, and the hash of its structure and first weights."""

    name: str
    module: str

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "module": self.module}


NetworkKey = NetworkSpec | DetectorSpec | ModuleKey


def _read_network(data: dict[str, Any]) -> NetworkKey:
    if "module" in data:
        return ModuleKey(data["name"], data["module"])
    return DetectorSpec.from_dict(data) if "backbone" in data else parse_network(data)


@dataclass(frozen=True)
class RunKey:
    """What makes a run different from another. Two equal ones give the same numbers on the same machine."""

    network: NetworkKey
    data: str  # as the user named it
    digest: str  # of its pixels and labels
    recipe: Recipe
    seed: int
    weights: str = ""  # the hash of the weights that it begins with, if they are given
    task: str = "classification"
    teacher: str = ""  # the hash of the weights of a teacher, if it has one

    def to_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.to_dict(),
            "data": {"name": self.data, "digest": self.digest},
            "recipe": self.recipe.to_dict(),
            "seed": self.seed,
            **({"weights": self.weights} if self.weights else {}),
            **({"task": self.task} if self.task != "classification" else {}),
            **({"teacher": self.teacher} if self.teacher else {}),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RunKey:
        recipe = dict(data["recipe"])
        name = recipe.pop("name")
        base = RECIPES.get(name, Recipe(name))
        source, network = data["data"], data["network"]
        return cls(
            _read_network(network),
            source["name"],
            source["digest"],
            recipe_of(base, **{**LATER, **recipe}),
            data["seed"],
            data.get("weights", ""),
            data.get("task", "classification"),
            data.get("teacher", ""),
        )

    @property
    def spec(self) -> NetworkSpec:
        """The network, for what needs one of this package."""
        if isinstance(self.network, ModuleKey):
            raise UserError(f"a run of {self.network.name}, a module of yours, has no network that resnets can build.")
        if isinstance(self.network, DetectorSpec):
            raise UserError(f"a run of {self.network.name} is a detector; this needs a classifier.")
        return self.network

    @property
    def slug(self) -> str:
        """A readable name, unique by the hash of everything at its end."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        data = re.split(r"[/\\]", self.data.rstrip("/\\"))[-1]  # of a path its end
        words = [self.network.name, data, self.recipe.name, f"s{self.seed}"]
        readable = re.sub(r"[^A-Za-z0-9_.-]+", "_", "-".join(words))
        return f"{readable[:_LONGEST]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


CHECKPOINT_NAME = re.compile(r"step-([0-9]{1,18})-[0-9a-f]+\.safetensors")
_LONGEST = 240  # characters of a slug before its hash: file systems take names of 255 bytes


class Run:
    """A run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.json"
        self.metrics_path = path / "metrics.jsonl"
        self.result_path = path / "result.json"
        self.checkpoints = path / "checkpoints"
        self.lock_path = path / ".lock"
        self.weights = path / "final.safetensors"
        self.picture = path / "curves.svg"

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def config(self) -> dict[str, Any]:
        return self._read(self.config_path, records.CONFIG)

    @property
    def identity(self) -> RunKey:
        run = self.config["run"]
        with records.prefix_errors(f"{self.config_path}: "):
            return RunKey.from_dict(run)

    @property
    def data(self) -> str:
        """What to open its data by, from any working directory."""
        config, name = self.config, self.identity.data
        path = config.get("data_path")
        if path and is_boxed(path):
            return path
        kind = "imagenet:" if name.startswith("imagenet:") else ""
        return f"{kind}{path}" if path and Path(path).exists() else name

    @property
    def result(self) -> dict[str, Any] | None:
        """Its errors, or None while it is not finished."""
        return self._read(self.result_path, records.RESULT) if self.result_path.exists() else None

    @property
    def origin(self) -> dict[str, Any]:
        """Provenance for publication, without folders of the machine."""
        config = self.config
        kept = {key: config[key] for key in ("command", "commit", "versions", "machine", "began")}
        kept |= {key: config[key] for key in ("engine", "resumed") if key in config}
        return {**kept, "command": without_folders(kept["command"])}

    @property
    def exists(self) -> bool:
        return self.config_path.exists()

    def _read(self, path: Path, record: records.Record) -> dict[str, Any]:
        try:
            return record.read(path)
        except UserError as error:
            if self.config_path.is_file():
                raise
            raise UserError(f"{str(error).removesuffix('.')}; is {self.path} the folder of a run?") from None

    def metrics(self) -> list[dict[str, Any]]:
        """All lines that were wholly written."""
        return records.read_metrics(self.metrics_path) if self.metrics_path.exists() else []

    @property
    def curves(self) -> dict[str, tuple[list[int], list[float]]]:
        """Steps and values: `loss` and `training` error as logged, `validation` and `test` error where measured."""
        found: dict[str, tuple[list[int], list[float]]] = {}
        for line in self.metrics():
            kind = line["kind"]
            if kind == "signal":  # which has no error
                continue
            error = line.get("error")
            values = {"loss": line["loss"], "training": error} if kind == "train" else {kind: error}
            for name, value in values.items():
                if name != "epoch" and value is not None:
                    found.setdefault(name, ([], []))[0].append(line["step"])
                    found[name][1].append(value)
        return found

    @property
    def epochs(self) -> tuple[list[int], list[float]]:
        """The steps at which epochs ended, and the training errors of these epochs."""
        ended = [line for line in self.metrics() if line["kind"] == "epoch" and line.get("error") is not None]
        return [line["step"] for line in ended], [line["error"] for line in ended]

    def require_identity(self, identity: RunKey) -> None:
        """Refuse a folder whose config is of another run than its name says."""
        there, asked = _flatten(self.config.get("run")), _flatten(json.loads(json.dumps(identity.to_dict())))
        for field in sorted({*there, *asked}):
            if (found := there.get(field, "missing")) != (wanted := asked.get(field, "missing")):
                raise UserError(
                    f"{self.config_path} says {field} {found} and this command {wanted}: the folder holds another run "
                    f"or the file was changed; restore the file, move {self.path} away or choose another --out."
                )

    def read_metrics_start(self, lines: int) -> bytes:
        """The first `lines` lines, or fewer if the file has fewer complete ones."""
        if not self.metrics_path.exists():
            return b""
        found = self.metrics_path.read_bytes().splitlines(keepends=True)[:lines]
        return b"".join(line for line in found if line.endswith(b"\n"))

    def find_metrics_damage(self, lines: int, digest: str | None = None) -> str | None:
        """What is wrong with the first `lines` lines; `digest` is their SHA-256, which older runs did not record."""
        start = self.read_metrics_start(lines)
        found = start.splitlines()
        for number, line in enumerate(found, 1):
            if not _is_object(line):
                return f"line {number} of {self.metrics_path} is damaged"
        if len(found) < lines:
            return f"{self.metrics_path} has {len(found)} whole lines and should have {lines}"
        if digest is not None and hashlib.sha256(start).hexdigest() != digest:
            return f"the first {lines} lines of {self.metrics_path} are not those that were written"
        return None

    def cut_metrics(self, lines: int) -> None:
        """Keep the first `lines` lines; those after a checkpoint will be logged again."""
        if self.metrics_path.exists():
            os.truncate(self.metrics_path, len(self.read_metrics_start(lines)))

    def open_metrics(self) -> IO[str]:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        return os.fdopen(open_plain(self.metrics_path, flags), "a", newline="\n")

    def lock(self) -> Any:
        """Refuse a second process on the same folder, where the system can; held until the result is closed."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self.metrics_path.is_symlink():  # here, as it may be cut before it is opened
            raise UserError(f"{self.metrics_path} is a symbolic link, which is not followed; remove it.")
        handle = os.fdopen(open_plain(self.lock_path, os.O_RDWR | os.O_CREAT), "r+")
        try:
            import fcntl
        except ImportError:  # not on Windows
            return handle
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.close()
            sentence = f"another process is training in {self.path}; wait for it or choose another --out."
            raise UserError(sentence) from None
        _LOCKS.add(handle)
        return handle

    @property
    def is_locked(self) -> bool:
        """Whether a living process trains here, as far as the system tells."""
        try:
            import fcntl

            with os.fdopen(open_plain(self.lock_path, os.O_RDONLY)) as handle:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except (ImportError, OSError, UserError):
            return False
        return False

    @property
    def checkpoint_step(self) -> int | None:
        """The step from which the run goes on: that of the newest checkpoint, by the names of the files."""
        matches = (CHECKPOINT_NAME.fullmatch(path.name) for path in self.checkpoints.glob("step-*.safetensors"))
        return max((int(match[1]) for match in matches if match), default=None)


_LOCKS: WeakSet[IO[str]] = WeakSet()


def _close_locks() -> None:
    """Forked processes that decode images must not hold the lock after the process that trains has ended."""
    for handle in _LOCKS:
        handle.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_locks)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _flatten(value: Any, name: str = "") -> dict[str, Any]:
    """Nested fields by their whole names, as `recipe.lr`."""
    if not isinstance(value, dict):
        return {name: value}
    inner = (_flatten(found, f"{name}.{key}".lstrip(".")) for key, found in value.items())
    return {key: found for fields in inner for key, found in fields.items()}


def find(root: Path) -> list[Run]:
    """The runs in a folder, or the folder itself if it is one."""
    if not os.path.exists(root):  # also false for a name that no file can have
        raise UserError(f"{root} does not exist; `resnets train` makes runs there, or name another folder.")
    if (root / "config.json").exists():
        return [Run(root)]
    return [Run(path.parent) for path in sorted(root.glob("*/config.json"))]


def group_variants(items: Iterable[Item], key_of: Callable[[Item], RunKey]) -> dict[RunKey, list[Item]]:
    """Group runs, or records of runs, that differ only in the seed, in the order of the first of each group."""
    found: dict[RunKey, list[Item]] = {}
    for item in items:
        found.setdefault(replace(key_of(item), seed=0), []).append(item)
    return found


@dataclass(frozen=True)
class Summary:
    """Several seeds of one thing, as the papers give it: the median, and mean +- standard deviation."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def std(self) -> float:
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    def __str__(self) -> str:
        if len(self.values) == 1:
            return f"{self.median:.2f} %"
        return f"median {self.median:.2f} % ({self.mean:.2f} +- {self.std:.2f}, {len(self.values)} runs)"


# --- provenance -------------------------------------------------------------------------------


def provenance() -> dict[str, Any]:
    """Versions, machine, commit, command and time: what a reader of a number needs in order to trust it."""
    versions = {name: find_version(name) for name in ("resnets", "torch", "numpy")}
    return {
        "command": shlex.join(["resnets", *sys.argv[1:]]) if Path(sys.argv[0]).name in _COMMANDS else "(Python)",
        "commit": commit(),
        "began": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": {**versions, "python": platform.python_version()},
        "machine": {"system": f"{platform.system()} {platform.machine()}", "cpu": cpu_name(), "cores": os.cpu_count()},
    }


_COMMANDS = ("resnets", "__main__.py")


def provenance_to_publish() -> dict[str, Any]:
    """`provenance` for a file of results, without folders of the machine."""
    found = provenance()
    return {**found, "command": without_folders(found["command"])}


def without_folders(command: str) -> str:
    """A command with only the last part of absolute paths, whose folders mean nothing on other machines."""
    words = shlex.split(command)
    kept = [re.sub(r"^((?:[^/~]*[=:])?)[/~].*?([^/]*)/?$", r"\1\2", word) for word in words]
    return command if kept == words else shlex.join(kept)


def find_version(name: str) -> str | None:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit of the source that runs, with a + where it was changed since; None outside a checkout."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) not in here.parents:
            return None
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def cpu_name() -> str:
    """What the CPU calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
