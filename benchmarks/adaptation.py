"""Fine-tuning beside pre-training, and an evaluation beside single episodes of dm_control.

    python benchmarks/adaptation.py [rounds]

1. Steps per second of fine-tuning, lite on Walker, against the loop of pre-training with the same
   networks less the time of its representation; both in turn, in one process, one thread.
2. Ten episodes of `walker_run` in one batch (`TaskEvaluator.returns`) against ten of dm_control one
   after the other with the same policy, at the lite and at the paper's width, with one thread and
   with two for either.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import mujoco
import numpy as np
import torch
from dm_control import suite
from measure import best_of
from training import Clock

import comsd
from comsd.agents.base import make_policy_fn
from comsd.envs.simulation import disable_timer
from comsd.evaluation.tasks import TaskEvaluator
from comsd.resolve import resolve, resolve_finetune, resolve_scratch
from comsd.runs.run import Run
from comsd.training.off_policy import OffPolicyTrainer

CYCLES = 100  # of either kind in a round
EPISODES = 10


def trainer_of(run: Run) -> OffPolicyTrainer:
    trainer = run.trainer()
    assert isinstance(trainer, OffPolicyTrainer)
    while not trainer.train_step():
        pass
    return trainer


def seconds(trainer: OffPolicyTrainer) -> float:
    began = time.perf_counter()
    for _ in range(CYCLES):
        trainer.train_step()
    return time.perf_counter() - began


def throughput(folder: Path, rounds: int) -> None:
    soon = {"random_steps": 1000}
    short = {"steps": 100, "train": soon | {"random_steps": 50}, "evaluate_every": 10**9}
    source = comsd.pretrain("comsd", env="walker", preset="lite", run=folder / "source", **short)
    torch.set_num_threads(1)
    tuned = resolve_finetune(source, "walker_run", train=soon)
    tuning = trainer_of(Run.create(folder / "tuned", tuned, source))
    pretraining = trainer_of(
        Run.create(folder / "pre", resolve("comsd", "walker", "lite", train=soon))
    )
    clock = Clock()
    pretraining.method.update = clock.wrap(pretraining.method.update)
    ratios = []
    for _ in range(rounds):
        clock.seconds = 0.0
        before = seconds(pretraining) - clock.seconds
        ratios.append(before / seconds(tuning))
    low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
    print("fine-tuning / (pre-training less its representation), lite, walker, 1 thread:")
    print(f"  {middle:.3f} (10 % to 90 %: {low:.3f} to {high:.3f})")


def evaluation(folder: Path, preset: str, threads: int, rounds: int) -> None:
    where = folder / f"scratch-{preset}-{threads}"
    run = Run.create(where, resolve_scratch("walker_run", preset))
    torch.set_num_threads(threads)
    trainer, evaluator = run.trainer(), TaskEvaluator(run)
    policy, skill = trainer.policy, trainer.selected_skill
    assert skill is not None
    env = suite.load("walker", "run", task_kwargs={"random": 0})

    def ours() -> None:
        disable_timer()
        evaluator.returns(policy, skill)

    def single() -> None:
        mujoco.set_mjcb_time(None)  # dm_control as it comes, with MuJoCo's timer
        policy_fn = make_policy_fn(policy, skill[None], None)
        for _ in range(EPISODES):
            step = env.reset()
            while not step.last():
                parts = [np.ravel(value) for value in step.observation.values()]
                step = env.step(policy_fn(np.concatenate(parts)[None].astype(np.float32))[0])

    ratios = [best_of(single, 1) / best_of(ours, 1) for _ in range(rounds)]
    low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
    print(f"ten episodes, {preset} network, threads {threads}, against dm_control:")
    print(f"  {middle:.2f} (10 % to 90 %: {low:.2f} to {high:.2f})")


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        throughput(Path(folder), rounds)
        for preset in ("lite", "paper"):
            for threads in (1, 2):
                evaluation(Path(folder), preset, threads, max(3, rounds // 3))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
