"""The policy for images that cannot be decoded: raise an error, or skip them with a warning."""

from __future__ import annotations

from collections.abc import Callable

from resnets.errors import UserError, one_of

POLICIES = ("error", "skip")
_WARNINGS = 10


def require_policy(policy: str) -> None:
    if policy not in POLICIES:
        raise one_of("policy for bad images", policy, POLICIES)


class BadImages:
    """A policy, and the paths of the bad images that were found."""

    def __init__(self, policy: str = "error", warn: Callable[[str], None] = lambda sentence: None) -> None:
        require_policy(policy)
        self.policy, self.warn = policy, warn
        self.met: set[str] = set()

    def judge(self, path: str, fault: str) -> None:
        """Raise or warn. `fault` is the end of a sentence that starts with the path."""
        if self.policy == "error":
            raise UserError(f"{path} {fault}; remove it, or skip such images with --bad-images skip.")
        if path not in self.met:
            self.met.add(path)
            if len(self.met) <= _WARNINGS:
                more = "; no warnings for further ones" if len(self.met) == _WARNINGS else ""
                self.warn(f"{path} {fault}; skipped{more}.")
