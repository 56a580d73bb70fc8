"""All methods, environments, tasks and agents by name, and methods from files of the user."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comsd.agents.critics import CRITICS
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.agents.ppo import PPO, PPOConfig
from comsd.config import Setting, Settings, choose, sourced
from comsd.envs.base import Env
from comsd.envs.maze import HORIZON, MAZES, MazeEnv
from comsd.errors import InputError
from comsd.learners.off_policy import OffPolicyLearner, OffPolicySettings
from comsd.learners.on_policy import OnPolicyLearner, OnPolicySettings
from comsd.methods.aps import APS
from comsd.methods.base import Method
from comsd.methods.becl import BeCL
from comsd.methods.cesd import CeSD
from comsd.methods.cic import CIC
from comsd.methods.comsd import ComSD
from comsd.methods.csd import CSD
from comsd.methods.dads import DADS
from comsd.methods.diayn import DIAYN
from comsd.methods.lsd import LSD
from comsd.methods.metra import METRA
from comsd.methods.smm import SMM
from comsd.training.trainer import Trainer, TrainSettings

if TYPE_CHECKING:
    from comsd.envs.mujoco import RobotEnv

METHODS: dict[str, type[Method]] = {
    m.name: m for m in (ComSD, CIC, DIAYN, SMM, APS, BeCL, CeSD, DADS, LSD, CSD, METRA)
}

# --- agents ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AgentKind:
    config_class: type[Settings]
    make: Callable[..., Any]  # (config, skill space, observations, actions, form of the critic)
    train_settings: type[TrainSettings]
    trainer: type[Trainer]


AGENTS: dict[str, AgentKind] = {
    "ppo": AgentKind(PPOConfig, PPO, OnPolicySettings, OnPolicyLearner),
    "ddpg": AgentKind(DDPGConfig, DDPG, OffPolicySettings, OffPolicyLearner),
}

# --- environments ---------------------------------------------------------------------------------

Layer = dict[str, Setting]  # by dotted name, such as `run.steps`
Presets = dict[str, Layer]


@dataclass(frozen=True)
class EnvSpec:
    name: str
    families: tuple[str, ...]  # from general to special; methods keep tuned values for each
    summary: str
    make: Callable[[int, int], Env]  # (number of environments, seed)
    horizon: int  # steps of an episode
    values: Layer  # settings of run and method that are other here than by default
    presets: Presets  # of run and method
    agents: dict[str, Presets]  # that can learn here, the usual one first
    tasks: tuple[str, ...] = ()  # rewards for the same body


SECONDS = "a few seconds, for tests"
PILOT = "for one CPU core; docs/robots.md says what it shows"
TABLE = "paper, hyper-parameter table"

DDPG_PRESETS: Presets = {
    "paper": {},
    "lite": sourced(PILOT, agent__hidden=256, train__batch_size=256, train__update_every=4),
    "smoke": sourced(
        SECONDS,
        agent__hidden=32,
        train__batch_size=32,
        train__update_every=4,
        train__random_steps=200,
        train__replay=1000,
    ),
}


def ppo_presets(smoke_envs: int) -> Presets:
    smoke = sourced(SECONDS, train__envs=smoke_envs, agent__minibatches=2)
    return {"paper": {}, "lite": {}, "smoke": smoke}


CYCLE = 50 * HORIZON  # environment steps of one PPO cycle in a maze

MAZE_PRESETS: Presets = {
    "paper": sourced("authors' maze code: 50 epochs of 50 cycles", run__steps=2500 * CYCLE),
    "lite": sourced("measured: results/maze shows what 2500 cycles add", run__steps=500 * CYCLE),
    "smoke": sourced(
        SECONDS,
        run__steps=4 * 10 * HORIZON,
        run__evaluate_every=2 * 10 * HORIZON,
        run__log_every=10 * HORIZON,
        run__checkpoint_every=2 * 10 * HORIZON,
        run__rollouts=5,
    ),
}


def _maze_spec(name: str) -> EnvSpec:
    maze = MAZES[name]
    return EnvSpec(
        name=f"maze-{name}",
        families=("maze",),
        summary=f"2-D maze of EDL: cells {len(maze.cells)}, dead ends {len(maze.arms)}",
        make=partial(MazeEnv, maze),
        horizon=HORIZON,
        values=sourced("paper, Sec. V-K", run__space="one-hot", run__skills=10)
        | sourced("torch's default, as in the authors' maze code", method__init="uniform"),
        presets=MAZE_PRESETS,
        agents={"ppo": ppo_presets(10), "ddpg": DDPG_PRESETS},
    )


ROBOT_HORIZON = 1000
ROBOT_TASKS = {
    "walker": ("stand", "walk", "run", "flip"),
    "quadruped": ("stand", "walk", "run", "jump"),
    "hopper": ("hop", "flip", "hop_backward", "flip_backward"),
    "cheetah": ("run", "flip", "run_backward", "flip_backward"),
}
LITE = sourced(PILOT, method__hidden=256)
SMOKE = sourced(
    SECONDS,
    run__log_every=200,
    run__evaluate_every=600,
    run__checkpoint_every=400,
    run__rollouts=1,
    method__hidden=32,
)
ROBOT_PRESETS: Presets = {
    "paper": sourced(TABLE, run__steps=2_000_000),
    "lite": LITE | sourced(PILOT, run__steps=300_000),
    "smoke": SMOKE | sourced(SECONDS, run__steps=1200),
}
TASK_PRESETS: Presets = {
    "paper": sourced(TABLE, run__steps=100_000),
    "lite": LITE | sourced(TABLE, run__steps=100_000),
    "smoke": SMOKE | sourced(SECONDS, run__steps=800, run__evaluate_every=400),
}


def _make_robot(name: str, task: str | None, num_envs: int, seed: int) -> RobotEnv:
    from comsd.envs.mujoco import RobotEnv  # MuJoCo is loaded by those who simulate
    from comsd.envs.robots import robot

    return RobotEnv(robot(name), task, range(seed, seed + num_envs))


def make_task(name: str, num_envs: int = 1, seed: int = 0) -> RobotEnv:
    """A robot with a task's reward, such as `walker_run`."""
    choose("task", name, TASKS)
    domain, _, task = name.partition("_")
    return _make_robot(domain, task, num_envs, seed)


