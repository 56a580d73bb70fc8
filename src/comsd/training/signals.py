"""Stopping at a signal: the first is noted, the second interrupts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Set by the first SIGINT, SIGTERM or SIGHUP; the second interrupts at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number

    def requested(self) -> bool:
        return self.signal is not None


@contextmanager
def graceful_stop() -> Iterator[Stop]:
    stop, signals = Stop(), [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # not under nohup: a terminal that closes
        signals.append(signal.SIGHUP)
    try:
        before = {s: signal.signal(s, stop) for s in signals}
    except ValueError:  # not the main thread: the caller looks after signals
        before = {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
