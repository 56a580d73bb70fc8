"""Replay: a ring of flat tensors, written a step at a time, read as n-step windows.

A row holds what `num_envs` environments did at one moment: the observation, the action taken
there, the reward it brought and which skill acted. The next observation is the next row's, so an
episode of T steps takes T + 1 rows; skills are stored once per segment. A transition can be drawn
as soon as its last observation is written, and no window crosses an episode or an environment.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comsd.checkpoint import Chunk
from comsd.envs.base import Array
from comsd.errors import InputError, RunError
from comsd.types import Batch


def free_memory() -> int | None:
    """Bytes that can be had without swapping, where the system says."""
    try:
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


class Layout(NamedTuple):
    """The size of a replay, before any memory is taken."""

    capacity: int  # transitions
    num_envs: int
    obs_dim: int
    action_dim: int
    skill_dim: int
    horizon: int  # steps of an episode
    hold: int  # steps of a segment

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        steps = -(-self.capacity // self.num_envs)  # per environment
        episodes = -(-steps // self.horizon)
        rows = steps + episodes  # every episode ends in a row without an action
        # Segments still referred to: those of the episodes in the ring, one of them cut in two.
        per_episode = -(-self.horizon // min(self.hold, self.horizon))
        return {
            "obs": (rows, self.num_envs, self.obs_dim),
            "action": (rows, self.num_envs, self.action_dim),
            "reward": (rows, self.num_envs),
            "segment": (rows, self.num_envs),
            "episode": (rows,),
            "skill": ((episodes + 2) * per_episode * self.num_envs, self.skill_dim),
        }

    @property
    def bytes(self) -> int:
        return 4 * sum(math.prod(shape) for shape in self.shapes.values())

    def check_memory(self) -> None:
        free = free_memory()
        if free is not None and self.bytes > free:
            raise InputError(
                f"agent.replay is {self.capacity}: it needs {self.bytes / 1e9:.1f} GB of memory "
                f"and {free / 1e9:.1f} GB are free; it must be at most "
                f"{int(self.capacity * free / self.bytes)}"
            )


class Replay:
    """The last transitions of environments that move in step."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self.num_envs, self.device = layout.num_envs, device
        shapes = layout.shapes
        self.rows = shapes["obs"][0]
        integers = ("segment", "episode")
        make = {
            name: torch.zeros(
                shape, dtype=torch.int32 if name in integers else torch.float32, device=device
            )
            for name, shape in shapes.items()
        }
        self.obs, self.action, self.reward = make["obs"], make["action"], make["reward"]
        self.segment, self.episode, self.skill = make["segment"], make["episode"], make["skill"]
        self.head = 0  # rows written so far; the open row, whose action is still to come
        self.episodes = 0
        self.segments = 0  # skills written so far
        self.chunks: list[Chunk] = []  # what is on disk, oldest first

    # --- writing ------------------------------------------------------------------------------

    def begin(self, obs: Array) -> None:
        """Open the first row of new episodes."""
        self.episodes += 1
        self._open(obs)

    def hold(self, skill: Tensor) -> None:
        """From here on these skills act, (N, Z)."""
        self.current = (torch.arange(self.num_envs) + self.segments) % len(self.skill)
        self.skill[self.current] = skill.to(self.device)
        self.current = self.current.to(self.device, torch.int32)
        self.segments += self.num_envs

    def add(self, action: Array, reward: NDArray[np.floating], next_obs: Array, last: bool) -> None:
        """What the open row did and where that led."""
        row = self.head % self.rows
        self.action[row] = torch.from_numpy(action)
        self.reward[row] = torch.from_numpy(reward)
        self.segment[row] = self.current
        self.head += 1
        self._open(next_obs)
        if last:  # the row of the last observation has no action
            self.head += 1

    def _open(self, obs: Array) -> None:
        row = self.head % self.rows
        self.obs[row] = torch.from_numpy(obs)
        self.episode[row] = self.episodes

    # --- reading ------------------------------------------------------------------------------

    def sample(
        self,
        size: int,
        n: int,
        discount: float,
        rng: np.random.Generator,
        *,
        one_skill: bool = False,
    ) -> Batch:
        """Windows of n steps, uniform over all that are whole.

        one_skill: only windows in which the skill does not change.
        """
        first, env = self._draw(size, n, rng, one_skill)
        at = first * self.num_envs + env
        following = ((first + 1) % self.rows) * self.num_envs + env
        after = ((first + n) % self.rows) * self.num_envs + env
        steps = (first[:, None] + torch.arange(n, device=self.device)) % self.rows
        powers = discount ** torch.arange(n, device=self.device)
        segment = self.segment.view(-1)[at].long()
        obs = self.obs.flatten(0, 1)
        next_obs = obs.index_select(0, after)
        return Batch(
            obs=obs.index_select(0, at),
            action=self.action.flatten(0, 1).index_select(0, at),
            next_obs=next_obs,
            near=next_obs if n == 1 else obs.index_select(0, following),
            skill=self.skill.index_select(0, segment),
            reward=self.reward.view(-1)[steps * self.num_envs + env[:, None]] @ powers,
            discount=torch.full((size,), discount**n, device=self.device),
        )

    def transitions(self) -> Batch:
        """All single steps that are stored, undiscounted; for looking at a few thousand."""
        oldest = self.head - min(self.head, self.rows - 1)
        rows = torch.arange(oldest, self.head, device=self.device) % self.rows
        after = (rows + 1) % self.rows
        whole = self.episode[rows] == self.episode[after]
        rows, after = rows[whole], after[whole]
        reward, next_obs = self.reward[rows].flatten(), self.obs[after].flatten(0, 1)
        return Batch(
            obs=self.obs[rows].flatten(0, 1),
            action=self.action[rows].flatten(0, 1),
            next_obs=next_obs,
            near=next_obs,
            skill=self.skill[self.segment[rows].flatten().long()],
            reward=reward,
            discount=torch.ones_like(reward),
        )

    def starts(self, n: int) -> int:
        """How many rows may start a window, counting those that cross an episode's end."""
        return min(self.head, self.rows - 1) - n + 1

    def _draw(
        self, size: int, n: int, rng: np.random.Generator, one_skill: bool
    ) -> tuple[Tensor, Tensor]:
        """(row, environment) of each window's start."""
        oldest = self.head - min(self.head, self.rows - 1)
        choices = self.starts(n)
        first = torch.empty(size, dtype=torch.long, device=self.device)
        env = torch.zeros_like(first)
        todo = np.arange(size)
        for _ in range(1000):
            draws = oldest + rng.integers(choices, size=len(todo))
            rows = torch.from_numpy(draws % self.rows).to(self.device)
            ends = (rows + n) % self.rows
            envs = rng.integers(self.num_envs, size=len(todo)) if self.num_envs > 1 else 0 * todo
            which = torch.from_numpy(envs).to(self.device)
            good = self.episode[rows] == self.episode[ends]
            if one_skill:
                final = (rows + n - 1) % self.rows
                good &= self.segment[rows, which] == self.segment[final, which]
            where = torch.from_numpy(todo).to(self.device)
            first[where], env[where] = rows, which
            todo = todo[~good.cpu().numpy()]
            if not len(todo):
                return first, env
        raise RunError("the replay holds no whole window")

    # --- state --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Counters, and the rows as chunks of which only the last is new."""
        written = self.chunks[-1].span[1] if self.chunks else 0
        if self.head > written:
            self.chunks.append(self._chunk(max(written, self.head + 1 - self.rows), self.head))
        oldest = self.head + 1 - self.rows
        self.chunks = [chunk for chunk in self.chunks if chunk.span[1] > oldest]
        return {
            "head": self.head,
            "episodes": self.episodes,
            "segments": self.segments,
            "current": self.current,
            "skill": self.skill,
            "open": [self.obs[self.head % self.rows], self.episode[self.head % self.rows]],
            "chunks": list(self.chunks),
        }

    def _chunk(self, start: int, stop: int) -> Chunk:
        rows = torch.arange(start, stop, device=self.device) % self.rows
        columns = {name: column[rows] for name, column in self._columns().items()}
        return Chunk(f"replay-{start:012d}-{stop:012d}", (start, stop), columns)

    def _columns(self) -> dict[str, Tensor]:
        names = ("obs", "action", "reward", "segment", "episode")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for chunk in state["chunks"]:
            rows = torch.arange(*chunk.span, device=self.device) % self.rows
            for name, column in self._columns().items():
                column[rows] = chunk.take(name).to(self.device)
            chunk.drop()
        self.chunks = list(state["chunks"])
        self.head, self.episodes = state["head"], state["episodes"]
        self.segments = state["segments"]
        self.current = state["current"].to(self.device)
        self.skill.copy_(state["skill"])
        obs, episode = state["open"]
        self.obs[self.head % self.rows] = obs.to(self.device)
        self.episode[self.head % self.rows] = episode.to(self.device)
