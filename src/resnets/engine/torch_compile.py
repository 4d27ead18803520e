"""A unit by torch.compile. Units of one kind share what is compiled, so that depth costs no compiling."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from resnets.errors import UserError
from resnets.nn import Unit

KINDS = 64  # of units in a network, and more: beyond its own limit torch.compile falls silently back to eager


class CompiledUnit:
    """A compiled unit. If it cannot be compiled, as without a C++ compiler, a `UserError` says why."""

    def __init__(self, unit: Unit) -> None:
        raise_limit()
        self.unit = torch.compile(unit, dynamic=False)

    def __call__(self, x: Tensor) -> Tensor:
        import torch._dynamo.exc

        try:
            return self.unit(x)
        except torch._dynamo.exc.TorchDynamoException as error:
            said = " ".join(str(error).split("\n\n")[0].split()) or type(error).__name__
            raise UserError(f"torch.compile cannot compile a unit here ({said}); take --engine auto.") from error


def raise_limit() -> None:
    import torch._dynamo as dynamo

    config: Any = dynamo.config
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # before torch 2.6
    setattr(config, name, max(getattr(config, name), KINDS))
