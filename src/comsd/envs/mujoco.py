"""Robots in MuJoCo, without the overhead of dm_control.

A `Robot` defines observations, initial states and the rewards of its tasks; `RobotEnv` runs
`num_envs` simulations of it. Every number equals dm_control's, to the bit (`tests/test_robots.py`).
The models are in `models/`.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import mujoco
import numpy as np
from numpy.typing import NDArray

from comsd.envs import models
from comsd.envs.base import Step
from comsd.envs.recipe import Reader, Recipe
from comsd.envs.simulation import (
    WARNINGS,
    BatchedSimulation,
    Doubles,
    Readings,
    SingleSimulation,
    UnstableError,
    disable_timer,
)
from comsd.errors import RunError
from comsd.types import Array, Mask, ObsSpec

RewardFn = Callable[[Readings], float]  # of one simulation: for so few numbers arrays are slow

HORIZON = 1000  # control steps of every episode
NO_ACTUATION = mujoco.mjtDisableBit.mjDSBL_ACTUATION.value
# Same numbers in less time: one robot is one island with too few geoms for a bounding volume tree.
NO_SEARCH = mujoco.mjtDisableBit.mjDSBL_ISLAND | mujoco.mjtDisableBit.mjDSBL_MIDPHASE
# Of mjData, for pose, height, speed and spin.
MOTION_FIELDS = ("qpos", "xpos", "xmat", "sensordata", "subtree_angmom")
UNSTABLE = [i for i, name in enumerate(WARNINGS) if "BAD" in name]


class Robot(ABC):
    """A model with its observations, initial states and tasks."""

    name: ClassVar[str]
    substeps: ClassVar[int]  # physics steps per control step
    fields: ClassVar[tuple[str, ...]]  # of mjData, that observations and rewards need
    camera: ClassVar[int] = 0  # of the model, whose images are observations
    spin_unit: ClassVar[str]
    recipe: Recipe  # of observations
    tasks: dict[str, RewardFn]

    def __init__(self) -> None:
        self.spec, self.model = models.build(self.name)
        assert self.model.ntree == 1, "one robot, nothing else that moves"
        self.model.opt.disableflags |= NO_SEARCH
        self.torso: int = self.model.body("torso").id
        self.unactuated = self.model.__copy__()
        self.unactuated.opt.disableflags |= NO_ACTUATION

    @abstractmethod
    def start(self, data: mujoco.MjData, rng: np.random.RandomState) -> None:
        """Sample the initial state of an episode; the data has been reset and run forward."""

    def observe(self, x: Readings) -> list[Doubles]:
        """The parts of the observation in order, each (N, .)."""
        return [read(x) for read in self.readers]

    @cached_property
    def readers(self) -> list[Reader]:
        return [part.reader() for part in self.recipe]

    # Quantities of one simulation, or of each of many.

    def height(self, x: Readings) -> Doubles:
        """Of the torso above the floor, in m."""
        return x["xpos"][..., self.torso, 2]

    @abstractmethod
    def position(self, qpos: Doubles) -> Doubles:
        """Of the torso in m, (..., 2): x-y, or x-z of a planar robot."""

    @abstractmethod
    def speed(self, x: Readings) -> Doubles:
        """Forwards, in m/s."""

    @abstractmethod
    def spin(self, x: Readings) -> Doubles:
        """Rotation, in `spin_unit`."""

    def sensor(self, name: str) -> int:
        """Index of the sensor's first number in `sensordata`."""
        return int(self.model.sensor(name).adr[0])

    def forward_unactuated(self, data: mujoco.MjData) -> None:
        """mj_forward without actuation, as dm_control does before the first action."""
        mujoco.mj_forward(self.unactuated, data)

    def reset(self, data: mujoco.MjData) -> None:
        mujoco.mj_resetData(self.model, data)
        self.forward_unactuated(data)


def usable_threads() -> int:
    """The share of the cores that this process has given to torch; all, without torch."""
    torch = sys.modules.get("torch")  # which takes a second to load
    return torch.get_num_threads() if torch else os.cpu_count() or 1


