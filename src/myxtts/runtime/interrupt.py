"""Ctrl-C and SIGTERM for commands that do not watch signals themselves: an exception in the main thread, but never in
the middle of a lock.

Python raises the exception of a signal between any two instructions. Inside `threading` or `concurrent.futures` that
leaves a lock taken: other threads wait for it for ever, and the program neither works nor ends. So the exception waits
until the main thread is out of these modules, or blocked in them, where raising is safe.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

from myxtts.errors import TERMINATED_EXIT_CODE

_LOCKING_MODULES = frozenset({"threading", "queue", "logging", "concurrent.futures._base", "concurrent.futures.thread"})
_LOOK_AGAIN_S = 0.005
"""Until the next look at a main thread that works on a lock."""


def raise_on_signals() -> None:
    """Makes SIGINT raise KeyboardInterrupt, and SIGTERM SystemExit, so that `finally` blocks and contexts run."""
    interrupt = _Interrupt()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Ignored by the parent, as behind nohup or in a shell script's background: stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt.receive)


class _Interrupt:
    """Handler of both signals: while the main thread works on a lock, a timer makes it look again."""

    def __init__(self) -> None:
        self._place: tuple[FrameType, int] | None = None

    def receive(self, number: int, frame: FrameType | None) -> None:
        place = (frame, frame.f_lasti) if frame is not None else None
        # The same call at the same instruction as 5 ms ago: it waits for another thread, and raising is safe.
        if place != self._place and _is_locking(frame):
            self._place = place
            signal.signal(signal.SIGALRM, lambda _alarm, then: self.receive(number, then))
            signal.setitimer(signal.ITIMER_REAL, _LOOK_AGAIN_S)
            return
        self._place = None
        _raise(number)


def _raise(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    # A second SIGTERM kills at once: the clean-up that the first one started may hang.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise SystemExit(TERMINATED_EXIT_CODE)


def _is_locking(frame: FrameType | None) -> bool:
    """Whether any call of the stack belongs to a module that takes locks."""
    while frame is not None:
        if frame.f_globals.get("__name__") in _LOCKING_MODULES:
            return True
        frame = frame.f_back
    return False
