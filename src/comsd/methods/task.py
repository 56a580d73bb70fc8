"""The reward of the task and no representation: for fine-tuning, combination and plain agents."""

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
    reads = ()

    def reward(self, batch: Batch, features: Any) -> tuple[Tensor, Metrics]:
        return batch.reward, {}
