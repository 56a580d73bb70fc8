"""Robots in MuJoCo, without dm_control on the way.

A `Robot` says what is read from the simulator, how an episode starts and what its tasks reward;
`RobotEnv` runs `num_envs` of it. Every number is the one dm_control would give, to the bit
(`tests/test_robots.py`). Models are read from the files of the installed dm_control.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import mujoco
import numpy as np
import torch

from comsd.envs.base import Array, Step
from comsd.envs.simulation import (
    WARNINGS,
    Alone,
    Doubles,
    Readings,
    Simulations,
    Together,
    UnstableError,
    stop_clock,
)
from comsd.errors import RunError

Reward = Callable[[Readings], float]  # of one simulation: few numbers, for which arrays are slow

HORIZON = 1000  # control steps of every episode
NO_ACTUATION = mujoco.mjtDisableBit.mjDSBL_ACTUATION.value
# Same numbers in less time: one robot alone is one island, and has too few geoms for trees of them.
NO_SEARCH = mujoco.mjtDisableBit.mjDSBL_ISLAND | mujoco.mjtDisableBit.mjDSBL_MIDPHASE
MOTION = ("qpos", "xpos", "xmat", "sensordata", "subtree_angmom")  # to draw it, height, speed, spin
UNSTABLE = [i for i, name in enumerate(WARNINGS) if "BAD" in name]


class Robot(ABC):
    """A model and what the control suite defines around it."""

    name: ClassVar[str]
    substeps: ClassVar[int]  # physics steps per control step
    fields: ClassVar[tuple[str, ...]]  # of mjData, that observations and rewards need
    floor: ClassVar[tuple[str, float] | None] = None  # (geom, drawn half-length), if lengthened
    task_names: ClassVar[tuple[str, ...]]
    spin_unit: ClassVar[str]
    tasks: dict[str, Reward]

    def __init__(self) -> None:
        spec = mujoco.MjSpec.from_file(str(model_file(self.name)))
        if self.floor is not None:  # one floor for all tasks; physics takes it as infinite
            spec.geom(self.floor[0]).size[0] = self.floor[1]
        self.edit(spec)
        with warnings.catch_warnings():  # the suite's cheetah asks for its mass in an old way
            warnings.filterwarnings("ignore", ".*settotalmass.*")
            self.model: mujoco.MjModel = spec.compile()
        assert self.model.ntree == 1, "a robot alone"
        self.model.opt.disableflags |= NO_SEARCH
        self.torso = self.body("torso")

    def edit(self, spec: mujoco.MjSpec) -> None:  # noqa: B027 (most need none)
        """Change the model before it is compiled."""

    @abstractmethod
    def start(self, data: mujoco.MjData, rng: np.random.RandomState) -> None:
        """Draw the first state of an episode; the data is reset and has been run forward."""

    @abstractmethod
    def observe(self, x: Readings) -> list[Doubles]:
        """The parts of an observation of all simulations in their order, each (N, .)."""

    # How one simulation moves, or each of many.

    def height(self, x: Readings) -> Doubles:
        """Of the torso above the floor, in m."""
        return x["xpos"][..., self.torso, 2]

    @abstractmethod
    def speed(self, x: Readings) -> Doubles:
        """Forwards, in m/s."""

    @abstractmethod
    def spin(self, x: Readings) -> Doubles:
        """How it turns, in `spin_unit`."""

    def body(self, name: str) -> int:
        return self.model.body(name).id

    def sensor(self, name: str) -> int:
        """Where the sensor's first number stands in `sensordata`."""
        return int(self.model.sensor(name).adr[0])

    def rest(self, data: mujoco.MjData) -> None:
        """Run forward without actuation, as before the first action."""
        self.model.opt.disableflags |= NO_ACTUATION
        mujoco.mj_forward(self.model, data)
        self.model.opt.disableflags &= ~NO_ACTUATION

    def reset(self, data: mujoco.MjData) -> None:
        mujoco.mj_resetData(self.model, data)
        self.rest(data)


