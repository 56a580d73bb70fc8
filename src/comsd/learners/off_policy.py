"""Off-policy learning: act, store, and update from replayed transitions as time goes by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from comsd.agents.ddpg import CODE, DDPG, PAPER, DDPGConfig
from comsd.compiling import check_compiler, compile_agent, compiled_learn
from comsd.config import Config, setting
from comsd.envs.base import Env
from comsd.errors import InputError, RunError
from comsd.learners.base import random_state, restore_random
from comsd.methods.base import Method, MethodConfig
from comsd.replay import Layout, Replay
from comsd.rules import Prior, Rule
from comsd.skills import SkillSpace
from comsd.terms import chance, retrieval
from comsd.training.trainer import Trainer, TrainSettings
from comsd.types import Batch, Metrics

CHECKED = 64  # updates between looks at all weights


@dataclass(frozen=True)
class OffPolicySettings(TrainSettings):
    batch_size: int = setting(1024, "transitions per update", PAPER, low=2)
    replay: int = setting(1_000_000, "transitions kept", PAPER, low=1)
    n_step: int = setting(3, "steps from s to s' in a sampled transition", PAPER, low=1)
    one_skill: bool = setting(False, "sample no window in which the skill changes", CODE)
    hold: int = setting(50, "steps for which a skill is held, per episode anew", PAPER, low=1)
    random_steps: int = setting(4000, "first steps, of random actions, no learning", PAPER, low=0)
    update_every: int = setting(2, "environment steps per update", PAPER, low=1)
    representation_steps: int = setting(
        1, "steps of the representation per update, each on a batch of its own", CODE, low=1
    )


def layout(config: OffPolicySettings, space: SkillSpace, env: Env) -> Layout:
    sizes = (config.envs, env.obs_dim, env.action_dim, space.dim)
    return Layout(config.replay, *sizes, horizon=env.horizon, hold=config.hold)


def raise_if_broken(tensors: Mapping[str, Tensor]) -> None:
    broken = [name for name, t in tensors.items() if not bool(torch.isfinite(t).all())]
    if broken:
        raise RunError(f"{' and '.join(broken)} hold NaN or infinity")


class OffPolicyLearner(Trainer):
    """Every skill is held for some steps; one cycle is one update and the steps before it."""

    def __init__(
        self,
        env: Env,
        agent: DDPG,
        method: Method,
        settings: OffPolicySettings,
        seed: np.random.SeedSequence,
        selector: Rule | None = None,
        precision: str = "float32",
    ) -> None:
        self.rule = selector or Prior(method.space)
        self.env, self.agent, self.method, self.space = env, agent, method, method.space
        self.config, self.device = settings, agent.device
        self.optimizer = method.optimizer()
        self.learn = method.learn
        if agent.config.compile:
            self.learn = compiled_learn(method)
            compile_agent(agent)
        skills, actions, replay, health, noise = seed.spawn(5)
        self.rngs = {
            "skill": np.random.default_rng(skills),
            "action": np.random.default_rng(actions),
            "replay": np.random.default_rng(replay),
            "health": np.random.default_rng(health),
        }
        self.noise = torch.Generator(self.device).manual_seed(int(noise.generate_state(1)[0]))
        self.replay = Replay(layout(self.config, self.space, env), self.device)
        self.steps = self.updates = 0
        self.clock = 0  # of the episode
        self.obs = env.reset()
        self.replay.begin(self.obs)

    @staticmethod
    def check(config: Config, space: SkillSpace, env: Env) -> None:
        """Raise InputError where a run could not start or would never learn."""
        c, device = config.train, torch.device(config.run.device)
        assert isinstance(c, OffPolicySettings)
        assert isinstance(config.agent, DDPGConfig)
        assert isinstance(config.method, MethodConfig)
        kept = c.replay // c.envs // 2  # of an episode, when half the replay is the next one's
        longest = min(env.horizon, kept, c.hold if c.one_skill else env.horizon)
        if c.n_step > longest:
            what = "episode, half the replay of one environment"
            what += " or train.hold" if c.one_skill else ""
            raise InputError(f"train.n_step is {c.n_step}; it must be at most {longest} ({what})")
        config.method.check_rows(c.batch_size, "train.batch_size")
        if config.run.steps <= c.random_steps:
            raise InputError(
                f"steps is {config.run.steps}; it must be more than train.random_steps "
                f"{c.random_steps}, after which learning begins"
            )
        if device.type == "cpu":
            layout(c, space, env).check_memory()
        if config.agent.compile:
            check_compiler(device)

    # --- gathering ----------------------------------------------------------------------------

    def step(self) -> None:
        """One step of every environment."""
        if self.clock % self.config.hold == 0:
            self.choose_skills()
        if self.steps < self.config.random_steps and not self.rule.acts:
            shape = self.env.num_envs, self.env.action_dim
            action = self.rngs["action"].uniform(-1, 1, shape).astype(np.float32)
        else:
            action = self.play(self.obs)
            if not np.isfinite(action).all():
                raise_if_broken(self.agent.state_dict() | {"actions": torch.from_numpy(action)})
        self.obs, reward, last = self.env.step(action)
        self.replay.add(action, reward, self.obs, last)
        self.clock += 1
        self.steps += self.env.num_envs * self.env.repeat
        if last:
            self.clock = 0
            self.obs = self.env.reset()
            self.replay.begin(self.obs)

    def choose_skills(self) -> None:
        n, rng = self.env.num_envs, self.rngs["skill"]
        self.skill = self.rule.choose(n, self.steps, rng, self.replay.transitions)
        self.replay.hold(self.skill)
        self.play = self.agent.player(self.skill, self.rngs["action"])

    @property
    def selected_skill(self) -> Tensor | None:
        return self.rule.skill

    # --- learning -----------------------------------------------------------------------------

    def train_step(self) -> Metrics:
        every, before = self.config.update_every, self.steps
        while self.steps // every == before // every:
            self.step()
        metrics: Metrics = {}
        if self.steps >= self.config.random_steps and self.replay.starts(self.config.n_step) > 0:
            for _ in range(self.steps // every - before // every):
                metrics = self.update(self.sample("replay"))
                self.updates += 1
        return metrics

    def sample(self, rng: str) -> Batch:
        c = self.config
        drawn = self.rngs[rng]
        return self.replay.sample(
            c.batch_size, c.n_step, self.agent.config.discount, drawn, one_skill=c.one_skill
        )

    def update(self, batch: Batch) -> Metrics:
        if self.optimizer:
            for _ in range(self.config.representation_steps - 1):
                self.method.descend(self.sample("replay"), self.optimizer)
        reward, metrics, credit = self.learn(batch, self.optimizer)  # representation, its reward
        metrics |= self.agent.update(batch, reward, self.noise, credit)  # critic, actor, target
        self.check_finite(metrics)
        if self.updates % CHECKED == 0:  # a ReLU may hide from the figures what the weights hold
            raise_if_broken(self.agent.state_dict() | self.method.state_dict())
        return metrics

    def check_finite(self, metrics: Metrics) -> None:
        """Stop at the first number that is not one."""
        total = sum(value.sum() for value in metrics.values())  # one number to wait for
        if not math.isfinite(float(total)):
            raise_if_broken(metrics)

    @torch.no_grad()
    def diagnostics(self) -> Metrics:
        """Figures that only the log needs, on a batch drawn apart from those of training."""
        if not self.updates:
            return {}
        batch = self.sample("health")
        self.method.eval()
        metrics = self.method.health(batch)
        if (scores := self.method.scores(batch)) is not None:
            metrics["health/retrieval"] = retrieval(scores, batch.skill)
            metrics["health/chance"] = chance(batch.skill)
        self.method.train()
        return metrics

    # --- state --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, by branch."""
        return {
            "agent": self.agent.state_dict(),
            "method": self.method.state_dict(),
            "replay": self.replay.state_dict(),
            "rule": self.rule.state_dict(),
            "training": {
                "steps": self.steps,
                "updates": self.updates,
                "clock": self.clock,
                "obs": self.obs,
                "skill": self.skill,
                "actor_optimizer": self.agent.actor_optimizer.state_dict(),
                "critic_optimizer": self.agent.critic_optimizer.state_dict(),
                "method_optimizer": self.optimizer.state_dict() if self.optimizer else {},
                "env": self.env.state_dict(),
                "random": random_state(self.rngs, self.device),
                "noise": self.noise.get_state(),
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        training = state["training"]
        self.agent.load_state_dict(state["agent"])
        self.method.load_state_dict(state["method"])
        self.replay.load_state_dict(state["replay"])
        self.rule.load_state_dict(state["rule"])
        self.agent.actor_optimizer.load_state_dict(training["actor_optimizer"])
        self.agent.critic_optimizer.load_state_dict(training["critic_optimizer"])
        if self.optimizer:
            self.optimizer.load_state_dict(training["method_optimizer"])
        self.env.load_state_dict(training["env"])
        restore_random(training["random"], self.rngs, self.device)
        self.noise.set_state(training["noise"])
        self.steps, self.updates = training["steps"], training["updates"]
        self.clock, self.obs, self.skill = training["clock"], training["obs"], training["skill"]
        self.play = self.agent.player(self.skill, self.rngs["action"])
