"""A method that keeps the contract, and many that break a clause of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from comsd.config import setting
from comsd.errors import InputError
from comsd.methods.base import Method, MethodConfig
from comsd.nn import MLP, RunningMoments, adam
from comsd.skills import SkillSpace
from comsd.types import Batch, Metrics, ObsSpec


@dataclass(frozen=True)
class SoundConfig(MethodConfig):
    lr: float = setting(1e-3, "learning rate", "ours", above=0)


class Sound(Method):
    """Predicts the skill from s'; what breaks a clause is derived from it."""

    name, paper = "sound", "none"
    config_class = SoundConfig
    progress_metrics = {"sound/loss": "loss"}

    def __init__(self, config: MethodConfig, space: SkillSpace, obs: ObsSpec) -> None:
        super().__init__(config, space, obs)
        self.net = MLP(obs.dim, config.hidden, space.dim)
        self.moments = RunningMoments()

    def embed(self, batch: Batch) -> Tensor:
        return (self.net(self.normalizer(batch.next_obs)) - batch.skill).square().sum(-1)

    def loss(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        return features.mean(), {"sound/loss": features.mean().detach()}

    def reward(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        if self.training:
            self.moments.update(features)
        return features / self.moments.std.float(), {"sound/error": features.detach()}


class Unused(Sound):
    def __init__(self, config: MethodConfig, space: SkillSpace, obs: ObsSpec) -> None:
        super().__init__(config, space, obs)
        self.extra = MLP(obs.dim, 4, 1)


class WrongWidth(Sound):
    def embed(self, batch: Batch) -> Tensor:
        return self.net(torch.cat([batch.obs, batch.next_obs], -1))


class AttachedMetric(Sound):
    def loss(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        return features.mean(), {"sound/loss": features.mean()}


class IdleOptimizer(Sound):
    def __init__(self, config: MethodConfig, space: SkillSpace, obs: ObsSpec) -> None:
        super().__init__(config, space, obs)
        self.requires_grad_(False)

    def optimizer(self) -> torch.optim.Optimizer:
        return adam(self.parameters(), 1e-3)


class HalfAnOptimizer(Sound):
    def optimizer(self) -> torch.optim.Optimizer:
        return adam(self.net.hidden.parameters(), 1e-3)


class OtherGradient(Sound):
    def update(self, batch: Batch, optimizer: Any, *, step: bool = True) -> Any:
        return super().update(batch._replace(next_obs=batch.obs), optimizer, step=step)


class AttachedReward(Sound):
    def reward(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        return features, {}


class LostMetrics(Sound):
    def update(self, batch: Batch, optimizer: Any, *, step: bool = True) -> Any:
        return super().update(batch, optimizer, step=step)._replace(metrics={})


class Hardly(Sound):
    def loss(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        loss, metrics = super().loss(batch, features)
        return loss + 1000, metrics


class Changed(Sound):
    """Its rewards are changed by `change`."""

    def reward(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        reward, metrics = super().reward(batch, features)
        return self.change(reward, batch), metrics

    def change(self, reward: Tensor, batch: Batch) -> Tensor:
        raise NotImplementedError


class NaN(Changed):
    def change(self, reward: Tensor, batch: Batch) -> Tensor:
        return (reward - reward.median()).sqrt()


class Constant(Changed):
    def change(self, reward: Tensor, batch: Batch) -> Tensor:
        return torch.ones_like(reward)


class Greedy(Changed):
    def change(self, reward: Tensor, batch: Batch) -> Tensor:
        return reward + reward.topk(4).values.mean()


class PairsOnly(Changed):
    def change(self, reward: Tensor, batch: Batch) -> Tensor:
        return reward / (len(reward) > 2)


class Ordered(Changed):
    def change(self, reward: Tensor, batch: Batch) -> Tensor:
        return reward + torch.arange(len(reward))


class FromNumPy(Changed):
    def change(self, reward: Tensor, batch: Batch) -> Tensor:
        return reward + float(np.random.default_rng().random())


class Counting(Changed):
    calls = 0

    def change(self, reward: Tensor, batch: Batch) -> Tensor:
        self.calls += 1
        return reward / self.calls


class Unskilled(Sound):
    def reward(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        return batch.next_obs.square().sum(-1), {}


class ModestlySkilled(Sound):
    reward_uses_skill = False


class AllegedlyOrdered(Sound):
    reward_uses_order = True


class PythonMetric(Sound):
    def reward(self, batch: Batch, features: Tensor) -> tuple[Tensor, Any]:
        return features, {"sound/error": 1.0}


class OddMetric(Sound):
    def reward(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        return features, {f"sound/{int(1000 * batch.obs[0, 0])}": features}


class SecretReader(Sound):
    reads = ("obs",)


class SecretLoss(Sound):
    reads = ("next_obs",)

    def loss(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        loss, metrics = super().loss(batch, features)
        return loss + batch.obs.mean(), metrics


class Relabelling(Sound):
    def value_skill(self, batch: Batch, features: Tensor) -> Tensor:
        return batch.skill


class RelabellingOdd(Sound):
    def value_skill(self, batch: Batch, features: Tensor) -> Tensor:
        return batch.skill[:, 0]


class AlwaysTraining(Sound):
    def reward(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        self.moments.update(features)
        return super().reward(batch, features)


class NoisyScores(Sound):
    def skill_scores(self, batch: Batch) -> Tensor:
        return torch.rand(len(batch.skill), len(batch.skill))


class FlatScores(Sound):
    def skill_scores(self, batch: Batch) -> Tensor:
        return self.embed(batch)


class PythonDiagnostics(Sound):
    def diagnostics(self, batch: Batch) -> Any:
        return {"sound/more": 1.0}


class NoProgress(Sound):
    progress_metrics = {}


class MisspeltProgress(Sound):
    progress_metrics = {"sound/lost": "loss"}


@dataclass(frozen=True)
class WideConfig(SoundConfig):
    hidden: int = setting(64, "width, of 8 heads", "ours", low=64)

    def check_space(self, kind: str) -> None:
        if kind == "sphere":
            raise InputError("method.hidden has no meaning for spheres")

    def check_pixels(self) -> None:
        raise InputError("method.hidden has no meaning for pixels")


class Wide(Sound):
    config_class = WideConfig
