"""Using the skills of a pre-trained run for a task: what each way starts from.

finetune   one skill of the frozen set goes on learning with the task's reward (Algorithm 3)
combine    a controller learns whose action is the skill of the frozen policy (Algorithm 2)
scratch    a plain agent on the task: what pre-training has to beat

All three go through the loop of pre-training; they differ from it in the environment, in the
reward (`methods/task.py`) and in who chooses the skill (`training/skill_selection.py`).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from comsd.agents.actor_critic import ActorCriticConfig
from comsd.agents.base import OffPolicyConfig, make_policy_fn
from comsd.agents.dqn import DQN, DQNConfig
from comsd.config import SCALES, Config, Setting, Settings, Stage, choose, setting, sourced
from comsd.encoders import PixelSettings
from comsd.envs.base import Env
from comsd.envs.foreign import GymSettings
from comsd.envs.pixels import act_on_states
from comsd.envs.specs import EnvSettings, Values
from comsd.errors import InputError, quoted
from comsd.methods.base import Method
from comsd.registry import METHODS, TASKS, EnvSpec, env_spec
from comsd.skill_sets import find_skill
from comsd.skills import SkillSpace
from comsd.training.candidates import choose_candidates, draw_pool
from comsd.training.off_policy import OffPolicySettings
from comsd.training.skill_selection import BestOfK, ResampleSkill, RewardRegression, SkillSelector
from comsd.types import Batch

SLOW = 2e-5  # the paper's learning rate of fine-tuning on two robots; too low for fewer updates
SLOW_ROBOTS = ("hopper", "cheetah")


@dataclass(frozen=True)
class FinetuneSettings(Settings):
    source: str = setting("", "the run whose skill is fine-tuned", "the command")
    at: int = setting(0, "the step of it that is used; 0: its end", "the command", low=0)
    rule: Literal["fixed", "random", "resample", "best-of-k", "regress"] = setting(
        "fixed", "how the skill is chosen", "the method"
    )
    skill: str = setting(
        "", "fixed: another than the method's, by its name in `comsd analyse` or as numbers", "ours"
    )
    tries: int = setting(
        4,
        "best-of-k: skills tried in place of the random steps",
        "ours: an episode each",
        low=2,
        high=1000,
    )
    regress_after: int = setting(4096, "regress: steps before the regression", "APS's code", low=1)
    critic_init: Literal["trunk", "none", "full"] = setting(
        "trunk", "what is taken over of the critic", "URLB's code"
    )


@dataclass(frozen=True)
class CombineSettings(Settings):
    source: str = setting("", "the run whose skills are combined", "the command")
    at: int = setting(0, "the step of it that is used; 0: its end", "the command", low=0)
    controller: Literal["continuous", "discrete"] = setting(
        "continuous", "an agent over the skill space, or DQN over a few candidate skills", "paper"
    )
    hold: int = setting(1, "steps for which a chosen skill acts", "paper, Algorithm 2", low=1)
    skill_map: Literal["affine", "identity"] = setting(
        "affine",
        "from the action in [-1, 1] to the skill: into the skill space, or as it is",
        "ours",
    )
    skill_noise: bool = setting(
        False, "skills act with their exploration noise in training", "ours; Algorithm 2: a ~ pi"
    )
    evaluation_noise: bool = setting(
        True, "score the controller with its exploration noise", "paper, Sec. V"
    )


SETTINGS = {"finetune": FinetuneSettings, "combine": CombineSettings}  # by stage
CONTROLLERS = {"continuous": "ddpg", "discrete": "dqn"}  # and their usual agents
COMBINED_STEPS = {  # by controller and scale
    "continuous": {"paper": 2_000_000, "lite": 500_000},
    "discrete": {"paper": 2_000_000, "lite": 100_000},
}
DISCRETE = sourced("ours", adapt__hold=10, adapt__evaluation_noise=False)
EXPLORED = 0.3  # share of a run over which random choices fade


class SourceRun(Protocol):
    """What an adaptation asks of the run whose skills it uses."""

    path: Path
    at: int | None  # the step that was asked for
    config: Config
    space: SkillSpace
    spec: EnvSpec

    @property
    def finished(self) -> bool: ...

    @property
    def reached(self) -> int: ...

    def load_policy(self, env: Env | None = None) -> Any: ...

    def load_agent(self, env: Env | None = None) -> Any: ...

    def load_method(self, env: Env | None = None) -> Method: ...


def check_source(source: SourceRun, task: str, stage: Stage, reward: str = "own") -> None:
    """Raise InputError unless the run can be adapted to the task."""
    settings, spec = source.config.run, env_spec(task, stage, {"reward": reward})
    if settings.stage != "pretrain":
        raise InputError(
            f"run {source.path} is itself a {settings.stage} run; it must be a pretrain run"
        )
    foreign = {source.spec.settings, spec.settings} == {GymSettings}
    if source.spec.name != spec.families[-1] and not foreign:  # or sizes are compared later
        raise InputError(
            f"task is {task!r} but run {source.path} has the skills of {source.spec.name}; "
            f"allowed: {', '.join(source.spec.tasks) or 'none, since it has no tasks'}"
        )
    if stage == "finetune" and settings.agent not in spec.agents:
        raise InputError(
            f"run {source.path} was trained by {settings.agent}, which cannot be fine-tuned; "
            f"allowed: {', '.join(agents_for(spec))} (combine takes any)"
        )
    if source.at is None and not source.finished:
        raise InputError(
            f"run {source.path} is unfinished: step {source.reached:,} of {settings.steps:,}; "
            f"`comsd resume {quoted(source.path)}` finishes it, --at STEP takes it as it was at "
            "one of its snapshots or is at its newest checkpoint"
        )


def reward_layer(task: str, reward: str) -> Values:
    if reward != "own" and task in TASKS:
        raise InputError(f"task is {task!r}, which has a reward: leave it out or the reward file")
    return sourced("the command", env__reward=reward) if reward != "own" else {}


def env_layer(source: SourceRun, task: str) -> Values:
    """The same environment is made in the same way."""
    if source.spec.settings is EnvSettings or task != source.spec.name:
        return {}
    made = dataclasses.asdict(source.config.env)
    return {f"env.{name}": Setting(value, "the pre-trained run") for name, value in made.items()}


def agents_for(spec: EnvSpec, controller: str = "continuous") -> list[str]:
    """Agents that can learn a task: those that act, or those that choose among skills."""
    discrete = CONTROLLERS["discrete"]
    return [name for name in spec.agents if (name == discrete) == (controller == "discrete")]


def agent_of(config: Config) -> OffPolicyConfig:
    assert isinstance(config.agent, OffPolicyConfig)  # tasks have no other
    return config.agent


def train_of(config: Config) -> OffPolicySettings:
    assert isinstance(config.train, OffPolicySettings)
    return config.train


def repeat_of(config: Config) -> int:
    """Environment steps per action."""
    return config.pixels.repeat if isinstance(config.pixels, PixelSettings) else 1


def usual_agent(source: SourceRun) -> str | None:
    """That of the run whose skills are used; tasks are learned off-policy."""
    return source.config.run.agent if isinstance(source.config.agent, ActorCriticConfig) else None


def inherited(source: SourceRun) -> Values:
    layer = sourced("the command", adapt__source=str(source.path), adapt__at=source.at or 0)
    if agent := usual_agent(source):
        hidden = agent_of(source.config).hidden
        layer |= sourced("the pre-trained run", run__agent=agent, agent__hidden=hidden)
    if source.config.run.pixels:
        images = dataclasses.asdict(source.config.pixels).items()
        layer |= sourced("the pre-trained run", run__pixels=True)
        layer |= sourced("the pre-trained run", **{f"pixels__{name}": x for name, x in images})
    return layer


def finetune_layer(source: SourceRun, preset: str) -> Values:
    before, method = source.config.run, METHODS[source.config.run.method]
    centred = method.default_skill(source.space) is not None
    usual = method.finetuning_rule if centred or method.finetuning_rule != "fixed" else "random"
    layer = inherited(source)
    layer |= sourced("the pre-trained run", run__space=before.space, run__skills=before.skills)
    layer |= sourced(f"usual for {before.method}", adapt__rule=usual)
    if source.spec.name in SLOW_ROBOTS and not before.pixels and SCALES[preset] == "paper":
        layer |= sourced("paper, hyper-parameter table", agent__lr=SLOW)
    if preset == "smoke":
        layer |= sourced("a few seconds, for tests", adapt__regress_after=200)
    if preset == "literal":
        layer |= sourced("paper, Algorithm 3", adapt__critic_init="none")
    return layer


def combine_layer(source: SourceRun, preset: str, controller: str) -> Values:
    layer, agent = inherited(source), choose("controller", controller, CONTROLLERS)
    if controller == "discrete" or not usual_agent(source):
        layer |= sourced("the controller", run__agent=agent)
    layer |= sourced("one controller, no skills", train__hold=source.spec.horizon)
    layer |= combined_steps(preset, controller)
    if preset == "literal":
        layer |= sourced("paper, Algorithm 2", adapt__skill_noise=True)
    if controller == "discrete":
        layer.pop("agent.hidden", None)  # its network is its own
        layer |= DISCRETE
    return layer


def combined_steps(preset: str, controller: str) -> Values:
    scale = SCALES[preset]
    origin = "paper, hyper-parameter table" if scale == "paper" else "for one CPU core"
    steps = COMBINED_STEPS[controller].get(scale)
    return sourced(origin, run__steps=steps) if steps else {}


def with_controller(config: Config, source: SourceRun) -> Config:
    """A choice lasts `hold` steps, which are discounted as such unless the user says otherwise;
    random choices of a discrete controller fade over the first part of the run.
    """
    how, train = config.adapt, train_of(config)
    assert isinstance(how, CombineSettings)
    if how.skill_map == "identity" and source.config.run.space != "box":
        raise InputError("skill_map is 'identity'; that is for box skills only; allowed: affine")
    if isinstance(agent := config.agent, DQNConfig):
        space = source.space
        few = space.kind == "one-hot" and space.dim < agent.candidates
        if few and config.sources["agent.candidates"] != "you":
            config = config.derive("agent.candidates", space.dim, "all skills of the run")
    if how.controller == "discrete" and config.sources["agent.epsilon_updates"] != "you":
        learning = EXPLORED * (config.run.steps - train.random_steps)
        updates = max(1, round(learning / train.update_every))
        config = config.derive("agent.epsilon_updates", updates, "ours: 30 % of the run")
    if how.hold == 1 or config.sources["agent.discount"] == "you":
        return config
    discount = agent_of(config).discount ** how.hold
    return config.derive("agent.discount", discount, "gamma^hold: a choice lasts hold steps")


def with_rule(config: Config, source: SourceRun) -> Config:
    """With the steps between the moments at which the rule may choose, if it can be used here."""
    how, repeat, envs = config.adapt, repeat_of(config), train_of(config).envs
    assert isinstance(how, FinetuneSettings)
    horizon = -(-source.spec.horizon // repeat)  # in actions, as the clock of a skill
    method, hold = METHODS[source.config.run.method], horizon
    if how.skill:
        find_skill(source.space, how.skill)  # raises InputError now, not after the run is created
        if how.rule != "fixed" and config.sources["adapt.rule"] == "you":
            raise InputError(f"rule is {how.rule!r}, but a skill is given; allowed: fixed")
        config = config.derive("adapt.rule", "fixed", "a skill is given")
    elif how.rule == "regress":
        hold = 50
        if method.regress_skill is Method.regress_skill:
            raise InputError(f"rule is 'regress', but {method.name} has no features for it")
        change = hold * repeat * envs  # steps from one to the next
        if math.ceil(how.regress_after / change) * change >= config.run.steps:
            after, steps = how.regress_after, config.run.steps
            raise InputError(f"regress_after is {after}; it must be less than steps {steps}")
    elif how.rule == "best-of-k":
        share = train_of(config).random_steps // (how.tries * repeat)
        hold = min(max(1, share), horizon)  # an episode each, or an equal part of one
        tried = math.ceil(how.tries / envs) * hold * repeat * envs
        if horizon % hold or tried >= config.run.steps:
            limit = source.spec.horizon
            raise InputError(
                f"tries is {how.tries}; train.random_steps / tries must be an episode of {limit} "
                "steps or an even part of one, and all tries must fit into steps"
            )
    elif how.rule == "resample":
        hold = train_of(source.config).hold
    elif how.rule == "fixed" and method.default_skill(source.space) is None:
        raise InputError(
            f"rule is 'fixed', but {source.space.kind} skills have none that stands out; "
            "allowed: random, resample, best-of-k"
        )
    return config.derive("train.hold", hold, "the skill rule")


def make_selector(
    config: Config,
    source: SourceRun | None,
    space: SkillSpace,
    env: Env,
    seed: np.random.SeedSequence,
) -> SkillSelector:
    """Who chooses the skill of an adaptation."""
    how = config.adapt
    if not isinstance(how, FinetuneSettings):
        centre = space.centre()
        assert centre is not None
        discrete = isinstance(config.agent, DQNConfig)  # which draws its random choices itself
        return SkillSelector(centre, acts_at_once=discrete)
    assert source is not None
    method = METHODS[source.config.run.method]
    if how.rule == "best-of-k":
        return BestOfK(method.candidates(space, how.tries))
    if how.rule == "regress":
        agent, representation = source.load_agent(env), source.load_method(env)

        @torch.no_grad()
        def regress(batch: Batch) -> Tensor | None:
            return representation.regress_skill(agent.encode(batch).for_method)

        return RewardRegression(space, how.regress_after, regress)
    if how.rule == "fixed":
        skill = find_skill(space, how.skill) if how.skill else method.default_skill(space)
        assert skill is not None
        return SkillSelector(skill)
    drawn = space.sample(1, np.random.default_rng(seed))[0]
    return ResampleSkill(space, drawn) if how.rule == "resample" else SkillSelector(drawn)


def find_candidates(source: SourceRun, agent: DQN, seed: np.random.SeedSequence) -> None:
    """Give a discrete controller the skills it chooses among, by roll-outs without reward."""
    k, rng = agent.config.candidates, np.random.default_rng(seed)
    pool = draw_pool(source.space, k, rng)
    env = source.spec.make(len(pool), int(rng.integers(2**31)))
    policy_fn = make_policy_fn(source.load_policy(), pool, None)
    chosen = choose_candidates(env, act_on_states(env, source.config.pixels, policy_fn), pool, k)
    agent.candidates.copy_(chosen)
