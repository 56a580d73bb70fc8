"""All environments by name, and what a run needs to know about each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from comsd.config import Setting, choose, sourced
from comsd.envs.base import Env, Step
from comsd.envs.maze import HORIZON, MAZES, MazeEnv
from comsd.envs.mujoco import Robot, RobotEnv
from comsd.envs.robots import ROBOTS


@dataclass(frozen=True)
class EnvSpec:
    name: str
    families: tuple[str, ...]  # from general to special; methods keep tuned values for each
    summary: str
    make: Callable[[int, int], Env]  # (number of environments, seed)
    agent: str  # what learns here
    values: dict[str, Setting]  # settings that are other here than by default
    presets: dict[str, dict[str, Setting]]
    tasks: tuple[str, ...] = ()  # what the same body can be asked to do


# --- mazes ----------------------------------------------------------------------------------------

CYCLE = 50 * HORIZON  # environment steps of one PPO cycle at the default number of environments

MAZE_PRESETS: dict[str, dict[str, Setting]] = {
    "paper": sourced("authors' maze code: 50 epochs of 50 cycles", run__steps=2500 * CYCLE),
    "lite": sourced("measured: results/maze shows what 2500 cycles add", run__steps=500 * CYCLE),
    "smoke": sourced(
        "a few seconds, for tests",
        run__steps=4 * 10 * HORIZON,
        run__evaluate_every=2 * 10 * HORIZON,
        run__log_every=10 * HORIZON,
        run__checkpoint_every=2 * 10 * HORIZON,
        run__rollouts=5,
        agent__envs=10,
        agent__minibatches=2,
    ),
}


def _maze_spec(name: str) -> EnvSpec:
    maze = MAZES[name]
    return EnvSpec(
        name=f"maze-{name}",
        families=("maze",),
        summary=f"2-D maze of EDL: cells {len(maze.cells)}, dead ends {len(maze.arms)}",
        make=lambda num_envs, seed: MazeEnv(maze, num_envs, seed),
        agent="ppo",
        values=sourced("paper, Sec. V-K", run__space="one-hot", run__skills=10)
        | sourced("torch's default, as in the authors' maze code", method__init="uniform"),
        presets=MAZE_PRESETS,
    )


# --- robots ---------------------------------------------------------------------------------------

PILOT = "for one CPU core; docs/robots.md says what it shows"

LITE = sourced(
    PILOT,
    method__hidden=256,
    agent__hidden=256,
    agent__batch_size=256,
    agent__update_every=4,
)
SMOKE = sourced(
    "a few seconds, for tests",
    run__log_every=200,
    run__evaluate_every=600,
    run__checkpoint_every=400,
    run__rollouts=1,
    method__hidden=32,
    agent__hidden=32,
    agent__batch_size=32,
    agent__update_every=4,
    agent__random_steps=200,
    agent__replay=1000,
)
TABLE = "paper, hyper-parameter table"

ROBOT_PRESETS: dict[str, dict[str, Setting]] = {
    "paper": sourced(TABLE, run__steps=2_000_000),
    "lite": LITE | sourced(PILOT, run__steps=300_000),
    "smoke": SMOKE | sourced("a few seconds, for tests", run__steps=1200),
}
TASK_PRESETS: dict[str, dict[str, Setting]] = {
    "paper": sourced(TABLE, run__steps=100_000),
    "lite": LITE | sourced(TABLE, run__steps=100_000),
    "smoke": SMOKE | sourced("a few seconds, for tests", run__steps=800, run__evaluate_every=400),
}


@cache
def robot(name: str) -> Robot:
    return ROBOTS[name]()


def _robot_spec(name: str) -> EnvSpec:
    return EnvSpec(
        name=name,
        families=("robots", name),
        summary=f"{name.title()} of the DeepMind Control Suite, reward-free",
        make=lambda num_envs, seed: RobotEnv(robot(name), None, range(seed, seed + num_envs)),
        agent="ddpg",
        values=sourced(TABLE, run__space="box", run__skills=64)
        | sourced("ours", run__log_every=2000, run__evaluate_every=25_000)
        | sourced("ours", run__checkpoint_every=10_000, run__rollouts=6),
        presets=ROBOT_PRESETS,
        tasks=tuple(f"{name}_{task}" for task in ROBOTS[name].task_names),
    )


def make_task(name: str, num_envs: int = 1, seed: int = 0) -> RobotEnv:
    """A robot with a task's reward, such as `walker_run`."""
    choose("task", name, TASKS)
    domain, _, task = name.partition("_")
    return RobotEnv(robot(domain), task, range(seed, seed + num_envs))


def _task_spec(domain: str, task: str) -> EnvSpec:
    return EnvSpec(
        name=f"{domain}_{task}",
        families=("tasks", domain),
        summary=f"{domain.title()} with the reward of {task}",
        make=partial(make_task, f"{domain}_{task}"),
        agent="ddpg",
        values=sourced("no skills unless they are taken over", run__space="none", run__skills=0)
        | sourced(TABLE, run__evaluate_every=10_000, run__rollouts=10)
        | sourced("ours", run__log_every=1000, run__checkpoint_every=10_000),
        presets=TASK_PRESETS,
    )


ENVS: dict[str, EnvSpec] = {
    spec.name: spec for spec in (*map(_maze_spec, MAZES), *map(_robot_spec, ROBOTS))
}


TASKS: dict[str, EnvSpec] = {
    spec.name: spec
    for name, kind in ROBOTS.items()
    for spec in (_task_spec(name, task) for task in kind.task_names)
}


def env_spec(name: str, what: str = "env") -> EnvSpec:
    """An environment to discover skills in, or a task to use them for."""
    return TASKS[name] if name in TASKS else choose(what, name, TASKS if what == "task" else ENVS)


__all__ = ["ENVS", "TASKS", "Env", "EnvSpec", "Step", "env_spec", "make_task"]
