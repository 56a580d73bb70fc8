"""On-policy learning: collect whole episodes, fit the representation, relabel, improve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from comsd.agents.ppo import CODE, PPO, PPOConfig, shuffled
from comsd.config import Config, setting
from comsd.envs.base import Env
from comsd.errors import InputError, RunError
from comsd.learners.base import random_state, restore_random
from comsd.methods.base import Method, MethodConfig
from comsd.skills import SkillSpace
from comsd.training.trainer import Trainer, TrainSettings
from comsd.types import Batch, Metrics


@dataclass(frozen=True)
class OnPolicySettings(TrainSettings):
    envs: int = setting(50, "episodes per cycle, run side by side", CODE, low=1)


class OnPolicyLearner(Trainer):
    """One skill per episode, drawn evenly; one cycle is one episode of every environment."""

    def __init__(
        self,
        env: Env,
        agent: PPO,
        method: Method,
        settings: OnPolicySettings,
        seed: np.random.SeedSequence,
        selector: None = None,
        precision: str = "float32",
    ) -> None:
        self.env, self.agent, self.method, self.space = env, agent, method, method.space
        self.device = agent.device
        self.optimizer = method.optimizer()
        skills, actions, order = seed.spawn(3)
        self.rngs = {
            "skill": np.random.default_rng(skills),
            "action": np.random.default_rng(actions),
            "order": np.random.default_rng(order),
        }
        self.steps = 0  # environment steps taken

    @staticmethod
    def check(config: Config, space: SkillSpace, env: Env) -> None:  # noqa: ARG004
        """Raise InputError where a run could not start, or would teach a skill that did not act."""
        method, agent, train = config.method, config.agent, config.train
        assert isinstance(method, MethodConfig)
        assert isinstance(agent, PPOConfig)
        assert isinstance(train, OnPolicySettings)
        rows = train.envs * env.horizon
        states = f"{rows} states of a cycle, train.envs {train.envs} x {env.horizon} steps"
        method.check_rows(rows, states)
        if agent.minibatches > rows // 2:
            raise InputError(
                f"agent.minibatches is {agent.minibatches}; it must be at most {rows // 2}, two of "
                f"the {rows} states of a cycle each"
            )
        for name, choice in method.on_policy.items():
            if (given := getattr(method, name)) != choice:
                raise InputError(
                    f"method.{name} is {given!r}, but PPO can only teach the skill that acted; "
                    f"allowed: {choice}"
                )

    def collect(self) -> Batch:
        """An episode of every environment, rows in time-major order."""
        n, horizon = self.env.num_envs, self.env.horizon
        skill = self.space.spread(n, self.rngs["skill"])
        play = self.agent.player(skill, self.rngs["action"])
        obs = np.empty((horizon + 1, n, self.env.obs_dim), dtype=np.float32)
        action = np.empty((horizon, n, self.env.action_dim), dtype=np.float32)
        reward = np.empty((horizon, n), dtype=np.float32)
        obs[0] = self.env.reset()
        for t in range(horizon):
            action[t] = play(obs[t])
            obs[t + 1], reward[t], _ = self.env.step(action[t])
        flat = torch.from_numpy(obs).to(self.device)
        next_obs = flat[1:].flatten(0, 1)
        return Batch(
            obs=flat[:-1].flatten(0, 1),
            action=torch.from_numpy(action).to(self.device).flatten(0, 1),
            next_obs=next_obs,
            near=next_obs,
            skill=skill.to(self.device).repeat(horizon, 1),
            reward=torch.from_numpy(reward).to(self.device).flatten(),
            discount=torch.full((horizon * n,), self.agent.config.discount, device=self.device),
        )

    def train_step(self) -> Metrics:
        batch = self.collect()  # (T * N) transitions
        metrics = self.represent(batch)  # what the skills look like
        reward, parts, _ = self.method.lesson(batch)  # what each transition is worth
        if not bool(torch.isfinite(reward).all()):
            raise RunError(f"the reward of {self.method.name} holds NaN or infinity")
        metrics |= parts | self.agent.update(batch, reward, self.env.num_envs, self.rngs["order"])
        self.steps += len(reward)
        return metrics

    def represent(self, batch: Batch) -> Metrics:
        """As many minibatch steps for the representation as the agent takes."""
        metrics: Metrics = {}
        if self.optimizer is None:
            return metrics
        c = self.agent.config
        columns = batch.obs, batch.action, batch.next_obs, batch.skill, batch.reward, batch.discount
        for rows in shuffled(columns, c.epochs, c.minibatches, self.rngs["order"]):
            obs, action, after, skill, reward, discount = rows
            minibatch = Batch(obs, action, after, after, skill, reward, discount)
            _, metrics = self.method.descend(minibatch, self.optimizer)
        if not all(bool(torch.isfinite(p).all()) for p in self.method.parameters()):
            raise RunError(f"the representation of {self.method.name} holds NaN or infinity")
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, by branch."""
        return {
            "agent": self.agent.state_dict(),
            "method": self.method.state_dict(),
            "training": {
                "steps": self.steps,
                "agent_optimizer": self.agent.optimizer.state_dict(),
                "method_optimizer": self.optimizer.state_dict() if self.optimizer else {},
                "env": self.env.state_dict(),
                "random": random_state(self.rngs, self.device),
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        training = state["training"]
        self.agent.load_state_dict(state["agent"])
        self.method.load_state_dict(state["method"])
        self.agent.optimizer.load_state_dict(training["agent_optimizer"])
        if self.optimizer:
            self.optimizer.load_state_dict(training["method_optimizer"])
        self.env.load_state_dict(training["env"])
        restore_random(training["random"], self.rngs, self.device)
        self.steps = training["steps"]
