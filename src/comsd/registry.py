"""All methods, environments, tasks and agents by name, and methods from files of the user."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from comsd.agents.critics import CRITICS
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.agents.dqn import DQN, DQNConfig
from comsd.agents.ppo import PPO, PPOConfig
from comsd.agents.sac import SAC, SACConfig
from comsd.config import Config, Settings, Stage, choose
from comsd.envs.base import Env
from comsd.envs.specs import ENVS, TASKS, EnvSpec, env_spec, make_task  # noqa: F401
from comsd.errors import InputError
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
from comsd.methods.task import TaskReward
from comsd.skills import SkillSpace
from comsd.training.checks import check_off_policy, check_on_policy
from comsd.training.off_policy import OffPolicySettings, OffPolicyTrainer
from comsd.training.on_policy import OnPolicySettings, OnPolicyTrainer
from comsd.training.trainer import Trainer, TrainSettings

METHODS: dict[str, type[Method]] = {
    m.name: m for m in (ComSD, CIC, DIAYN, SMM, APS, BeCL, CeSD, DADS, LSD, CSD, METRA)
}


def method_class(name: str, stage: Stage) -> type[Method]:
    """What learns in a stage: adaptations have the task's reward in place of a method."""
    return choose("method", name, METHODS) if stage == "pretrain" else TaskReward


# --- agents ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AgentKind:
    config_class: type[Settings]
    make: Callable[..., Any]  # (config, skill space, observations, actions, form of the critic)
    train_settings: type[TrainSettings]
    make_trainer: Callable[..., Trainer]  # (environment, agent, method, settings, seed, ...)
    check: Callable[[Config, SkillSpace, Env], None]  # before a run


AGENTS: dict[str, AgentKind] = {
    "ppo": AgentKind(PPOConfig, PPO, OnPolicySettings, OnPolicyTrainer, check_on_policy),
    "ddpg": AgentKind(DDPGConfig, DDPG, OffPolicySettings, OffPolicyTrainer, check_off_policy),
    "dqn": AgentKind(DQNConfig, DQN, OffPolicySettings, OffPolicyTrainer, check_off_policy),
    "sac": AgentKind(SACConfig, SAC, OffPolicySettings, OffPolicyTrainer, check_off_policy),
}

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
        try:
            check_method(method)
        except InputError as error:
            raise InputError(f"method file {path}: {error}") from None
        METHODS[method.name] = method
    LOADED[path] = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return [method.name for method in found]


def check_method(method: type[Method]) -> None:
    for field in ("name", "paper"):
        if not isinstance(getattr(method, field, None), str):
            raise InputError(f"{method.__name__} has no {field}, a text")
    for field in dataclasses.fields(method.config_class):
        if "source" not in field.metadata:
            name = f"{method.config_class.__name__}.{field.name}"
            raise InputError(f"{name} is no setting(default, help, source)")
    check_critic(method)
    if METHODS.get(method.name, method).__module__ != method.__module__:
        raise InputError(f"the name {method.name!r} is taken")


def check_critic(method: type[Method]) -> None:
    """Raise InputError unless there is a critic of its form for all its skill spaces."""
    spaces = choose(f"{method.__name__}.critic", method.critic, CRITICS).spaces
    if other := [space.kind for space in method.spaces if not issubclass(space, spaces)]:
        allowed = ", ".join(space.kind for space in spaces)
        raise InputError(
            f"{method.__name__}.critic is {method.critic!r}, which cannot take {', '.join(other)} "
            f"skills; allowed in {method.__name__}.spaces: {allowed}"
        )
