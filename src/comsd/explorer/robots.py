"""Robots for the page: the model as text and exact numbers, starts, recorded roll-outs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from torch import Tensor

from comsd.agents.base import Policy, make_policy_fn
from comsd.envs.mujoco import Robot, RobotEnv
from comsd.envs.robots import Planar
from comsd.envs.simulation import SingleSimulation
from comsd.evaluation.metrics import akd
from comsd.explorer.arrays import Arrays
from comsd.explorer.rollouts import Floats, Measure, Rollouts
from comsd.training.rollout import rollout

STATE = ("qpos", "qvel", "act", "qacc_warmstart")  # all that the next step depends on
CHECKED_STEPS = (0, 1, 5, 20, 60, 100)  # of a roll-out: falling, landing, on the ground


class RobotWorld:
    axes: tuple[str, str] = ("akd", "speed")

    def __init__(self, robot: Robot) -> None:
        self.robot = robot
        self.dt: float = self.robot.substeps * self.robot.model.opt.timestep
        self.horizon = RobotEnv.horizon

    def rollouts(
        self, policy: Policy, skills: Tensor, starts: Sequence[int], length: int | None = None
    ) -> Rollouts:
        shape = len(skills), len(starts)
        env = RobotEnv(self.robot, None, [*starts] * len(skills), motion=True)
        policy_fn = make_policy_fn(policy, skills.repeat_interleave(len(starts), 0), None)
        robot, x = self.robot, env.readings
        first = slice(0, None, len(starts))
        rows, frames = [], []
        for step in rollout(env, policy_fn, length):
            row = step.next_obs, robot.height(x), robot.speed(x), robot.spin(x)
            rows.append([np.array(part) for part in row])  # the next step overwrites the readings
            frames.append(x["qpos"][first].astype(np.float32))
        states, height, speed, spin = (np.stack(part, 1) for part in zip(*rows, strict=True))
        start = np.broadcast_to(self.start(starts[0])["qpos"], frames[0].shape)
        return Rollouts(
            {
                Measure("akd", "AKD, how active", ""): np.array([akd(s) for s in states]).reshape(
                    shape
                ),
                Measure("speed", "speed forwards", "m/s"): speed.mean(1).reshape(shape),
                Measure("height", "height of the torso", "m"): height.mean(1).reshape(shape),
                Measure("spin", "spin", robot.spin_unit): spin.mean(1).reshape(shape),
            },
            states.mean(1).reshape(*shape, -1),
            np.stack([start.astype(np.float32), *frames], 1),
        )

    def start(self, seed: int) -> dict[str, Floats]:
        """The initial state of a seed, by field."""
        env = RobotEnv(self.robot, None, [seed])
        env.reset()
        return current_state(env)

    def spec(self, starts: Sequence[int], arrays: Arrays) -> dict[str, Any]:
        robot = self.robot
        model, data = robot.model, mujoco.MjData(robot.model)
        xml, numbers = as_text(robot.spec, model)
        low, high = model.actuator_ctrlrange.astype(np.float32).T
        states = [self.start(seed) for seed in starts]
        return {
            "kind": "robot",
            "xml": xml,
            "numbers": [
                {"field": name, "values": arrays.add(x.astype(np.float64).ravel())}
                for name, x in numbers.items()
            ],
            "mean_inertia": float(model.stat.meaninertia),  # the solver's unit
            "disableflags": int(model.opt.disableflags),
            "substeps": robot.substeps,
            "recipe": [part.to_json(data) for part in robot.recipe],
            "low": arrays.add(low),
            "scale": arrays.add((high - low) / np.float32(2)),
            "root": robot.torso,
            "planar": isinstance(robot, Planar),
            "starts": {name: arrays.add(np.stack([s[name] for s in states])) for name in STATE},
        }

    def checks(self, policy: Policy, skills: Tensor, arrays: Arrays) -> dict[str, Any]:
        """What Python does in some states, each under another skill."""
        rows: dict[str, list[Floats]] = {}
        for i, at in enumerate(CHECKED_STEPS):
            skill = skills[i * (len(skills) - 1) // len(CHECKED_STEPS)][None]
            env = RobotEnv(self.robot, None, [i])
            policy_fn = make_policy_fn(policy, skill, None)
            obs = env.reset()
            for _ in range(at):
                obs = env.step(policy_fn(obs)).obs
            before, action = current_state(env), policy_fn(obs)
            row = {"obs": obs[0], "skill": skill[0].numpy(), "action": action[0]}
            after_obs = env.step(action).obs[0]
            after = {name: current_state(env)[name] for name in ("qpos", "qvel")}
            row |= {f"before.{name}": x for name, x in before.items()}
            row |= {f"after.{name}": x for name, x in after.items()} | {"after_obs": after_obs}
            for name, x in row.items():
                rows.setdefault(name, []).append(np.array(x))
        return nested({name: arrays.add(np.stack(x)) for name, x in rows.items()})


def current_state(env: RobotEnv) -> dict[str, Floats]:
    assert isinstance(env.simulations, SingleSimulation)
    return {name: getattr(env.simulations.data, name).copy() for name in STATE}


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """{"a.b": x} -> {"a": {"b": x}}"""
    result: dict[str, Any] = {}
    for name, value in flat.items():
        outer, _, inner = name.rpartition(".")
        (result.setdefault(outer, {}) if outer else result)[inner] = value
    return result


def as_text(spec: mujoco.MjSpec, model: mujoco.MjModel) -> tuple[str, dict[str, Floats]]:
    """The model without its looks as MJCF, and the arrays that the text's digits round."""
    spec = spec.copy()
    for material in spec.materials:
        material.textures = [""] * len(material.textures)
    for part in (*spec.textures, *spec.lights, *spec.cameras):
        spec.delete(part)
    spec.compile()
    xml = spec.to_xml()
    read = mujoco.MjModel.from_xml_string(xml)
    numbers = {}
    for name in dir(model):
        value = getattr(model, name) if not name.startswith("_") else None
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        other = getattr(read, name)
        if other.shape == value.shape and not np.array_equal(other, value):
            numbers[name] = value
    return xml, numbers
