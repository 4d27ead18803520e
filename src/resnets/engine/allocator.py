"""Keep freed memory in the process: a fresh page costs more than the arithmetic done on it."""

from __future__ import annotations

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h of glibc


def keep_freed_memory() -> bool:
    """Tell glibc not to give memory back between steps. `RESNETS_KEEP_MEMORY=0` opts out; elsewhere nothing happens."""
    if not sys.platform.startswith("linux") or os.environ.get("RESNETS_KEEP_MEMORY") == "0":
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