class RobotEnv:
    """Simulations of one robot, one per seed; each is independent of the others."""

    horizon = HORIZON
    repeat = 1

    def __init__(
        self, robot: Robot, task: str | None, seeds: Sequence[int], *, motion: bool = False
    ) -> None:
        """motion: also read the fields that height, speed, spin and drawings need."""
        disable_timer()
        self.robot, self.seeds = robot, list(seeds)
        self.num_envs = num_envs = len(seeds)
        self.reward_fn = robot.tasks[task] if task else None
        self.title = f"{robot.name}_{task}" if task else robot.name
        fields = robot.fields + (MOTION_FIELDS if motion else ())
        if num_envs == 1:
            self.simulations = SingleSimulation(robot.model, robot.substeps, fields)
        else:
            threads = min(num_envs, usable_threads())
            self.simulations = BatchedSimulation(
                robot.model, robot.substeps, fields, num_envs, threads
            )
        self.control, self.readings = self.simulations.control, self.simulations.readings
        self.by_env = [{name: x[i] for name, x in self.readings.items()} for i in range(num_envs)]
        low, high = robot.model.actuator_ctrlrange.astype(np.float32).T
        self.low, self.scale = low, (high - low) / np.float32(2)
        self.direct = bool((low == -1).all() and (high == 1).all())
        self.rngs = [np.random.RandomState(seed % 2**32) for seed in seeds]
        self.no_reward, self.never = np.zeros(num_envs), np.zeros(num_envs, bool)
        self.action_dim: int = robot.model.nu
        self.obs = self.observe(self.readings)
        dim = self.obs.shape[1]
        raw = np.zeros(dim, np.float32), np.ones(dim, np.float32)  # networks get raw observations
        self.obs_spec = ObsSpec((dim,), "float32", *raw)
        self.set_clock(np.zeros(num_envs, np.int64))

    # A step only increments `now`, which is cheaper than an array of clocks.

    @property
    def clock(self) -> NDArray[np.int64]:
        """Steps since the start of each episode, (N,)."""
        return self.now - self.started

    def set_clock(self, clock: NDArray[np.int64]) -> None:
        self.now, self.started = 0, -clock
        self.first_end = int(self.started.min()) + self.horizon

    def reset(self, where: Mask | None = None) -> Array:
        sims = np.arange(self.num_envs) if where is None else np.flatnonzero(where)
        if len(sims):
            self.obs = self.obs.copy()
            self.obs[sims] = self.observe(self.simulations.begin(self.init_episode, sims.tolist()))
            clock = self.clock
            clock[sims] = 0
            self.set_clock(clock)
        return self.obs

    def init_episode(self, sim: int, data: mujoco.MjData) -> None:
        self.robot.reset(data)
        self.robot.start(data, self.rngs[sim])
        self.robot.forward_unactuated(data)
        if any(data.warning[kind].number for kind in UNSTABLE):
            self.fail(UnstableError(sim, "MuJoCo warns in the initial state"), step=0)

    def step(self, action: Array) -> Step:
        # Quadruped's bounds are not exact in float32, in which the wrappers of URLB rescale.
        self.control[...] = action if self.direct else self.low + self.scale * (action + 1)
        self.now += 1
        try:
            self.simulations.step()
        except UnstableError as error:
            self.fail(error, step=int(self.clock[error.sim]))
        self.obs = self.observe(self.readings)
        reward, truncated = self.no_reward, self.never
        if self.reward_fn is not None:
            reward = np.array([*map(self.reward_fn, self.by_env)])
        if self.now >= self.first_end:
            truncated = self.clock >= self.horizon
        return Step(self.obs, reward, self.never, truncated)

    def observe(self, readings: Readings) -> Array:
        return np.concatenate(self.robot.observe(readings), 1, dtype=np.float32)

    def fail(self, error: UnstableError, step: int) -> NoReturn:
        raise RunError(
            f"the simulation of {self.title} is unstable at step {step} of an episode "
            f"(environment {error.sim}, seed {self.seeds[error.sim]}): {error}"
        )

    def positions(self) -> Doubles:
        return self.robot.position(self.simulations.qpos)

    def state_dict(self) -> dict[str, Any]:
        return {
            "simulation": self.simulations.state(),
            "obs": self.obs,
            "clock": self.clock,
            "rng": [rng.get_state(legacy=False) for rng in self.rngs],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.simulations.restore(state["simulation"])
        self.obs = state["obs"]
        self.set_clock(state["clock"])
        for rng, saved in zip(self.rngs, state["rng"], strict=True):
            rng.set_state(saved)