def _robot_spec(name: str) -> EnvSpec:
    return EnvSpec(
        name=name,
        families=("robots", name),
        summary=f"{name.title()} of the DeepMind Control Suite, reward-free",
        make=partial(_make_robot, name, None),
        horizon=ROBOT_HORIZON,
        values=sourced(TABLE, run__space="box", run__skills=64)
        | sourced("ours", run__log_every=2000, run__evaluate_every=25_000)
        | sourced("ours", run__checkpoint_every=10_000, run__rollouts=6),
        presets=ROBOT_PRESETS,
        agents={"ddpg": DDPG_PRESETS, "ppo": ppo_presets(2)},
        tasks=tuple(f"{name}_{task}" for task in ROBOT_TASKS[name]),
    )


def _task_spec(domain: str, task: str) -> EnvSpec:
    return EnvSpec(
        name=f"{domain}_{task}",
        families=("tasks", domain),
        summary=f"{domain.title()} with the reward of {task}",
        make=partial(_make_robot, domain, task),
        horizon=ROBOT_HORIZON,
        values=sourced("no skills unless they are taken over", run__space="none", run__skills=0)
        | sourced(TABLE, run__evaluate_every=10_000, run__rollouts=10)
        | sourced("ours", run__log_every=1000, run__checkpoint_every=10_000),
        presets=TASK_PRESETS,
        agents={"ddpg": DDPG_PRESETS},
    )


ENVS: dict[str, EnvSpec] = {
    spec.name: spec for spec in (*map(_maze_spec, MAZES), *map(_robot_spec, ROBOT_TASKS))
}
TASKS: dict[str, EnvSpec] = {
    spec.name: spec
    for name, tasks in ROBOT_TASKS.items()
    for spec in (_task_spec(name, task) for task in tasks)
}


def env_spec(name: str, field: str = "env") -> EnvSpec:
    """An environment to discover skills in, or a task to use them for."""
    return TASKS[name] if name in TASKS else choose(field, name, TASKS if field == "task" else ENVS)


# --- methods from files ---------------------------------------------------------------------------

LOADED: dict[Path, str] = {}  # file -> checksum of what was run


def register_file(path: Path | str) -> list[str]:
    """Run a Python file and add the methods it defines; returns their names.

    A file is code and is run, so only the user names one; a run directory never does.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise InputError(f"method file {path} does not exist")
    name = f"comsd_method_file_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"method file {path} is not a Python file")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's code raises
        raise InputError(f"method file {path}: {type(error).__name__}: {error}") from error
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Method) and value.__module__ == name
    ]
    if not found:
        raise InputError(f"method file {path} defines no subclass of comsd.Method")
    for method in found:
        _register(method, path)
    LOADED[path] = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return [method.name for method in found]


def _register(method: type[Method], path: Path) -> None:
    for field in ("name", "paper"):
        if not isinstance(getattr(method, field, None), str):
            raise InputError(f"method file {path}: {method.__name__} has no {field}, a text")
    for field in dataclasses.fields(method.config_class):
        if "source" not in field.metadata:
            name = f"{method.config_class.__name__}.{field.name}"
            raise InputError(f"method file {path}: {name} is no setting(default, help, source)")
    try:
        check_critic(method)
    except InputError as error:
        raise InputError(f"method file {path}: {error}") from None
    known = METHODS.get(method.name)
    if known is not None and known.__module__ != method.__module__:
        raise InputError(f"method file {path}: the name {method.name!r} is taken")
    METHODS[method.name] = method


def check_critic(method: type[Method]) -> None:
    """Raise InputError unless there is a critic of its form for all its skill spaces."""
    spaces = choose(f"{method.__name__}.critic", method.critic, CRITICS).spaces
    if other := [space.kind for space in method.spaces if not issubclass(space, spaces)]:
        allowed = ", ".join(space.kind for space in spaces)
        raise InputError(
            f"{method.__name__}.critic is {method.critic!r}, which cannot take {', '.join(other)} "
            f"skills; allowed in {method.__name__}.spaces: {allowed}"
        )
