"""Trainers: gather experience, learn from it; and the loop that logs, evaluates and saves."""

from __future__ import annotations

import math
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from comsd.config import RunSettings, Settings, setting
from comsd.envs.base import Env
from comsd.errors import RunError
from comsd.methods.base import Method
from comsd.nn import load_optimizer, optimizer_state, use_bf16
from comsd.training.logger import Logger
from comsd.training.rollout import StopFn, never
from comsd.training.signals import Overdue, Stop
from comsd.types import Array, Metrics


@dataclass(frozen=True)
class TrainSettings(Settings):
    """What all trainers have."""

    envs: int = setting(
        1, "environments that run side by side", "one, as in the papers", low=1, high=10_000
    )


class Trainer(ABC):
    """Alternates between gathering experience and learning from it."""

    def __init__(
        self,
        env: Env,
        agent: Any,
        method: Method,
        rngs: dict[str, np.random.SeedSequence],
        precision: str,
    ) -> None:
        self.env, self.agent, self.method = env, agent, method
        self.policy = agent.policy  # acts; shares the agent's weights
        self.device: torch.device = self.policy.device
        self.on_cuda = self.device.type == "cuda"
        self.optimizer = method.optimizer()
        self.rngs = {name: np.random.default_rng(seed) for name, seed in rngs.items()}
        self.steps = 0  # of the environments
        self.restarts: list[int] = []  # steps at which a resumed run had to begin episodes anew
        self.until = sys.maxsize  # steps at which training ends
        self.stopped: StopFn = never
        self.began_at: int | None = None  # the step at which this step of training began
        if precision == "bf16":
            use_bf16(agent)
            use_bf16(method)

    @property
    def selected_skill(self) -> Tensor | None:
        """The one skill, (Z,), that was selected, if there is one."""
        return None

    @abstractmethod
    def train_step(self) -> Metrics | None:
        """Gather and learn once; may raise RunError if a number is not finite.

        No metrics are returned before learning begins. None: stopped on the way, where the next
        call goes on.
        """

    def diagnostics(self) -> Metrics:
        """More figures for the log, apart from training."""
        return {}

    def learned(self) -> dict[str, Any]:
        """What is needed to use the skills, in branches that can be read alone."""
        return {"agent": self.agent.state_dict(), "method": self.method.state_dict()}

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, in such branches."""
        training = {
            "steps": self.steps,
            "restarts": self.restarts,
            "agent_optimizer": self.agent.optimizer_state(),
            "method_optimizer": optimizer_state(self.optimizer),
            "env": self.env.state_dict(),
            "random": {
                "rng": {name: rng.bit_generator.state for name, rng in self.rngs.items()},
                "torch_rng": torch.get_rng_state(),  # methods draw from it
                "cuda_rng": [torch.cuda.get_rng_state(self.device)] if self.on_cuda else [],
            },
        }
        return {**self.learned(), "training": training}

    def load_state_dict(self, state: dict[str, Any]) -> Array | None:
        """Returns the observations of new episodes, where the environment had not saved its own."""
        training = state["training"]
        self.agent.load_state_dict(state["agent"])
        self.method.load_state_dict(state["method"])
        self.agent.load_optimizer_state(training["agent_optimizer"])
        load_optimizer(self.optimizer, training["method_optimizer"])
        fresh = self.env.load_state_dict(training["env"])
        for name, rng in self.rngs.items():
            rng.bit_generator.state = training["random"]["rng"][name]
        torch.set_rng_state(training["random"]["torch_rng"])
        if self.on_cuda and training["random"]["cuda_rng"]:
            torch.cuda.set_rng_state(training["random"]["cuda_rng"][0], self.device)
        self.steps, self.restarts = int(training["steps"]), training.get("restarts", [])
        if fresh is not None:
            self.restarts = [*self.restarts, self.steps]
        return fresh


def raise_if_not_finite(tensors: Mapping[str, Tensor]) -> None:
    broken = [name for name, t in tensors.items() if not bool(torch.isfinite(t).all())]
    if broken:
        raise RunError(f"NaN or infinity in {', '.join(broken)}")


# --- the loop -------------------------------------------------------------------------------------

Evaluate = Callable[[Trainer, Callable[[], bool]], dict[str, float] | None]
"""From a trainer and whether to stop to metrics; None if it stopped before it was done."""


@dataclass
class TrainingState:
    """What a checkpoint remembers beside the trainer."""

    seconds: float = 0.0  # of training so far
    evaluation_due: bool = False  # put off because a signal came
    began_at: int | None = None  # step at which the training step began that a signal cut in two


Save = Callable[[Trainer, TrainingState], object]
Snapshot = Callable[[Trainer, int], object]  # under the step at which it was asked for


def prepare(settings: RunSettings) -> None:
    """Process-wide settings of a run."""
    torch.set_num_threads(min(settings.threads, os.cpu_count() or 1))
    torch.set_flush_denormal(True)  # Adam's moments of dead units decay into slow denormals


class TrainingLoop:
    def __init__(
        self,
        trainer: Trainer,
        settings: RunSettings,
        logger: Logger,
        evaluate: Evaluate,
        save: Save,
        snapshot: Snapshot,
        stop: Stop,
        state: TrainingState,
    ) -> None:
        self.trainer, self.settings, self.logger = trainer, settings, logger
        self.evaluate, self.save, self.stop, self.state = evaluate, save, stop, state
        self.snapshot, self.snapshot_steps = snapshot, settings.snapshot_steps
        self.began = time.monotonic() - state.seconds
        self.saved_at: int | None = trainer.steps
        self.abandoned = False  # what is in memory is no state to go on from
        trainer.until, trainer.stopped = settings.steps, stop.requested

    def run(self, *, evaluate_first: bool) -> None:
        """To the configured number of steps, or until a signal comes; saved either way."""
        try:
            with self.stop.arm():
                if self.state.evaluation_due or (self.trainer.steps == 0 and evaluate_first):
                    self.run_evaluation()
                    self.saved_at = None  # what is on disk does not know of it
                while self.trainer.steps < self.settings.steps and not self.stop.requested():
                    self.advance()
        except Overdue:
            self.abandoned = True
            return
        if self.trainer.steps > 0 and self.trainer.steps != self.saved_at:
            self.checkpoint()

    @property
    def unfinished(self) -> bool:
        short = self.trainer.steps < self.settings.steps
        return short or self.state.evaluation_due or self.abandoned

    def advance(self) -> None:
        """One step of training, and whatever is due after it."""
        trainer, settings, began_at = self.trainer, self.settings, self.state.began_at
        before = trainer.began_at = trainer.steps if began_at is None else began_at
        try:
            metrics = trainer.train_step()
        except RunError as error:
            raise RunError(f"stopped at step {trainer.steps}: {error}") from None
        self.state.began_at = before if metrics is None else None
        if metrics is None:
            return
        done = trainer.steps >= settings.steps

        def due(every: int) -> bool:
            return done or before // every != trainer.steps // every

        if metrics and due(settings.log_every):
            metrics |= trainer.diagnostics()
            values = {name: float(value.mean()) for name, value in metrics.items()}
            if broken := [name for name, value in values.items() if not math.isfinite(value)]:
                why = f"{broken[0]} is NaN or infinite"
                raise RunError(f"stopped at step {trainer.steps}: {why}")
            self.logger.log_metrics(trainer.steps, values, self.seconds())
        # Before the checkpoint: who goes on from there does not come by these steps again.
        for step in self.snapshot_steps:
            if before < step <= trainer.steps:
                with self.stop.held_off():
                    self.snapshot(trainer, step)
        if due(settings.evaluate_every):
            self.run_evaluation()
        if due(settings.checkpoint_every) and not done and not self.stop.requested():
            self.checkpoint()
        self.logger.progress.advance(trainer.steps)

    def run_evaluation(self) -> None:
        """Put off until the run is resumed if a signal comes meanwhile."""
        metrics = self.evaluate(self.trainer, self.stop.requested)
        self.state.evaluation_due = metrics is None
        if metrics:
            self.logger.log_evaluation(self.trainer.steps, metrics)

    def checkpoint(self) -> None:
        self.state.seconds = self.seconds()
        with self.stop.held_off():
            self.save(self.trainer, self.state)
        self.saved_at = self.trainer.steps

    def seconds(self) -> float:
        return time.monotonic() - self.began
