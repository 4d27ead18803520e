"""TensorBoard's event files, where they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from resnets.errors import UserError
from resnets.runs import Run


def writer_of(run: Run, tensorboard: bool) -> Callable[[dict[str, Any]], None]:
    """What each line of metrics is also given to: TensorBoard, or nothing."""
    if not tensorboard:
        return lambda line: None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("--tensorboard needs the extra: pip install 'resnets[tensorboard]'.") from None
    folder = run.path / "tensorboard"
    if folder.is_symlink():
        raise UserError(f"{folder} is a symbolic link, which is not followed; remove it.")
    events = SummaryWriter(str(folder))

    def write(line: dict[str, Any]) -> None:
        for name, value in line.items():
            numbers = {f"/{i}": v for i, v in enumerate(value, 1)} if isinstance(value, list) else {"": value}
            for which, number in numbers.items():  # a list has one for each size of the maps
                if name not in ("kind", "step") and isinstance(number, (int, float)):
                    events.add_scalar(f"{line['kind']}/{name}{which}", number, line["step"])
        events.flush()

    return write
