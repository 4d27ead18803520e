"""What can be broken, and how an attack says so."""

from __future__ import annotations

KINDS = {  # the order of the columns in docs/reliability.md
    "differing bytes": "a run that was disturbed ends with other bytes",
    "wrong numbers": "an edited network computes other numbers than PyTorch",
    "crashes": "a process is ended by a signal",
    "tracebacks": "an exception that is no UserError",
    "hangs": "no answer within the limit",
    "code executed": "a file ran code of its own",
    "over memory": "more than 1 GiB for one input",
    "unsafe output": "a foreign name commands a terminal, a browser or a spreadsheet",
    "left behind": "a refused command leaves part of a file, or says nothing",
}


class BrokenPromiseError(Exception):
    """A promise that an attack found broken: a kind of `KINDS`, and what happened in a short sentence."""

    def __init__(self, kind: str, what: str, amount: int = 1) -> None:
        assert kind in KINDS
        super().__init__(what)
        self.kind, self.what, self.amount = kind, what, amount


class SkippedError(Exception):
    """An attack that cannot be made on this machine, and why."""
