"""Build HTML. Everything that is not `Html` is escaped, so that no label in a file can become markup."""

from __future__ import annotations

import html
from collections.abc import Iterable

from resnets.text import printable

_EMPTY = ("meta", "br")  # elements without an end


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escape(child: object) -> Html:
    return child if isinstance(child, Html) else Html(html.escape(printable(str(child))))


def join(children: Iterable[object]) -> Html:
    return Html("".join(map(escape, children)))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """`tag("td", "a < b", class_="missing")`; attributes that are None or False are left out."""
    words = [name]
    for word, value in attributes.items():
        key = word.rstrip("_").replace("_", "-")
        if value is True:
            words.append(key)
        elif value is not None and value is not False:
            words.append(f'{key}="{html.escape(printable(str(value)))}"')
    return Html(f"<{' '.join(words)}>{join(children)}" + ("" if name in _EMPTY else f"</{name}>"))
