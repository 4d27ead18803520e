"""Networks for `torch.hub`: `torch.hub.load(folder, "resnet50", source="local", pretrained=True)`.

Every name of `resnets.list_models("*")` is an entry whose keywords are those of `resnets.create`; names with characters
that Python does not allow do not exist. `load` takes what `resnets.load` takes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    import resnets
except ModuleNotFoundError as _error:
    if _error.name != "resnets":
        raise
    sys.path.insert(0, str(Path(__file__).parent / "src"))  # a clone that is not installed
    import resnets

dependencies = ["torch", "numpy", "PIL", "rich", "safetensors"]


def load(what: str, **options: Any) -> Any:
    """A trained network by its pretrained name, or from a file; see `resnets.load`."""
    return resnets.load(what, **options)


def _entry(name: str) -> Callable[..., Any]:
    @functools.wraps(resnets.create)
    def create(pretrained: bool | str = False, **options: Any) -> Any:
        return resnets.create(name, pretrained=pretrained, **options)

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f"{name}; the keywords are those of `resnets.create`.\n\n{resnets.create.__doc__}"
    return create


globals().update({_name: _entry(_name) for _name in resnets.list_models("*")})
