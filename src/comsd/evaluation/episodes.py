"""Episodes of an adapted agent in the plain environment of its task, where every state is seen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from comsd.envs.base import Env
from comsd.envs.pixels import act_on_states
from comsd.envs.reward import RewardEnv
from comsd.envs.skills import ControlledSkills
from comsd.envs.specs import ROBOT_TASKS, EnvSettings, make_robot
from comsd.errors import InputError
from comsd.evaluation.rollouts import ProgressFn, Rollouts, Watch, no_progress, roll_out
from comsd.evaluation.skills import motion
from comsd.runs import Run
from comsd.types import PolicyFn


def plain_env(run: Run, seeds: Sequence[int]) -> tuple[Env, Watch | None]:
    """The task without anything that chooses skills, seen as states.

    seeds: of our robots' starts; other environments count on from the first.
    """
    name, task = run.spec.families[-1], run.spec.name
    watch = None
    if name in ROBOT_TASKS:
        own = task.partition("_")[2] if task != name else None
        robot = make_robot(name, seeds, own, motion=True)
        env, watch = robot, partial(motion, robot)
    else:
        env = run.spec.make(len(seeds), seeds[0])
    assert isinstance(run.config.env, EnvSettings)
    if (reward := run.config.env.reward) == "own":
        return env, watch
    if run.config.run.pixels:
        raise InputError(
            "analyse shows tasks as states, and the reward file of this run has seen images"
        )
    return RewardEnv(env, reward), watch


def episodes(
    run: Run,
    act: PolicyFn,
    starts: int,
    seed: int,
    tick: ProgressFn = no_progress,
    steps: int | None = None,
) -> Rollouts:
    """One episode from each start; the skills that acted are recorded, too.

    steps: the first of an episode; by default all.
    """
    env, moves = plain_env(run, range(seed, seed + starts))

    def watch() -> dict[str, Any]:
        seen = dict(moves()) if moves else {}
        if isinstance(act, ControlledSkills) and act.skill is not None:
            seen["skill"] = act.skill.cpu().numpy()
        return seen

    acts = act_on_states(env, run.config.pixels, act)
    return roll_out(env, acts, 1, steps or env.horizon, watch=watch, tick=tick)
