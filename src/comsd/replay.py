"""Replay: a ring of transitions per environment, read as n-step windows.

A row holds an observation, the action taken there, the reward it brought and which skill acted.
The next observation is the next row's, so an episode of T steps takes T + 1 rows; skills are stored
once per segment. A transition can be drawn as soon as its next observation is written. No window
crosses the end of an episode: one that meets a termination ends there, without a value of what
follows; one that would cross a time limit is not drawn.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comsd.checkpoint import Chunk
from comsd.errors import RunError
from comsd.types import Batch, Mask, ObsSpec

Integers = NDArray[np.int64]

COLUMNS = ("obs", "action", "reward", "terminated", "segment", "episode")


class Layout(NamedTuple):
    """The size of a replay, before any memory is taken."""

    capacity: int  # transitions
    num_envs: int
    obs: ObsSpec
    action_dim: int
    skill_dim: int
    horizon: int  # steps of an episode, unless it terminates
    hold: int  # steps of a segment

    @property
    def arrays(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype of each array."""
        steps = -(-self.capacity // self.num_envs)  # per environment
        episodes = -(-steps // self.horizon)
        # Every episode ends in a row without an action; one of stacked images begins with copies.
        ring = self.num_envs, steps + episodes * self.obs.frames
        per_episode = -(-self.horizon // min(self.hold, self.horizon))
        segments = (episodes + 2) * per_episode * self.num_envs
        return {
            "obs": ((*ring, *self.obs.shape), self.obs.dtype),
            "action": ((*ring, self.action_dim), "float32"),
            "reward": (ring, "float32"),
            "terminated": (ring, "bool"),
            "segment": (ring, "int64"),
            "episode": (ring, "int64"),
            "skill": ((segments, self.skill_dim), "float32"),
        }

    @property
    def bytes(self) -> int:
        return sum(math.prod(s) * np.dtype(dtype).itemsize for s, dtype in self.arrays.values())


class Sizes(Protocol):
    """What a replay is built from."""

    @property
    def num_envs(self) -> int: ...

    @property
    def arrays(self) -> dict[str, tuple[tuple[int, ...], str]]: ...


class Replay:
    """The last transitions of some environments, in main memory; batches go to `device`."""

    obs: NDArray[Any]
    action: NDArray[np.float32]
    reward: NDArray[np.float32]
    terminated: Mask
    segment: Integers
    episode: Integers
    skill: NDArray[np.float32]  # ring of segments

    def __init__(self, layout: Sizes, device: torch.device) -> None:
        self.device, self.num_envs = device, layout.num_envs
        for name, (shape, dtype) in layout.arrays.items():
            setattr(self, name, np.zeros(shape, dtype))
        self.rows = self.reward.shape[1]
        self.envs = np.arange(self.num_envs)
        self.head = np.zeros(self.num_envs, np.int64)  # rows written; the open row is this one
        self.lost = np.zeros(self.num_envs, np.int64)  # earlier rows: a smaller ring dropped them
        self.episodes = np.zeros(self.num_envs, np.int64)
        self.current = np.zeros(self.num_envs, np.int64)  # the segment that acts
        self.segments = 0  # skills written so far
        self.has_terminations = False
        self.chunks: list[Chunk] = []  # what is on disk, oldest first

    # --- writing ------------------------------------------------------------------------------

    def begin(self, obs: NDArray[Any], where: Mask) -> None:
        """Open the first row of new episodes."""
        self.episodes += where
        self._open(obs)

    def cut(self, obs: NDArray[Any]) -> None:
        """End all episodes where they are, as by a time limit, and begin others."""
        self.head += 1  # the open rows are their last: they get no action
        self.begin(obs, np.ones(self.num_envs, bool))

    def select(self, skill: Tensor, where: Mask) -> None:
        """From here on these skills act in the environments of the mask, (mask's, Z)."""
        segment = self.segments + np.arange(len(skill))
        self.segments += len(skill)
        oldest = self._get("segment", self.envs, self.head - self.kept).min()
        if self.segments - oldest > len(self.skill):  # episodes were shorter than the horizon
            live = np.arange(oldest, segment[0])
            ring = np.zeros((2 * len(self.skill) + len(skill), self.skill.shape[1]), np.float32)
            ring[live % len(ring)] = self.skill[live % len(self.skill)]
            self.skill = ring
        self.skill[segment % len(self.skill)] = skill.cpu().numpy()
        self.current[where] = segment

    def add(
        self,
        action: NDArray[Any],
        reward: NDArray[Any],
        next_obs: NDArray[Any],
        terminated: Mask,
        ended: Mask,
        began: Mask | None = None,
    ) -> None:
        """What the open rows did and where that led; began: they did nothing (`Step.began`)."""
        acted = True if began is None else ~began
        at = self.envs, self.head % self.rows
        self.action[at], self.reward[at] = action, reward
        self.segment[at], self.terminated[at] = self.current, terminated
        self.has_terminations |= bool(terminated.any())
        self.head += acted
        self._open(next_obs)
        self.head += ended & acted  # the row of the last observation has no action

    def _open(self, obs: NDArray[Any]) -> None:
        at = self.envs, self.head % self.rows
        self.episode[at], self.terminated[at] = self.episodes, False
        self.segment[at] = self.current
        self._set("obs", self.envs, self.head, obs)

    # --- reading ------------------------------------------------------------------------------

    def sample(
        self,
        size: int,
        n: int,
        discount: float,
        rng: np.random.Generator,
        *,
        one_skill: bool = False,
        one_step: bool = True,
    ) -> Batch:
        """Windows of n steps, uniform over all that are whole.

        one_skill: only windows in which the skill does not change. one_step: False leaves out
        s_{t+1}; s_{t+n} stands in its place.
        """
        env, first, length = self._draw(size, n, rng, one_skill)
        return self._batch(env, first, length, n, discount, one_step=one_step, rng=rng)

    def transitions(self) -> Batch:
        """All single steps that are stored, undiscounted; for looking at a few thousand."""
        env, rows = self._places(np.stack([self.head - self.stored, self.head], 1).tolist())
        adjacent = self._get("episode", env, rows) == self._get("episode", env, rows + 1)
        env, rows = env[adjacent], rows[adjacent]
        return self._batch(env, rows, np.ones(len(rows), np.int64), 1, 1.0)

    def _batch(
        self,
        env: Integers,
        first: Integers,
        length: Integers,
        n: int,
        discount: float,
        *,
        one_step: bool = True,
        rng: np.random.Generator | None = None,
    ) -> Batch:
        """Windows that begin at these rows and end `length` <= n steps later."""

        def at(offset: int | Integers) -> tuple[Integers, Integers]:
            return env, (first + offset) % self.rows

        rewards = sum(np.where(i < length, discount**i * self.reward[at(i)], 0) for i in range(n))
        terminated = self.terminated[at(length - 1)]
        next_obs = self._tensor(self._observations(env, first + length, rng))
        same = n == 1 or not one_step
        return Batch(
            obs=self._tensor(self._observations(env, first, rng)),
            action=self._tensor(self.action[at(0)]),
            next_obs=next_obs,
            one_step_obs=next_obs
            if same
            else self._tensor(self._observations(env, first + 1, rng)),
            skill=self._tensor(self.skill[self.segment[at(0)] % len(self.skill)]),
            reward=self._tensor(np.asarray(rewards)),
            discount=self._tensor(np.where(terminated, 0, discount**n)),
        )

    def _observations(
        self, env: Integers, rows: Integers, rng: np.random.Generator | None
    ) -> NDArray[Any]:
        """Of some rows; rng: to vary those that are sampled, where that is usual."""
        return self._get("obs", env, rows)

    @property
    def kept(self) -> Integers:
        """Rows of each environment that are written and not overwritten."""
        return np.minimum(self.head - self.lost, self.rows - 1)

    @property
    def stored(self) -> Integers:
        """Those at which a window may begin."""
        return self.kept

    def has_window(self, n: int) -> bool:
        """Is a window of n steps whole?"""
        return bool(self.stored.max() >= n)

    def _get(self, name: str, env: Integers, rows: Integers) -> NDArray[Any]:
        """A column of some rows, as counted by `head`."""
        return getattr(self, name)[env, rows % self.rows]

    def _set(self, name: str, env: Integers, rows: Integers, values: NDArray[Any]) -> None:
        getattr(self, name)[env, rows % self.rows] = values

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(array)
        exact = tensor.dtype in (torch.float32, torch.uint8)
        return tensor.to(self.device, None if exact else torch.float32)

    def _length(self, env: Integers, first: Integers, n: int) -> Integers:
        """Steps of each window: n, or fewer where it meets a termination."""
        if not self.has_terminations:
            return np.full(len(first), n)
        flags = self.terminated[env[:, None], (first[:, None] + np.arange(n)) % self.rows]
        return np.where(flags.any(1), flags.argmax(1) + 1, n)

    def _draw(
        self, size: int, n: int, rng: np.random.Generator, one_skill: bool
    ) -> tuple[Integers, Integers, Integers]:
        """(environment, first row, length) of each window; rows as counted by `head`."""
        counts = self.stored
        ends = counts.cumsum()
        env, first, length = (np.zeros(size, np.int64) for _ in range(3))
        todo = np.arange(size)
        for _ in range(1000):
            draws = rng.integers(ends[-1], size=len(todo))
            e = np.searchsorted(ends, draws, side="right")
            start = self.head[e] - (ends[e] - draws)
            steps = self._length(e, start, n)
            at, after = (e, start % self.rows), (e, (start + steps) % self.rows)
            good = (self.episode[at] == self.episode[after]) & (start + steps <= self.head[e])
            if one_skill:
                final = (e, (start + steps - 1) % self.rows)
                good &= self.segment[at] == self.segment[final]
            env[todo], first[todo], length[todo] = e, start, steps
            todo = todo[~good]
            if not len(todo):
                return env, first, length
        raise RunError(f"no stored episode lasts train.n_step = {n} steps; lower it")

    # --- state --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Counters, and the rows as chunks of which only the last is new."""
        oldest = self.head - self.kept
        spans = self.chunks[-1].span if self.chunks else [[0, 0]] * self.num_envs
        each = zip(spans, oldest.tolist(), self.head.tolist(), strict=True)
        new = [[max(b, o), h] for (_, b), o, h in each]
        if any(b < h for b, h in new):
            at = self._places(new)
            name = f"replay-{int(self.head.sum()):012d}"
            columns = {c: torch.from_numpy(self._get(c, *at)) for c in COLUMNS}
            self.chunks.append(Chunk(name, new, columns))
        self.chunks = [
            chunk
            for chunk in self.chunks
            if any(stop > o for (_, stop), o in zip(chunk.span, oldest, strict=True))
        ]
        return {
            "head": self.head,
            "oldest": oldest,
            "episodes": self.episodes,
            "segments": self.segments,
            "current": self.current,
            "has_terminations": self.has_terminations,
            "skill": self.skill,
            "open": {name: self._get(name, self.envs, self.head) for name in COLUMNS},
            "chunks": list(self.chunks),
        }

    def _places(self, spans: list[list[int]]) -> tuple[Integers, Integers]:
        """(environment, row) of everything in some spans, one per environment."""
        env = np.repeat(self.envs, [stop - start for start, stop in spans])
        rows = np.concatenate([np.arange(*span) for span in spans])
        return env, rows

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.head, self.episodes = state["head"], state["episodes"]
        for chunk in state["chunks"]:
            at = self._places(chunk.span)
            for name in COLUMNS:
                self._set(name, *at, chunk.take(name).numpy())
            chunk.drop()
        self.chunks = list(state["chunks"])
        # A checkpoint of an older version does not say what is lost: what came before its chunks.
        spans = self.chunks[0].span if self.chunks else [[0, 0]] * self.num_envs
        self.lost = state.get("oldest", np.array(spans)[:, 0])
        self.segments, self.current = state["segments"], state["current"]
        self.skill, self.has_terminations = state["skill"], state["has_terminations"]
        for name, values in state["open"].items():
            self._set(name, self.envs, self.head, values)
