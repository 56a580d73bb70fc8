"""Roll-outs of skills, which everything is measured from: skills, starts, time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comsd.envs.base import Env
from comsd.envs.pixels import summarise
from comsd.errors import InputError
from comsd.training.rollout import StopFn, never, rollout
from comsd.types import Array, Mask, PolicyFn

Floats = NDArray[np.floating]
Watch = Callable[[], Mapping[str, NDArray[Any]]]  # more to record after a step, (N, ...) each
ProgressFn = Callable[[int], None]  # called with the number of steps made
Entries = tuple[int, int]  # of the observation, that stand for the position


def no_progress(steps: int) -> None:
    """No progress display."""


@dataclass(frozen=True)
class Rollouts:
    """The first episode of every start of every skill; what follows its end does not count."""

    obs: Array  # (skills, starts, time, O)  after each step
    length: NDArray[np.int64]  # (skills, starts)  steps that count
    positions: Floats | None  # (skills, starts, 1 + time, 2)  from the start on, where known
    watched: dict[str, NDArray[Any]] = field(default_factory=dict)  # (skills, starts, time, ...)
    reward: Floats | None = None  # (skills, starts, time)  of the task; 0 once the episode ended

    @property
    def valid(self) -> Mask:
        """(skills, starts, time): does the step count?"""
        return np.arange(self.obs.shape[2]) < self.length[..., None]

    def mean(self, values: NDArray[Any]) -> Floats:
        """Of values (skills, starts, time, ...) over the steps that count."""
        shape = *self.valid.shape, *[1] * (values.ndim - 3)
        return values.mean(2, dtype=np.float64, where=self.valid.reshape(shape))

    def std(self, values: NDArray[Any]) -> Floats:
        shape = *self.valid.shape, *[1] * (values.ndim - 3)
        return values.std(2, dtype=np.float64, where=self.valid.reshape(shape))

    def tracks(self) -> list[list[Floats]]:
        """By skill and start the positions that count, (1 + length, 2)."""
        assert self.positions is not None
        rows = zip(self.positions, self.length, strict=True)
        return [[p[: n + 1] for p, n in zip(*row, strict=True)] for row in rows]


def find_entries(xy: Sequence[int | str], env: Env) -> Entries:
    """Two entries of the flattened observation, by number or by the name of a part of it."""
    said, named = ",".join(map(str, xy)), getattr(env, "entries", {})
    found: list[int] = []
    for word in xy:
        if isinstance(word, str) and word not in named:
            known = f"allowed: {', '.join(named)}" if named else "its observations have no names"
            raise InputError(f"xy is {said}; {known}, or two numbers")
        found += named[word] if isinstance(word, str) else [word]
    if env.obs_spec.dtype == "uint8":
        raise InputError(f"xy is {said}; observations are images, which have no such entries")
    if len(found) < 2 or max(found[:2]) >= env.obs_spec.dim:
        raise InputError(
            f"xy is {said}; observations have {env.obs_spec.dim} numbers, counted from 0"
        )
    return found[0], found[1]


def position_axes(env: Any, xy: Entries | None = None) -> tuple[str, str]:
    """Labels of the axes of positions: in m where MuJoCo moves the body, z upwards."""
    from comsd.envs.robots import Planar  # slow to import

    if xy:
        return f"observation {xy[0]}", f"observation {xy[1]}"
    while hasattr(env, "env"):  # what is wrapped moves
        env = env.env
    robot, plane = getattr(env, "robot", None), getattr(env, "plane", None)
    if robot is None and plane is None:
        return "x", "y"
    across = plane[1] if plane else [0, 2] if isinstance(robot, Planar) else [0, 1]
    first, second = (f"{'xyz'[axis]} [m]" for axis in across)
    return first, second


def roll_out(
    env: Env,
    policy_fn: PolicyFn,
    skills: int,
    length: int | None = None,
    *,
    xy: Entries | None = None,
    watch: Watch | None = None,
    stopped: StopFn = never,
    tick: ProgressFn = no_progress,
) -> Rollouts:
    """Act for `length` steps, or to the end of all first episodes.

    The environments are those of the first skill, then those of the next. xy: entries of the
    observation in place of the environment's positions.
    """
    obs, alive, places, reward = [], [], [], []
    watched: dict[str, list[NDArray[Any]]] = {}

    def place(now: Array) -> Floats | None:
        return env.positions() if xy is None else now[:, list(xy)]

    def act(now: Array) -> Array:
        if not places:
            places.append(place(now))  # of the start
        return policy_fn(now)

    for step in rollout(env, act, length, stopped=stopped):
        obs.append(summarise(step.next_obs, env.obs_spec))
        alive.append(step.alive)
        reward.append(np.where(step.alive, step.reward, 0))
        places.append(place(step.next_obs))
        for name, values in (watch() if watch else {}).items():
            watched.setdefault(name, []).append(np.array(values))  # the next step overwrites them
        tick(env.num_envs)

    def by_skill(rows: list[Any]) -> NDArray[Any]:
        stacked = np.stack(rows, 1)
        return stacked.reshape(skills, -1, *stacked.shape[1:])

    known = not any(p is None for p in places)
    return Rollouts(
        by_skill(obs),
        by_skill(alive).sum(-1),
        by_skill(places) if known else None,
        {name: by_skill(rows) for name, rows in watched.items()},
        by_skill(reward),
    )
