"""What the settings of all agents have in common."""

from __future__ import annotations

from dataclasses import dataclass

from comsd.config import Settings, setting


@dataclass(frozen=True)
class AgentConfig(Settings):
    envs: int = setting(1, "environments that run side by side", "one, as in the papers", low=1)
