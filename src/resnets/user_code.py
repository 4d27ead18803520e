"""Import Python files of the user, which register shortcuts and orders."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from resnets.errors import UserError, shown

IMPORTED: list[str] = []  # the files, for processes that this one starts


def import_file(path: str | Path) -> ModuleType:
    """Import a Python file as a module, once in a process."""
    file = Path(path).resolve()
    known = sys.modules.get(file.stem)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    if known is not None or file.stem in sys.stdlib_module_names:
        raise UserError(f"{path} cannot be imported, because there is another module {file.stem}; rename the file.")
    spec = importlib.util.spec_from_file_location(file.stem, file) if file.is_file() else None
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file; give one that registers shortcuts or orders.")
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[file.stem]
        if not isinstance(error, Exception):
            raise
        raise UserError(f"{path} fails with {type(error).__name__}: {shown(str(error))}.") from error
    IMPORTED.append(str(file))
    return module
