"""Simulations of one MuJoCo model: a single one, or a batch on several threads.

A control step is that of dm_control: the control acts on the current state, the substeps follow,
and afterwards positions, velocities and sensors are those of the new state.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping

import mujoco
import numpy as np
from mujoco import mj_step, mj_step1, mj_step2
from mujoco.batch import Batch, SimulationError
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Readings = Mapping[str, Doubles]  # fields of mjData, of one simulation or with a row for each
InitFn = Callable[[int, mujoco.MjData], None]  # sets a simulation to the start of an episode

STATE = mujoco.mjtState.mjSTATE_INTEGRATION.value  # everything the next step depends on
NO_SENSORS = mujoco.mjtDisableBit.mjDSBL_SENSOR.value
VELOCITIES = mujoco.mjtStage.mjSTAGE_VEL.value
FORCES = mujoco.mjtStage.mjSTAGE_ACC.value
WARNINGS = list(mujoco.mjtWarning.__members__)


class UnstableError(Exception):
    """A simulation failed, or MuJoCo warned about it."""

    def __init__(self, sim: int, reason: str) -> None:
        super().__init__(reason)
        self.sim = sim


class SingleSimulation:
    """One simulation. Sensors are computed only in substeps that the readings depend on."""

    def __init__(self, model: mujoco.MjModel, substeps: int, fields: Iterable[str]) -> None:
        self.model, self.sensorless = model, model.__copy__()
        self.sensorless.opt.disableflags |= NO_SENSORS
        self.data = mujoco.MjData(model)
        self.control: Doubles = self.data.ctrl[None]  # (1, A), to be written before a step
        # With a row for each simulation, overwritten by every step.
        self.readings: Readings = {name: getattr(self.data, name)[None] for name in fields}
        self.warnings = self.data.warning.number
        # Force sensors show the last substep, which must then be a whole one.
        self.has_force_sensors = bool((model.sensor_needstage == FORCES).any())
        self.sensorless_substeps = substeps - 1 - self.has_force_sensors
        assert self.sensorless_substeps >= 0, "force sensors need two substeps"

    def begin(self, init: InitFn, sims: Iterable[int]) -> Readings:
        """Start episodes in some simulations; returns their readings, in the same order."""
        for sim in sims:
            init(sim, self.data)
            self.warnings[:] = 0  # `init` has checked its own
        return self.readings

    def step(self) -> None:
        """One control step; raises UnstableError."""
        data = self.data
        try:
            mj_step2(self.sensorless, data)
            if self.sensorless_substeps:
                mj_step(self.sensorless, data, self.sensorless_substeps)
            if self.has_force_sensors:
                mj_step(self.model, data)
            mj_step1(self.model, data)
        except mujoco.FatalError as error:
            raise UnstableError(0, str(error)) from error
        if any(self.warnings.tolist()):
            raise UnstableError(0, f"MuJoCo warns {WARNINGS[np.flatnonzero(self.warnings)[0]]}")

    @property
    def qpos(self) -> Doubles:
        """Positions of the joints, a row for each; overwritten by every step."""
        return self.data.qpos[None]

    def state(self) -> Doubles:
        """The complete state, a row for each."""
        state = np.empty((1, mujoco.mj_stateSize(self.model, STATE)))
        mujoco.mj_getState(self.model, self.data, state[0], STATE)
        return state

    def restore(self, state: Doubles) -> None:
        mujoco.mj_setState(self.model, self.data, state[0], STATE)
        mj_step1(self.model, self.data)


class BatchedSimulation:
    """Many simulations, stepped together on several threads; each equals a single one."""

    def __init__(
        self, model: mujoco.MjModel, substeps: int, fields: Iterable[str], number: int, threads: int
    ) -> None:
        self.model, self.substeps = model, substeps
        self.batch = Batch(model, number, nthread=threads, persistent=True)
        self.starts = [mujoco.MjData(model) for _ in range(number)]
        self.control: Doubles = self.batch.bind("ctrl")
        self.readings: Readings = {name: self.batch.bind(name) for name in fields}

    def begin(self, init: InitFn, sims: Iterable[int]) -> Readings:
        begun = [(sim, self.starts[sim]) for sim in sims]
        for sim, data in begun:
            init(sim, data)
            mujoco.mj_getState(self.model, data, self.batch.state[sim], STATE)
        # Not from the batch: its state does not contain the forces of the initial readings.
        return {name: np.stack([getattr(d, name) for _, d in begun]) for name in self.readings}

    def step(self) -> None:
        try:
            self.batch.step(nstep=self.substeps, stage=VELOCITIES)
        except SimulationError as error:
            raise UnstableError(int(error.ids[0]), str(error)) from error
        if np.count_nonzero(self.batch.warning):
            sim, kind = np.argwhere(self.batch.warning)[0, :2]
            raise UnstableError(int(sim), f"MuJoCo warns {WARNINGS[kind]}")

    @property
    def qpos(self) -> Doubles:
        return self.batch.state[:, 1 : 1 + self.model.nq]  # after the time

    def state(self) -> Doubles:
        return self.batch.state.copy()

    def restore(self, state: Doubles) -> None:
        self.batch.state[:] = state


def disable_timer() -> None:
    """Switch off MuJoCo's profiling of itself, a tenth of a step.

    `mujoco.set_mjcb_time(None)` brings it back; a timer that a user has set stays.
    """
    if mujoco.get_mjcb_time() is not None:
        return
    try:  # its setter takes no null, but the variable of its C interface does
        library = ctypes.CDLL(mujoco._callbacks.__file__)  # and the libraries it links to
        ctypes.c_void_p.in_dll(library, "mjcb_time").value = None
    except (OSError, ValueError):  # symbols of linked libraries are not found: only slower
        pass
