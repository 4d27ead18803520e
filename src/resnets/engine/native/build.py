"""The kernels, compiled for this CPU on first use and kept in the cache.

Nothing depends on them: without a compiler, or wherever anything fails, there is one line of notice and PyTorch does
the work alone. `RESNETS_NATIVE=0` switches them off, `CXX` names another compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import secrets
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

from resnets.cache import cache_dir
from resnets.engine.native.kernels import ACT, ADD, Kernels, Sink, Source
from resnets.errors import UserError

_SOURCE = Path(__file__).with_name("kernels.cpp")
_FLAGS = (  # the first that the compiler takes: for this very CPU, or for any of its kind
    ("-std=c++17", "-O3", "-fPIC", "-fopenmp", "-march=native"),
    ("-std=c++17", "-O3", "-fPIC", "-fopenmp"),
)
_PATIENCE = 300  # seconds for a compiler


class Loaded(NamedTuple):
    """The kernels, or why there are none."""

    kernels: Kernels | None
    how: str


class _NotBuiltError(Exception):
    """The kernels cannot be had, and why."""


@lru_cache(1)
def load() -> Loaded:
    """The kernels of this process, compiled if need be. What went wrong is told once."""
    if os.environ.get("RESNETS_NATIVE") == "0":
        return Loaded(None, "switched off by RESNETS_NATIVE=0")
    try:
        return _load()
    except _NotBuiltError as error:
        _tell(f"{error}; PyTorch computes without kernels of our own (RESNETS_NATIVE=0 says so for good).")
        return Loaded(None, str(error))


def _load() -> Loaded:
    compiler = next(
        filter(None, map(shutil.which, filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")))), None
    )
    if compiler is None:
        raise _NotBuiltError("no C++ compiler was found")
    name = f"kernels-{_key(compiler)}.so"
    try:
        folder = cache_dir() / "native"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, UserError):
        folder = None
    if folder is not None and _whole(folder / name):
        with suppress(_NotBuiltError):  # it is made anew
            return Loaded(_open(folder / name), f"{folder / name}")
    _tell("compiling kernels for this CPU, once, in a few seconds.")
    with tempfile.TemporaryDirectory(prefix="resnets-") as temporary:
        made = _compile(compiler, Path(temporary))
        kernels = _open(made)  # stays open when the file is gone
        if folder is None or not _keep(made, folder / name):
            return Loaded(kernels, "compiled for this process; the cache cannot be written")
    return Loaded(kernels, f"{folder / name}")


def _key(compiler: str) -> str:
    """Other source, compiler, flags, CPU or torch: other kernels."""
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, timeout=_PATIENCE, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        raise _NotBuiltError(f"the C++ compiler {compiler} does not run") from None
    cpu = platform.machine() + platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu += "".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
    parts = (_SOURCE.read_bytes(), version, repr(_FLAGS).encode(), cpu.encode(), torch.__version__.encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _compile(compiler: str, folder: Path) -> Path:
    """The library, linked without an OpenMP of its own: torch has brought one, and two would fight for the cores."""
    told = ""
    for flags in _FLAGS:
        for link in ((), ("-fopenmp",)):
            made = folder / f"kernels{len(flags)}{len(link)}.so"
            try:
                _run([compiler, *flags, "-c", str(_SOURCE), "-o", str(folder / "kernels.o")])
                _run([compiler, "-shared", str(folder / "kernels.o"), "-o", str(made), *link])
                _open(made)
                return made
            except _NotBuiltError as error:
                told = told or str(error)
    raise _NotBuiltError(told)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.SubprocessError):
        raise _NotBuiltError(f"the C++ compiler {command[0]} does not run") from None
    if done.returncode:
        words = (done.stderr.strip() or "no message").splitlines()[0]
        raise _NotBuiltError(f"the C++ compiler {command[0]} cannot compile the kernels ({words})")


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


def _open(path: Path) -> Kernels:
    """A library that loads and computes what it should."""
    try:
        kernels = Kernels(ctypes.CDLL(str(path)))
        right = _right(kernels)
    except (OSError, AttributeError):
        raise _NotBuiltError("the compiled kernels do not load") from None
    if not right:
        raise _NotBuiltError("the compiled kernels compute wrong numbers")
    return kernels


def _right(kernels: Kernels) -> bool:
    """One small convolution of each kind against PyTorch's."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).contiguous(memory_format=torch.channels_last)

    x, h, a, d = random(2, 8, 5, 6), random(2, 24, 5, 6), *torch.randn(2, 8, generator=generator)
    for side in (1, 3):
        weight = random(24, 8, side, side)
        y, _ = kernels.conv(Source(ACT, x, a=a, d=d), weight, Sink(ADD, add=h))
        activated = torch.relu(a.view(-1, 1, 1) * x + d.view(-1, 1, 1))
        expected = torch.nn.functional.conv2d(activated, weight, padding=side // 2) + h
        if not torch.allclose(y, expected, rtol=1e-4, atol=1e-4):
            return False
    return True


def _tell(sentence: str) -> None:
    print(f"resnets: {sentence}", file=sys.stderr, flush=True)
