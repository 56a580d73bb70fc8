"""Mazes for the page: cells, walls, starts, recorded paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from comsd.agents.base import Policy, make_policy_fn
from comsd.envs.maze import HORIZON, PULL_BACK, REACH, Maze, MazeEnv
from comsd.explorer.arrays import Arrays
from comsd.explorer.rollouts import Floats, Measure, Rollouts

CHECKS = 24
STEPS_PER_SECOND = 10


class HalfWay(np.random.Generator):
    """A blocked move ends half as far from the wall as it may; the page's check does the same."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def random(self, size: Any = None, *args: Any, **kwargs: Any) -> Any:
        return np.full(size, 0.5)


class MazeWorld:
    axes: tuple[str, str] = ("x", "y")
    dt = 1 / STEPS_PER_SECOND
    horizon = HORIZON

    def __init__(self, maze: Maze) -> None:
        self.maze = maze

    def starts(self, starts: Sequence[int]) -> NDArray[np.float64]:
        """The origin of evaluations first, then anywhere in the start cell, (starts, 2)."""
        drawn = self.maze.random_start(max(starts) + 1, np.random.default_rng(0))
        drawn[0] = self.maze.origin
        return drawn[list(starts)]

    def rollouts(
        self, policy: Policy, skills: Tensor, starts: Sequence[int], length: int | None = None
    ) -> Rollouts:
        shape, maze = (len(skills), len(starts)), self.maze
        env = MazeEnv(maze, len(skills) * len(starts), seed=0)
        policy_fn = make_policy_fn(policy, skills.repeat_interleave(len(starts), 0), None)
        position = np.tile(self.starts(starts), (len(skills), 1))
        obs = begin(env, position)
        places = [position]
        for _ in range(length or env.horizon):
            obs = env.step(policy_fn(obs)).obs
            places.append(env.position)
        path = np.stack(places, 1)  # (N, time, 2)
        end = path[:, -1].reshape(*shape, 2)
        depth = maze.depth[env.cell].astype(np.float64)
        travelled = np.linalg.norm(np.diff(path, axis=1), axis=-1).sum(1).reshape(shape)
        return Rollouts(
            {
                Measure("x", "end, x", ""): end[..., 0],
                Measure("y", "end, y", ""): end[..., 1],
                Measure("depth", "cells from the start", ""): depth.reshape(shape),
                Measure("length", "length of the path", ""): travelled,
            },
            path.mean(1).reshape(*shape, 2),
            path.reshape(*shape, -1, 2)[:, 0].astype(np.float32),
        )

    def spec(self, starts: Sequence[int], arrays: Arrays) -> dict[str, Any]:
        maze = self.maze
        return {
            "kind": "maze",
            "cells": maze.centres.tolist(),
            "next": maze.next_cell.tolist(),
            "walls": maze.walls.tolist(),
            "start": maze.number[maze.start],
            "reach": REACH,
            "pull_back": PULL_BACK,
            "starts": {"position": arrays.add(self.starts(starts))},
        }

    def checks(self, policy: Policy, skills: Tensor, arrays: Arrays) -> dict[str, Any]:
        """What Python does in some places, each under another skill."""
        rng = np.random.default_rng(0)
        cell = rng.integers(len(self.maze.cells), size=CHECKS)
        position = self.maze.centres[cell] + rng.uniform(-0.45, 0.45, (CHECKS, 2))
        env = MazeEnv(self.maze, CHECKS, seed=0)
        env.move_rng = HalfWay()
        env.position, env.cell = position, cell
        skill = skills[np.arange(CHECKS) % len(skills)]
        obs = position.astype(np.float32)
        action = make_policy_fn(policy, skill, None)(obs)
        after_obs = env.step(action).obs
        return {
            "obs": arrays.add(obs),
            "skill": arrays.add(skill.numpy()),
            "action": arrays.add(action),
            "before": {
                "position": arrays.add(position),
                "cell": arrays.add(cell[:, None].astype(np.float64)),
            },
            "after": {
                "position": arrays.add(env.position),
                "cell": arrays.add(env.cell[:, None].astype(np.float64)),
            },
            "after_obs": arrays.add(after_obs),
        }


def begin(env: MazeEnv, position: Floats) -> NDArray[np.float32]:
    env.reset()
    env.position = position
    return position.astype(np.float32)
