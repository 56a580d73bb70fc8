"""The task's own reward and no representation: what fine-tuning, combination and plain DDPG use."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from comsd.methods.base import Method
from comsd.skills import SPACES
from comsd.types import Batch, Metrics


class TaskReward(Method):
    name = "task"
    paper = "the environment's reward"
    spaces = tuple(SPACES.values())
    reward_uses_skill = False

    def reward(self, batch: Batch, features: Any) -> tuple[Tensor, Metrics]:
        return batch.reward, {}
