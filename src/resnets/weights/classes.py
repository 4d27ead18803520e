"""Names of classes from a JSON file."""

from __future__ import annotations

import json

from resnets.errors import UserError

Names = tuple[str, ...]


def read_classes(text: bytes, count: int, where: object) -> tuple[Names, Names]:
    """The classes' names, and those of their folders where these are others.

    The file has a list or an object from "0" on, with a name or a pair of folder and name for each class.
    """
    try:
        given = json.loads(text)
        rows = [given[str(i)] for i in range(count)] if isinstance(given, dict) else given
        pairs = [(row, row) if isinstance(row, str) else (row[0], row[1]) for row in rows]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        rows, pairs = [], []
    words = [word for pair in pairs for word in pair]
    if not isinstance(rows, list) or len(rows) != count or not all(isinstance(word, str) for word in words):
        raise UserError(
            f'{where} must be JSON with a name for each of {count} classes: a list, or an object with "0", "1" and on.'
        )
    folders = tuple(folder for folder, name in pairs if folder != name)
    names = tuple(name.replace("_", " ") for _, name in pairs)
    return names, folders if len(set(folders)) == count else ()
