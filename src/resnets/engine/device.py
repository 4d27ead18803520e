"""The device that a command runs on."""

from __future__ import annotations

import torch

from resnets.engine import require_mode
from resnets.engine.allocator import keep_freed_memory
from resnets.errors import UserError


def start_engine(device: str | torch.device, engine: str, memory: str) -> torch.device:
    """Get ready to train: check the options, choose the device, and keep freed memory in the process."""
    require_mode(engine, memory)
    chosen = choose(device)
    if engine != "plain":
        keep_freed_memory()
    return chosen


def choose(name: str | torch.device) -> torch.device:
    """The named device; `auto` is an accelerator if there is one, else the CPU."""
    if isinstance(name, torch.device):
        return name
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator() if hasattr(torch, "accelerator") else None
        return torch.device(accelerator.type if accelerator is not None else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()  # torch knows names of devices that this machine does not have
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UserError(f"there is no device {name!r} here; choose cpu, or auto for the best there is.") from None
    return device
