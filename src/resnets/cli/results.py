"""Write a result as JSON, with its provenance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resnets.text import json_text


def write_result(path: Path, result: dict[str, Any]) -> None:
    from resnets.atomic import write_atomically
    from resnets.runs import provenance

    write_atomically(path, (json_text({**result, **provenance()}, indent=1) + "\n").encode())
