"""Generalisation of a representation to skills and transitions it was not trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from comsd.agents.base import Policy, make_policy_fn
from comsd.envs.base import Env
from comsd.methods.base import Method
from comsd.methods.statistics import chance, retrieval
from comsd.skills import SkillSpace
from comsd.training.rollout import StopFn, Transition, never, rollout
from comsd.types import Batch

HELD_OUT_MEANINGS = {
    "held_out_retrieval": "share of skills the representation finds in fresh roll-outs",
    "held_out_chance": "the same by guessing",
}


def held_out_retrieval(
    env: Env,
    policy: Policy,
    method: Method,
    space: SkillSpace,
    *,
    hold: int,
    n_step: int,
    seed: int,
    stopped: StopFn = never,
) -> dict[str, float]:
    """One fresh episode per environment, with new skills and the exploration noise of training.

    Every skill is held for `hold` steps, of which one n-step transition is scored. Empty for
    methods without skill scores.
    """
    if skill_scores(method, blank_batch(env, space)) is None:  # known without the roll-outs
        return {}
    rng = np.random.default_rng(seed)
    skill = space.sample(env.num_envs, rng)
    policy_fn = make_policy_fn(policy, skill, rng)
    segment: list[Transition] = []
    batches: list[Batch] = []
    segments = env.horizon // hold
    steps = rollout(env, lambda obs: policy_fn(obs), segments * hold, stopped=stopped)
    for step in steps:
        segment.append(step)
        if len(segment) == hold:
            batches.append(sample_transition(segment, skill, n_step, rng))
            segment.clear()
            skill = space.sample(env.num_envs, rng)
            policy_fn = make_policy_fn(policy, skill, rng)
    if not batches:  # all episodes terminated early
        return {}
    batch = Batch(*(torch.cat(column) for column in zip(*batches, strict=True)))
    scores = skill_scores(method, batch)
    assert scores is not None
    return {
        "held_out_retrieval": retrieval(scores.cpu(), batch.skill).item(),
        "held_out_chance": chance(batch.skill).item(),
    }


def sample_transition(
    segment: Sequence[Transition], skill: Tensor, n_step: int, rng: np.random.Generator
) -> Batch:
    """An n-step transition from a random time, of the environments in their first episode."""
    start = int(rng.integers(max(1, len(segment) - n_step + 1)))
    first, last = segment[start], segment[min(start + n_step, len(segment)) - 1]
    arrays = first.obs, first.action, last.next_obs, first.next_obs
    zeros, rows = torch.zeros(len(skill)), torch.from_numpy(last.alive)
    columns = *map(torch.from_numpy, arrays), skill, zeros, zeros
    return Batch(*(column[rows] for column in columns))


def blank_batch(env: Env, space: SkillSpace) -> Batch:
    obs, action = torch.zeros(env.num_envs, *env.obs_spec.shape), env.action_dim
    skill, zeros = space.grid(1).expand(env.num_envs, -1), torch.zeros(env.num_envs)
    return Batch(obs, torch.zeros(env.num_envs, action), obs, obs, skill, zeros, zeros)


@torch.no_grad()
def skill_scores(method: Method, batch: Batch) -> Tensor | None:
    training = method.training
    device = next(iter(method.state_dict().values()), batch.obs).device
    method.eval()
    scores = method.skill_scores(Batch(*(column.to(device) for column in batch)))
    method.train(training)
    return scores
