"""`resnets completion`: a script that completes commands, options and names in bash, zsh or fish.

The script is made from the parser. Nothing of the package runs while a user types.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resnets.detector_spec import DETECTORS, VGG
from resnets.errors import one_of
from resnets.options import SETS
from resnets.other_systems import OTHERS
from resnets.papers.tables import EXPERIMENTS
from resnets.recipe import RECIPES
from resnets.text import print_lines
from resnets.weights import pretrained
from resnets.weights.public import PUBLIC
from resnets.zoo import NETWORKS

if TYPE_CHECKING:
    from resnets.cli.parser import Commands, Parser

Words = tuple[str, ...]


@dataclass(frozen=True)
class Value:
    """What may stand behind an option or as an argument: one of some words, or the name of a file."""

    words: Words = ()
    file: bool = False


@dataclass(frozen=True)
class Option:
    names: Words
    help: str
    value: Value | None  # None: it takes none


@dataclass(frozen=True)
class CommandWords:
    """A command by its path, `data fetch`, with what may follow it."""

    path: str
    help: str
    commands: dict[str, str]  # below it, with their help
    options: tuple[Option, ...]
    argument: Value | None


def _words_by_metavar() -> dict[str, Value]:
    networks = (*NETWORKS, *OTHERS)
    trained = (*pretrained.index(), *PUBLIC)
    return {
        "NETWORK": Value((*networks, *DETECTORS, VGG), file=True),
        "NETWORK_OR_WEIGHTS": Value((*networks, *trained), file=True),
        "WEIGHTS": Value(trained, file=True),
        "PATTERN": Value(networks),
        "NAME": Value(networks),
        "RECIPE": Value(tuple(RECIPES)),
        "DATA": Value((*SETS.split(", "), "synthetic"), file=True),
        "EXPERIMENT": Value((*EXPERIMENTS, "all", "detection")),
        "SHELL": Value(tuple(SHELLS)),
        **dict.fromkeys(("FILE", "FILE.py", "DIR", "RUN", "RESULTS", "PICTURE", "SOURCE", "OUT"), Value(file=True)),
    }


def read_parser(parser: argparse.ArgumentParser) -> list[CommandWords]:
    """The commands of a parser, the parser itself first."""
    return list(_read(parser, "", "", _words_by_metavar()))


def _read(parser: argparse.ArgumentParser, path: str, help: str, known: dict[str, Value]) -> Iterator[CommandWords]:
    below: dict[str, argparse.ArgumentParser] = {}
    helps: dict[str, str] = {}
    options, argument = [], None
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
            helps = {shown.dest: _plain(shown.help) for shown in action._choices_actions}
        elif action.option_strings and action.help != argparse.SUPPRESS:
            value = None if action.nargs == 0 else _find_value(action, known)
            options.append(Option(tuple(action.option_strings), _plain(action.help), value))
        elif not action.option_strings:
            argument = _find_value(action, known)
    if path == "data fetch":
        argument = Value(tuple(SETS.split(", ")))
    yield CommandWords(path, help, helps, tuple(options), argument)
    for name, inner in below.items():
        yield from _read(inner, f"{path} {name}".strip(), helps.get(name, ""), known)


def _find_value(action: argparse.Action, known: dict[str, Value]) -> Value:
    if words := getattr(action, "words", None) or action.choices:
        return Value(tuple(map(str, words)))
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return known.get(metavar, Value())


def _plain(help: str | None) -> str:
    """Help as one short line that needs no escapes in any shell."""
    return re.sub(r"[^\w ,.;()/+-]", "", (help or "").replace("%%", "%"))[:70].strip()


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# --- bash -------------------------------------------------------------------------------------

_BASH = """\
_resnets() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" command="" words="" i
  if [[ $cur == "=" ]]; then cur=""; elif [[ $prev == "=" ]]; then prev="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command ${{COMP_WORDS[i]}}" in
      {paths}) command="${{command:+$command }}${{COMP_WORDS[i]}}";;
    esac
  done
  COMPREPLY=()
  case "$command $prev" in
{values}
    *)
      case "$command" in
{commands}
      esac;;
  esac
  if [[ $words == - ]]; then compopt +o default 2>/dev/null; return; fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _resnets resnets
