"""What we add around Gymnasium's own `env.step`, as a share of a training step of Ant-v5.

    python benchmarks/foreign.py [updates]

The real trainer of `comsd pretrain comsd --env gym:Ant-v5 --preset lite`, without logging,
evaluations and checkpoints, which makes the share larger. Our part of a step (actions rescaled,
observations gathered and checked) is `GymEnv.step` without the calls of Gymnasium inside it; the
clocks' own time counts as ours. CPU time of one thread, which other programs disturb less.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from comsd.envs.gym import GymEnv
from comsd.resolve import resolve
from comsd.runs.run import Run
from comsd.training.off_policy import OffPolicyTrainer
from comsd.training.trainer import prepare

BAR = 0.05
ROUNDS = 5


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*words: Any, **options: Any) -> Any:
            began = time.process_time()
            result = function(*words, **options)
            self.seconds += time.process_time() - began
            return result

        return timed


def main(updates: int) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", resolve("comsd", "gym:Ant-v5", "lite"))
        prepare(run.config.run)
        trainer = run.trainer()
        assert isinstance(trainer, OffPolicyTrainer)
        env = trainer.env
        assert isinstance(env, GymEnv)
        whole, theirs = Clock(), Clock()
        for one in env.envs:
            one.step = theirs.wrap(one.step)
        env.step = whole.wrap(env.step)
        calls, update = 0, trainer.agent.update

        def counted(*words: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            return update(*words, **options)

        trainer.agent.update = counted
        while calls < 5:
            trainer.train_step()
        shares: list[float] = []
        for _ in range(ROUNDS):
            whole.seconds = theirs.seconds = 0.0
            first, until, began = trainer.steps, calls + updates, time.process_time()
            while calls < until:
                trainer.train_step()
            total, steps = time.process_time() - began, trainer.steps - first
            shares.append((whole.seconds - theirs.seconds) / total)
            print(
                f"  a step {1e3 * total / steps:.2f} ms: Gymnasium {theirs.seconds / total:.1%}, "
                f"ours around it {shares[-1]:.2%}"
            )
    print(f"lite, gym:Ant-v5: our share {sorted(shares)[ROUNDS // 2]:.2%} (bar {BAR:.0%})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
