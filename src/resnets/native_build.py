"""C++ of the package, compiled for this CPU on first use and kept in the cache.

Nothing depends on it: without a compiler, or wherever anything fails, the caller does the work another way.
`RESNETS_NATIVE=0` switches it off, `CXX` names another compiler.

Loading a library runs its code, and a cache may be shared. So a library is kept only in a folder that no other user
can write, and with a seal: an HMAC whose key is in the home folder, wherever `RESNETS_CACHE` is. The owner of the
folder keeps out other users of this machine; the seal keeps out libraries of a cache from another machine, where our
user id may belong to somebody else. Neither protects from root or from programs of the same user. The library is
copied into a private folder, and the checked copy is loaded. Without such a folder it is compiled for this process.
"""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import os
import platform
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from resnets.atomic import write_atomically
from resnets.cache import cache_dir, home_cache_dir
from resnets.errors import UserError
from resnets.ownership import make_private_folder, read_ours
from resnets.text import say

_PATIENCE = 300  # seconds for a compiler
_SEAL = 32  # bytes of an HMAC
_UNWRITTEN = "the cache cannot be written"

Opened = TypeVar("Opened")
Flags = tuple[str, ...]


class NotBuiltError(Exception):
    """Why there is no library."""


class SwitchedOffError(NotBuiltError):
    """The user switched it off, so that no message is needed."""


class Ways(NamedTuple):
    """Flags for compiling and linking; the first that make a library that loads and computes correctly are used."""

    compile: tuple[Flags, ...]
    link: tuple[Flags, ...]


class Library(Generic[Opened]):
    """A source file, with the headers beside it, and what is made of them."""

    def __init__(self, source: Path, called: str, ways: Ways, open: Callable[[Path], Opened], salt: str = "") -> None:
        """`open` loads and tests a library, or raises `NotBuiltError`; another `salt` makes another library."""
        self.source, self.called, self.ways, self.open, self.salt = source, called, ways, open, salt

    def load(self) -> tuple[Opened, str]:
        """The opened library, compiled if it is not in the cache, and its place."""
        if os.environ.get("RESNETS_NATIVE") == "0":
            raise SwitchedOffError("switched off by RESNETS_NATIVE=0")
        compiler = _compiler()
        name = f"{self.source.stem}-{self._key(compiler)}.so"
        store, why = _open_store()
        with _temporary_folder() as temporary:
            if store is not None:
                try:
                    copy = temporary / name
                    copy.write_bytes(store.read(name))
                    return self.open(copy), f"{store.folder / name}"  # stays open when the copy is gone
                except (FileNotFoundError, _BrokenError, NotBuiltError):
                    pass  # it is compiled again
                except (OSError, UserError) as error:
                    why = str(error).rstrip(".")
            scope = "once" if store is not None else "for this process alone"
            say(f"compiling {self.called} for this CPU, {scope}, in less than a minute{f': {why}' if why else ''}.")
            made, opened = self._compile(compiler, temporary)
            if store is not None and store.write(name, made.read_bytes()):
                return opened, f"{store.folder / name}"
        return opened, f"compiled for this process; {why or _UNWRITTEN}"

    def _key(self, compiler: str) -> str:
        """The hash of source, headers, compiler, flags and CPU."""
        try:
            version = subprocess.run([compiler, "--version"], capture_output=True, timeout=_PATIENCE, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            raise NotBuiltError(f"the C++ compiler {compiler} does not run") from None
        cpu = platform.machine() + platform.processor()
        with suppress(OSError):
            lines = Path("/proc/cpuinfo").read_text().splitlines()
            cpu += "".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
        headers = (path.read_bytes() for path in sorted(self.source.parent.glob("*.h")))
        words = (repr(self.ways), cpu, self.salt)
        parts = (self.source.read_bytes(), *headers, version, *(word.encode() for word in words))
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]

    def _compile(self, compiler: str, folder: Path) -> tuple[Path, Opened]:
        message = ""
        for i, flags in enumerate(self.ways.compile):
            for j, link in enumerate(self.ways.link):
                made, between = folder / f"{self.source.stem}{i}{j}.so", str(folder / f"{self.source.stem}.o")
                try:
                    self._run([compiler, *flags, "-c", str(self.source), "-o", between])
                    self._run([compiler, "-shared", between, "-o", str(made), *link])
                    return made, self.open(made)
                except NotBuiltError as error:
                    message = message or str(error)
        raise NotBuiltError(message)

    def _run(self, command: Iterable[str]) -> None:
        program, *words = command
        try:
            done = subprocess.run([program, *words], capture_output=True, text=True, timeout=_PATIENCE, check=False)
        except (OSError, subprocess.SubprocessError):
            raise NotBuiltError(f"the C++ compiler {program} does not run") from None
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]  # of which the first may name a file alone
            said = next((line.strip() for line in lines if "error:" in line), lines[0])
            raise NotBuiltError(f"the C++ compiler {program} cannot compile {self.called} ({said})")


