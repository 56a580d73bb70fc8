"""All environments by name, and what a run needs to know about each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from comsd.config import Setting
from comsd.envs.base import Env, Step
from comsd.envs.maze import HORIZON, MAZES, MazeEnv


@dataclass(frozen=True)
class EnvSpec:
    name: str
    family: str  # methods keep tuned values per family
    summary: str
    make: Callable[[int, int], Env]  # (number of environments, seed)
    agent: str  # what learns here
    space: Setting  # kind of skill space that methods use here by default
    skills: Setting
    presets: dict[str, dict[str, Setting]]


CYCLE = 50 * HORIZON  # environment steps of one PPO cycle at the default number of environments

MAZE_PRESETS: dict[str, dict[str, Setting]] = {
    "paper": {
        "run.steps": Setting(2500 * CYCLE, "authors' maze code: 50 epochs of 50 cycles"),
    },
    "lite": {
        "run.steps": Setting(500 * CYCLE, "measured: results/maze shows what 2500 cycles add"),
    },
    "smoke": {
        "run.steps": Setting(4 * 10 * HORIZON, "a few seconds, for tests"),
        "run.evaluate_every": Setting(2 * 10 * HORIZON, "a few seconds, for tests"),
        "run.log_every": Setting(10 * HORIZON, "a few seconds, for tests"),
        "run.checkpoint_every": Setting(2 * 10 * HORIZON, "a few seconds, for tests"),
        "run.rollouts": Setting(5, "a few seconds, for tests"),
        "agent.envs": Setting(10, "a few seconds, for tests"),
        "agent.minibatches": Setting(2, "a few seconds, for tests"),
    },
}


def _maze_spec(name: str) -> EnvSpec:
    maze = MAZES[name]
    return EnvSpec(
        name=f"maze-{name}",
        family="maze",
        summary=f"2-D maze of EDL: cells {len(maze.cells)}, dead ends {len(maze.arms)}",
        make=lambda num_envs, seed: MazeEnv(maze, num_envs, seed),
        agent="ppo",
        space=Setting("one-hot", "paper, Sec. V-K"),
        skills=Setting(10, "paper, Sec. V-K"),
        presets=MAZE_PRESETS,
    )


ENVS: dict[str, EnvSpec] = {spec.name: spec for spec in map(_maze_spec, MAZES)}

__all__ = ["ENVS", "Env", "EnvSpec", "Step"]
