"""The cost of a control step of each robot, against dm_control and against bare MuJoCo.

    python benchmarks/robots.py [repeats]

All in one process, in turn, from the same starts with the same random actions; the best of several
repeats of 300 steps. "flat" is dm_control asked for what we give: one float32 vector.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("MUJOCO_GL", "disable")

from collections.abc import Callable

import mujoco
import numpy as np
from dm_control import suite
from measure import best_of

from comsd.envs import make_task
from comsd.envs.mujoco import STATE, RobotEnv

STEPS = 300
TASKS = ("walker_walk", "quadruped_walk", "hopper_hop", "cheetah_run")


def ours(env: RobotEnv, path: np.ndarray) -> Callable[[], None]:
    def work() -> None:
        for action in path:
            env.step(action)

    return work


def bare(env: RobotEnv, path: np.ndarray, start: np.ndarray) -> Callable[[], None]:
    model, n = env.robot.model, env.robot.substeps
    datas = [mujoco.MjData(model) for _ in start]

    def work() -> None:
        for data, state in zip(datas, start, strict=True):
            mujoco.mj_setState(model, data, state, STATE)
        for actions in path:
            for data, action in zip(datas, actions, strict=True):
                data.ctrl[:] = action
                for _ in range(n):
                    mujoco.mj_step(model, data)

    return work


def main(repeats: int) -> None:
    rng = np.random.default_rng(0)
    print(f"us per control step, best of {repeats}; 1 thread")
    for name in TASKS:
        env = make_task(name)
        domain, _, task = name.partition("_")
        theirs = suite.load(domain, task, task_kwargs={"random": 0})
        path = rng.uniform(-1, 1, (STEPS, 1, env.action_dim)).astype(np.float32)

        def dm_control(flat: bool, theirs: object = theirs, path: np.ndarray = path) -> None:
            for action in path:
                step = theirs.step(action[0])  # pyright: ignore[reportAttributeAccessIssue]
                if flat:
                    parts = [np.ravel(v) for v in step.observation.values()]
                    np.concatenate(parts).astype(np.float32)

        best = dict.fromkeys(("ours", "dm_control", "flat", "mj_step"), float("inf"))
        for _ in range(repeats):
            env.reset()
            start = env.batch.state.copy()
            best["ours"] = min(best["ours"], best_of(ours(env, path), 1))
            best["mj_step"] = min(best["mj_step"], best_of(bare(env, path, start), 1))
            for key in ("dm_control", "flat"):
                theirs.reset()
                best[key] = min(best[key], best_of(lambda k=key: dm_control(k == "flat"), 1))
        us = {key: 1e6 * value / STEPS for key, value in best.items()}
        print(
            f"  {domain:10s} ours {us['ours']:6.1f}  dm_control {us['dm_control']:6.1f}  "
            f"flat {us['flat']:6.1f}  mj_step {us['mj_step']:6.1f}   "
            f"speed-up {us['dm_control'] / us['ours']:.2f} (flat {us['flat'] / us['ours']:.2f}), "
            f"at most {us['dm_control'] / us['mj_step']:.2f} with physics alone"
        )
    env = make_task("walker_walk", 10)
    path = rng.uniform(-1, 1, (STEPS, 10, 6)).astype(np.float32)
    best_ours = best_bare = float("inf")
    for _ in range(repeats):
        env.reset()
        start = env.batch.state.copy()
        best_ours = min(best_ours, best_of(ours(env, path), 1))
        best_bare = min(best_bare, best_of(bare(env, path, start), 1))
    print(f"  ten walkers against a loop of mj_step: {best_bare / best_ours:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
