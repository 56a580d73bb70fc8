"""Our robots for the page."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from torch import Tensor

from comsd.agents.base import Policy, make_policy_fn
from comsd.envs.mujoco import RobotEnv
from comsd.envs.robots import Planar, load_robot
from comsd.envs.simulation import Doubles, SingleSimulation
from comsd.evaluation.metrics import activity
from comsd.evaluation.rollouts import Floats, Rollouts
from comsd.evaluation.skills import RobotEvaluator
from comsd.explorer.arrays import Arrays
from comsd.explorer.measures import Measure
from comsd.explorer.models import STATE, PageModel, stacked, state_of

CHECKED_STEPS = (0, 1, 5, 20, 60, 100)  # of a roll-out: falling, landing, on the ground


class RobotWorld:
    axes: tuple[str, str] = ("akd", "speed")
    ends = "Live robots act without a time limit."

    def __init__(self, evaluator: RobotEvaluator) -> None:
        self.robot = load_robot(evaluator.run.spec.families[-1])
        self.evaluator = evaluator
        self.evaluator.motion = True
        self.dt: float = self.robot.substeps * self.robot.model.opt.timestep

    def measures(self, rollouts: Rollouts) -> dict[Measure, Floats]:
        watched = {name: rollouts.mean(values) for name, values in rollouts.watched.items()}
        return {
            Measure("akd", "AKD, how active", ""): activity(rollouts),
            Measure("speed", "speed forwards", "m/s"): watched["speed"],
            Measure("height", "height of the torso", "m"): watched["height"],
            Measure("spin", "spin", self.robot.spin_unit): watched["spin"],
        }

    def frames(self, rollouts: Rollouts) -> Floats:
        poses = rollouts.watched["qpos"][:, 0]
        start = np.broadcast_to(self.start(0)["qpos"], poses[:, :1].shape)
        return np.concatenate([start, poses], 1)

    def start(self, seed: int) -> dict[str, Doubles]:
        """The initial state of a seed, by field."""
        env = RobotEnv(self.robot, None, [seed])
        env.reset()
        return state_of(data_of(env))

    def spec(self, arrays: Arrays) -> dict[str, Any]:
        robot = self.robot
        low, high = robot.model.actuator_ctrlrange.astype(np.float32).T
        states = [self.start(seed) for seed in range(self.evaluator.starts)]
        return {
            "kind": "robot",
            "order": "dm_control",
            "model": PageModel(robot.spec, robot.model).to_json(arrays),
            "substeps": robot.substeps,
            "recipe": [part.to_json(mujoco.MjData(robot.model)) for part in robot.recipe],
            "low": arrays.add(low),
            "scale": arrays.add((high - low) / np.float32(2)),
            "root": robot.torso,
            "planar": isinstance(robot, Planar),
            "starts": {name: arrays.add(np.stack([s[name] for s in states])) for name in STATE},
        }

    def checks(self, policy: Policy, skills: Tensor, arrays: Arrays) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        for i, at in enumerate(CHECKED_STEPS):
            skill = skills[i * (len(skills) - 1) // len(CHECKED_STEPS)][None]
            env = RobotEnv(self.robot, None, [i])
            policy_fn = make_policy_fn(policy, skill, None)
            obs = env.reset()
            for _ in range(at):
                obs = env.step(policy_fn(obs)).obs
            before, action = state_of(data_of(env)), policy_fn(obs)
            row = {"obs": obs[0], "skill": skill[0].numpy(), "action": action[0]}
            after_obs = env.step(action).obs[0]
            after = {name: state_of(data_of(env))[name] for name in ("qpos", "qvel")}
            row |= {f"before.{name}": x for name, x in before.items()}
            row |= {f"after.{name}": x for name, x in after.items()} | {"after_obs": after_obs}
            rows.append(row)
        return stacked(rows, arrays)


def data_of(env: RobotEnv) -> mujoco.MjData:
    assert isinstance(env.simulations, SingleSimulation)
    return env.simulations.data
