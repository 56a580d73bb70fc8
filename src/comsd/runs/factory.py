"""What a config describes: environment, agent, method and trainer."""

from __future__ import annotations

import dataclasses
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from comsd.adaptation import (
    CombineSettings,
    FinetuneSettings,
    SourceRun,
    agent_of,
    find_candidates,
    make_selector,
)
from comsd.agents.base import Policy, make_policy_fn
from comsd.agents.dqn import DQN
from comsd.config import Config
from comsd.encoders import ConvEncoder, PixelSettings, plain_spec
from comsd.envs.base import Env, action_rng
from comsd.envs.foreign import GymSettings
from comsd.envs.pixels import PixelEnv
from comsd.envs.reward import RewardEnv
from comsd.envs.skills import ControlledSkills, SkillEnv
from comsd.envs.specs import EnvSettings, EnvSpec
from comsd.errors import InputError
from comsd.frame_replay import FrameReplay
from comsd.methods.base import Method, MethodConfig
from comsd.registry import AGENTS, env_spec, method_class
from comsd.skills import SPACES, SkillSpace
from comsd.training.checks import check_device, check_disk, check_networks, check_shift
from comsd.training.off_policy import frame_layout
from comsd.training.trainer import Trainer, TrainSettings
from comsd.types import ObsSpec, PolicyFn


def seeds(config: Config) -> list[np.random.SeedSequence]:
    """Independent streams: weights, environment, trainer, evaluation, choice of the skill.

    An adaptation has others than the pre-training of the same seed, or its fresh networks and its
    first random actions would be those that the skills began with.
    """
    run = config.run
    stage = () if run.stage == "pretrain" else run.stage.encode()
    return np.random.SeedSequence([run.seed, *stage] if stage else run.seed).spawn(5)


def make_space(config: Config) -> SkillSpace:
    return SPACES[config.run.space](config.run.skills)


def spec_of(config: Config) -> EnvSpec:
    return env_spec(config.run.env, config.run.stage, dataclasses.asdict(config.env))


def make_env(
    config: Config,
    source: SourceRun | None,
    num_envs: int,
    seed: int,
    *,
    training: bool = False,
) -> Env:
    """training: rewards within one choice of a controller are discounted, skills may have noise."""
    spec, how, pixels = spec_of(config), config.adapt, config.pixels
    if isinstance(pixels, PixelSettings):
        assert spec.make_pixels is not None
        env = spec.make_pixels(num_envs, seed, pixels)
    else:
        env = spec.make(num_envs, seed)
    assert isinstance(config.env, EnvSettings)
    if config.env.reward != "own":
        env = RewardEnv(env, config.env.reward)
    if not isinstance(how, CombineSettings):
        return env
    assert source is not None
    discount = float(agent_of(config).discount ** (1 / how.hold)) if training else 1.0
    rng = action_rng(seed) if training and how.skill_noise else None
    policy = source.load_policy(env)
    if training:  # else on the CPU: a run may be evaluated on another machine
        policy.to(config.run.device)
    policy_fn_of = partial(make_policy_fn, policy)
    return SkillEnv(env, policy_fn_of, source.space, how.hold, discount, decodes(how), rng)


def decodes(how: CombineSettings) -> bool:
    """Are actions of the controller mapped into the skill space? Else they are skills."""
    return how.skill_map == "affine" and how.controller == "continuous"


def make_actor(
    config: Config, source: SourceRun | None, policy: Policy, skill: Tensor, num_envs: int
) -> PolicyFn:
    """What the policy of an adaptation does in the plain environment, with mean actions."""
    act = make_policy_fn(policy, skill.expand(num_envs, -1), None)
    if not isinstance(how := config.adapt, CombineSettings):
        return act
    assert source is not None
    policy_fn_of = partial(make_policy_fn, source.load_policy())
    return ControlledSkills(act, policy_fn_of, source.space, how.hold, decodes(how))


def make_training_env(config: Config, source: SourceRun | None) -> Env:
    assert isinstance(config.train, TrainSettings)
    if source is not None:
        check_body(config, source)
    seed = int(seeds(config)[1].generate_state(1)[0])
    return make_env(config, source, config.train.envs, seed, training=True)


def describe_env(env: Env) -> dict[str, Any]:
    """What a run remembers of its environment beside the settings that make it."""
    while isinstance(env, (RewardEnv, SkillEnv, PixelEnv)):
        env = env.env
    describe = getattr(env, "describe", None)
    return describe() if describe else {}


