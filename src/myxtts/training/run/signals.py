"""SIGTERM and Ctrl-C during training: the first signal requests a stop after the step, the second exits at once.

Signal numbers arrive through a wakeup pipe (`signal.set_wakeup_fd`) in a thread of their own, because a Python handler
does not run while the main thread is inside TensorFlow.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import Any

from myxtts.errors import INTERRUPTED_EXIT_CODE, TERMINATED_EXIT_CODE
from myxtts.types import Say

_EXIT_CODES = {signal.SIGTERM: TERMINATED_EXIT_CODE, signal.SIGINT: INTERRUPTED_EXIT_CODE}
_SAME_REQUEST_S = 0.02
"""Seconds within which a second signal of the same kind counts as the first: some supervisors signal a process and then
its whole group."""
_LAST_WORD_S = 1.0
"""Seconds that the second signal waits for its message to be shown: disk and terminal may hang."""
_END_OF_WATCH = 0
"""Byte that ends the signal thread; no signal has the number 0."""


class StopRequest:
    """Flag that a signal requested a stop; the training loop reads it after each step.

    `announce` is called at once with a sentence for the user, in a thread of its own: the main thread may be compiling
    for minutes. `next_stop` says in it when training will stop; the training loop keeps it up to date. `list_saved`
    returns the steps that have a checkpoint.
    """

    def __init__(
        self, announce: Say = lambda _line: None, list_saved: Callable[[], Sequence[int]] = lambda: ()
    ) -> None:
        self.is_requested = False
        self._number: int | None = None
        self._asked_at_s = 0.0
        self._announce, self._list_saved = announce, list_saved
        self.next_stop = "before its first step"

    @property
    def exit_code(self) -> int:
        """143 after SIGTERM, 130 after Ctrl-C, 0 without a signal."""
        return _EXIT_CODES[signal.Signals(self._number)] if self._number is not None else 0

    @property
    def name(self) -> str:
        """SIGTERM or SIGINT; empty without a signal."""
        return signal.Signals(self._number).name if self._number is not None else ""

    def reinstall(self) -> None:
        """Installs the handlers again: TensorFlow replaces them, outside Python, when it joins a cluster."""
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is _ignore:
            _install_handlers()

    def raise_if_requested(self) -> None:
        """Ends the program as the signal would have, once all is saved: with KeyboardInterrupt or exit code 143."""
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._number is not None:
            raise SystemExit(self.exit_code)

    def _receive(self, number: int) -> None:
        """Sets the flag at the first signal and exits the process at the second."""
        now_s = monotonic()
        if self._number is None:
            self._number, self._asked_at_s = number, now_s
            self.is_requested = True
            self._tell(
                f"{self.name}: training stops {self.next_stop}. A second signal ends it immediately, without saving"
            )
        elif number != self._number or now_s - self._asked_at_s > _SAME_REQUEST_S:
            self._tell(f"{signal.Signals(number).name} again: training ended without saving").join(_LAST_WORD_S)
            # Not sys.exit: the clean-up that the first signal started may itself hang.
            os._exit(_EXIT_CODES[signal.Signals(number)])

    def _tell(self, line: str) -> threading.Thread:
        """Announces `line` and what is saved, in a thread of its own.

        The thread of the signals must hear the second one even where disk or terminal hangs.
        """

        def announce() -> None:
            steps = self._list_saved()
            kept = f"step {steps[-1]:,} is kept, later steps are lost" if steps else "no step is kept"
            self._announce(f"{line}: {kept}.")

        thread = threading.Thread(target=announce, name="announce", daemon=True)
        thread.start()
        return thread


@contextmanager
def watch_signals(
    announce: Say = lambda _line: None, list_saved: Callable[[], Sequence[int]] = lambda: ()
) -> Iterator[StopRequest]:
    """Context in which SIGTERM and SIGINT set a StopRequest; afterwards the old handlers are restored.

    Signal handlers belong to the main thread: in any other thread the request is never set and signals act as before.
    """
    request = StopRequest(announce, list_saved)
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    # A handler in Python runs only when the main thread comes back from TensorFlow, which may compile for a minute.
    # The wakeup descriptor passes the number of the signal to a thread at once.
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    watcher = threading.Thread(target=_watch, args=(read_end, request), name="signals", daemon=True)
    watcher.start()
    old_descriptor = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    old_handlers = _install_handlers()
    try:
        yield request
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(old_descriptor)
        os.write(write_end, bytes([_END_OF_WATCH]))
        watcher.join()
        os.close(read_end)
        os.close(write_end)


def _install_handlers() -> dict[signal.Signals, Any]:
    """Installs the empty handlers; returns the former ones."""
    return {number: signal.signal(number, _ignore) for number in _EXIT_CODES}


def _watch(read_end: int, request: StopRequest) -> None:
    """Body of the signal thread: reads signal numbers from the pipe."""
    while (number := os.read(read_end, 1)[0]) != _END_OF_WATCH:
        if number in _EXIT_CODES:
            request._receive(number)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Replaces the default handler, which would end the program; the signal thread does the work."""


class _ForkCare:
    """Resets signal handling in forked children, which inherit the pipe: their signals would stop the parent.

    Signals are blocked during the fork, so that the child receives none before its default handlers are back.
    """

    def __init__(self) -> None:
        self._old_mask: set[int] | None = None

    def prepare(self) -> None:
        if signal.getsignal(signal.SIGTERM) is _ignore:
            self._old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _EXIT_CODES)

    def go_on_in_parent(self) -> None:
        old_mask, self._old_mask = self._old_mask, None
        if old_mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)

    def go_on_in_child(self) -> None:
        if self._old_mask is not None:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self.go_on_in_parent()


_fork_care = _ForkCare()
os.register_at_fork(
    before=_fork_care.prepare,
    after_in_parent=_fork_care.go_on_in_parent,
    after_in_child=_fork_care.go_on_in_child,
)
