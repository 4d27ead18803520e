"""Run networks fast: runners of units, memory modes, inference engines. `resnets.nn` does not import this."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from resnets.errors import UserError, one_of

if TYPE_CHECKING:
    from resnets.engine.frozen import freeze
    from resnets.engine.prepared import prepare
    from resnets.engine.threads import set_threads

ENGINES = {  # of training
    "auto": "whatever is fastest here",
    "plain": "PyTorch as it is",
    "compiled": "the units by torch.compile, in memory mode fast",
}
MODES = {  # of memory in training, the fastest first
    "fast": "whatever is fastest",
    "lean": "BN-ReLU is computed again in the backward pass; what convolutions produced is kept",
    "min": "lean, and the units are run again in segments, of which only the inputs are kept",
}

__all__ = ["ENGINES", "MODES", "freeze", "prepare", "require_mode", "set_threads"]
_WHERE = {  # what imports torch
    "freeze": "resnets.engine.frozen",
    "prepare": "resnets.engine.prepared",
    "set_threads": "resnets.engine.threads",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'resnets.engine' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def require_mode(engine: str, memory: str) -> None:
    """Refuse unknown engines and memory modes, and modes that an engine does not have."""
    if engine not in ENGINES:
        raise one_of("engine", engine, ENGINES)
    if memory not in (*MODES, "auto"):
        raise one_of("memory", memory, [*MODES, "auto"])
    if engine != "auto" and memory in ("lean", "min"):
        raise UserError(f"engine {engine} ({ENGINES[engine]}) has no memory mode {memory}; choose engine auto.")
