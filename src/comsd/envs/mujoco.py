"""Robots in MuJoCo: a batch of simulations that move in step, without dm_control on the way.

A `Robot` says what is read from the simulator, how an episode starts and what its tasks reward;
`RobotEnv` runs `num_envs` of it. Every number is the one dm_control would give, to the bit
(`tests/test_robots.py`). Models are read from the files of the installed dm_control.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch, SimulationError
from numpy.typing import NDArray

from comsd.envs.base import Array, Step
from comsd.errors import RunError

Doubles = NDArray[np.float64]
Readings = Mapping[str, Doubles]  # fields of mjData, of one simulation or with a row for each
Reward = Callable[[Readings], float]  # of one simulation: few numbers, for which arrays are slow

HORIZON = 1000  # control steps of every episode
STATE = mujoco.mjtState.mjSTATE_INTEGRATION.value  # all that the next step depends on
NO_ACTUATION = mujoco.mjtDisableBit.mjDSBL_ACTUATION.value
NO_ISLANDS = mujoco.mjtDisableBit.mjDSBL_ISLAND.value
NEW_STATE = mujoco.mjtStage.mjSTAGE_VEL.value  # positions and velocities are those after the step
MOTION = ("qpos", "xpos", "xmat", "sensordata", "subtree_angmom")  # to draw it, height, speed, spin
WARNINGS = list(mujoco.mjtWarning.__members__)
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
        if self.model.ntree == 1:  # one robot alone is one island: same numbers without the search
            self.model.opt.disableflags |= NO_ISLANDS
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
        self.robot, self.seeds = robot, list(seeds)
        self.num_envs = num_envs = len(seeds)
        self.reward_of = robot.tasks[task] if task else None
        self.title = f"{robot.name}_{task}" if task else robot.name
        threads = min(num_envs, torch.get_num_threads())  # what the process may use
        self.batch = Batch(robot.model, num_envs, nthread=threads, persistent=True)
        self.starts = [mujoco.MjData(robot.model) for _ in range(num_envs)]
        self.readings = {name: self.batch.bind(name) for name in (*robot.fields, *also)}
        self.each = [{name: x[i] for name, x in self.readings.items()} for i in range(num_envs)]
        self.control = self.batch.bind("ctrl")
        low, high = robot.model.actuator_ctrlrange.astype(np.float32).T
        self.low, self.scale = low, (high - low) / np.float32(2)
        self.direct = bool((low == -1).all() and (high == 1).all())
        self.rngs = [np.random.RandomState(seed % 2**32) for seed in seeds]
        self.no_reward = np.zeros(num_envs)
        self.action_dim: int = robot.model.nu
        self.batch.reset()
        self.obs_dim = self.observe(self.readings).shape[1]
        self.clock = 0
        self.obs_mean = np.zeros(self.obs_dim, np.float32)  # networks see raw observations here
        self.obs_std = np.ones(self.obs_dim, np.float32)

    def reset(self) -> Array:
        self.clock = 0
        for data, state, rng in zip(self.starts, self.batch.state, self.rngs, strict=True):
            self.robot.reset(data)
            self.robot.start(data, rng)
            self.robot.rest(data)
            if any(data.warning[kind].number for kind in UNSTABLE):
                self.fail(self.starts.index(data), "MuJoCo warns while it settles")
            mujoco.mj_getState(self.robot.model, data, state, STATE)
        # The first observation has the forces of the last `rest`, which a state does not hold.
        first = {name: np.stack([getattr(d, name) for d in self.starts]) for name in self.readings}
        return self.observe(first)

    def step(self, action: Array) -> Step:
        # Quadruped's bounds are not exact in float32, in which the wrappers of URLB rescale.
        self.control[:] = action if self.direct else self.low + self.scale * (action + 1)
        self.clock += 1
        try:
            self.batch.step(nstep=self.robot.substeps, stage=NEW_STATE)
        except SimulationError as error:
            self.fail(int(error.ids[0]), str(error))
        if np.count_nonzero(self.batch.warning):
            sim, kind = np.argwhere(self.batch.warning)[0, :2]
            self.fail(int(sim), f"MuJoCo warns {WARNINGS[kind]}")
        obs = self.observe(self.readings)
        reward = self.no_reward
        if self.reward_of is not None:
            reward = np.array([self.reward_of(x) for x in self.each])
        return Step(obs, reward, self.clock == self.horizon)

    def observe(self, readings: Readings) -> Array:
        return np.concatenate(self.robot.observe(readings), 1, dtype=np.float32)

    def fail(self, sim: int, what: str) -> None:
        raise RunError(
            f"the simulation of {self.title} is unstable at step {self.clock} of an episode "
            f"(environment {sim}, seed {self.seeds[sim]}): {what}"
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "simulation": self.batch.state.copy(),
            "clock": self.clock,
            "rng": [rng.get_state(legacy=False) for rng in self.rngs],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.batch.state[:] = state["simulation"]
        self.clock = state["clock"]
        for rng, saved in zip(self.rngs, state["rng"], strict=True):
            rng.set_state(saved)
