"""How long jobs take on one core: an estimate from counted work; nothing is trained.

    seconds = FLOPs / (EFFICIENCY * rate of matrix products) + gradient steps * GRADIENT_STEP
            + steps of training and evaluation * (ACTING + environments * SIMULATION)

The constants are those of one AMD Zen 4 core; the rate is measured when the plan is made.
"""

from __future__ import annotations

import time
import timeit
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from comsd.adaptation import COMBINED_STEPS, CONTROLLERS, agent_of, train_of
from comsd.agents.dqn import DQNConfig
from comsd.agents.ppo import PPOConfig
from comsd.config import SCALES, Config
from comsd.encoders import KERNEL, PixelSettings
from comsd.envs.base import Env
from comsd.jobs.job import Job
from comsd.registry import env_spec
from comsd.resolve import resolve, resolve_scratch
from comsd.runs import factory
from comsd.training.trainer import TrainSettings
from comsd.types import Batch

Overrides = tuple[tuple[str, Any], ...]

START = 5.0  # seconds to start a process and build what it needs
ANALYSIS = 100.0  # seconds to roll out and draw the skills, from twelve starts each
EFFICIENCY = 0.8  # of the rate of matrix products
GRADIENT_STEP = 1e-3  # seconds of a gradient step outside matrix products
ACTING = 2e-4  # seconds to act and to store a step of all environments
SIMULATION = {"maze": 1e-6, "walker": 9e-5, "quadruped": 1e-4, "hopper": 4e-5, "cheetah": 2e-5}
SWEPT = 21  # episodes of an evaluation of a robot's skills: a sweep of 11, 10 held out
# Float32 products of GPUs without tensor cores, as their makers state them, and how much of that a
# run is taken to reach: no GPU was at hand to measure it.
DEVICES = {"RTX 3090": 35.6e12, "RTX 4090": 82.6e12, "A100": 19.5e12, "H100 SXM": 66.9e12}
REACHED = 0.4
TYPICAL_RATE = 1e11  # FLOPs per second of one core
RENDERING = {"full": 2e-2, "near": 7e-3, "fast": 5e-4}  # seconds per image
ROWS = 64  # of the batch on which the work of a method is counted


def product_rate(size: int = 1024) -> float:
    """FLOPs per second of large float32 products in one thread."""
    threads, x = torch.get_num_threads(), torch.ones(size, size)
    torch.set_num_threads(1)
    seconds = timeit.repeat(lambda: x @ x, timer=time.thread_time, repeat=6, number=1)
    torch.set_num_threads(threads)
    return 2 * size**3 / min(seconds)


class Work(NamedTuple):
    """What a job takes."""

    flops: float = 0.0  # of matrix products
    other: float = 0.0  # seconds outside them
    steps: int = 0  # of environments

    def seconds(self, rate: float) -> float:
        """Where matrix products run at `rate` FLOPs per second."""
        return self.flops / (EFFICIENCY * rate) + self.other

    def plus(self, more: Work, times: float = 1) -> Work:
        steps = self.steps + round(more.steps * times)
        return Work(self.flops + more.flops * times, self.other + more.other * times, steps)


def job_total(job: Job, overrides: Overrides = ()) -> Work:
    if job.stage == "analyse":
        return Work(other=START + ANALYSIS)
    flops, seconds, steps = job_work(job, overrides)
    return Work(steps * flops, START + steps * seconds, steps)


def job_seconds(job: Job, rate: float) -> float:
    """Estimated time of a job on one core that does `rate` FLOPs per second."""
    return job_total(job).seconds(rate)


def device_seconds(work: Work, device: str) -> float:
    """Alone on a GPU, with the rest of the work on a core beside it."""
    return work.flops / (REACHED * DEVICES[device]) + work.other


def relative_seconds(job: Job) -> float:
    """For the order of jobs."""
    return job_seconds(job, TYPICAL_RATE)


def job_work(job: Job, overrides: Overrides = ()) -> tuple[float, float, int]:
    """FLOPs and other seconds per environment step, and the number of steps."""
    # Adaptations have the networks of learning from scratch but for the skill as an input.
    method = job.method if job.stage == "pretrain" else None
    overrides += (("pixels", True),) if job.pixels else ()
    discrete = job.stage == "combine" and "discrete" in job.options
    overrides += discrete_work(job) if discrete else ()
    flops, seconds, steps = step_work(method, job.env, job.preset, overrides)
    if job.stage == "combine":
        controller = "discrete" if discrete else "continuous"
        steps = COMBINED_STEPS[controller].get(SCALES[job.preset], steps)
    return flops, seconds, job.steps or steps


