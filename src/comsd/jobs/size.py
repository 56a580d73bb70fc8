"""How much disk and memory a run takes: an estimate from shapes; nothing is trained."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

from comsd import checkpoint
from comsd.adaptation import agent_of
from comsd.agents.ppo import PPOConfig
from comsd.config import Config
from comsd.encoders import PixelSettings
from comsd.envs.base import Env
from comsd.jobs.cost import Overrides, encoder_work, job_work
from comsd.jobs.job import Job
from comsd.registry import env_spec
from comsd.replay import Layout
from comsd.resolve import resolve, resolve_scratch
from comsd.runs import factory
from comsd.training.off_policy import OffPolicySettings

PROCESS = 450_000_000  # bytes of memory of a process with torch and MuJoCo before it trains
TABLES = 200_000  # bytes of config and tables
FLOAT = 4  # bytes


class Size(NamedTuple):
    disk: int  # bytes
    memory: int


def job_size(job: Job, overrides: Overrides = ()) -> Size:
    if job.stage == "analyse":
        return Size(TABLES, PROCESS)
    method = job.method if job.stage == "pretrain" else None
    images = (("pixels", True),) if job.pixels else ()
    weights, layout = shapes(method, job.env, job.preset, overrides + images)
    # Weights, two moments of Adam; a target beside the critic is among the weights.
    state = 3 * FLOAT * weights
    if layout is None:
        return Size(checkpoint.KEEP * state + TABLES, PROCESS + 2 * state)
    rows = min(job_work(job, overrides)[2], layout.capacity)
    replay = layout._replace(capacity=rows).bytes
    return Size(checkpoint.KEEP * state + replay + TABLES, PROCESS + 2 * state + layout.bytes)


@cache
def shapes(
    method: str | None, env: str, preset: str, overrides: Overrides
) -> tuple[int, Layout | None]:
    """Numbers of weights, and the replay, if there is one."""
    chosen = dict(overrides)
    if method:
        config = resolve(method, env, preset, **chosen)
    else:
        config = resolve_scratch(env, preset, **chosen)
    one, s = env_spec(env).make(1, 0), config.run
    weights = network_weights(config, one)
    if not isinstance(train := config.train, OffPolicySettings):
        return weights, None
    obs = one.obs_spec
    if isinstance(pixels := config.pixels, PixelSettings):  # single frames are stored
        obs = obs._replace(shape=(3, pixels.size, pixels.size), dtype="uint8")
    size = (train.replay, train.envs, obs, one.action_dim, s.skills)
    return weights, Layout(*size, one.horizon, train.hold)


def network_weights(config: Config, env: Env) -> int:
    inputs, actions = env.obs_spec.dim + config.run.skills, env.action_dim
    quick = config.derive("method.init", "uniform", "quicker to draw than orthogonal weights")
    method = factory.make_method(quick, env.obs_spec, torch.device("cpu"))
    own = sum(p.numel() for p in method.parameters())
    if isinstance(c := config.agent, PPOConfig):
        return own + c.hidden * (2 * (inputs + c.hidden + actions) + 1)
    hidden = agent_of(config).hidden
    if isinstance(pixels := config.pixels, PixelSettings):
        narrow, features = pixels.features, encoder_work(config)[1] + config.run.skills
        heads = hidden * (narrow + hidden + actions)
        return own + 4 * narrow * features + 5 * heads  # bottlenecks of method, actor, critic (2)
    actor = hidden * (inputs + hidden + actions)
    critic = hidden * (inputs + actions + 2 * hidden + 2)
    return own + actor + 2 * critic
