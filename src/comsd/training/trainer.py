"""The training loop: advance the trainer, write down what happens, stop cleanly."""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from comsd.config import Config, RunSettings, Settings, setting
from comsd.envs.base import Env
from comsd.errors import RunError
from comsd.methods.base import Method
from comsd.skills import SkillSpace
from comsd.training.logger import Logger
from comsd.types import Metrics


@dataclass(frozen=True)
class TrainSettings(Settings):
    """What all trainers have."""

    envs: int = setting(1, "environments that run side by side", "one, as in the papers", low=1)


class Trainer(ABC):
    """Alternates between gathering experience and learning from it."""

    steps: int  # environment steps so far
    method: Method
    agent: Any

    @abstractmethod
    def __init__(
        self,
        env: Env,
        agent: Any,
        method: Method,
        settings: Any,
        seed: np.random.SeedSequence,
        selector: Any = None,
        precision: str = "float32",
    ) -> None: ...

    @staticmethod
    @abstractmethod
    def check(config: Config, space: SkillSpace, env: Env) -> None:
        """Raise InputError where a run could not start or would never learn."""

    @property
    def policy(self) -> Any:
        return self.agent.policy

    @property
    def selected_skill(self) -> Tensor | None:
        """The one skill, (Z,), that was selected, if there is one."""
        return None

    @abstractmethod
    def train_step(self) -> Metrics:
        """Gather and learn once; may raise RunError if a number is not finite.

        Nothing is returned before learning begins.
        """

    def diagnostics(self) -> Metrics:
        """More figures for the log, apart from training."""
        return {}

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, in branches that can be read alone."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


# --- signals --------------------------------------------------------------------------------------


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


# --- the loop -------------------------------------------------------------------------------------

Evaluate = Callable[[Trainer, Callable[[], bool]], dict[str, float] | None]
"""From a trainer and whether to stop to metrics; None if it stopped before it was done."""


@dataclass
class TrainingState:
    """What a checkpoint remembers beside the trainer."""

    seconds: float = 0.0  # of training so far
    evaluation_due: bool = False  # put off because a signal came


Save = Callable[[Trainer, TrainingState], object]


def prepare(settings: RunSettings) -> None:
    """Process-wide settings of a run."""
    torch.set_num_threads(settings.threads)
    torch.set_flush_denormal(True)  # Adam's moments of dead units decay into slow denormals


class TrainingLoop:
    def __init__(
        self,
        trainer: Trainer,
        settings: RunSettings,
        logger: Logger,
        evaluate: Evaluate,
        save: Save,
        stop: Stop,
        state: TrainingState,
    ) -> None:
        self.trainer, self.settings, self.logger = trainer, settings, logger
        self.evaluate, self.save, self.stop, self.state = evaluate, save, stop, state
        self.began = time.monotonic() - state.seconds
        self.saved_at: int | None = trainer.steps

    def run(self, *, evaluate_first: bool) -> None:
        """To the configured number of steps, or until a signal comes; saved either way."""
        if self.state.evaluation_due or (self.trainer.steps == 0 and evaluate_first):
            self.run_evaluation()
            self.saved_at = None  # what is on disk does not know of it
        while self.trainer.steps < self.settings.steps and not self.stop.requested():
            self.advance()
        if self.trainer.steps > 0 and self.trainer.steps != self.saved_at:
            self.checkpoint()

    @property
    def unfinished(self) -> bool:
        return self.trainer.steps < self.settings.steps or self.state.evaluation_due

    def advance(self) -> None:
        """One step of training, and whatever is due after it."""
        trainer, settings, before = self.trainer, self.settings, self.trainer.steps
        try:
            metrics = trainer.train_step()
        except RunError as error:
            raise RunError(f"stopped at step {trainer.steps}: {error}") from None
        done = trainer.steps >= settings.steps

        def due(every: int) -> bool:
            return done or before // every != trainer.steps // every

        if metrics and due(settings.log_every):
            metrics |= trainer.diagnostics()
            values = {name: float(value.mean()) for name, value in metrics.items()}
            self.logger.log_metrics(trainer.steps, values, self.seconds())
        if due(settings.evaluate_every):
            self.run_evaluation()
        if due(settings.checkpoint_every) and not done and not self.stop.requested():
            self.checkpoint()
        self.logger.advance(trainer.steps)

    def run_evaluation(self) -> None:
        """Put off until the run is resumed if a signal comes meanwhile."""
        metrics = self.evaluate(self.trainer, self.stop.requested)
        self.state.evaluation_due = metrics is None
        if metrics:
            self.logger.log_evaluation(self.trainer.steps, metrics)

    def checkpoint(self) -> None:
        self.state.seconds = self.seconds()
        self.save(self.trainer, self.state)
        self.saved_at = self.trainer.steps

    def seconds(self) -> float:
        return time.monotonic() - self.began
