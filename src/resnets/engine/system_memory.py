"""Available memory, and the memory of this process."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

_CGROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # version 1 writes no limit as a number of about 2^63


def available(device: torch.device | str = "cpu") -> int | None:
    """Bytes that a process can still take on a device, or None if it is unknown."""
    place = torch.device(device)
    if place.type == "cuda":
        return torch.cuda.mem_get_info(place)[0]
    if place.type != "cpu":
        return None
    if sys.platform.startswith("linux"):
        return min([*_meminfo(), *_cgroups()], default=None)
    try:  # all memory: these systems do not say how much of it is free
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def held() -> int:
    """Bytes that this process holds: now on Linux, the peak elsewhere, 0 if unknown."""
    if words := _text(Path("/proc/self/statm")).split():
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE")
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _meminfo() -> Iterator[int]:
    found = re.search(r"^MemAvailable:\s*(\d+) kB", _text(Path("/proc/meminfo")), re.MULTILINE)
    if found:
        yield int(found[1]) << 10


def _cgroups() -> Iterator[int]:
    """What the limits of this process's groups leave: a group's own and those of the groups around it."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, names = _CGROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            root = _CGROUPS / "memory"
        else:
            continue
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            yield from _left(folder, *names)
            if folder == root:
                break


def _left(folder: Path, limit: str, used: str, cache: str) -> Iterator[int]:
    """The limit less what is used, of which the page cache can be had back."""
    most, now = _text(folder / limit).strip(), _text(folder / used).strip()
    if most.isdigit() and now.isdigit() and int(most) < _UNLIMITED:
        found = re.search(rf"^{cache} (\d+)", _text(folder / "memory.stat"), re.MULTILINE)
        yield max(0, int(most) - int(now) + (int(found[1]) if found else 0))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
