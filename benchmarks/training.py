"""Where the time of a lite training step on Walker goes.

    python benchmarks/training.py [seconds]

The real loop (`TrainingLoop.advance`) with its logging, evaluations left out, checkpoints at their
interval; the environment, acting and the update are timed inside it, the rest is by difference.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from comsd.resolve import resolve
from comsd.runs.run import Run
from comsd.training.logger import Logger, Progress
from comsd.training.off_policy import OffPolicyTrainer
from comsd.training.trainer import Stop, TrainingLoop, TrainingState, prepare


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*words: Any, **options: Any) -> Any:
            began = time.perf_counter()
            result = function(*words, **options)
            self.seconds += time.perf_counter() - began
            return result

        return timed


def no_evaluation(*_: object) -> dict[str, float]:
    return {}


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        never: dict[str, Any] = {"evaluate_every": 10**9}
        run = Run.create(Path(folder) / "run", resolve("comsd", "walker", "lite", **never))
        settings = run.config.run
        prepare(settings)
        trainer = run.trainer()
        assert isinstance(trainer, OffPolicyTrainer)
        clocks = {name: Clock() for name in ("environment", "acting", "update")}
        trainer.env.step = clocks["environment"].wrap(trainer.env.step)
        trainer.env.reset = clocks["environment"].wrap(trainer.env.reset)
        trainer.method.update = clocks["update"].wrap(trainer.method.update)
        trainer.agent.update = clocks["update"].wrap(trainer.agent.update)
        trainer.policy.sample = clocks["acting"].wrap(trainer.policy.sample)
        progress = Progress(settings.steps, 0, {}, lambda _: None)
        with Logger(run.metrics, run.evaluations, progress) as logger:
            saves, start = (run.save, run.save_snapshot), (Stop(), TrainingState())
            loop = TrainingLoop(trainer, settings, logger, no_evaluation, *saves, *start)
            while trainer.steps < trainer.settings.random_steps + 400:
                loop.advance()
            for clock in clocks.values():
                clock.seconds = 0.0
            began, first = time.perf_counter(), trainer.steps
            while time.perf_counter() - began < seconds:
                loop.advance()
            total, steps = time.perf_counter() - began, trainer.steps - first
    known = sum(clock.seconds for clock in clocks.values())
    print(f"lite, walker, {torch.get_num_threads()} thread: {steps / total:.0f} steps/s")
    for name, clock in clocks.items():
        print(f"  {name:12s} {clock.seconds / total:6.1%}")
    print(f"  {'all else':12s} {(total - known) / total:6.1%}  (replay, logging, checkpoints)")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60)
