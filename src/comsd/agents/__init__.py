"""All agents by name: how each is configured, built and taught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from comsd.agents.base import AgentConfig
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.agents.ppo import PPO, PPOConfig
from comsd.config import Config
from comsd.envs.base import Env
from comsd.learners.base import Learner
from comsd.learners.off_policy import OffPolicyLearner
from comsd.learners.on_policy import OnPolicyLearner
from comsd.skills import SkillSpace
from comsd.types import ObsInfo


@dataclass(frozen=True)
class AgentKind:
    config_class: type[AgentConfig]
    make: Callable[[Any, SkillSpace, ObsInfo, int, str], Any]
    # (config, skills, observations, actions, form of the critic)
    learner: Callable[..., Learner]  # (environment, agent, method, seed) and, off-policy, a rule
    check: Callable[[Config, SkillSpace, Env], None]  # before a run


AGENTS: dict[str, AgentKind] = {
    "ppo": AgentKind(PPOConfig, PPO, OnPolicyLearner, OnPolicyLearner.check_possible),
    "ddpg": AgentKind(DDPGConfig, DDPG, OffPolicyLearner, OffPolicyLearner.check_possible),
}

__all__ = ["AGENTS", "AgentConfig", "AgentKind"]
