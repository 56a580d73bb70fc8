"""Using the skills of a pre-trained run for a task: what each way starts from.

finetune   one skill of the frozen set goes on learning with the task's reward (Algorithm 3)
combine    a controller learns whose action is the skill of the frozen policy (Algorithm 2)
scratch    plain DDPG on the task: what pre-training has to beat

All three go through the loop of pre-training; they differ from it in the environment, in the
reward (`methods/task.py`) and in who chooses the skill (`rules.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

DDPGConfig = object
from comsd.config import (
    Config,
    Setting,
    Settings,
    Stage,
    check_free,
    resolve,
    setting,
    sourced,
)
from comsd.envs import Env, env_spec
from comsd.envs.mujoco import HORIZON
from comsd.envs.skills import SkillEnv
from comsd.errors import InputError
from comsd.methods import METHODS, Method
from comsd.training.skill_selection import BestOfK as BestOf, RewardRegression as Regress, ResampleSkill as Resample, SkillSelector as Rule

if TYPE_CHECKING:
    from comsd.run import Run

SLOW = 2e-5  # learning rate of fine-tuning on the two robots that fall over


@dataclass(frozen=True)
class FinetuneSettings(Settings):
    source: str = setting("", "the run whose skill is fine-tuned", "the command")
    rule: Literal["fixed", "random", "resample", "best-of-k", "regress"] = setting(
        "fixed", "how the skill is chosen", "the method"
    )
    tries: int = setting(
        4, "best-of-k: skills tried in place of the random steps", "ours: an episode each", low=2
    )
    regress_after: int = setting(4096, "regress: steps before the regression", "APS's code", low=1)
    critic_init: Literal["trunk", "none", "full"] = setting(
        "trunk", "what is taken over of the critic", "URLB's code"
    )


@dataclass(frozen=True)
class CombineSettings(Settings):
    source: str = setting("", "the run whose skills are combined", "the command")
    hold: int = setting(1, "steps for which a chosen skill acts", "paper, Algorithm 2", low=1)
    skill_map: Literal["affine", "identity"] = setting(
        "affine",
        "from the action in [-1, 1] to the skill: into the skill space, or as it is",
        "ours",
    )


STAGES: dict[str, type[Settings]] = {
    "pretrain": Settings,
    "finetune": FinetuneSettings,
    "combine": CombineSettings,
    "scratch": Settings,
}
assert set(STAGES) == set(get_args(Stage))

COMBINED_STEPS = {"paper": 2_000_000, "lite": 300_000}


def check_source(source: Run, task: str) -> None:
    """Raise InputError unless the run can be adapted to the task."""
    settings, domain = source.config.run, env_spec(task, "task").families[-1]
    if settings.stage != "pretrain":
        raise InputError(
            f"run {source.path} is itself a {settings.stage} run; it must be a pretrain run"
        )
    if source.spec.name != domain:
        raise InputError(
            f"task is {task!r} but run {source.path} has the skills of {source.spec.name}; "
            f"allowed: {', '.join(source.spec.tasks) or 'none, since it has no tasks'}"
        )
    if not source.finished:
        raise InputError(
            f"run {source.path} is unfinished: step {source.reached:,} of {settings.steps:,}; "
            f"`comsd resume {source.path}` finishes it"
        )


def agent_of(config: Config) -> DDPGConfig:
    assert isinstance(config.agent, DDPGConfig)  # robots and their tasks have no other
    return config.agent


def inherited(source: Run) -> dict[str, Setting]:
    return sourced("the pre-trained run", agent__hidden=agent_of(source.config).hidden)


def resolve_scratch(task: str, preset: str, **overrides: Any) -> tuple[Config, dict[str, str]]:
    check_free("scratch", overrides)
    hold = sourced("one behaviour, no skills", agent__hold=HORIZON)
    env_spec(task, "task")
    return resolve("task", task, preset, stage="scratch", adapted=hold, **overrides)


def resolve_finetune(
    source: Run, task: str, preset: str | None = None, **overrides: Any
) -> tuple[Config, dict[str, str]]:
    check_free("finetune", overrides)
    check_source(source, task)
    before, method = source.config.run, METHODS[source.config.run.method]
    centred = method.default_skill(source.space) is not None
    usual = method.finetuning_rule if centred or method.finetuning_rule != "fixed" else "random"
    adapted = inherited(source)
    adapted |= sourced("the pre-trained run", run__space=before.space, run__skills=before.skills)
    adapted |= sourced("the command", adapt__source=str(source.path))
    adapted |= sourced(f"usual for {before.method}", adapt__rule=usual)
    if source.spec.name in ("hopper", "cheetah"):
        adapted |= sourced("paper, hyper-parameter table", agent__lr=SLOW)
    words = ("task", task, preset or before.preset)
    if words[-1] == "smoke":
        adapted |= sourced("a few seconds, for tests", adapt__regress_after=200)
    config, _ = resolve(*words, stage="finetune", adapted=adapted, **overrides)
    adapted |= sourced("the skill rule", agent__hold=hold_of(config, source))
    config, sources = resolve(*words, stage="finetune", adapted=adapted, **overrides)
    check_rule(config, source)
    return config, sources


def hold_of(config: Config, source: Run) -> int:
    """Steps between the moments at which the rule may choose."""
    how = config.adapt
    assert isinstance(how, FinetuneSettings)
    if how.rule == "best-of-k":
        share = agent_of(config).random_steps // how.tries
        return min(max(1, share), HORIZON)  # an episode each, or an equal part of one
    if how.rule == "resample":
        return agent_of(source.config).hold
    return 50 if how.rule == "regress" else HORIZON


def check_rule(config: Config, source: Run) -> None:
    how, method = config.adapt, METHODS[source.config.run.method]
    assert isinstance(how, FinetuneSettings)
    if how.rule == "regress" and method.regress_skill is Method.regress_skill:
        raise InputError(f"rule is 'regress', but {method.name} has no features for it")
    hold, envs = hold_of(config, source), agent_of(config).envs
    last = -(-how.regress_after // (hold * envs)) * hold * envs
    if how.rule == "regress" and last >= config.run.steps:
        raise InputError(
            f"regress_after is {how.regress_after}; it must be less than steps {config.run.steps}"
        )
    last = -(-how.tries // envs) * hold * envs
    if how.rule == "best-of-k" and (HORIZON % hold or last >= config.run.steps):
        raise InputError(
            f"tries is {how.tries}; agent.random_steps / tries must be an episode of {HORIZON} "
            "steps or an even part of one, and all tries must fit into steps"
        )
    if how.rule == "fixed" and method.default_skill(source.space) is None:
        raise InputError(
            f"rule is 'fixed', but {source.space.kind} skills have none that stands out; "
            "allowed: random, resample, best-of-k"
        )


def resolve_combine(
    source: Run, task: str, preset: str | None = None, **overrides: Any
) -> tuple[Config, dict[str, str]]:
    check_free("combine", overrides)
    check_source(source, task)
    preset = preset or source.config.run.preset
    adapted = inherited(source) | sourced("one controller, no skills", agent__hold=HORIZON)
    adapted |= sourced("the command", adapt__source=str(source.path))
    if preset in COMBINED_STEPS:
        origin = "paper, hyper-parameter table" if preset == "paper" else "for one CPU core"
        adapted |= sourced(origin, run__steps=COMBINED_STEPS[preset])
    words = ("task", task, preset)
    config, _ = resolve(*words, stage="combine", adapted=adapted, **overrides)
    how = config.adapt
    assert isinstance(how, CombineSettings)
    if how.skill_map == "identity" and source.config.run.space != "box":
        raise InputError("skill_map is 'identity'; that is for box skills only; allowed: affine")
    if how.hold > 1:
        per_choice = agent_of(config).discount ** how.hold
        adapted |= sourced("gamma^hold: a choice lasts hold steps", agent__discount=per_choice)
    return resolve(*words, stage="combine", adapted=adapted, **overrides)


# --- what a learner is made of --------------------------------------------------------------------


def make_env(
    config: Config, source: Run | None, num_envs: int, seed: int, discount: float | None = None
) -> Env:
    """discount: of the rewards within one choice of a controller; that of training if not given."""
    env = env_spec(config.run.env).make(num_envs, seed)
    if config.run.stage != "combine":
        return env
    how = config.adapt
    assert isinstance(how, CombineSettings)
    assert source is not None
    if discount is None:
        discount = float(agent_of(config).discount ** (1 / how.hold))
    return SkillEnv(env, source.policy, source.space, how.hold, discount, how.skill_map == "affine")


def make_rule(run: Run) -> Rule:
    """Who chooses the skill of an adaptation."""
    how, space = run.config.adapt, run.space
    if not isinstance(how, FinetuneSettings):
        centre = space.centre()
        assert centre is not None
        return Rule(centre)
    source = run.source
    method = METHODS[source.config.run.method]
    if how.rule == "best-of-k":
        return BestOf(method.candidates(space, how.tries))
    if how.rule == "regress":
        return Regress(space, how.regress_after, source.load_method().regress)
    if how.rule == "fixed":
        usual = method.default_skill(space)
        assert usual is not None
        return Rule(usual)
    drawn = space.sample(1, np.random.default_rng(run.seeds()[4]))[0]
    return Resample(space, drawn) if how.rule == "resample" else Rule(drawn)