def open_checked(
    path: Path, called: str, wrap: Callable[[ctypes.CDLL], Opened], check: Callable[[Opened], bool]
) -> Opened:
    """Load a compiled library and wrap its functions; raise if it does not load, or if `check` finds wrong numbers."""
    try:
        opened = wrap(ctypes.CDLL(str(path)))
        right = check(opened)
    except (OSError, AttributeError, MemoryError):
        raise NotBuiltError(f"the compiled {called} does not load") from None
    if not right:
        raise NotBuiltError(f"the compiled {called} computes wrong numbers")
    return opened


def load_or_say(library: Library[Opened], instead: str) -> tuple[Opened | None, str]:
    """The opened library and its place; or None and why, after a line that also says what is done `instead`."""
    try:
        return library.load()
    except NotBuiltError as error:
        if not isinstance(error, SwitchedOffError):
            say(f"{error}; {instead}.")
        return None, str(error)


def find_compiler() -> str | None:
    """The C++ compiler: that of CXX, or the first of the usual ones."""
    found = map(shutil.which, filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")))
    return next(filter(None, found), None)


def _compiler() -> str:
    compiler = find_compiler()
    if compiler is None:
        raise NotBuiltError("no C++ compiler was found")
    return compiler


class _BrokenError(Exception):
    """A library in the cache is not what we put there: one that was cut short kills the process that loads it."""


class _Store:
    """Libraries that we compiled before, each with its seal behind it."""

    def __init__(self, folder: Path, secret: bytes) -> None:
        self.folder, self.secret = folder, secret

    def read(self, name: str) -> bytes:
        sealed = read_ours(self.folder / name)
        data, seal = sealed[:-_SEAL], sealed[-_SEAL:]
        if not hmac.compare_digest(seal, self._seal(name, data)):
            raise _BrokenError
        return data

    def write(self, name: str, data: bytes) -> bool:
        """Several processes may do so at once."""
        try:
            write_atomically(self.folder / name, data + self._seal(name, data), mode=0o600)
        except UserError:
            return False
        return True

    def _seal(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self.secret, name.encode() + b"\0" + data, "sha256")


def _open_store() -> tuple[_Store | None, str]:
    """The libraries of the cache, or why they cannot be trusted or kept."""
    try:
        return _Store(make_private_folder(cache_dir() / "native"), _read_secret()), ""
    except OSError:
        return None, _UNWRITTEN
    except UserError as error:
        return None, str(error).rstrip(".")


def _read_secret() -> bytes:
    """The key of the seals, made by the first process that needs it; only one of several at once succeeds."""
    path = make_private_folder(home_cache_dir()) / "key"
    with suppress(FileNotFoundError):
        return read_ours(path, secret=True)
    new = path.with_name(f".key.{secrets.token_hex(4)}")
    write_atomically(new, secrets.token_bytes(32), mode=0o600)
    try:
        with suppress(FileExistsError):
            os.link(new, path)  # atomic, and unlike a rename it never replaces a file
    finally:
        new.unlink()
    return read_ours(path, secret=True)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    try:
        made = tempfile.TemporaryDirectory(prefix="resnets-")
    except OSError as error:
        raise NotBuiltError(f"there is no temporary folder to compile in ({error})") from None
    with made as name:
        try:
            folder = make_private_folder(Path(name).resolve())
        except UserError as error:
            raise NotBuiltError(f"there is no safe temporary folder to compile in: {str(error).rstrip('.')}") from None
        yield folder