"""


def write_bash(commands: list[CommandWords]) -> str:
    """Words that begin with what is typed; file names where there are none. A value that is neither has the word -."""
    paths = "|".join(_quote(command.path if " " in command.path else f" {command.path}") for command in commands[1:])
    values, bodies = [], []
    for command in commands:
        for option in command.options:
            if option.value is not None:
                names = "|".join(_quote(f"{command.path} {name}") for name in option.names)
                words = " ".join(option.value.words) or ("" if option.value.file else "-")
                values.append(f"    {names}) words={_quote(words)};;")
        options = " ".join(name for option in command.options for name in option.names)
        others = " ".join((*command.commands, *(command.argument.words if command.argument else ())))
        bodies.append(
            f"        {_quote(command.path)}) if [[ $cur == -* ]]; then words={_quote(options)}; "
            f"else words={_quote(others)}; fi;;"
        )
    return _BASH.format(paths=paths, values="\n".join(values), commands="\n".join(bodies))


# --- zsh --------------------------------------------------------------------------------------


def write_zsh(commands: list[CommandWords]) -> str:
    """One function for each command; `compdef` needs `autoload -U compinit; compinit` before it."""
    lines = ["#compdef resnets", '_resnets_names() { _alternative "names:name:($*)" "files:file:_files"; }']
    for command in commands:
        lines += [f"{_function(command.path)}() {{", "  local line state"]
        specs = [spec for option in command.options for spec in _zsh_specs(option)]
        if command.commands:
            specs += ["'1:command:->command'", "'*::argument:->argument'"]
        elif command.argument is not None:
            specs.append(_quote(f"*:argument:{_zsh_value(command.argument)}"))
        lines.append("  _arguments -C " + " \\\n    ".join(specs))
        if command.commands:
            shown = " ".join(_quote(f"{name}:{help}") for name, help in command.commands.items())
            lines += [
                "  case $state in",
                f"    command) local -a names=({shown}); _describe command names;;",
                "    argument) case $line[1] in",
                *(f"      {name}) {_function(f'{command.path} {name}'.strip())};;" for name in command.commands),
                "    esac;;",
                "  esac",
            ]
        lines.append("}")
    return "\n".join([*lines, "compdef _resnets resnets", ""])


def _function(path: str) -> str:
    return "_".join(("_resnets", *path.split()))


def _zsh_specs(option: Option) -> Iterator[str]:
    for name in option.names:
        value = "" if option.value is None else f":value:{_zsh_value(option.value)}"
        takes = "=" if value and name.startswith("--") else ""
        yield _quote(f"*{name}{takes}[{option.help}]{value}")


def _zsh_value(value: Value) -> str:
    """An action of `_arguments`, in which a colon would begin another value."""
    words = " ".join(value.words).replace(":", "\\:")
    if words and value.file:
        return f"{{_resnets_names {words}}}"
    return f"({words})" if words else "_files" if value.file else " "


# --- fish -------------------------------------------------------------------------------------


def write_fish(commands: list[CommandWords]) -> str:
    lines = ["complete -c resnets -f"]
    for command in commands:
        names = command.path.split()
        when = " and ".join(f"__fish_seen_subcommand_from {name}" for name in names)
        inner = " ".join(command.commands)
        if inner:
            unseen = f"not __fish_seen_subcommand_from {inner}"
            condition = f"{when} and {unseen}" if when else unseen
            for name, help in command.commands.items():
                lines.append(f"complete -c resnets -n {_quote(condition)} -a {name} -d {_quote(help)}")
        condition = f" -n {_quote(when)}" if when else " -n __fish_use_subcommand"
        for option in command.options:
            short = "".join(f" -s {name[1:]}" for name in option.names if not name.startswith("--"))
            long = "".join(f" -l {name[2:]}" for name in option.names if name.startswith("--"))
            value = "" if option.value is None else f" -r{_fish_value(option.value)}"
            lines.append(f"complete -c resnets{condition}{short}{long}{value} -d {_quote(option.help)}")
        if command.argument is not None:
            lines.append(f"complete -c resnets{condition}{_fish_value(command.argument)}")
    return "\n".join([*lines, ""])


def _fish_value(value: Value) -> str:
    words = f" -a {_quote(' '.join(value.words))}" if value.words else ""
    return f"{' -F' if value.file else ' -f'}{words}"


# --- the command ------------------------------------------------------------------------------

SHELLS: dict[str, Callable[[list[CommandWords]], str]] = {"bash": write_bash, "zsh": write_zsh, "fish": write_fish}
_USE = "bash: eval \"$(resnets completion bash)\" in ~/.bashrc; zsh: the same with zsh in ~/.zshrc, behind compinit; " \
    "fish: resnets completion fish | source in ~/.config/fish/config.fish."  # fmt: skip


def add_completion(make_parser: Callable[[], Parser]) -> Callable[[Commands], None]:
    """The command; it reads the whole parser, which `make_parser` makes."""

    def completion(commands: Commands) -> None:
        parser = commands.add_parser(
            "completion",
            help="print a script that completes commands, options and names in a shell",
            description=f"Print a script that completes commands, options and names. {_USE}",
        )
        parser.add_argument("shell", help=", ".join(SHELLS), metavar="SHELL")

        def run(args: argparse.Namespace) -> None:
            if args.shell not in SHELLS:
                raise one_of("shell", args.shell, SHELLS)
            print_lines(*SHELLS[args.shell](read_parser(make_parser())).rstrip("\n").split("\n"))

        parser.set_defaults(run=run)

    return completion
