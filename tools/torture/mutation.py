"""Break files: change, cut off and repeat bytes; put unexpected values into JSON."""

from __future__ import annotations

import copy
import json
import math
import random
import struct
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 0.5, -2.5, 1e308, math.nan, math.inf, -math.inf, 2**31, 2**63, 2**70, "", "x",
    "1", "nan", "\x1b[31mred\x1b[0m", "../../etc/passwd", "<script>torture</script>", "=1+1", "a" * 5000, "\ud800",
    "１２", "null", [], {}, [[]], [None], [1, 2], {"": 0}, {"name": []}, [1e400], "\u202e", "a\0b", "a\nb",
)  # fmt: skip


def mutate(data: bytes, draw: random.Random) -> bytes:
    """Change, cut off, remove or repeat bytes, or write a large size over four of them."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8))):
        if not found:
            break
        at = draw.randrange(len(found))
        match draw.randrange(6):
            case 0:
                found[at] = draw.randrange(256)
            case 1:
                found[at] ^= 1 << draw.randrange(8)
            case 2:
                del found[max(at, 4) :]
            case 3:
                del found[at : at + draw.randrange(1, 20)]
            case 4:
                found[at:at] = found[at : at + draw.randrange(1, 40)]
            case 5:
                found[at : at + 4] = struct.pack(">I", draw.choice((0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)))
    return bytes(found)


def near_front(data: bytes, draw: random.Random) -> bytes:
    """`mutate`, mostly in the header: the rest of most files is only numbers."""
    front = draw.choice((64, 300, 2000))
    return mutate(data[:front], draw) + data[front:] if draw.random() < 0.6 else mutate(data, draw)


def odd_json(value: Any, draw: random.Random) -> Any:
    """A copy with one to three places changed, gone, doubled or renamed."""
    found = [copy.deepcopy(value)]
    for _ in range(draw.choice((1, 1, 2, 3))):
        _change(found, draw)
    return found[0]


def _change(root: list[Any], draw: random.Random) -> None:
    """Walk down to a random place, and change it."""
    holder: Any = root
    key: Any = 0
    while isinstance(holder[key], (dict, list)) and holder[key] and draw.random() < 0.85:
        holder = holder[key]
        key = draw.choice(list(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
    match draw.randrange(8):
        case 0 if holder is not root:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[draw.choice(("", "x", "name", "__class__", "\x1b[2J"))] = holder.pop(key)
        case 2 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        case 3 if isinstance(holder[key], str):
            holder[key] += draw.choice(("\x1b[2J", "\0", "é", "<b>", "/../x", " "))
        case 4 if isinstance(holder[key], (int, float)):
            holder[key] = draw.choice((-holder[key], holder[key] * 10**6, str(holder[key]), float("nan")))
        case 5:
            holder[key] = [holder[key]]
        case _:
            holder[key] = copy.deepcopy(draw.choice(ODD))


def broken_json(value: Any, draw: random.Random) -> bytes:
    """As the bytes of a file: odd values mostly, else broken text."""
    if draw.random() < 0.75:
        return json.dumps(odd_json(value, draw)).encode()
    if draw.random() < 0.1:
        return draw.choice((b"", b"[" * 100_000, b"{}", b"null", b"[]", b'"x"', b"\xff\xfe", b"\xef\xbb\xbf{}", b"0"))
    return mutate(json.dumps(value).encode(), draw)
