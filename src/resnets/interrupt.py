"""Ctrl-C during imports: print one sentence and exit with code 130, instead of a traceback.

This module imports almost nothing, so that it takes effect before anything slow.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from types import FrameType
else:
    import _signal as signal  # without the enums of `signal`, which are slow to import

STOPPED = "stopped by Ctrl-C."


def end_imports_on_ctrl_c() -> Callable[[], object]:
    """Let Ctrl-C during an import end the process, until the returned function is called.

    An exception would be lost there: callbacks of the import system drop it, and some modules catch it. Outside of
    imports Ctrl-C raises KeyboardInterrupt as usual. A handler that the caller has set stays.
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
