"""Stopping at a signal: the first is noted, the second interrupts.

What goes on for too long after the first is given up, wherever it is: a step of training that
comes back to Python by `Overdue`, one that does not (a single product of huge matrices) by the
end of the process, if that is a command's.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

from comsd.errors import Interrupted

GRACE_SECONDS = 2.0  # seconds from `Overdue`, or from the end of a save, to the end of the process
POLL_SECONDS = 0.1  # seconds between looks at the clock

MakeInterrupt = Callable[[int], Interrupted]  # given the signal
exit_process: Callable[[Interrupted], object] | None = None  # of a command, from any thread


class Overdue(BaseException):
    """A step of training went on for too long after a signal."""


class Stop:
    """Set by the first SIGINT, SIGTERM or SIGHUP; the second interrupts at once.

    patience: seconds from the first until `Overdue` is raised; for ever if there are none.
    """

    def __init__(self, patience: float = 0.0) -> None:
        self.signal: int | None = None
        self.patience, self.armed, self.saving, self.saved_at = patience, False, False, 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGALRM:
            if self.armed and not self.saving:
                raise Overdue
            return
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        if self.patience:
            signal.setitimer(signal.ITIMER_REAL, self.patience)

    @contextmanager
    def arm(self) -> Iterator[None]:
        """`Overdue` may be raised inside, and nowhere else."""
        self.armed = True
        try:
            yield
        finally:
            self.armed = False

    @contextmanager
    def held_off(self) -> Iterator[None]:
        """While a state is saved, which is never given up."""
        self.saving = True
        try:
            yield
        finally:
            self.saved_at = time.monotonic()
            self.saving = False

    def requested(self) -> bool:
        return self.signal is not None


@contextmanager
def graceful_stop(
    patience: float = 0.0, make_interrupt: MakeInterrupt | None = None
) -> Iterator[Stop]:
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
        with ExitStack() as stack:
            if patience and before and make_interrupt and exit_process:
                stack.enter_context(watched(stop, make_interrupt, exit_process))
            yield stop
    finally:
        if patience and before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def watched(
    stop: Stop, make_interrupt: MakeInterrupt, exit_process: Callable[[Interrupted], object]
) -> Iterator[None]:
    """Python's handlers wait for Python; what the interpreter writes at a signal does not."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    done = threading.Event()

    def watch() -> None:
        number = signal.SIGALRM
        while number == signal.SIGALRM:
            told = os.read(read, 1)
            if not told:
                return
            number = told[0]
        asked = time.monotonic()
        while not done.wait(POLL_SECONDS):
            since = time.monotonic() - max(asked + stop.patience, stop.saved_at)
            if since > GRACE_SECONDS and not stop.saving:
                exit_process(make_interrupt(number))
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        done.set()
        os.close(write)
        watcher.join()
        os.close(read)
