"""Commands from option records: the parser, and what was given on the command line and in a configuration file."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnets.atomic import make_folder_of, write_atomically
from resnets.cli.parser import HelpAll, Parser
from resnets.errors import UserError
from resnets.options import fields_of, kind_of, parse_value, split_keywords
from resnets.text import printable
from resnets.user_code import import_file

if TYPE_CHECKING:
    from resnets.cli.parser import Commands

NETWORK_FIELDS = ("num_classes", "depth", "order", "shortcut", "kernels", "stem")  # that `--help` shows


class Command:
    """A command whose options are the fields of records.

    `read` gives, for each record, the fields that the user named: in the file of `--config`, or on the command line,
    which comes first.
    """

    def __init__(self, commands: Commands, name: str, *records: type, **settings: Any) -> None:
        self.parser: Parser = commands.add_parser(name, **settings)
        self.records = records
        self.groups: dict[str, Any] = {}

    def add(self, *names: str, **settings: Any) -> None:
        """An argument, or an option that is no field of a record, such as --json."""
        self.parser.add_argument(*names, **settings)

    def add_options(self, hidden: tuple[str, ...] = (), common: tuple[str, ...] | None = None) -> None:
        """An option for every field, but for those that are arguments of the command.

        With `common`, `--help` shows these fields alone, and `--help-all` all of them.
        """
        if common is not None:
            self.parser.add_argument("--help-all", action=HelpAll, help="show all options")
        for record in self.records:
            for field in fields_of(record).values():
                if field.name not in hidden:
                    action = _add(self._group(field.metadata["group"]), field)
                    if common is not None and field.name not in common:
                        self.parser.rare.append(action)
        self.add("--config", help="TOML file with options of this command", metavar="FILE")
        self.add("--import", help="Python file that registers shortcuts or orders of your own", metavar="FILE.py")

    def _group(self, title: str) -> Any:
        if not title:
            return self.parser
        if title not in self.groups:
            self.groups[title] = self.parser.add_argument_group(title)
        return self.groups[title]

    def run(self, function: Callable[[argparse.Namespace], int | None]) -> None:
        self.parser.set_defaults(run=function)

    def read(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        if file := getattr(args, "import", None):
            import_file(file)
        given = {name: value for name, value in vars(args).items() if _is_option(name, self.records)}
        filed = read_config(Path(args.config)) if args.config else {}
        both = zip(split_keywords(filed, *self.records), split_keywords(given, *self.records), strict=True)
        return [{**in_file, **on_line} for in_file, on_line in both]


def _is_option(name: str, records: tuple[type, ...]) -> bool:
    known = (field for record in records for field in fields_of(record).values())
    return any(name == field.name or name in field.metadata["aliases"] for field in known)


def _add(group: Any, field: dataclasses.Field[Any]) -> argparse.Action:
    """The option of a field; its aliases are not in the help."""
    known, name = field.metadata, f"--{field.name.replace('_', '-')}"
    names = [known["short"], name] if known["short"] else [name]
    settings: dict[str, Any] = {"dest": field.name, "default": argparse.SUPPRESS, "help": _help(field)}
    if kind_of(field) == "bool":
        one_way = field.default is False and known["group"] not in ("recipe", "network")
        settings["action"] = "store_true" if one_way else argparse.BooleanOptionalAction
    else:
        settings |= {"type": show_mistakes(lambda text: parse_value(field, text)), "metavar": _metavar(field)}
    action: Any = group.add_argument(*names, **settings)
    action.words = known["choices"]  # for `resnets completion`
    for alias in known["aliases"]:
        hidden = {"dest": alias, "default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
        if kind_of(field) == "bool":
            hidden["action"] = "store_true"
        elif known["aliases"][alias] == "{}":  # the same value under another name
            hidden["type"] = settings["type"]
        group.add_argument(f"--{alias.replace('_', '-')}", **hidden)
    return action


def _help(field: dataclasses.Field[Any]) -> str:
    """The help with the choices and the default, where it does not name them itself."""
    text = field.metadata["help"]
    if field.metadata["choices"] and not any(choice in text for choice in field.metadata["choices"]):
        text += f": {', '.join(field.metadata['choices'])}"
    if field.metadata.get("show", True) and kind_of(field) != "bool" and field.default not in (None, "", ()):
        text += f" ({field.default:g})" if isinstance(field.default, float) else f" ({field.default})"
    return text.replace("%", "%%")


def _metavar(field: dataclasses.Field[Any]) -> str:
    return field.metadata["metavar"] or {"int": "N", "float": "X"}.get(kind_of(field), field.name.upper())


def show_mistakes(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser of values whose mistakes argparse shows with the option's name."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except UserError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def write_config(path: Path, first_line: str, options: Mapping[str, Any]) -> None:
    """Write options as TOML that `read_config` reads, below a line of comment."""
    lines = [f"# {printable(first_line)}", *(f"{name} = {_to_toml(value)}" for name, value in options.items())]
    make_folder_of(path)
    write_atomically(path, "\n".join([*lines, ""]).encode())


def _to_toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_to_toml, value))}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def read_config(path: Path) -> Mapping[str, Any]:
    """The options in a TOML file: `ten_crop = true`, or `ten-crop = true`; tables only group them."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[import-not-found, no-redef]
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not TOML: {error}.") from None
    flat: dict[str, Any] = {}
    for name, value in content.items():
        for key, given in value.items() if isinstance(value, dict) else [(name, value)]:
            if (key := key.replace("-", "_")) in flat:
                raise UserError(f"{path} has {key} twice.")
            flat[key] = given
    return flat
