"""Trajectories of a robot's skills, with the quantities that describe and draw them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from comsd.agents.base import Policy, make_policy_fn
from comsd.envs.mujoco import RobotEnv
from comsd.envs.simulation import Doubles
from comsd.envs.specs import make_robot
from comsd.evaluation.metrics import States
from comsd.training.rollout import PolicyFn, rollout


@dataclass(frozen=True)
class Motion:
    states: States  # (skills, time, O)
    qpos: Doubles  # (skills, time, .)
    height: Doubles  # (skills, time), as the next two
    speed: Doubles
    spin: Doubles


def skill_motion(robot: str, policy: Policy, skills: Tensor) -> Motion:
    """One roll-out per skill with mean actions, all from the same initial state."""
    env = make_robot(robot, [0] * len(skills), motion=True)
    return record_motion(env, make_policy_fn(policy, skills, None))


def record_motion(env: RobotEnv, policy_fn: PolicyFn, length: int | None = None) -> Motion:
    robot, x = env.robot, env.readings
    rows = []
    for step in rollout(env, policy_fn, length):
        row = step.next_obs, x["qpos"], robot.height(x), robot.speed(x), robot.spin(x)
        rows.append([np.array(part) for part in row])  # the next step overwrites the readings
    return Motion(*(np.stack(column, 1) for column in zip(*rows, strict=True)))
