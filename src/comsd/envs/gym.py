"""Environments in the Gymnasium API, as many copies as are wanted, as an `Env`.

Copies are stepped one after the other: for physics of a few microseconds that is the fastest, and
each keeps its own episodes. Time limits are counted here, so `TimeLimit` is not needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from comsd.envs.base import Step, action_rng
from comsd.envs.gym_state import find_plane, mujoco_pair, peeled, state_access
from comsd.errors import InputError, RunError, one_line
from comsd.types import Array, Mask, ObsSpec

STATISTICS_STEPS = 1000  # random steps from which observation statistics are estimated
CONSTANT = 1e-2  # entries that vary less are only centred
FOREIGN = (Exception, SystemExit)  # whatever the environment's code raises
RESET, STEP = ("obs", "info"), ("obs", "reward", "terminated", "truncated", "info")


# MuJoCo would print a warning for every copy and write a log file into the working directory; as a
# Python warning each is shown once.
mujoco.set_mju_user_warning(partial(warnings.warn, stacklevel=2))


class GymEnv:
    """One environment per seed; each is independent of the others."""

    repeat = 1

    def __init__(
        self,
        make: Callable[[], gymnasium.Env],
        seeds: Sequence[int],
        horizon: int,
        title: str,
        obs_spec: ObsSpec | None = None,  # with statistics, if they are known
    ) -> None:
        self.title, self.horizon, self.num_envs = title, horizon, len(seeds)
        try:
            self.envs = [make() for _ in seeds]
        except InputError:
            raise
        except FOREIGN as error:
            raise InputError(f"env {title} cannot be made: {one_line(error)}") from error
        first = self.envs[0]
        check_environment(first, title)
        self.take_spaces(first.observation_space, first.action_space, obs_spec)
        self.access, self.plane = state_access(first), find_plane(first.unwrapped)
        self.begin(seeds)

    def take_spaces(
        self, observations: gymnasium.Space, actions: gymnasium.Space, obs_spec: ObsSpec | None
    ) -> None:
        """Those of one environment."""
        shape, dtype, self.flat = observation_form(observations, self.title)
        self.obs_spec = obs_spec or plain_spec(shape, dtype)
        self.low, self.high = action_bounds(actions, self.title)
        self.scale = (self.high - self.low) / np.float32(2)
        self.entries = named_entries(observations)
        self.action_space, self.action_dim = actions, len(self.low)
        self.direct = bool((self.low == -1).all() and (self.high == 1).all())
        box = isinstance(actions, spaces.Box)
        self.plain_actions = box and len(actions.shape or ()) == 1
        self.action_dtype = actions.dtype if box else np.float32
        self.obs: NDArray[Any] = np.zeros((self.num_envs, *shape), dtype)

    def begin(self, seeds: Sequence[int]) -> None:
        self.seeds, self.resumed = list(seeds), 0
        self.infos: list[dict[str, Any]] = [{} for _ in seeds]
        self.clock = np.zeros(self.num_envs, np.int64)
        self.begun = np.zeros(self.num_envs, bool)  # has its first episode, which takes the seed
        try:
            self.reset()
        except RunError as error:
            raise InputError(str(error)) from error

    def reset(self, where: Mask | None = None) -> Array:
        where = np.ones(self.num_envs, bool) if where is None else where
        self.obs = self.obs.copy()
        self.clock[where] = 0
        for i in np.flatnonzero(where):
            seed = None if self.begun[i] else self.seeds[i]
            try:
                result = self.envs[i].reset(seed=seed)
                obs, self.infos[i] = checked_result("reset", RESET, result)
                self.obs[i] = self.flat(obs)
            except FOREIGN as error:
                self.fail(int(i), one_line(error))
        self.begun |= where
        self.check_finite("observation", self.obs)
        return self.obs

    def step(self, action: Array) -> Step:
        n = self.num_envs
        obs, reward = np.empty_like(self.obs), np.empty(n)
        terminated, truncated = np.empty(n, bool), np.empty(n, bool)
        self.clock += 1
        infos: list[dict[str, Any]] = []
        for i, native in enumerate(self.native(action)):
            try:
                result = self.envs[i].step(native)
                if len(result) != len(STEP):
                    checked_result("step", STEP, result)
                after, reward[i], terminated[i], truncated[i], info = result
                obs[i] = self.flat(after)
            except FOREIGN as error:
                self.fail(i, one_line(error))
            infos.append(info)
        self.check_finite("observation", obs)
        self.check_finite("reward", reward)
        self.obs, self.infos = obs, infos
        truncated |= self.clock >= self.horizon
        return Step(obs, reward, terminated, truncated & ~terminated, infos)

    def native(self, action: NDArray[Any]) -> Iterable[Any]:
        """Actions of [-1, 1] in the ranges and the form of the environment."""
        if not self.direct:
            action = self.low + self.scale * (action + 1)
        if self.plain_actions:
            return action.astype(self.action_dtype, copy=False)
        return [spaces.unflatten(self.action_space, a) for a in action]

    def positions(self) -> NDArray[np.floating] | None:
        """From `x_position` and `y_position` of the infos or observations, or of the body in
        MuJoCo; of an environment with goals, what is to reach them.
        """
        if all("x_position" in info and "y_position" in info for info in self.infos):
            return np.array([(info["x_position"], info["y_position"]) for info in self.infos])
        for names in (("x_position", "y_position"), ("achieved_goal",)):
            if all(name in self.entries for name in names):
                chosen = [entry for name in names for entry in self.entries[name]]
                if len(chosen) >= 2:
                    return self.obs[:, chosen[:2]]
        pairs = self.mujoco_pairs()
        if self.plane is None or pairs is None:
            return None
        body, axes = self.plane
        return np.array([data.xpos[body, axes] for _, data in pairs])

    def mujoco_pairs(self) -> list[tuple[Any, Any]] | None:
        """Model and data of every simulation, where MuJoCo is behind the environment."""
        pairs = [mujoco_pair(env.unwrapped) for env in self.envs]
        return [pair for pair in pairs if pair] if all(pairs) else None

    def check_finite(self, what: str, values: NDArray[Any]) -> None:
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            broken = np.flatnonzero(~np.isfinite(values.reshape(self.num_envs, -1)).all(1))
            self.fail(int(broken[0]), f"its {what} holds NaN or infinity")

    def fail(self, i: int, reason: str) -> NoReturn:
        raise RunError(
            f"env {self.title} failed at step {self.clock[i]} of an episode "
            f"(environment {i}, seed {self.seeds[i]}): {reason}"
        )

    @property
    def kind(self) -> type:
        return type(self.envs[0].unwrapped)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def describe(self) -> dict[str, Any]:
        """What a run remembers of it, for people to read."""
        kind, spec = self.kind, self.obs_spec
        statistics = f"of {STATISTICS_STEPS} random steps" if spec.mean.shape else "none, images"
        return {
            "class": f"{kind.__module__}:{kind.__qualname__}",
            "observations": {
                "shape": list(spec.shape),
                "dtype": spec.dtype,
                "mean": spec.mean.tolist(),
                "std": spec.std.tolist(),
                "statistics": statistics,
            },
            "actions": {"low": self.low.tolist(), "high": self.high.tolist()},
            "horizon": self.horizon,
            "exact_resume": self.access is not None,
        }

    # --- state --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Complete where the environments can save theirs."""
        state: dict[str, Any] = {"resumed": self.resumed, "exact": self.access is not None}
        if self.access is not None:
            rngs = [env.unwrapped.np_random.bit_generator.state for env in self.envs]
            state |= {"rng": rngs, "clock": self.clock, "obs": self.obs}
            state["simulation"] = [self.access.save(peeled(env)) for env in self.envs]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> Array | None:
        self.resumed = state["resumed"]
        if self.access is None or not state["exact"]:
            self.resumed += 1  # other initial states than after the times before
            stream = np.random.SeedSequence([self.seeds[0], self.resumed])
            begin = int(stream.generate_state(1)[0] // 2)  # a seed has 31 bits
            self.seeds = list(range(begin, begin + self.num_envs))
            self.begun[:] = False
            return self.reset()
        self.reset()
        self.load_exactly(state)
        return None

    def load_exactly(self, state: dict[str, Any]) -> None:
        assert self.access is not None
        saved = zip(self.envs, state["rng"], state["simulation"], strict=True)
        for env, rng, simulation in saved:
            self.access.load(peeled(env), simulation)
            env.unwrapped.np_random.bit_generator.state = rng
        self.clock, self.obs = state["clock"], state["obs"]


def checked_result(call: str, wanted: Sequence[str], result: Any) -> Any:
    """Gym's API before 0.26, or a slip of the user's."""
    if not isinstance(result, tuple) or len(result) != len(wanted):
        found = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise ValueError(f"its {call} returns {found}, not ({', '.join(wanted)})")
    return result


def check_environment(env: Any, title: str) -> None:
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), gymnasium.Space):
            raise InputError(f"env {title} has no {name}; it must be a space of Gymnasium")


