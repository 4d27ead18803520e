"""The API reference: Markdown from the docstrings of the public names, as they are after the import.

The options of a verb are added to its docstring when the package is imported, so a reader of source text would not find
them. Examples are the lines that begin with `>>>`; `tests/docs/test_examples.py` runs them.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import resnets

_WIDTH = 88  # of a signature in one line
_OPTION = re.compile(r"^    (\w+): (.*?)(?: \(default: (.*)\))?$", re.DOTALL)


def document(name: str) -> str:
    """The section of a public name: signature, docstring, and for classes their public methods and properties."""
    found = getattr(resnets, name)
    parts = [f"### resnets.{name} {{ #{name} }}", _write_signature(name, found), convert(inspect.getdoc(found) or "")]
    if inspect.isclass(found):
        parts += _document_members(found)
    return "\n\n".join(part for part in parts if part)


def _write_signature(name: str, found: Any) -> str:
    """How it is called; options that the docstring lists and that are only keywords are three dots."""
    if not callable(found) or (inspect.isclass(found) and issubclass(found, Exception)):
        return ""
    listed = set(re.findall(r"^    (\w+): ", _split_options(inspect.getdoc(found) or "")[1], re.MULTILINE))
    shown, hidden, keywords = [], False, False
    for each in inspect.signature(found).parameters.values():
        named = each.kind is each.KEYWORD_ONLY
        if (named and each.name in listed) or (each.kind is each.VAR_KEYWORD and listed):
            hidden = True
            continue
        shown += ["*"] * (named and not keywords)
        keywords |= named
        shown.append(_write_parameter(each))
    shown += ["..."] * hidden
    line = f"resnets.{name}({', '.join(shown)})"
    if len(line) > _WIDTH:
        line = f"resnets.{name}(\n" + "".join(f"    {each},\n" for each in shown) + ")"
    return f"```python\n{line}\n```"


def _write_parameter(each: inspect.Parameter) -> str:
    star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    if each.default is each.empty:
        return star + each.name
    default = "..." if inspect.isfunction(each.default) else repr(each.default)
    return f"{each.name}={default}"


def _document_members(found: type) -> list[str]:
    """Public methods and properties that the package itself defines and documents."""
    lines = []
    for name, member in sorted(vars(found).items()):
        text = member.__doc__ if inspect.isfunction(member) or isinstance(member, property) else None
        if not name.startswith("_") and text:
            call = "" if isinstance(member, property) else _write_call(member)
            lines.append(f"`{name}{call}`\n:   " + textwrap.indent(convert(inspect.cleandoc(text)), "    ").lstrip())
    return lines


def _write_call(member: Any) -> str:
    parameters = list(inspect.signature(member).parameters.values())[1:]
    return f"({', '.join(map(_write_parameter, parameters))})"


def convert(docstring: str) -> str:
    """A docstring as Markdown: examples become code, options a table."""
    text, options = _split_options(docstring)
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        begins = line.startswith(">>> ")
        if begins and not inside:
            lines += ["", "```pycon"]
        elif inside and not line.strip():
            lines.append("```")
        inside = begins or (inside and bool(line.strip()))
        lines.append(line)
    return "\n".join(lines + ["```"] * inside).strip() + _write_options(options)


def _split_options(docstring: str) -> tuple[str, str]:
    text, _, options = docstring.partition("\nOptions:\n")
    return text, options


def _write_options(options: str) -> str:
    if not options:
        return ""
    rows = ["", "", "| option | meaning | default |", "|---|---|---|"]
    for entry in re.split(r"\n(?=    \w)", options.rstrip()):
        flat = "    " + re.sub(r"\s+", " ", entry.strip())
        name, text, default = _OPTION.fullmatch(flat).groups()  # type: ignore[union-attr]
        cells = (f"`{name}`", text.replace("|", "\\|"), f"`{default}`" if default else "")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)
