"""What can be read from and written into environments of others: their state, a body's place.

The state of an environment is known to be complete only where its code is known: Gymnasium's MuJoCo
environments keep theirs in the simulator and in `np_random`. An environment of the user's says by
`state_dict()` and `load_state_dict(state)` that it can save the rest of its state.
"""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium
import mujoco
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

STATE = mujoco.mjtState.mjSTATE_INTEGRATION.value
STATELESS = (OrderEnforcing, PassiveEnvChecker)
LAGGING = ("xpos", "xipos")  # read before a step: they are those of the last substep's beginning


class StateAccess(Protocol):
    """The state of a peeled environment beside `np_random`, as arrays and JSON values."""

    def save(self, env: Any) -> dict[str, Any]: ...

    def load(self, env: Any, state: dict[str, Any]) -> None: ...


class MujocoState:
    def save(self, env: Any) -> dict[str, Any]:
        state = np.empty(mujoco.mj_stateSize(env.model, STATE))
        mujoco.mj_getState(env.model, env.data, state, STATE)
        return {"state": state, **{name: getattr(env.data, name).copy() for name in LAGGING}}

    def load(self, env: Any, state: dict[str, Any]) -> None:
        mujoco.mj_setState(env.model, env.data, state["state"], STATE)
        mujoco.mj_forward(env.model, env.data)
        mujoco.mj_setState(env.model, env.data, state["state"], STATE)  # the warm start
        for name in LAGGING:
            getattr(env.data, name)[:] = state[name]


class OwnState:
    def save(self, env: Any) -> dict[str, Any]:
        return env.state_dict()

    def load(self, env: Any, state: dict[str, Any]) -> None:
        env.load_state_dict(state)


def peeled(env: gymnasium.Env) -> gymnasium.Env:
    """Without the wrappers around it that have no state."""
    while isinstance(env, STATELESS):
        env = env.env
    return env


def state_access(env: gymnasium.Env) -> StateAccess | None:
    """None where nobody can say what the state is."""
    env = peeled(env)
    if hasattr(env, "state_dict") and hasattr(env, "load_state_dict"):
        return OwnState()
    return MujocoState() if type(env).__module__.startswith("gymnasium.envs.mujoco.") else None


def mujoco_pair(env: Any) -> tuple[Any, Any] | None:
    """Model and data of the simulation behind an unwrapped environment, dm_control's too."""
    holder = getattr(env, "physics", env)
    model, data = (getattr(holder, name, None) for name in ("model", "data"))
    model, data = getattr(model, "ptr", model), getattr(data, "ptr", data)
    found = isinstance(model, mujoco.MjModel) and isinstance(data, mujoco.MjData)
    return (model, data) if found else None


def find_plane(env: Any) -> tuple[int, list[int]] | None:
    """The body in MuJoCo that moves about, and the two axes along which it does."""
    pair = mujoco_pair(env)
    if pair is None or not pair[0].njnt:
        return None
    model = pair[0]
    free, slide = 0, 2  # mjtJoint
    body = int(model.jnt_bodyid[0])
    if model.jnt_type[0] == free:
        return body, [0, 1]
    slides = np.flatnonzero((model.jnt_bodyid == body) & (model.jnt_type == slide))
    axes = sorted({int(np.abs(model.jnt_axis[joint]).argmax()) for joint in slides})
    return (body, axes) if len(axes) == 2 else None