@cache
def model_file(name: str) -> Path:
    found = find_spec("dm_control")  # finds the package without importing it
    if found is None or not found.submodule_search_locations:
        raise RunError("the robots' models come with dm_control, which is not installed")
    return Path(found.submodule_search_locations[0]) / "suite" / f"{name}.xml"


def random_joints(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.RandomState) -> None:
    """Limited joints anywhere in their range, free hinges at any angle, slides where they are."""
    for joint in range(model.njnt):
        if model.jnt_limited[joint]:
            low, high = model.jnt_range[joint]
        elif model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE.value:
            low, high = -np.pi, np.pi
        else:
            continue
        data.qpos[model.jnt_qposadr[joint]] = rng.uniform(low, high)


class RobotEnv:
    """Simulations of one robot, one per seed; each is the same as if it were alone."""

    horizon = HORIZON
    repeat = 1

    def __init__(
        self, robot: Robot, task: str | None, seeds: Sequence[int], also: Sequence[str] = ()
    ) -> None:
        """`also`: fields of mjData to read beside those that the robot needs."""
        stop_clock()
        self.robot, self.seeds = robot, list(seeds)
        self.num_envs = num_envs = len(seeds)
        self.reward_of = robot.tasks[task] if task else None
        self.title = f"{robot.name}_{task}" if task else robot.name
        self.simulations = self.simulate((*robot.fields, *also))
        self.control, self.readings = self.simulations.control, self.simulations.readings
        self.each = [{name: x[i] for name, x in self.readings.items()} for i in range(num_envs)]
        low, high = robot.model.actuator_ctrlrange.astype(np.float32).T
        self.low, self.scale = low, (high - low) / np.float32(2)
        self.direct = bool((low == -1).all() and (high == 1).all())
        self.rngs = [np.random.RandomState(seed % 2**32) for seed in seeds]
        self.no_reward = np.zeros(num_envs)
        self.action_dim: int = robot.model.nu
        self.obs_dim = self.observe(self.readings).shape[1]
        self.clock = 0
        self.obs_mean = np.zeros(self.obs_dim, np.float32)  # networks see raw observations here
        self.obs_std = np.ones(self.obs_dim, np.float32)

    def simulate(self, fields: Sequence[str]) -> Simulations:
        what = self.robot.model, self.robot.substeps, fields
        if self.num_envs == 1:
            return Alone(*what)
        threads = min(self.num_envs, torch.get_num_threads())  # what the process may use
        return Together(*what, self.num_envs, threads)

    def reset(self) -> Array:
        self.clock = 0
        return self.observe(self.simulations.begin(self.start))

    def start(self, sim: int, data: mujoco.MjData) -> None:
        self.robot.reset(data)
        self.robot.start(data, self.rngs[sim])
        self.robot.rest(data)
        if any(data.warning[kind].number for kind in UNSTABLE):
            self.fail(UnstableError(sim, "MuJoCo warns while it settles"))

    def step(self, action: Array) -> Step:
        # Quadruped's bounds are not exact in float32, in which the wrappers of URLB rescale.
        self.control[...] = action if self.direct else self.low + self.scale * (action + 1)
        self.clock += 1
        try:
            self.simulations.step()
        except UnstableError as error:
            self.fail(error)
        obs = self.observe(self.readings)
        reward = self.no_reward
        if self.reward_of is not None:
            reward = np.array([*map(self.reward_of, self.each)])
        return Step(obs, reward, self.clock == self.horizon)

    def observe(self, readings: Readings) -> Array:
        return np.concatenate(self.robot.observe(readings), 1, dtype=np.float32)

    def fail(self, error: UnstableError) -> NoReturn:
        raise RunError(
            f"the simulation of {self.title} is unstable at step {self.clock} of an episode "
            f"(environment {error.sim}, seed {self.seeds[error.sim]}): {error}"
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "simulation": self.simulations.state(),
            "clock": self.clock,
            "rng": [rng.get_state(legacy=False) for rng in self.rngs],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.simulations.restore(state["simulation"])
        self.clock = state["clock"]
        for rng, saved in zip(self.rngs, state["rng"], strict=True):
            rng.set_state(saved)
