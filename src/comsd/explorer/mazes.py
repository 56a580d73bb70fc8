"""Mazes for the page: cells, walls, starts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from comsd.agents.base import Policy, make_policy_fn
from comsd.envs.base import Env
from comsd.envs.maze import MAZES, PULL_BACK, REACH, MazeEnv
from comsd.evaluation.base import Options
from comsd.evaluation.maze import end_depths
from comsd.evaluation.metrics import path_length
from comsd.evaluation.rollouts import Floats, Rollouts, Watch
from comsd.evaluation.skills import SkillEvaluator
from comsd.explorer.arrays import Arrays
from comsd.explorer.measures import Measure
from comsd.runs import Run
from comsd.types import Array, Mask

CHECKS = 24
STEPS_PER_SECOND = 10


class HalfWay(np.random.Generator):
    """A blocked move ends half as far from the wall as it may; the page's check does the same."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def random(self, size: Any = None, *args: Any, **kwargs: Any) -> Any:
        return np.full(size, 0.5)


class StartedEnv(MazeEnv):
    """Episodes begin at given places (N, 2)."""

    starts: NDArray[np.float64] | None = None

    def reset(self, where: Mask | None = None) -> Array:
        obs = super().reset(where)
        if self.starts is None:
            return obs
        where = ~self.never if where is None else where
        self.position = np.where(where[:, None], self.starts, self.position)
        return self.position.astype(np.float32)


class MazeMapEvaluator(SkillEvaluator):
    """All skills have the same starts: the origin of evaluations, then the start cell's."""

    def __init__(self, run: Run, options: Options) -> None:
        super().__init__(run, options)
        self.maze = MAZES[run.spec.name.removeprefix("maze-")]

    def start_places(self, starts: int) -> NDArray[np.float64]:
        drawn = self.maze.random_start(starts, np.random.default_rng(0))
        drawn[0] = self.maze.origin
        return drawn

    def make_env(self, skills: int, starts: int) -> tuple[Env, Watch | None]:
        env = StartedEnv(self.maze, skills * starts, self.seed)
        env.starts = np.tile(self.start_places(starts), (skills, 1))
        return env, lambda: {"cell": env.cell}


class MazeWorld:
    axes: tuple[str, str] = ("x", "y")
    dt = 1 / STEPS_PER_SECOND
    ends = "Episodes begin again at the time limit."

    def __init__(self, run: Run, options: Options) -> None:
        self.evaluator = MazeMapEvaluator(run, options)
        self.maze = self.evaluator.maze

    def measures(self, rollouts: Rollouts) -> dict[Measure, Floats]:
        assert rollouts.positions is not None
        end = rollouts.positions[:, :, -1]
        depth = end_depths(self.maze, rollouts.watched["cell"]).astype(np.float64)
        return {
            Measure("x", "end, x", ""): end[..., 0],
            Measure("y", "end, y", ""): end[..., 1],
            Measure("depth", "cells from the start", ""): depth,
            Measure("length", "length of the path", ""): path_length(rollouts),
        }

    def frames(self, rollouts: Rollouts) -> Floats:
        assert rollouts.positions is not None
        return rollouts.positions[:, 0]

    def spec(self, arrays: Arrays) -> dict[str, Any]:
        maze, starts = self.maze, self.evaluator.start_places(self.evaluator.starts)
        return {
            "kind": "maze",
            "cells": maze.centres.tolist(),
            "next": maze.next_cell.tolist(),
            "walls": maze.walls.tolist(),
            "start": maze.number[maze.start],
            "reach": REACH,
            "pull_back": PULL_BACK,
            "starts": {"position": arrays.add(starts)},
        }

    def checks(self, policy: Policy, skills: Tensor, arrays: Arrays) -> dict[str, Any]:
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