def check_body(config: Config, source: SourceRun) -> None:
    """Raise InputError unless the skills can act in the environment of the task."""
    if not isinstance(config.env, GymSettings):
        return  # known from the names
    theirs, ours = spec_of(source.config).make(1, 0), spec_of(config).make(1, 0)
    sizes = [(e.obs_spec.shape, e.action_dim) for e in (theirs, ours)]
    if sizes[0] != sizes[1]:
        raise InputError(
            f"task is {config.run.env!r} with observations {sizes[1][0]} and {sizes[1][1]} actions;"
            f" the skills of {source.path} need {sizes[0][0]} and {sizes[0][1]}"
        )


def check_possible(config: Config, source: SourceRun | None, env: Env, folder: Path) -> None:
    """Say now what would fail later: device, memory, compiler, an extra that is not installed."""
    check_device(config.run)
    if env.obs_spec.dtype == "uint8" and not config.run.pixels:
        raise InputError(f"env {config.run.env!r} observes images; pixels must be True (--pixels)")
    sized = sized_networks(config, source, env)
    if sized is not None:
        check_networks(config, env, *sized)
    AGENTS[config.run.agent].check(config, make_space(config), env)
    if isinstance(config.pixels, PixelSettings):
        check_shift(config.pixels, env.obs_spec)
        check_disk(frame_layout(config, make_space(config), env), folder)
    if config.run.tensorboard and find_spec("tensorboard") is None:
        raise InputError(
            "tensorboard is True but needs the extra: pip install 'comsd[tensorboard]'"
        )


def sized_networks(
    config: Config, source: SourceRun | None, env: Env
) -> tuple[nn.Module, nn.Module] | None:
    """Agent and method without memory for their weights; None for what cannot do without."""
    meta = torch.device("meta")
    try:
        agent = make_agent(config, source, env, meta)
        return agent, make_method(config, env.obs_spec, meta)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None


def critic_form(config: Config, source: SourceRun | None) -> str:
    """Fine-tuning goes on with the form of the run it starts from."""
    if config.run.stage == "finetune":
        assert source is not None
        return critic_form(source.config, None)
    return method_class(config.run.method, config.run.stage).critic


def make_agent(config: Config, source: SourceRun | None, env: Env, device: torch.device) -> Any:
    make, form = AGENTS[config.run.agent].make, critic_form(config, source)
    given = config.agent, make_space(config), env.obs_spec, env.action_dim, form
    with device:
        if isinstance(config.pixels, PixelSettings):
            return make(*given, encoder=ConvEncoder(env.obs_spec, config.pixels))
        return make(*given)


def initial_agent(config: Config, source: SourceRun | None, env: Env, device: torch.device) -> Any:
    """The one with which a run begins, with the weights and candidates it takes over."""
    weights, _, _, _, skill_seed = seeds(config)
    torch.manual_seed(int(weights.generate_state(1)[0]))
    agent = make_agent(config, source, env, device)
    if isinstance(config.adapt, FinetuneSettings):
        assert source is not None
        agent.init_from(source.load_agent(env), config.adapt.critic_init)
    if isinstance(agent, DQN):
        assert source is not None
        find_candidates(source, agent, skill_seed)
    return agent


def make_method(config: Config, obs: ObsSpec, device: torch.device) -> Method:
    """obs: describes the environment's observations; of images a method sees features."""
    assert isinstance(config.method, MethodConfig)
    kind, pixels = method_class(config.run.method, config.run.stage), config.pixels
    method_obs = plain_spec(pixels.features) if isinstance(pixels, PixelSettings) else obs
    with device:
        return kind(config.method, make_space(config), method_obs)


def make_trainer(config: Config, source: SourceRun | None, env: Env) -> Trainer:
    """As at step 0."""
    _, _, seed, _, skill_seed = seeds(config)
    device = torch.device(config.run.device)
    agent = initial_agent(config, source, env, device)
    method = make_method(config, env.obs_spec, device)
    options: dict[str, Any] = {}
    if isinstance(config.pixels, PixelSettings):
        sizes = frame_layout(config, method.space, env)
        options["replay"] = FrameReplay(sizes, device, config.pixels.pad)
    if config.run.stage != "pretrain":
        options["selector"] = make_selector(config, source, method.space, env, skill_seed)
    make, precision = AGENTS[config.run.agent].make_trainer, config.run.precision
    return make(env, agent, method, config.train, seed, precision=precision, **options)
