"""All environments by name, and the settings that runs on them start from.

Listing them is quick: MuJoCo is imported when the first robot is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from comsd.config import Setting, Settings, choose, setting, sourced
from comsd.envs import maze
from comsd.envs.base import Env

if TYPE_CHECKING:  # torch and MuJoCo come later
    from comsd.encoders import PixelSettings
    from comsd.envs.mujoco import RobotEnv

Values = dict[str, Setting]  # by dotted name


@dataclass(frozen=True)
class EnvSettings(Settings):
    """Settings of an environment, which every kind of them may add to."""

    reward: str = setting("own", "the reward: its own, or that of a reward file", "default")


@dataclass(frozen=True)
class EnvSpec:
    name: str
    families: tuple[str, ...]  # from general to special; methods have tuned values for each
    summary: str
    make: Callable[[int, int], Env]  # (number of environments, seed)
    horizon: int  # time limit of an episode, in steps
    values: Values  # run.* and method.*: what differs from the defaults
    presets: dict[str, Values]  # run.* and method.* of each preset
    agents: dict[str, dict[str, Values]]  # the default first; agent -> preset -> agent.*, train.*
    tasks: tuple[str, ...] = ()  # environments with the same body and a reward
    make_pixels: Callable[[int, int, PixelSettings], Env] | None = None  # the same, seen as images
    pixels: dict[str, Values] = field(default_factory=dict)  # what images change in each preset
    settings: type[EnvSettings] = EnvSettings


OURS = "ours"
TESTS = "a few seconds, for tests"
TABLE = "paper, hyper-parameter table"
ONE_CORE = "for one CPU core; docs/robots.md shows the effect"

# --- mazes ----------------------------------------------------------------------------------------

CYCLE = 50 * maze.HORIZON  # environment steps of one PPO cycle
SMOKE_CYCLE = 10 * maze.HORIZON

MAZE_PRESETS = {
    "paper": sourced("authors' maze code: 50 epochs of 50 cycles", run__steps=2500 * CYCLE),
    "lite": sourced("measured: results/maze shows what 2500 cycles add", run__steps=500 * CYCLE),
    "smoke": sourced(TESTS, run__steps=4 * SMOKE_CYCLE, run__evaluate_every=2 * SMOKE_CYCLE)
    | sourced(TESTS, run__log_every=SMOKE_CYCLE, run__checkpoint_every=2 * SMOKE_CYCLE)
    | sourced(TESTS, run__rollouts=5),
}
MAZE_PPO: dict[str, Values] = {
    "paper": {},
    "lite": {},
    "smoke": sourced(TESTS, train__envs=10, agent__minibatches=2),
}
MAZE_OFF_POLICY_VALUES = (
    sourced(OURS, agent__hidden=128, agent__lr=1e-3)
    | sourced(OURS, train__envs=10, train__batch_size=256, train__n_step=1)
    | sourced(OURS, train__hold=maze.HORIZON)  # one skill per episode, as with PPO
    | sourced(OURS, train__random_steps=1000, train__update_every=10)
)
MAZE_OFF_POLICY = {
    "paper": MAZE_OFF_POLICY_VALUES,
    "lite": MAZE_OFF_POLICY_VALUES,
    "smoke": MAZE_OFF_POLICY_VALUES
    | sourced(TESTS, agent__hidden=32, train__batch_size=32)
    | sourced(TESTS, train__random_steps=200, train__replay=1000),
}
MAZE_SAC = {
    preset: values | sourced(OURS, agent__temperature_lr=1e-3)  # that of the others
    for preset, values in MAZE_OFF_POLICY.items()
}


def maze_spec(name: str) -> EnvSpec:
    layout = maze.MAZES[name]
    return EnvSpec(
        name=f"maze-{name}",
        families=("maze",),
        summary=f"2-D maze of EDL: cells {len(layout.cells)}, dead ends {len(layout.arms)}",
        make=partial(maze.MazeEnv, layout),
        horizon=maze.HORIZON,
        values=sourced("paper, Sec. V-K", run__space="one-hot", run__skills=10)
        | sourced("torch's default, as in the authors' maze code", method__init="uniform"),
        presets=MAZE_PRESETS,
        agents={"ppo": MAZE_PPO, "ddpg": MAZE_OFF_POLICY, "sac": MAZE_SAC},
    )


# --- robots ---------------------------------------------------------------------------------------

ROBOT_HORIZON = 1000
ROBOT_TASKS = {
    "walker": ("stand", "walk", "run", "flip"),
    "quadruped": ("stand", "walk", "run", "jump"),
    "hopper": ("hop", "flip", "hop_backward", "flip_backward"),
    "cheetah": ("run", "flip", "run_backward", "flip_backward"),
}

LITE = sourced(ONE_CORE, method__hidden=256)
SMOKE = sourced(
    TESTS, run__log_every=200, run__evaluate_every=600, run__checkpoint_every=400
) | sourced(TESTS, run__rollouts=1, run__starts=2, run__rollout_steps=60, method__hidden=32)
ROBOT_PRESETS = {
    "paper": sourced(TABLE, run__steps=2_000_000),
    "lite": LITE | sourced(ONE_CORE, run__steps=300_000),
    "smoke": SMOKE | sourced(TESTS, run__steps=1200),
}
TASK_PRESETS = {
    "paper": sourced(TABLE, run__steps=100_000),
    "lite": LITE | sourced(TABLE, run__steps=100_000),
    "smoke": SMOKE | sourced(TESTS, run__steps=800, run__evaluate_every=400),
}
ROBOT_OFF_POLICY: dict[str, Values] = {
    "paper": {},
    "lite": sourced(ONE_CORE, agent__hidden=256, train__batch_size=256, train__update_every=4),
    "smoke": sourced(TESTS, agent__hidden=32, train__batch_size=32, train__update_every=4)
    | sourced(TESTS, train__random_steps=200, train__replay=1000),
}
ROBOT_DQN_VALUES = sourced(OURS, train__batch_size=256, train__n_step=1, train__update_every=25)
ROBOT_DQN: dict[str, Values] = {  # controllers of skills
    "paper": ROBOT_DQN_VALUES,
    "lite": ROBOT_DQN_VALUES,
    "smoke": ROBOT_DQN_VALUES
    | sourced(TESTS, agent__hidden=32, agent__candidates=4, train__batch_size=32)
    | sourced(TESTS, train__random_steps=200, train__replay=1000),
}
ROBOT_PPO_VALUES = sourced(
    OURS, train__envs=8, agent__epochs=10, agent__minibatches=32, agent__gae_lambda=0.95
)
ROBOT_PPO = {
    "paper": ROBOT_PPO_VALUES | sourced(OURS, agent__hidden=1024),
    "lite": ROBOT_PPO_VALUES | sourced(OURS, agent__hidden=256),
    "smoke": ROBOT_PPO_VALUES
    | sourced(TESTS, train__envs=1, agent__hidden=32, agent__epochs=1, agent__minibatches=4),
}


DRQV2 = "DrQ-v2's code"
SMALL = "for one CPU core; docs/pixels.md"
PIXEL_AGENT: dict[str, Values] = {  # steps are the environment's, two per action
    "paper": sourced(DRQV2, agent__lr=1e-4, train__batch_size=256, train__update_every=4),
    "lite": sourced(SMALL, pixels__size=48, pixels__render="fast", pixels__pad=2)
    | sourced(SMALL, pixels__channels=16, pixels__strides="2,2,1,1")
    | sourced(SMALL, agent__lr=3e-4, train__batch_size=128, train__update_every=4)
    | sourced("measured: results/pixels, why a seed sticks", agent__saturation_penalty=0.01),
    "smoke": sourced(TESTS, pixels__size=24, pixels__render="fast", pixels__pad=1)
    | sourced(TESTS, pixels__channels=8, pixels__strides="2,1,1", pixels__features=16)
    | sourced(TESTS, agent__lr=3e-4, train__batch_size=16, train__update_every=8),
}
PIXEL_PRETRAINING = PIXEL_AGENT | {"lite": PIXEL_AGENT["lite"] | sourced(SMALL, run__steps=200_000)}


def make_robot(
    name: str, seeds: Sequence[int], task: str | None = None, *, motion: bool = False
) -> RobotEnv:
    """One environment per seed; those of equal seeds have the same initial states."""
    from comsd.envs.mujoco import RobotEnv
    from comsd.envs.robots import load_robot

    return RobotEnv(load_robot(name), task, seeds, motion=motion)


def make_robot_pixels(
    name: str, task: str | None, num_envs: int, seed: int, settings: PixelSettings
) -> Env:
    from comsd.envs.pixels import robot_pixels

    return robot_pixels(make_robot(name, range(seed, seed + num_envs), task), settings)


def make_task(name: str, num_envs: int = 1, seed: int = 0) -> RobotEnv:
    """A robot with a task's reward, such as `walker_run`."""
    choose("task", name, TASKS)
    domain, _, task = name.partition("_")
    return make_robot(domain, range(seed, seed + num_envs), task)


