"""Ctrl-C while modules are imported: one sentence and exit code 130, where Python would print a traceback.

It imports next to nothing, so that it is in force before anything that takes time.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from types import FrameType
else:
    import _signal as signal  # what `signal` wraps with enums, which take longer to import than all that comes before

STOPPED = "stopped by Ctrl-C."


def end_imports_on_ctrl_c() -> Callable[[], object]:
    """Until the function that it returns is called, Ctrl-C in the middle of an import ends the process at once.

    An exception would not do there: it is lost in callbacks of the import system, and some modules catch it. Elsewhere
    Ctrl-C raises KeyboardInterrupt as usual. Nothing changes where the caller handles or ignores it in his own way.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return lambda: None
    try:
        signal.signal(signal.SIGINT, _handle)
    except ValueError:  # not in the main thread
        return lambda: None
    return lambda: signal.signal(signal.SIGINT, signal.default_int_handler)


def _handle(number: int, frame: FrameType | None) -> None:
    if not _is_importing(frame):
        raise KeyboardInterrupt
    os.write(2, f"resnets: {STOPPED}\n".encode())
    os._exit(130)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
