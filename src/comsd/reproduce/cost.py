"""How long jobs take on one core: an estimate from counted work; nothing is trained.

    seconds = FLOPs / (EFFICIENCY * rate of matrix products) + gradient steps * GRADIENT_STEP
            + steps of training and evaluation * (ACTING + environments * SIMULATION)

The constants are those of one AMD Zen 4 core; the rate is measured when the plan is made.
"""

from __future__ import annotations

import time
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from comsd.adaptation import COMBINED_STEPS, train_of
from comsd.agents.ppo import PPOConfig
from comsd.config import Config
from comsd.envs.base import Env
from comsd.registry import env_spec
from comsd.resolve import resolve, resolve_scratch
from comsd.runs import factory
from comsd.types import Batch

START = 5.0  # seconds to start a process and build what it needs
ANALYSIS = 10.0  # seconds to roll out and draw the sweeps
EFFICIENCY = 0.8  # of the rate of matrix products
GRADIENT_STEP = 1e-3  # seconds of a gradient step outside matrix products
ACTING = 2e-4  # seconds to act and to store a step of all environments
SIMULATION = {"maze": 1e-6, "walker": 9e-5, "quadruped": 1e-4, "hopper": 4e-5, "cheetah": 2e-5}
OTHER_SIMULATION = 1e-4
SWEPT = 21  # episodes of an evaluation of a robot's skills: a sweep of 11, 10 held out


def product_rate(size: int = 1024) -> float:
    """FLOPs per second of large float32 products in one thread."""
    threads, x, seconds = torch.get_num_threads(), torch.ones(size, size), list[float]()
    torch.set_num_threads(1)
    for _ in range(6):
        start = time.thread_time()
        torch.mm(x, x)
        seconds.append(time.thread_time() - start)
    torch.set_num_threads(threads)
    return 2 * size**3 / min(seconds)


def job_seconds(stage: str, method: str, env: str, preset: str, rate: float) -> float:
    """Estimated time of a job on one core that does `rate` FLOPs per second."""
    if stage == "analyse":
        return START + ANALYSIS
    # Adaptations have the networks of learning from scratch but for the skill as an input.
    flops, seconds, steps = step_work(method if stage == "pretrain" else None, env, preset)
    if stage == "combine":
        steps = COMBINED_STEPS.get(preset, steps)
    return START + steps * (flops / (EFFICIENCY * rate) + seconds)


@cache
def step_work(method: str | None, env: str, preset: str) -> tuple[float, float, int]:
    """FLOPs and other seconds per environment step, and the number of steps."""
    config = resolve(method, env, preset) if method else resolve_scratch(env, preset)
    spec, s = env_spec(env), config.run
    flops, gradient_steps, steps, envs = update_work(config, spec.make(1, 0))
    simulation = SIMULATION.get(spec.families[-1], OTHER_SIMULATION)
    episodes = SWEPT if "robots" in spec.families else s.rollouts * max(1, s.skills)
    evaluation = spec.horizon * (ACTING + episodes * simulation) / s.evaluate_every
    acting = ACTING / envs + simulation
    return flops / steps, gradient_steps * GRADIENT_STEP / steps + acting + evaluation, s.steps


def update_work(config: Config, env: Env) -> tuple[float, int, int, int]:
    """FLOPs, gradient steps and environment steps of an update; environments side by side."""
    c, hidden = config.agent, config.to_json()["agent"]["hidden"]
    inputs = env.reset()[0].size + factory.make_space(config).dim
    if isinstance(c, PPOConfig):
        envs = config.to_json()["train"]["envs"]
        rows = envs * env.horizon
        weights = 2 * (inputs * hidden + hidden**2) + hidden * (2 * env.action_dim + 1)
        # An epoch: forward, backward (2). Before: old values; after: the reward's features.
        flops = 2 * rows * weights * (3 * c.epochs + 1)
        flops += method_flops(config, env, rows) * (c.epochs + 1 / 3)
        return flops, 2 * c.epochs * c.minibatches, rows, envs
    train = train_of(config)
    actor = inputs * hidden + hidden**2 + hidden * env.action_dim
    critic = (inputs + env.action_dim) * hidden + 2 * (hidden**2 + hidden)
    # Actor: next action, loss, backward (2). Critic: target, loss, backward (2), loss of the
    # actor, backward to the action.
    flops = 2 * train.batch_size * (4 * actor + 6 * critic)
    flops += train.representation_steps * method_flops(config, env, train.batch_size)
    return flops, 2 + train.representation_steps, train.update_every, train.envs


def method_flops(config: Config, env: Env, rows: int) -> float:
    """Of a forward and a backward pass of a method's loss."""
    meta = torch.device("meta")  # tensors with a shape but no values
    obs, skills = env.reset()[0].shape, (factory.make_space(config).dim,)
    shapes = obs, (env.action_dim,), obs, obs, skills, (), ()
    try:
        method = factory.make_method(config, env.obs_spec, meta)
        if not any(p.requires_grad for p in method.parameters()):
            return 0
        batch = Batch(*(torch.zeros(rows, *shape, device=meta) for shape in shapes))
        with FlopCounterMode(display=False) as counter:
            loss, _ = method.loss(batch, method.embed(batch))
            loss.backward()
        return counter.get_total_flops()
    except Exception:  # a method that needs values: every weight is used once per row
        method = factory.make_method(config, env.obs_spec, torch.device("cpu"))
        return 6 * rows * sum(p.numel() for p in method.parameters() if p.requires_grad)
