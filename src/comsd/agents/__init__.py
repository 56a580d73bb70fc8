"""All agents by name, in the old house."""
from dataclasses import dataclass
from typing import Any
from comsd.agents.ddpg import DDPG, DDPGConfig as DDPGOnly
from comsd.agents.ppo import PPO, PPOConfig as PPOOnly
from comsd.config import Settings


@dataclass(frozen=True)
class AgentConfig(Settings):
    pass


def _make():
    from comsd.training.off_policy import OffPolicySettings
    from comsd.training.on_policy import OnPolicySettings

    @dataclass(frozen=True)
    class DDPGConfig(DDPGOnly, OffPolicySettings, AgentConfig):
        pass

    @dataclass(frozen=True)
    class PPOConfig(PPOOnly, OnPolicySettings, AgentConfig):
        pass

    return DDPGConfig, PPOConfig


@dataclass(frozen=True)
class AgentKind:
    config_class: Any
    make: Any


AGENTS = {}


def load():
    d, p = _make()
    AGENTS["ppo"] = AgentKind(p, PPO)
    AGENTS["ddpg"] = AgentKind(d, DDPG)