# --- spaces ---------------------------------------------------------------------------------------


def leaves(space: gymnasium.Space) -> Iterator[gymnasium.Space]:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        for part in parts:
            yield from leaves(part)
    else:
        yield space


def action_bounds(space: gymnasium.Space, title: str) -> tuple[Array, Array]:
    """Of the flattened actions, float32; where there are none, -1 and 1.

    Raises InputError unless all actions are continuous.
    """
    flat = spaces.flatten_space(space) if space.is_np_flattenable else None
    kinds = [isinstance(s, spaces.Box) and np.dtype(s.dtype).kind == "f" for s in leaves(space)]
    if not isinstance(flat, spaces.Box) or not all(kinds) or not flat.shape[0]:
        raise InputError(f"env {title} has the actions {space}; allowed: continuous ones (Box)")
    low, high = flat.low.astype(np.float32), flat.high.astype(np.float32)
    free = np.isinf(low) & np.isinf(high)
    low[free], high[free] = -1, 1
    if not np.isfinite(low).all() or not np.isfinite(high).all():
        raise InputError(
            f"env {title} has actions that are bounded on one side only ({space}); "
            "allowed: bounds on both sides or on none"
        )
    return low, high


def observation_form(
    space: gymnasium.Space, title: str
) -> tuple[tuple[int, ...], str, Callable[[Any], Any]]:
    """Shape, dtype, and the function that brings an observation into them.

    Images stay images, everything else becomes one vector.
    """
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3):
        return space.shape, "uint8", partial(checked_vector, space.shape)
    flat = spaces.flatten_space(space) if space.is_np_flattenable else None
    if not isinstance(flat, spaces.Box) or not flat.shape[0]:
        raise InputError(
            f"env {title} has the observations {space}; allowed: Box, and what Gymnasium can "
            "flatten to one"
        )
    vector = isinstance(space, spaces.Box) and len(space.shape) == 1
    check = partial(checked_vector, flat.shape) if vector else partial(spaces.flatten, space)
    return flat.shape, "float32", check


