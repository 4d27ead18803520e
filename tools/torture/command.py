"""A command of `resnets` in this process, and what must hold of every command whatever it was given."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path

from resnets.cli import main
from tools.torture.promises import BrokenPromiseError

doing = ""  # the command that was run last
FINE = "\n\t\r"  # control characters that command nothing


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def run(*words: str | Path) -> Done:
    """Run `resnets` with these words in the current folder; raises what escapes it, and what it must never do."""
    global doing  # noqa: PLW0603, for the one who counts
    argv = [str(word) for word in words]
    doing = argv[0] if argv else ""
    before = set(Path.cwd().rglob("*.part"))
    old, sys.argv = sys.argv, ["resnets", *argv]
    with (
        open(".out", "w+", encoding="utf-8") as out,
        open(".err", "w+", encoding="utf-8", errors="backslashreplace") as err,
    ):
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(argv)
        finally:
            sys.argv = old
        done = Done(code, _text(out), _text(err))
    check(argv, done)
    if left := set(Path.cwd().rglob("*.part")) - before:
        raise BrokenPromiseError("left behind", f"{argv[0]}: a file {min(left).suffix} is left")
    return done


def _text(file) -> str:  # type: ignore[no-untyped-def]
    file.flush()
    file.seek(0)
    return file.read()


def check(argv: list[str], done: Done) -> None:
    """The exit code is one of ours, a refusal says a sentence, and nothing that is printed commands a terminal."""
    name = argv[0] if argv else "resnets"
    if done.code not in (0, 1, 2):
        raise BrokenPromiseError("tracebacks", f"{name}: exit code {done.code}")
    if argv and done.code == 2 and not any(line.startswith("resnets: ") for line in done.err.splitlines()):
        raise BrokenPromiseError("left behind", f"{name}: refused without a sentence")
    for stream, text in (("stdout", done.out), ("stderr", done.err)):
        if bad := next((c for c in text if not c.isprintable() and c not in FINE), None):
            raise BrokenPromiseError("unsafe output", f"{name}: {bad!a} on {stream}")
