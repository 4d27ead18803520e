"""What is done about images that cannot be decoded: they end the work, or are passed over and told."""

from __future__ import annotations

from collections.abc import Callable

from resnets.errors import UserError, one_of

POLICIES = ("error", "skip")
_TOLD = 10  # that are named


def require_policy(policy: str) -> None:
    if policy not in POLICIES:
        raise one_of("policy for bad images", policy, POLICIES)


class BadImages:
    """A policy, and the paths of the images that it met."""

    def __init__(self, policy: str = "error", warn: Callable[[str], None] = lambda sentence: None) -> None:
        require_policy(policy)
        self.policy, self.warn = policy, warn
        self.met: set[str] = set()

    def judge(self, path: str, fault: str) -> None:
        """`fault` is the end of a sentence that begins with the path."""
        if self.policy == "error":
            raise UserError(f"{path} {fault}; remove it, or pass over such images by --bad-images skip.")
        if path not in self.met:
            self.met.add(path)
            if len(self.met) <= _TOLD:
                more = "; further ones are not told" if len(self.met) == _TOLD else ""
                self.warn(f"{path} {fault}; passed over{more}.")
