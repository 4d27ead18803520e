"""Write a result as JSON, with its provenance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnets.text import json_text


def write_result(path: Path, result: dict[str, Any]) -> None:
    from resnets.atomic import make_folder_of, write_atomically
    from resnets.runs import provenance_to_publish

    make_folder_of(path)
    write_atomically(path, (json_text({**result, **provenance_to_publish()}, indent=1) + "\n").encode())


def trace_weights(words: Sequence[str], nets: Sequence[Any]) -> list[dict[str, Any]]:
    """Where each network's weights come from: the run that trained them, or what their file says."""
    from resnets.runs import Run

    found = []
    for word, net in zip(words, nets, strict=True):
        path = Path(word)
        run = Run(path.parent if path.name == "final.safetensors" else path)
        found.append({"run": run.path.name, **run.origin} if run.exists else dict(net.metadata.provenance))
    return found
