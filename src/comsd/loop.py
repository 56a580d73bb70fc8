"""The training loop: advance the learner, write down what happens, stop cleanly."""

from __future__ import annotations

import errno
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from comsd.errors import Interrupted, RunError
from comsd.evaluation import Evaluator, evaluator
from comsd.learners.base import Learner
from comsd.progress import Progress
from comsd.run import Run, check_device


class Stop:
    """Set by the first SIGINT, SIGTERM or SIGHUP; the second interrupts at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number


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


@contextmanager
def readable_failures(run: Run) -> Iterator[None]:
    """Failures on the way, said with what is left and what to do."""
    again = f"the last good checkpoint is kept, `comsd resume {run.path}` continues from it"
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(f"no space left for {run.path}: free some; {again}") from error
        raise RunError(f"{error.filename or run.path}: {error.strerror}; {again}") from error
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        raise RunError(
            f"too little memory for {run.path}: smaller networks, batches or skill spaces need less"
        ) from error


def prepare(run: Run) -> None:
    """Process-wide settings of a run."""
    torch.set_num_threads(run.config.run.threads)
    torch.set_flush_denormal(True)  # Adam's moments of dead units decay into slow denormals


def train(run: Run, report: Callable[[str], None]) -> None:
    """Train to the configured number of steps, from wherever the run stands."""
    prepare(run)
    settings = run.config.run
    check_device(settings.device)
    run.check_possible()
    with readable_failures(run), run.locked(), graceful_stop() as stop:
        learner = run.learner()
        seconds, notes = run.restore(learner)
        for note in notes:
            report(note)
        began, start = time.monotonic() - seconds, learner.steps
        run.open_board(start)
        look = evaluator(run)
        shown = learner.method.progress_metrics | look.headline
        with Progress(settings.steps, start, shown, report) as progress:
            if run.evaluation_due or (learner.steps == 0 and look.at_start):
                evaluate(run, learner, look, progress, stop)
                run.saved_at = None  # what is on disk does not know of it
            while learner.steps < settings.steps and stop.signal is None:
                advance(run, learner, look, lambda: time.monotonic() - began, progress, stop)
        if learner.steps > 0 and learner.steps != run.saved_at:
            run.save(learner, time.monotonic() - began)
        if stop.signal is not None and (learner.steps < settings.steps or run.evaluation_due):
            at = f"stopped at step {learner.steps:,}" + (" and saved" if learner.steps else "")
            raise Interrupted(f"{at}; `comsd resume {run.path}` continues", stop.signal)


def evaluate(run: Run, learner: Learner, look: Evaluator, progress: Progress, stop: Stop) -> None:
    """A line of evaluations.csv; put off until the run is resumed if a signal comes meanwhile."""
    figures = look.follow(learner, lambda: stop.signal is not None)
    run.evaluation_due = figures is None
    if figures:
        run.evaluations.append({"step": learner.steps, **figures})
        run.show_on_board(learner.steps, {f"evaluation/{k}": v for k, v in figures.items()})
        progress.show(figures)


def advance(
    run: Run,
    learner: Learner,
    look: Evaluator,
    seconds: Callable[[], float],
    progress: Progress,
    stop: Stop,
) -> None:
    """One cycle, and whatever is due after it."""
    settings, before = run.config.run, learner.steps
    try:
        metrics = learner.train_step()
    except RunError as error:
        raise RunError(f"stopped at step {learner.steps}: {error}") from None
    done = learner.steps >= settings.steps

    def due(every: int) -> bool:
        return done or before // every != learner.steps // every

    if metrics and due(settings.log_every):
        figures = metrics | learner.diagnostics()
        values = {name: float(value.mean()) for name, value in figures.items()}
        run.metrics.append({"step": learner.steps, **values, "seconds": round(seconds(), 2)})
        run.show_on_board(learner.steps, values)
        progress.show(values)
    if due(settings.evaluate_every):
        evaluate(run, learner, look, progress, stop)
    if due(settings.checkpoint_every) and not done and stop.signal is None:
        run.save(learner, seconds())
    progress.advance(learner.steps)
