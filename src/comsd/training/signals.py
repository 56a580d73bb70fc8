"""Stopping at a signal: the first is noted, the second interrupts.

What goes on for too long after the first is given up, wherever it is.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Overdue(BaseException):
    """A step of training went on for too long after a signal."""


class Stop:
    """Set by the first SIGINT, SIGTERM or SIGHUP; the second interrupts at once.

    patience: seconds from the first until `Overdue` is raised; for ever if there are none.
    """

    def __init__(self, patience: float = 0.0) -> None:
        self.signal: int | None = None
        self.patience, self.saving = patience, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGALRM:
            if not self.saving:
                raise Overdue
            return
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        if self.patience:
            signal.setitimer(signal.ITIMER_REAL, self.patience)

    @contextmanager
    def held_off(self) -> Iterator[None]:
        """While a state is saved, which is never given up."""
        self.saving = True
        try:
            yield
        finally:
            self.saving = False

    def requested(self) -> bool:
        return self.signal is not None


@contextmanager
def graceful_stop(patience: float = 0.0) -> Iterator[Stop]:
    stop, signals = Stop(patience), [signal.SIGINT, signal.SIGTERM]
    if patience:
        signals.append(signal.SIGALRM)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # not under nohup: a terminal that closes
        signals.append(signal.SIGHUP)
    try:
        before = {s: signal.signal(s, stop) for s in signals}
    except ValueError:  # not the main thread: the caller looks after signals
        before = {}
    try:
        yield stop
    finally:
        if patience and before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
