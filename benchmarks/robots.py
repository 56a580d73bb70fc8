"""The cost of a control step of each robot, against dm_control and against bare MuJoCo.

    python benchmarks/robots.py [rounds]

All in one process and in turn; every round all start anew and take the same random actions. Medians
over the rounds of times and of ratios. "flat" is dm_control asked for what we give: one float32
vector. "mj_step" is a loop over the physics alone, on the suite's model. All theirs run as they
come, with MuJoCo's clock, which our environments stop (`comsd.envs.simulation.disable_timer`);
"unclocked" is dm_control without it.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("MUJOCO_GL", "disable")

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import torch
from dm_control import suite
from measure import best_of

from comsd.envs.mujoco import RobotEnv
from comsd.envs.simulation import STATE, disable_timer
from comsd.envs.specs import make_task

STEPS = 100  # of a round
TASKS = ("walker_walk", "quadruped_walk", "hopper_hop", "cheetah_run")


def ours(env: RobotEnv, path: np.ndarray) -> None:
    for action in path:
        env.step(action)


def dm_control(env: Any, path: np.ndarray, *, flat: bool) -> None:
    for action in path:
        step = env.step(action[0])
        if flat:
            np.concatenate([np.ravel(v) for v in step.observation.values()]).astype(np.float32)


class Bare:
    """`mj_step` alone, for as many simulations as an environment has."""

    def __init__(self, env: RobotEnv) -> None:
        self.env = env
        self.model = env.robot.model.__copy__()
        self.model.opt.disableflags = 0
        self.datas = [mujoco.MjData(self.model) for _ in range(env.num_envs)]

    def reset(self) -> None:
        for data, state in zip(self.datas, self.env.simulations.state(), strict=True):
            mujoco.mj_setState(self.model, data, state, STATE)

    def run(self, path: np.ndarray) -> None:
        for actions in path:
            for data, action in zip(self.datas, actions, strict=True):
                data.ctrl[:] = action
                for _ in range(self.env.robot.substeps):
                    mujoco.mj_step(self.model, data)


def seconds(work: Callable[[], None]) -> float:
    return best_of(work, 1) / STEPS


def times(env: RobotEnv, theirs: Any, rounds: int) -> dict[str, np.ndarray]:
    """Seconds per control step of all environments together, of every round."""
    rng = np.random.default_rng(0)
    bare = Bare(env)
    rows = []
    for _ in range(rounds):
        path = rng.uniform(-1, 1, (STEPS, env.num_envs, env.action_dim)).astype(np.float32)
        env.reset()
        bare.reset()
        disable_timer()
        row = {"ours": seconds(lambda: ours(env, path))}  # noqa: B023 (called at once)
        mujoco.set_mjcb_time(None)  # the clock runs again
        row["mj_step"] = seconds(lambda: bare.run(path))  # noqa: B023
        if theirs is not None:
            for name in ("dm_control", "flat", "unclocked"):
                if name == "unclocked":
                    disable_timer()
                theirs.reset()
                row[name] = seconds(lambda: dm_control(theirs, path, flat=name == "flat"))  # noqa: B023
        rows.append(row)
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def main(rounds: int) -> None:
    torch.set_num_threads(1)  # which environments take as theirs
    print(f"us per control step, median of {rounds} rounds of {STEPS} steps; 1 thread")
    for name in TASKS:
        domain, _, task = name.partition("_")
        of = times(make_task(name), suite.load(domain, task, task_kwargs={"random": 0}), rounds)
        us = "  ".join(f"{key} {1e6 * np.median(of[key]):6.1f}" for key in of)
        ratio = {key: np.median(of[key] / of["ours"]) for key in of}
        print(
            f"  {domain:10s} {us}   speed-up {ratio['dm_control']:.2f} (flat {ratio['flat']:.2f}, "
            f"unclocked {ratio['unclocked']:.2f}), to mj_step {ratio['mj_step']:.2f}"
        )
    of = times(make_task("walker_walk", 10), None, rounds)
    print(f"  ten walkers against a loop of mj_step: {np.median(of['mj_step'] / of['ours']):.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
