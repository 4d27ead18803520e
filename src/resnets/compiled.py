"""C++ of the package, compiled for this CPU on first use and kept in the cache.

Nothing depends on it: without a compiler, or wherever anything fails, the caller does the work another way.
`RESNETS_NATIVE=0` switches it off, `CXX` names another compiler.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from resnets.cache import cache_dir
from resnets.errors import UserError
from resnets.text import say

_PATIENCE = 300  # seconds for a compiler

Opened = TypeVar("Opened")
Flags = tuple[str, ...]


class NotBuiltError(Exception):
    """The library cannot be had, and why."""


class SwitchedOffError(NotBuiltError):
    """Somebody does not want it, which is no news to tell."""


class Ways(NamedTuple):
    """How it may be compiled and linked: the first way whose outcome loads and computes what it should."""

    compile: tuple[Flags, ...]
    link: tuple[Flags, ...]


class Library(Generic[Opened]):
    """A source file and what is made of it."""

    def __init__(self, source: Path, called: str, ways: Ways, open: Callable[[Path], Opened], salt: str = "") -> None:
        """`open` loads a library and tries it, and raises `NotBuiltError` where it is no good; another `salt` makes
        another library."""
        self.source, self.called, self.ways, self.open, self.salt = source, called, ways, open, salt

    def load(self) -> tuple[Opened, str]:
        """It, compiled if need be, and where it lies."""
        if os.environ.get("RESNETS_NATIVE") == "0":
            raise SwitchedOffError("switched off by RESNETS_NATIVE=0")
        compiler = _compiler()
        name = f"{self.source.stem}-{self._key(compiler)}.so"
        try:
            folder = cache_dir() / "native"
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, UserError):
            folder = None
        if folder is not None and _whole(folder / name):
            with suppress(NotBuiltError):  # it is made anew
                return self.open(folder / name), f"{folder / name}"
        say(f"compiling {self.called} for this CPU, once, in a few seconds.")
        with tempfile.TemporaryDirectory(prefix="resnets-") as temporary:
            made = self._compile(compiler, Path(temporary))
            opened = self.open(made)  # stays open when the file is gone
            if folder is None or not _keep(made, folder / name):
                return opened, "compiled for this process; the cache cannot be written"
        return opened, f"{folder / name}"

    def _key(self, compiler: str) -> str:
        """Other source, compiler, flags or CPU: another library."""
        try:
            version = subprocess.run([compiler, "--version"], capture_output=True, timeout=_PATIENCE, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            raise NotBuiltError(f"the C++ compiler {compiler} does not run") from None
        cpu = platform.machine() + platform.processor()
        with suppress(OSError):
            lines = Path("/proc/cpuinfo").read_text().splitlines()
            cpu += "".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
        parts = (self.source.read_bytes(), version, repr(self.ways).encode(), cpu.encode(), self.salt.encode())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]

    def _compile(self, compiler: str, folder: Path) -> Path:
        told = ""
        for i, flags in enumerate(self.ways.compile):
            for j, link in enumerate(self.ways.link):
                made, between = folder / f"{self.source.stem}{i}{j}.so", str(folder / f"{self.source.stem}.o")
                try:
                    self._run([compiler, *flags, "-c", str(self.source), "-o", between])
                    self._run([compiler, "-shared", between, "-o", str(made), *link])
                    self.open(made)
                    return made
                except NotBuiltError as error:
                    told = told or str(error)
        raise NotBuiltError(told)

    def _run(self, command: Iterable[str]) -> None:
        program, *words = command
        try:
            done = subprocess.run([program, *words], capture_output=True, text=True, timeout=_PATIENCE, check=False)
        except (OSError, subprocess.SubprocessError):
            raise NotBuiltError(f"the C++ compiler {program} does not run") from None
        if done.returncode:
            said = (done.stderr.strip() or "no message").splitlines()[0]
            raise NotBuiltError(f"the C++ compiler {program} cannot compile {self.called} ({said})")


def _compiler() -> str:
    found = map(shutil.which, filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")))
    compiler = next(filter(None, found), None)
    if compiler is None:
        raise NotBuiltError("no C++ compiler was found")
    return compiler


def _keep(made: Path, path: Path) -> bool:
    """Put the library into the cache, its hash behind it; several processes may do so at once."""
    half = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    data = made.read_bytes()
    try:
        half.write_bytes(data + hashlib.sha256(data).digest())
        half.replace(path)
    except OSError:
        with suppress(OSError):
            half.unlink()
        return False
    return True


def _whole(path: Path) -> bool:
    """Whether a library of the cache is there and unhurt: one that was cut short kills the process that loads it."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(data[:-32]).digest() == data[-32:]
