"""Off-policy training: act, store, and update from replayed transitions as time goes by."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from comsd.agents.base import OffPolicyAgent, make_policy_fn
from comsd.config import Config, setting
from comsd.encoders import PixelSettings
from comsd.envs.base import Env
from comsd.frame_replay import FrameLayout
from comsd.methods.base import Method
from comsd.methods.statistics import chance, retrieval
from comsd.replay import Layout, Replay
from comsd.skills import SkillSpace
from comsd.training.skill_selection import SampleSkill, SkillSelector
from comsd.training.trainer import Trainer, TrainSettings, raise_if_not_finite
from comsd.types import Array, Batch, Metrics

CHECK_EVERY = 64  # updates between checks of all weights
PAPER, CODE = "paper, hyper-parameter table", "URLB's code, which the paper follows"


@dataclass(frozen=True)
class OffPolicySettings(TrainSettings):
    """How experience is gathered and replayed."""

    batch_size: int = setting(1024, "transitions per update", PAPER, low=2, high=1_000_000)
    replay: int = setting(1_000_000, "transitions kept", PAPER, low=1)
    n_step: int = setting(
        3, "steps from s to s' in a sampled transition", PAPER, low=1, high=10_000
    )
    one_skill: bool = setting(False, "sample no window in which the skill changes", CODE)
    hold: int = setting(50, "steps for which a skill is held, per episode anew", PAPER, low=1)
    random_steps: int = setting(4000, "first steps, of random actions, no learning", PAPER, low=0)
    update_every: int = setting(2, "environment steps per update", PAPER, low=1)
    representation_steps: int = setting(
        1,
        "steps of the representation per update, each on a batch of its own",
        CODE,
        low=1,
        high=1000,
    )
    representation_every: int = setting(
        1, "updates of the agent per step of the representation", CODE, low=1
    )


class OffPolicyTrainer(Trainer):
    """Every skill is held for some steps; a training step is one update and the steps before it."""

    def __init__(
        self,
        env: Env,
        agent: OffPolicyAgent,
        method: Method,
        settings: OffPolicySettings,
        seed: np.random.SeedSequence,
        selector: SkillSelector | None = None,
        precision: str = "float32",
        replay: Replay | None = None,
    ) -> None:
        skills, actions, samples, diagnostics, noise = seed.spawn(5)
        rngs = {"skill": skills, "action": actions, "replay": samples, "diagnostics": diagnostics}
        super().__init__(env, agent, method, rngs, precision)
        self.settings, self.selector = settings, selector or SampleSkill(method.space)
        if agent.config.compile:
            agent.compile_losses()
            method.embed_and_loss = torch.compile(method.embed_and_loss)
        self.noise = torch.Generator(self.device).manual_seed(int(noise.generate_state(1)[0]))
        self.replay = replay or Replay(layout(settings, method.space, env), self.device)
        self.updates = 0
        self.clock = np.zeros(env.num_envs, np.int64)  # steps of each episode
        self.skill = torch.zeros(env.num_envs, method.space.dim)
        self.obs = env.reset()
        self.replay.begin(self.obs, np.ones(env.num_envs, bool))

    # --- gathering ----------------------------------------------------------------------------

    def collect_step(self) -> None:
        """One step of every environment."""
        due = self.clock % self.settings.hold == 0
        if due.any():
            self.select_skills(due)
        if self.steps < self.settings.random_steps and not self.selector.acts_at_once:
            shape = self.env.num_envs, self.env.action_dim
            action = self.rngs["action"].uniform(-1, 1, shape).astype(np.float32)
        else:
            action = self.policy_fn(self.obs)
            if not np.isfinite(action).all():
                raise_if_not_finite(self.agent.state_dict() | {"actions": torch.from_numpy(action)})
        step = self.env.step(action)
        ended = step.ended
        self.replay.add(action, step.reward, step.obs, step.terminated, ended, step.began)
        self.obs = step.obs
        self.clock += 1
        self.steps += self.env.num_envs * self.env.repeat
        if step.began is not None:  # the skill that was selected for it acts from here on
            self.replay.begin(self.obs, step.began)
        if ended.any():
            self.clock[ended] = 0
            self.obs = self.env.reset(ended)
            self.replay.begin(self.obs, ended)

    def select_skills(self, where: np.ndarray) -> None:
        """Choose the skills that act from here on in some environments."""
        n, rng = int(where.sum()), self.rngs["skill"]
        skill = self.selector.choose(n, self.steps, rng, self.replay.transitions)
        self.skill[torch.from_numpy(where)] = skill
        self.replay.select(skill, where)
        self.policy_fn = make_policy_fn(self.policy, self.skill, self.rngs["action"])

    @property
    def selected_skill(self) -> Tensor | None:
        return self.selector.selected_skill

    # --- learning -----------------------------------------------------------------------------

    def train_step(self) -> Metrics | None:
        every, before = self.settings.update_every, self.steps
        self.agent.set_step(self.steps if self.began_at is None else self.began_at)
        while self.steps // every == before // every and self.steps < self.until:
            self.collect_step()
            if self.stopped() and self.steps // every == before // every:
                return None
        metrics: Metrics = {}
        enough = self.replay.has_window(self.settings.n_step)
        if self.steps >= self.settings.random_steps and enough:
            for _ in range(self.steps // every - before // every):
                metrics = self.update(self.sample("replay"))
                self.updates += 1
        self.agent.set_step(self.steps)  # evaluations come next
        return metrics

    def sample(self, stream: str) -> Batch:
        s, discount = self.settings, self.agent.config.discount
        return self.replay.sample(
            s.batch_size,
            s.n_step,
            discount,
            self.rngs[stream],
            one_skill=s.one_skill,
            one_step="one_step_obs" in self.method.reads,
        )

    def update(self, batch: Batch) -> Metrics:
        """Representation, critic, actor, target; one step each."""
        due = self.updates % self.settings.representation_every == 0
        if self.optimizer and due:
            for _ in range(self.settings.representation_steps - 1):
                extra = self.agent.encode(self.sample("replay"), self.method.reads)
                self.method.representation_step(extra.for_method, self.optimizer)
                extra.step()
        encoded = self.agent.encode(batch, self.method.reads)
        output = self.method.update(encoded.for_method, self.optimizer, step=due)
        reward, metrics, value_skill = output
        metrics |= self.agent.update(encoded.for_critic, reward, self.noise, value_skill)
        encoded.step()
        self.check_finite(metrics)
        return metrics

    def check_finite(self, metrics: Metrics) -> None:
        """Stop at the first NaN or infinity."""
        total = sum(value.sum() for value in metrics.values())  # one number to wait for
        if not math.isfinite(float(total)):
            raise_if_not_finite(metrics)
        if self.updates % CHECK_EVERY == 0:  # ReLU can mask NaN weights: check all parameters
            raise_if_not_finite(self.agent.state_dict() | self.method.state_dict())

    @torch.no_grad()
    def diagnostics(self) -> Metrics:
        """Figures that only the log needs, on a batch drawn apart from those of training."""
        if not self.updates:
            return {}
        batch = self.agent.encode(self.sample("diagnostics"), self.method.reads).for_method
        self.method.eval()
        metrics = self.method.diagnostics(batch)
        if (scores := self.method.skill_scores(batch)) is not None:
            metrics["health/retrieval"] = retrieval(scores, batch.skill)
            metrics["health/chance"] = chance(batch.skill)
        self.method.train()
        return metrics

    # --- state --------------------------------------------------------------------------------

    def learned(self) -> dict[str, Any]:
        return {**super().learned(), "rule": self.selector.state_dict()}

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["training"] |= {
            "updates": self.updates,
            "clock": self.clock,
            "obs": self.obs,
            "skill": self.skill,
            "noise": self.noise.get_state(),
        }
        return {**state, "replay": self.replay.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> Array | None:
        fresh = super().load_state_dict(state)
        self.replay.load_state_dict(state["replay"])
        self.selector.load_state_dict(state["rule"])
        training = state["training"]
        if len(training["noise"]) == len(self.noise.get_state()):  # else another kind of device
            self.noise.set_state(training["noise"])
        self.agent.set_step(self.steps)
        self.updates, self.clock = training["updates"], training["clock"]
        self.obs, self.skill = training["obs"], training["skill"]
        self.policy_fn = make_policy_fn(self.policy, self.skill, self.rngs["action"])
        if fresh is not None:
            self.obs, self.clock = fresh, np.zeros_like(self.clock)
            self.replay.cut(fresh)
        return fresh


def layout(settings: OffPolicySettings, space: SkillSpace, env: Env) -> Layout:
    sizes = settings.envs, env.obs_spec, env.action_dim, space.dim
    return Layout(settings.replay, *sizes, horizon=env.horizon, hold=settings.hold)


def frame_layout(config: Config, space: SkillSpace, env: Env) -> FrameLayout:
    """Of a run on images."""
    train, pixels = config.train, config.pixels
    assert isinstance(train, OffPolicySettings)
    assert isinstance(pixels, PixelSettings)
    steps = min(train.replay, -(-config.run.steps // env.repeat))  # more will not be stored
    open_steps = -(-config.run.checkpoint_every // (env.repeat * train.envs)) + train.update_every
    sizes = layout(dataclasses.replace(train, replay=steps), space, env)
    return FrameLayout(sizes, 1e9 * pixels.memory, open_steps)
