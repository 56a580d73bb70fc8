"""On-policy training: collect episodes, fit the representation, relabel, improve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from comsd.agents.base import make_policy_fn
from comsd.agents.ppo import PPO, shuffled
from comsd.config import setting
from comsd.envs.base import Env
from comsd.errors import RunError
from comsd.methods.base import Method
from comsd.training.trainer import Trainer, TrainSettings, raise_if_not_finite
from comsd.types import Batch, Metrics


@dataclass(frozen=True)
class OnPolicySettings(TrainSettings):
    """How experience is gathered."""

    envs: int = setting(
        50, "episodes per cycle, run side by side", "authors' maze code", low=1, high=10_000
    )


class OnPolicyTrainer(Trainer):
    """One skill per episode, drawn evenly; one cycle is `horizon` steps of every environment."""

    def __init__(
        self,
        env: Env,
        agent: PPO,
        method: Method,
        settings: OnPolicySettings,
        seed: np.random.SeedSequence,
        precision: str = "float32",
    ) -> None:
        skills, actions, order = seed.spawn(3)
        rngs = {"skill": skills, "action": actions, "order": order}
        super().__init__(env, agent, method, rngs, precision)
        self.space = method.space

    # --- gathering ----------------------------------------------------------------------------

    def collect(self) -> tuple[Batch, Tensor, Tensor]:
        """`horizon` steps of every environment, rows in time-major order.

        Also (T, N) masks of where episodes terminated, and where they ended for any reason. An
        environment whose episode ends early starts another one with another skill.
        """
        env, n, length = self.env, self.env.num_envs, self.env.horizon
        skill = self.space.sample_balanced(n, self.rngs["skill"])
        policy_fn = make_policy_fn(self.policy, skill, self.rngs["action"])
        rows: list[tuple[Any, ...]] = []
        obs = env.reset()
        for t in range(length):
            action = policy_fn(obs)
            step = env.step(action)
            if step.began is not None:
                raise RunError(
                    "agent is 'ppo', but an episode of env began in a step without an action, as "
                    "in Gymnasium's mode NextStep; allowed: the modes SameStep and Disabled, or "
                    "the agents 'ddpg' and 'sac'"
                )
            ended = step.ended
            rows.append((obs, action, step.obs, skill.numpy(), step.reward, step.terminated, ended))
            obs = step.obs
            if t + 1 < length and ended.any():
                fresh = self.space.sample_balanced(int(ended.sum()), self.rngs["skill"])
                skill = skill.clone()
                skill[torch.from_numpy(ended)] = fresh
                policy_fn = make_policy_fn(self.policy, skill, self.rngs["action"])
                obs = env.reset(ended)
        columns = [torch.from_numpy(np.stack(x)).to(self.device) for x in zip(*rows, strict=True)]
        terminated, ended = columns[-2:]
        flat = [x.flatten(0, 1) for x in columns[:-1]]
        discount = self.agent.config.discount * (~flat.pop()).float()
        obs, action, next_obs, skills, reward = flat
        batch = Batch(obs, action, next_obs, next_obs, skills, reward.float(), discount)
        return batch, terminated, ended

    # --- learning -----------------------------------------------------------------------------

    def train_step(self) -> Metrics:
        batch, terminated, ended = self.collect()  # (T * N) transitions
        metrics = self.fit_representation(batch)
        reward, parts, _ = self.method.intrinsic_reward(batch)
        raise_if_not_finite({f"the reward of {self.method.name}": reward})
        metrics |= parts | self.agent.update(batch, reward, terminated, ended, self.rngs["order"])
        raise_if_not_finite(self.agent.state_dict())
        self.steps += len(reward) * self.env.repeat
        return metrics

    def fit_representation(self, batch: Batch) -> Metrics:
        """As many minibatch steps for the representation as the agent takes."""
        metrics: Metrics = {}
        if self.optimizer is None:
            return metrics
        c = self.agent.config
        for rows in shuffled(batch, c.epochs, c.minibatches, self.rngs["order"]):
            minibatch = Batch(*rows)
            # One tensor for both, as in the batch: methods save a forward pass by it.
            minibatch = minibatch._replace(one_step_obs=minibatch.next_obs)
            _, metrics = self.method.representation_step(minibatch, self.optimizer)
        raise_if_not_finite(self.method.state_dict())
        return metrics