def discrete_work(job: Job) -> Overrides:
    """A controller that chooses among candidates learns as seldom, on as many rows, as DQN does."""
    values = env_spec(job.env).agents[CONTROLLERS["discrete"]][SCALES[job.preset]]
    found = {name: x.value for name, x in values.items() if name.startswith("train.")}
    return (("agent.hidden", DQNConfig.hidden), *found.items())


@cache
def step_work(
    method: str | None, env: str, preset: str, overrides: Overrides = ()
) -> tuple[float, float, int]:
    """FLOPs and other seconds per environment step, and the number of steps.

    overrides: settings by dotted name that differ from the preset's.
    """
    chosen = dict(overrides)
    if method:
        config = resolve(method, env, preset, **chosen)
    else:
        config = resolve_scratch(env, preset, **chosen)
    spec, s, train = env_spec(env), config.run, config.train
    assert isinstance(train, TrainSettings)
    flops, gradient_steps = learning_work(config, spec.make(1, 0), train.envs)
    simulation = SIMULATION.get(spec.families[-1], 1e-4)
    if isinstance(pixels := config.pixels, PixelSettings):
        simulation += RENDERING[pixels.render] / pixels.repeat
    episodes = SWEPT if "robots" in spec.families else s.rollouts * max(1, s.skills)
    evaluation = spec.horizon * (ACTING + episodes * simulation) / s.evaluate_every
    acting = ACTING / train.envs + simulation
    return flops, gradient_steps * GRADIENT_STEP + acting + evaluation, s.steps


def learning_work(config: Config, env: Env, envs: int) -> tuple[float, float]:
    """FLOPs and gradient steps per environment step."""
    inputs, actions = env.obs_spec.dim + config.run.skills, env.action_dim
    method = method_flops(config, env)
    if isinstance(c := config.agent, PPOConfig):
        weights = c.hidden * (2 * (inputs + c.hidden + actions) + 1)
        # An epoch: forward, backward (2). Before: old values; after: the reward's features.
        flops = 2 * weights * (3 * c.epochs + 1) + method * (c.epochs + 1 / 3)
        return flops, 2 * c.epochs * c.minibatches / (envs * env.horizon)
    hidden, train, encoding = agent_of(config).hidden, train_of(config), 0.0
    if isinstance(pixels := config.pixels, PixelSettings):
        narrow, (encoding, features) = pixels.features, encoder_work(config)
        inputs = features + config.run.skills
        actor = narrow * inputs + hidden * (narrow + hidden + actions)
        critic = narrow * inputs + 2 * hidden * (narrow + actions + hidden + 1)
        method += 12 * narrow * features if method else 0  # its bottleneck, forward and backward
    else:
        actor = hidden * (inputs + hidden + actions)
        critic = hidden * (inputs + actions + 2 * hidden + 2)
    # Actor: next action, loss, backward (2). Critic: target, loss, backward (2), loss of the
    # actor, backward to the action.
    learned = train.representation_steps / train.representation_every
    flops = train.batch_size * (2 * (4 * actor + 6 * critic) + learned * method + encoding)
    return flops / train.update_every, (2 + learned) / train.update_every


def encoder_work(config: Config) -> tuple[float, int]:
    """FLOPs per row of encoding s and s', with the gradient of those that are trained; features."""
    pixels = config.pixels
    assert isinstance(pixels, PixelSettings)
    side, channels, flops = pixels.size, 3 * pixels.stack, 0
    for stride in map(int, pixels.strides.split(",")):
        side = (side - KERNEL) // stride + 1
        flops += 2 * KERNEL**2 * channels * pixels.channels * side**2
        channels = pixels.channels
    passes = {"none": 2, "critic": 4, "method": 6, "both": 6}  # backward counts as two
    return passes[agent_of(config).encoder_from] * flops, channels * side**2


def method_flops(config: Config, env: Env) -> float:
    """Of a method's loss per row, forward and backward: the products of its linear layers."""
    config = config.derive("method.init", "uniform", "quicker to draw than orthogonal weights")
    method = factory.make_method(config, env.obs_spec, torch.device("cpu"))
    if not any(p.requires_grad for p in method.parameters()):
        return 0
    flops = 0

    def count(layer: nn.Linear, inputs: tuple[Tensor], _: Tensor) -> None:
        nonlocal flops
        passes = 3 if torch.is_grad_enabled() else 1  # backward counts as two
        flops += 2 * passes * inputs[0].numel() * layer.out_features

    for layer in method.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(count)
    pixels = config.pixels
    shape = (pixels.features,) if isinstance(pixels, PixelSettings) else env.obs_spec.shape
    obs, one = torch.zeros(ROWS, *shape), torch.zeros(ROWS)
    skill = method.space.sample(ROWS, np.random.default_rng(0))
    method.embed_and_loss(Batch(obs, torch.zeros(ROWS, env.action_dim), obs, obs, skill, one, one))
    return flops / ROWS
