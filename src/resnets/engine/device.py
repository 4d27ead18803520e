"""Which device a command runs on."""

from __future__ import annotations

import torch

from resnets.errors import UserError


def choose(name: str | torch.device) -> torch.device:
    """The named device; `auto` is an accelerator if there is one, else the CPU."""
    if isinstance(name, torch.device):
        return name
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator() if hasattr(torch, "accelerator") else None
        return torch.device(accelerator.type if accelerator is not None else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()  # some are known to torch and not there
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UserError(f"there is no device {name!r} here; choose cpu, or auto for the best there is.") from None
    return device