def named_entries(space: gymnasium.Space) -> dict[str, range]:
    """Where the parts of a Dict lie in the flattened observation."""
    found: dict[str, range] = {}
    if isinstance(space, spaces.Dict) and space.is_np_flattenable:
        at = 0
        for name, part in space.spaces.items():
            found[str(name)] = range(at, at + spaces.flatdim(part))
            at += len(found[str(name)])
    return found


def checked_vector(shape: tuple[int, ...], obs: Any) -> Any:
    """An array of another shape would be broadcast."""
    if np.shape(obs) != shape:
        raise ValueError(f"its observation has shape {np.shape(obs)}, its space has {shape}")
    return obs


def plain_spec(shape: tuple[int, ...], dtype: str) -> ObsSpec:
    sizes = shape if dtype == "float32" else ()
    return ObsSpec(shape, dtype, np.zeros(sizes, np.float32), np.ones(sizes, np.float32))


def estimate_observations(env: GymEnv, steps: int = STATISTICS_STEPS) -> ObsSpec:
    """What observations look like, with the statistics of random steps of a single environment."""
    images = env.obs_spec.dtype == "uint8"
    rng, seen = action_rng(0), [env.obs[0]]
    for _ in range(0 if images else steps):
        step = env.step(rng.uniform(-1, 1, (1, env.action_dim)).astype(np.float32))
        seen.append(step.obs[0])
        if step.ended[0]:
            seen.append(env.reset()[0])
    env.close()
    if images:
        return env.obs_spec
    mean, std = np.mean(seen, 0, np.float64), np.std(seen, 0, np.float64)
    std[std < CONSTANT] = 1
    return env.obs_spec._replace(mean=mean.astype(np.float32), std=std.astype(np.float32))