def robot_spec(name: str) -> EnvSpec:
    return EnvSpec(
        name=name,
        families=("robots", name),
        summary=f"{name.title()} of the DeepMind Control Suite, reward-free",
        make=lambda num_envs, seed: make_robot(name, range(seed, seed + num_envs)),
        horizon=ROBOT_HORIZON,
        values=sourced(TABLE, run__space="box", run__skills=64)
        | sourced(OURS, run__log_every=2000, run__evaluate_every=25_000)
        | sourced(OURS, run__checkpoint_every=10_000),
        presets=ROBOT_PRESETS,
        agents={"ddpg": ROBOT_OFF_POLICY, "ppo": ROBOT_PPO, "sac": ROBOT_OFF_POLICY},
        tasks=tuple(f"{name}_{task}" for task in ROBOT_TASKS[name]),
        make_pixels=partial(make_robot_pixels, name, None),
        pixels=PIXEL_PRETRAINING,
    )


def task_spec(domain: str, task: str) -> EnvSpec:
    return EnvSpec(
        name=f"{domain}_{task}",
        families=("tasks", domain),
        summary=f"{domain.title()} with the reward of {task}",
        make=partial(make_task, f"{domain}_{task}"),
        horizon=ROBOT_HORIZON,
        values=sourced("no skills unless a run provides them", run__space="none", run__skills=0)
        | sourced(TABLE, run__evaluate_every=10_000, run__rollouts=10)
        | sourced(OURS, run__log_every=1000, run__checkpoint_every=10_000),
        presets=TASK_PRESETS,
        agents={"ddpg": ROBOT_OFF_POLICY, "sac": ROBOT_OFF_POLICY, "dqn": ROBOT_DQN},
        make_pixels=partial(make_robot_pixels, domain, task),
        pixels=PIXEL_AGENT,
    )


ENVS = {spec.name: spec for spec in (*map(maze_spec, maze.MAZES), *map(robot_spec, ROBOT_TASKS))}
TASKS = {f"{robot}_{t}": task_spec(robot, t) for robot, tasks in ROBOT_TASKS.items() for t in tasks}


def rewarded(spec: EnvSpec) -> EnvSpec:
    """An environment of ours as a task, whose reward is a function of the user's."""
    usual = TASKS[spec.tasks[0]] if spec.tasks else TASKS["walker_run"]
    return dataclasses.replace(
        usual,
        name=spec.name,
        families=("tasks", spec.name),
        summary=f"{spec.name} with a reward of yours",
        make=spec.make,
        horizon=spec.horizon,
        make_pixels=spec.make_pixels,
    )
