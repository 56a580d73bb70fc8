"""Environments in Gymnasium's vector API, which step many episodes as one batch, as an `Env`.

How an episode that ended begins anew is the vector's `metadata["autoreset_mode"]`:

Disabled    we ask for it, by `reset(options={"reset_mask": mask})`
SameStep    at once: `step` returns the first observation of the next episode, the last one of this
            is in the info
NextStep    in the step after, whose action is ignored: `Step.began`. That step is no transition.
            Gymnasium's own vectors in this mode take a mask, too, so they are asked as above.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from comsd.config import shown
from comsd.envs.base import Step
from comsd.envs.gym import FOREIGN, RESET, STEP, GymEnv, checked_result
from comsd.envs.gym_state import OwnState
from comsd.errors import InputError, one_line
from comsd.types import Array, Mask, ObsSpec


class VectorGymEnv(GymEnv):
    """One vector; environment i has the i-th seed."""

    def __init__(
        self,
        make: Callable[..., VectorEnv],
        seeds: Sequence[int],
        horizon: int,
        title: str,
        obs_spec: ObsSpec | None = None,
    ) -> None:
        self.title, self.horizon, self.num_envs = title, horizon, len(seeds)
        self.envs, self.plane = [], None
        try:
            self.vector = make(num_envs=self.num_envs, **choose_mode(make))
        except FOREIGN as error:
            raise InputError(f"env {title} cannot be made: {one_line(error)}") from error
        self.mode = autoreset_mode(self.vector, title)
        single = self.vector.single_observation_space, self.vector.single_action_space
        self.take_spaces(*single, obs_spec)
        owns = all(hasattr(self.vector, name) for name in ("state_dict", "load_state_dict"))
        self.access = OwnState() if owns else None
        # Since the last step: in SameStep begun anew already, in NextStep to begin in the next.
        self.ended = np.ones(self.num_envs, bool)
        self.fresh: NDArray[Any] = self.obs
        self.begin(seeds)

    @property
    def kind(self) -> type:
        return type(self.vector.unwrapped)

    def close(self) -> None:
        self.vector.close()

    def mujoco_pairs(self) -> None:
        """None are known behind a vector."""

    def reset(self, where: Mask | None = None) -> Array:
        where = np.ones(self.num_envs, bool) if where is None else where
        first = not self.begun.all()
        self.clock[where] = 0
        at_once = self.mode is AutoresetMode.SAME_STEP and self.ended[where].all()
        if first or self.mode is AutoresetMode.DISABLED or (where.all() and not at_once):
            seed = int(self.seeds[0]) if first else None  # environment i gets the seed + i
            masked = self.mode is AutoresetMode.DISABLED and not first
            options = {"reset_mask": where.copy()} if masked else None
            try:
                result = self.vector.reset(seed=seed, options=options)
                obs, infos = checked_result("reset", RESET, result)
                self.fresh, self.infos = self.flattened(obs), self.split(infos)
            except FOREIGN as error:
                self.fail(int(np.argmax(where)), one_line(error))
        elif not self.ended[where].all():
            self.refuse_time_limit(where)
        elif self.mode is AutoresetMode.NEXT_STEP:
            return self.obs
        self.begun[:] = True
        self.ended = self.ended & ~where
        self.obs = np.where(expand(where, self.fresh), self.fresh, self.obs)
        self.check_finite("observation", self.obs)
        return self.obs

    def step(self, action: Array) -> Step:
        if self.mode is AutoresetMode.DISABLED and self.ended.any():
            self.reset(self.ended)  # a roll-out goes on with the others; these do not count
        began = self.ended if self.mode is AutoresetMode.NEXT_STEP else np.zeros_like(self.ended)
        self.clock = np.where(began, 0, self.clock + 1)
        try:
            result = self.vector.step(self.batched(action))
            after, given, terminated, truncated, infos = checked_result("step", STEP, result)
            obs, reward = self.flattened(after), np.asarray(given, np.float64)
            terminated, truncated = np.asarray(terminated, bool), np.asarray(truncated, bool)
            terminated, truncated = terminated & ~began, truncated & ~began
            ended = terminated | truncated
            self.infos = self.split(infos)
            if self.mode is AutoresetMode.SAME_STEP and ended.any():
                self.fresh, obs = obs, self.last_of(obs, ended, infos)
                final = self.split(infos.get("final_info", {}))
                for i in np.flatnonzero(ended):
                    self.infos[i] = final[i]
        except FOREIGN as error:
            self.fail(0, one_line(error))
        self.check_finite("observation", obs)
        self.check_finite("reward", reward)
        self.obs, self.ended = obs, ended
        truncated = (truncated | (self.clock >= self.horizon)) & ~terminated
        return Step(obs, reward, terminated, truncated, self.infos, began if began.any() else None)

    def last_of(self, obs: NDArray[Any], ended: Mask, infos: dict[str, Any]) -> NDArray[Any]:
        """The true next observations: what `step` returns belongs to the next episode."""
        if "final_obs" not in infos:
            raise KeyError("final_obs is missing in the info of a step that ended an episode")
        last = obs.copy()
        for i in np.flatnonzero(ended):
            last[i] = self.flat(infos["final_obs"][i])
        return last

    def flattened(self, obs: Any) -> NDArray[Any]:
        rows = iterate(self.vector.observation_space, obs)
        flat = np.stack([np.asarray(self.flat(row)) for row in rows])
        return flat.astype(self.obs.dtype, copy=False)

    def batched(self, action: Array) -> Any:
        native = self.native(action)
        if self.plain_actions:
            return native
        space = self.action_space
        return concatenate(space, list(native), create_empty_array(space, self.num_envs))

    def split(self, infos: dict[str, Any]) -> list[dict[str, Any]]:
        """One per environment of what is known of each; Gymnasium marks by `_name` where it is."""
        rows: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for name, values in infos.items():
            if name.startswith("_") or np.shape(values)[:1] != (self.num_envs,):
                continue
            known = infos.get(f"_{name}", np.ones(self.num_envs, bool))
            for i in np.flatnonzero(known):
                rows[i][name] = values[i]
        return rows

    def refuse_time_limit(self, where: Mask) -> NoReturn:
        """It cannot end an episode of one environment from outside."""
        early = int(np.flatnonzero(where & ~self.ended)[0])
        self.fail(
            early,
            f"a vector in the mode {self.mode.value} ends episodes by itself; give its own time "
            "limit as --env.horizon, or use the mode Disabled",
        )

    # --- state --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"resumed": self.resumed, "exact": self.access is not None}
        if self.access is not None:
            state |= {"clock": self.clock, "obs": self.obs, "ended": self.ended}
            state |= {"fresh": self.fresh, "simulation": self.access.save(self.vector)}
            drawn = self.vector._np_random  # the property would make one
            state["rng"] = drawn and drawn.bit_generator.state
        return state

    def load_exactly(self, state: dict[str, Any]) -> None:
        assert self.access is not None
        self.access.load(self.vector, state["simulation"])
        if state["rng"] is not None:
            self.vector.np_random.bit_generator.state = state["rng"]
        self.clock, self.obs, self.ended = state["clock"], state["obs"], state["ended"]
        self.fresh = state["fresh"]


def expand(where: Mask, like: NDArray[Any]) -> NDArray[np.bool_]:
    return where.reshape(-1, *[1] * (like.ndim - 1))


def choose_mode(make: Callable[..., Any]) -> dict[str, Any]:
    """The argument that asks for the mode we need, where there is one."""
    try:
        known = "autoreset_mode" in inspect.signature(make).parameters
    except (TypeError, ValueError):
        known = False
    return {"autoreset_mode": AutoresetMode.DISABLED} if known else {}


def autoreset_mode(vector: Any, title: str) -> AutoresetMode:
    if not isinstance(vector, VectorEnv):
        raise InputError(
            f"env {title} is {type(vector).__name__}; it must be a gymnasium VectorEnv"
        )
    said = vector.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    try:
        mode = AutoresetMode(said)
    except ValueError as error:
        allowed = ", ".join(f"AutoresetMode.{mode.name}" for mode in AutoresetMode)
        raise InputError(
            f'env {title}: metadata["autoreset_mode"] is {shown(said)}; allowed: {allowed}'
        ) from error
    takes_mask = isinstance(vector.unwrapped, (SyncVectorEnv, AsyncVectorEnv))
    return AutoresetMode.DISABLED if mode is AutoresetMode.NEXT_STEP and takes_mask else mode
