"""The runs of a folder as a table."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from resnets.errors import UserError
from resnets.ownership import open_plain
from resnets.runs import Run


def row(run: Run) -> dict[str, Any]:
    """State, progress and errors of a run; the time left follows from the speed it last had."""
    config, identity, result = run.config, run.identity, run.result
    lines = [line for line in run.metrics() if line["kind"] == "train"]
    last = lines[-1] if lines else None
    step, total = (last["step"] if last else 0), config["steps"]
    left = None
    if result is None and last and last["images_per_second"]:
        left = max(0, total - step) * identity.recipe.batch / last["images_per_second"]
    state = "finished" if result else "training" if _locked(run.path) else "stopped"
    return {
        "run": run.path.name,
        "state": state,
        "step": result["steps"] if result else step,
        "steps": total,
        "loss": last["loss"] if last else None,
        "validation": result.get("validation", {}).get("error") if result else None,
        "test": result.get("test", {}).get("error") if result else None,
        "seconds_left": round(left) if left is not None and math.isfinite(left) else None,
    }


def _locked(path: Path) -> bool:
    """Whether a living process holds the run."""
    try:
        import fcntl

        with os.fdopen(open_plain(path / ".lock", os.O_RDONLY)) as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except ImportError:
        return False
    except BlockingIOError:
        return True
    except (OSError, UserError):
        return False
    return False
