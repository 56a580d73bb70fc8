"""All methods, environments, tasks and agents by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.agents.dqn import DQN, DQNConfig
from comsd.agents.ppo import PPO, PPOConfig
from comsd.agents.sac import SAC, SACConfig
from comsd.config import Config, Settings, Stage, choose
from comsd.envs.base import Env
from comsd.envs.foreign import FORMS, find_source, foreign_spec
from comsd.envs.specs import ENVS, TASKS, EnvSpec, make_task, rewarded  # noqa: F401
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


class LoadedFile(NamedTuple):
    kind: str  # method, env or reward
    checksum: str


LOADED: dict[Path, LoadedFile] = {}  # files of the user that were run


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

# --- environments ---------------------------------------------------------------------------------

NOTHING: Mapping[str, Any] = {}


def env_spec(
    name: str, stage: Stage = "pretrain", settings: Mapping[str, Any] = NOTHING
) -> EnvSpec:
    """An environment to discover skills in or, in the other stages, a task to use them for.

    settings: values of its own settings, such as the time limit, where they are known.
    """
    if not isinstance(name, str):  # says so
        choose("env" if stage == "pretrain" else "task", name, ENVS | TASKS)
    if name in TASKS:
        return TASKS[name]
    if name in ENVS:
        if stage == "pretrain":
            return ENVS[name]
        if settings.get("reward", "own") != "own":
            return rewarded(ENVS[name])
        if not ENVS[name].tasks:
            raise InputError(f"env is {name!r}, which has no reward: give it one (--reward-file)")
    elif source := find_source(name):
        return foreign_spec(source, stage, settings)
    field, known = ("env", ENVS) if stage == "pretrain" else ("task", TASKS)
    try:
        return choose(field, name, known)
    except InputError as error:
        raise InputError(f"{error}, {FORMS}") from None
