"""`examine`: what this machine has for the package, and what to do about what it lacks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from resnets.cache import cache_dir
from resnets.errors import UserError
from resnets.native_build import find_compiler
from resnets.ownership import check_private_folder
from resnets.runs import cpu_name, find_version
from resnets.version import __version__
from resnets.weights.pretrained import list_pretrained

TESTED = {"python": "3.11", "torch": "2.13"}  # what the tests run with
FEATURES = ("avx2", "fma", "avx512f")  # of the CPU, that the kernels use
_LEFT_OUT = ("dev", "dist", "browser", "docs")  # extras for work on the package itself


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    group: str
    what: str
    value: str
    state: str = "ok"  # or "note": works, but could be better; or "problem": something does not work
    advice: str = ""  # what to do about it


def examine() -> list[Finding]:
    """Versions, CPU, compiled kernels, threads, memory, devices, cache, data, weights and extras, each with advice.

    The kernels are loaded, and compiled if they are not in the cache, since nothing else shows that they work.

    >>> problems = [found for found in resnets.doctor.examine() if found.state == "problem"]
    """
    parts: tuple[Callable[[], Iterator[Finding]], ...] = (
        *(_examine_versions, _examine_cpu, _examine_kernels, _examine_threads, _examine_devices),
        *(_examine_cache, _examine_data, _examine_weights, _examine_extras),
    )
    return [found for part in parts for found in part()]


def _examine_versions() -> Iterator[Finding]:
    yield Finding("versions", "resnets", f"{__version__} in {Path(__file__).parent}")
    yield _compare("python", platform.python_version())
    for name in [name for name, extra in _requirements() if not extra]:
        version = find_version(name)
        missing = Finding("versions", name, "missing", "problem", f"pip install {name}")
        yield _compare(name, version) if version else missing


def _compare(name: str, version: str) -> Finding:
    """A version beside that of the tests."""
    tested = TESTED.get(name)
    if tested is None or version == tested or version.startswith(f"{tested}."):
        return Finding("versions", name, version)
    return Finding("versions", name, version, "note", f"the tests run with {tested}; others may work")


def _requirements() -> Iterator[tuple[str, str]]:
    """The names of packages that this one needs, and for which extra."""
    for line in importlib.metadata.requires("resnets") or ():
        found = re.match(r"[A-Za-z0-9_.-]+", line)
        extra = re.search(r"extra == ['\"]([^'\"]+)['\"]", line)
        if found and "python_version" not in line:
            yield found[0], extra[1] if extra else ""


def _examine_cpu() -> Iterator[Finding]:
    yield Finding("cpu", "system", f"{platform.system()} {platform.machine()}")
    yield Finding("cpu", "name", cpu_name())
    flags = _cpu_flags()
    if flags is None:
        yield Finding("cpu", "features", "unknown on this system")
        return
    has = [name for name in FEATURES if name in flags]
    lacks = {"avx2", "fma"} - set(has)
    advice = "the kernels are made for AVX2 and FMA; without them PyTorch may be as fast" if lacks else ""
    yield Finding(
        "cpu", "features", ", ".join(has) or "none of " + ", ".join(FEATURES), "note" if lacks else "ok", advice
    )


def _cpu_flags() -> set[str] | None:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
    return None


def _examine_kernels() -> Iterator[Finding]:
    from resnets.data import jpeg
    from resnets.detection import operators
    from resnets.engine.native import build, network

    compiler = find_compiler()
    advice = "install a C++ compiler, such as Debian's package g++, or name one with CXX"
    missing = Finding("kernels", "compiler", "none", "problem", f"{advice}; until then PyTorch computes, more slowly")
    yield Finding("kernels", "compiler", compiler) if compiler else missing
    loaded = build.load()
    off = os.environ.get("RESNETS_NATIVE") == "0"
    for what, there, how in (
        ("training", loaded.kernels, loaded.how),
        ("inference", network.load().library, network.load().how),
        ("JPEG decoder", jpeg.load(), ""),
        ("regions of detectors", operators.load(), ""),
    ):
        if there is not None:
            private = how.startswith("compiled for this process")
            again = "it is compiled by every process; see cache" if private else ""
            yield Finding("kernels", what, how or "compiled", "problem" if private else "ok", again)
        elif off:
            yield Finding("kernels", what, "switched off", "note", "unset RESNETS_NATIVE to use them")
        else:
            yield Finding("kernels", what, how or "not compiled", "problem", "PyTorch or PIL do the work, more slowly")


def _examine_threads() -> Iterator[Finding]:
    import torch

    from resnets.data.decode_workers import count_cores

    cores = count_cores()
    threads = torch.get_num_threads()
    few = threads < cores
    why = "OMP_NUM_THREADS" if "OMP_NUM_THREADS" in os.environ else "torch"
    advice = f"{why} allows fewer threads than there are cores; --threads {cores} uses all" if few else ""
    yield Finding("threads", "cores", f"{cores} of {os.cpu_count()}")
    yield Finding("threads", "threads", str(threads), "note" if few else "ok", advice)
    with suppress(OSError, AttributeError):
        load = os.getloadavg()[0]
        busy = load > cores
        advice = "other programs compute too; --threads auto gives way to them" if busy else ""
        yield Finding("threads", "load", f"{load:.1f}", "note" if busy else "ok", advice)


def _examine_devices() -> Iterator[Finding]:
    import torch

    from resnets.engine.device import choose
    from resnets.engine.system_memory import available

    room = available()
    yield Finding("devices", "memory", "unknown" if room is None else f"{room / 2**30:.1f} GiB available")
    device = choose("auto")
    if device.type == "cpu":
        hidden = shutil.which("nvidia-smi") is not None and not torch.version.cuda
        advice = "this torch is built without CUDA; install one that has it" if hidden else ""
        yield Finding("devices", "accelerator", "none", "note" if hidden else "ok", advice)
        return
    name = torch.cuda.get_device_name() if device.type == "cuda" else device.type
    yield Finding("devices", "accelerator", f"{name}, {torch.accelerator.device_count()} of them")


def _examine_cache() -> Iterator[Finding]:
    try:
        folder = cache_dir()
    except UserError as error:
        yield Finding("cache", "folder", "none", "problem", str(error))
        return
    sizes = _measure(folder)
    yield Finding("cache", "folder", str(folder))
    parts = ", ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in sorted(sizes.items()))
    yield Finding("cache", "size", f"{sum(sizes.values()) / 2**20:,.0f} MiB" + (f" ({parts})" if parts else ""))
    place = next(place for place in (folder, *folder.parents) if place.exists())
    writable = place.is_dir() and os.access(place, os.W_OK)
    advice = "" if writable else "set RESNETS_CACHE to a folder that you can write"
    yield Finding("cache", "writable", "yes" if writable else "no", "ok" if writable else "problem", advice)
    fault = check_private_folder(folder / "native")
    advice = "kernels are compiled by every process; set RESNETS_CACHE to a folder of your own" if fault else ""
    value = fault or "only you can change the compiled kernels"
    yield Finding("cache", "trust", value, "problem" if fault else "ok", advice)


def _measure(folder: Path) -> dict[str, int]:
    """The bytes of each entry of a folder; files that vanish meanwhile are left out."""
    sizes: dict[str, int] = defaultdict(int)
    for root, _, names in os.walk(folder):
        inside = Path(root).relative_to(folder).parts
        for name in names:
            with suppress(OSError):
                sizes[inside[0] if inside else name] += os.lstat(Path(root) / name).st_size
    return {name: size for name, size in sizes.items() if size >= 1 << 19}


def _examine_data() -> Iterator[Finding]:
    from resnets.data.sets import DATASETS

    for name in DATASETS:
        path = cache_dir() / f"{name}.npy"
        if path.is_file():
            yield Finding("data", name, str(path))
        else:
            yield Finding("data", name, "not in the cache", "note", f"resnets data fetch {name}")


def _examine_weights() -> Iterator[Finding]:
    rows = list_pretrained()
    here = [row["name"] for row in rows if row["file"]]
    yield Finding("weights", "here", ", ".join(here) or "none")
    others = len(rows) - len(here)
    yield Finding("weights", "to fetch", str(others), advice="resnets models --pretrained lists them" if others else "")


def _examine_extras() -> Iterator[Finding]:
    extras: dict[str, list[str]] = defaultdict(list)
    for name, extra in _requirements():
        if extra and extra not in _LEFT_OUT:
            extras[extra].append(name)
    for extra, names in sorted(extras.items()):
        versions = {name: find_version(name) for name in names}
        found = ", ".join(f"{name} {version or 'missing'}" for name, version in versions.items())
        if all(versions.values()):
            yield Finding("extras", extra, found)
        else:
            yield Finding("extras", extra, found, "note", f"pip install 'resnets[{extra}]'")
