"""Does a method's representation hold on skills and transitions it was not trained on?

retrieval   share of skills whose best-scoring transition is one of their own
AUC         how often a skill scores its own transition above one of another skill; chance 0.5
nats        what the scores say about the skill, as InfoNCE bounds it: log B - cross-entropy;
            0 for scores that know nothing, below for those that are sure and wrong
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from comsd.agents.base import OffPolicyAgent, Policy, make_policy_fn
from comsd.envs.base import Env, action_rng
from comsd.evaluation.metrics import Measured, mean_with_interval
from comsd.methods.base import Method
from comsd.methods.statistics import chance, retrieval
from comsd.skills import SkillSpace
from comsd.training.rollout import StopFn, Transition, never, rollout
from comsd.types import Batch

EPISODES = 10
MEANINGS = {
    "held_out_retrieval": "share of skills the representation finds in fresh roll-outs",
    "held_out_chance": "the same by guessing",
    "held_out_auc": "how often a fresh transition of its own scores higher; chance 0.5",
    "held_out_nats": "InfoNCE bound on I(skill; fresh transition) by its scores; at most log rows",
}


def held_out(
    env: Env,
    space: SkillSpace,
    policy: Policy,
    method: Method,
    *,
    hold: int,
    n_step: int,
    seed: int,
    agent: Any = None,
    stopped: StopFn = never,
) -> Measured:
    """Scores of fresh transitions; empty for methods without skill scores.

    One fresh episode per environment, with new skills and the exploration noise of training. Of the
    time that a skill is held, one n-step transition is scored. agent: whose encoder the method sees
    observations through, if there is one.
    """
    hold, rng = min(hold, env.horizon), action_rng(seed)
    skill = space.sample(env.num_envs, rng)
    obs, reward = torch.from_numpy(env.reset()), torch.zeros(env.num_envs)
    action = torch.zeros(env.num_envs, env.action_dim)
    blank = Batch(obs, action, obs, obs, skill, reward, reward)
    if skill_scores(method, blank, policy.device, agent) is None:  # known without the roll-outs
        return Measured({}, {})
    segment: list[Transition] = []
    batches: list[Batch] = []
    length, acting = env.horizon // hold * hold, [make_policy_fn(policy, skill, rng)]
    for step in rollout(env, lambda obs: acting[-1](obs), length, stopped=stopped):
        segment.append(step)
        if len(segment) == hold:
            batches.append(sample_transition(segment, skill, n_step, rng))
            segment.clear()
            skill = space.sample(env.num_envs, rng)
            acting.append(make_policy_fn(policy, skill, rng))
    if len(segment) >= n_step:  # all episodes ended while a skill was held
        batches.append(sample_transition(segment, skill, n_step, rng))
    if not sum(len(batch.skill) for batch in batches):
        return Measured({}, {})
    batch = Batch(*(torch.cat(column) for column in zip(*batches, strict=True)))
    scores = skill_scores(method, batch, policy.device, agent)
    assert scores is not None
    return score_metrics(scores.cpu(), batch.skill)


def score_metrics(scores: Tensor, skill: Tensor) -> Measured:
    """Of scores (B, B), row i of skill i; intervals are over rows."""
    counts = {
        "held_out_retrieval": retrieval(scores, skill).item(),
        "held_out_chance": chance(skill).item(),
    }
    measured = Measured(counts, {})
    area = own_above_others(scores, skill)
    if bool(area.isfinite().any()):  # more than one skill
        measured |= mean_with_interval("held_out_auc", area[area.isfinite()].numpy())
    rows = torch.arange(len(scores))
    nats = np.log(len(scores)) - F.cross_entropy(scores, rows, reduction="none").double().numpy()
    return measured | mean_with_interval("held_out_nats", nats)


def own_above_others(scores: Tensor, skill: Tensor) -> Tensor:
    """(B,): the share of other skills' transitions that score below the own one; a tie is half."""
    others = (skill[:, None] != skill).any(-1)
    own = scores.diagonal()[:, None]
    below = (scores < own).double() + 0.5 * (scores == own)
    return (below * others).sum(1) / others.sum(1)


def sample_transition(
    segment: list[Transition], skill: Tensor, n_step: int, rng: np.random.Generator
) -> Batch:
    """An n-step transition from a random time, of the environments in their first episode."""
    start = int(rng.integers(max(1, len(segment) - n_step + 1)))
    first, last = segment[start], segment[min(start + n_step, len(segment)) - 1]
    arrays = first.obs, first.action, last.next_obs, first.next_obs
    zeros, rows = torch.zeros(len(skill)), torch.from_numpy(last.alive)
    columns = *map(torch.from_numpy, arrays), skill, zeros, zeros
    return Batch(*(column[rows] for column in columns))


@torch.no_grad()
def skill_scores(
    method: Method, batch: Batch, device: torch.device, agent: Any = None
) -> Tensor | None:
    training = method.training
    batch = Batch(*(column.to(device) for column in batch))
    if isinstance(agent, OffPolicyAgent):
        batch = agent.encode(batch, method.reads).for_method
    method.eval()
    scores = method.skill_scores(batch)
    method.train(training)
    return scores
