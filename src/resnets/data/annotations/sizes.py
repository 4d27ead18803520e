"""The width and height of a picture, from the beginning of its file."""

from __future__ import annotations

from resnets.errors import UserError


def read_size(path: str) -> tuple[int, int]:
    from resnets.data.decode import BadImageError, Opened, read  # imports torch

    try:
        return Opened(read(path)).size
    except BadImageError as bad:
        raise UserError(f"{path} {bad}.") from None
