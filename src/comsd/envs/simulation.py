"""Simulations of one MuJoCo model: one alone, read where it lies, or many on several threads.

A control step goes as in dm_control: the control acts on the state as it is, the substeps follow,
and in the end positions, velocities and sensors are those of the new state.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import mujoco
import numpy as np
from mujoco import mj_step, mj_step1, mj_step2
from mujoco.batch import Batch, SimulationError
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Readings = Mapping[str, Doubles]  # fields of mjData, of one simulation or with a row for each
Start = Callable[[int, mujoco.MjData], None]  # puts a simulation where an episode begins

STATE = mujoco.mjtState.mjSTATE_INTEGRATION.value  # all that the next step depends on
NO_SENSORS = mujoco.mjtDisableBit.mjDSBL_SENSOR.value
VELOCITIES = mujoco.mjtStage.mjSTAGE_VEL.value
FORCES = mujoco.mjtStage.mjSTAGE_ACC.value
WARNINGS = list(mujoco.mjtWarning.__members__)


class UnstableError(Exception):
    """A simulation has failed, or MuJoCo warns of it."""

    def __init__(self, sim: int, what: str) -> None:
        super().__init__(what)
        self.sim = sim


class Simulations(Protocol):
    control: Doubles  # (N, A), to be written before a step
    readings: Readings  # with a row for each, written over by every step

    def begin(self, start: Start) -> Readings:
        """Put each where an episode begins; what is read there."""
        ...

    def step(self) -> None:
        """One control step; raises UnstableError."""
        ...

    def state(self) -> Doubles:
        """All that the future depends on, a row for each."""
        ...

    def restore(self, state: Doubles) -> None: ...


class Alone:
    """One simulation. Sensors are left out of the substeps after which nobody reads them."""

    def __init__(self, model: mujoco.MjModel, substeps: int, fields: Iterable[str]) -> None:
        self.model, self.blind = model, model.__copy__()
        self.blind.opt.disableflags |= NO_SENSORS
        self.data = mujoco.MjData(model)
        self.control = self.data.ctrl[None]
        self.readings: Readings = {name: getattr(self.data, name)[None] for name in fields}
        self.warnings = self.data.warning.number
        # Sensors of forces show those of the last substep, for which there must be a whole one.
        self.felt = bool((model.sensor_needstage == FORCES).any())
        self.unfelt = substeps - 1 - self.felt
        assert self.unfelt >= 0, "a single substep cannot be felt"

    def begin(self, start: Start) -> Readings:
        start(0, self.data)
        self.warnings[:] = 0  # the start has looked at its own
        return self.readings

    def step(self) -> None:
        data = self.data
        try:
            mj_step2(self.blind, data)
            if self.unfelt:
                mj_step(self.blind, data, self.unfelt)
            if self.felt:
                mj_step(self.model, data)
            mj_step1(self.model, data)
        except mujoco.FatalError as error:
            raise UnstableError(0, str(error)) from error
        if any(self.warnings.tolist()):
            raise UnstableError(0, f"MuJoCo warns {WARNINGS[np.flatnonzero(self.warnings)[0]]}")

    def state(self) -> Doubles:
        state = np.empty((1, mujoco.mj_stateSize(self.model, STATE)))
        mujoco.mj_getState(self.model, self.data, state[0], STATE)
        return state

    def restore(self, state: Doubles) -> None:
        mujoco.mj_setState(self.model, self.data, state[0], STATE)
        mj_step1(self.model, self.data)


class Together:
    """Many simulations that move in step, on several threads; each is as if it were alone."""

    def __init__(
        self, model: mujoco.MjModel, substeps: int, fields: Iterable[str], number: int, threads: int
    ) -> None:
        self.model, self.substeps = model, substeps
        self.batch = Batch(model, number, nthread=threads, persistent=True)
        self.starts = [mujoco.MjData(model) for _ in range(number)]
        self.control = self.batch.bind("ctrl")
        self.readings: Readings = {name: self.batch.bind(name) for name in fields}

    def begin(self, start: Start) -> Readings:
        for sim, (data, state) in enumerate(zip(self.starts, self.batch.state, strict=True)):
            start(sim, data)
            mujoco.mj_getState(self.model, data, state, STATE)
        # A state does not hold the forces that are read at the start.
        return {name: np.stack([getattr(d, name) for d in self.starts]) for name in self.readings}

    def step(self) -> None:
        try:
            self.batch.step(nstep=self.substeps, stage=VELOCITIES)
        except SimulationError as error:
            raise UnstableError(int(error.ids[0]), str(error)) from error
        if np.count_nonzero(self.batch.warning):
            sim, kind = np.argwhere(self.batch.warning)[0, :2]
            raise UnstableError(int(sim), f"MuJoCo warns {WARNINGS[kind]}")

    def state(self) -> Doubles:
        return self.batch.state.copy()

    def restore(self, state: Doubles) -> None:
        self.batch.state[:] = state


def stop_clock() -> None:
    """Switch off MuJoCo's profile of itself, a tenth of a step.

    `mujoco.set_mjcb_time(None)` brings it back; a clock that somebody else has set stays.
    """
    if mujoco.get_mjcb_time() is not None:
        return
    try:  # its setter takes no null, but the variable of its C interface does
        library = ctypes.CDLL(mujoco._callbacks.__file__)  # and what it is linked to
        ctypes.c_void_p.in_dll(library, "mjcb_time").value = None
    except (OSError, ValueError):  # where symbols of linked libraries are not found: only slower
        pass
