"""The roll-out loop: whose steps count, when it ends, and what it leaves behind."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from comsd.training.rollout import Stopped, random_policy_fn, rollout
from comsd.types import PolicyFn
from counter import Counter


def constant(*actions: float) -> PolicyFn:
    return lambda _: np.array(actions, np.float32)[:, None]


def test_a_roll_out_lasts_until_no_first_episode_is_left() -> None:
    """Episodes of 2, 4 and 5 steps: two terminate at 2, the last is truncated."""
    steps = list(rollout(Counter(3, goal=2), constant(1, 0.5, 0)))
    assert len(steps) == 5
    alive = np.stack([step.alive for step in steps])
    assert alive.sum(0).tolist() == [2, 4, 5]
    assert [step.ended.tolist() for step in steps][1] == [True, False, False]
    rewards = np.stack([step.reward for step in steps])
    assert np.where(alive, rewards, 0).sum(0).tolist() == [1 + 2, 0.5 + 1 + 1.5 + 2, 0]


def test_what_ended_is_reset_and_the_true_next_observation_is_kept() -> None:
    steps = list(rollout(Counter(2, goal=2), constant(1, 0)))
    first = [(step.obs[0, 0], step.next_obs[0, 0]) for step in steps]
    assert first == [(0, 1), (1, 2), (0, 1), (1, 2), (0, 1)]
    assert not any(step.alive[0] for step in steps[2:])


def test_length_is_a_bound() -> None:
    assert len(list(rollout(Counter(2), constant(0, 0), 3))) == 3
    assert len(list(rollout(Counter(2), constant(0, 0), 30))) == 5


def test_a_signal_stops_it_and_the_threads_come_back() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    calls, within = iter(range(10)), []
    steps = rollout(Counter(), constant(0), stopped=lambda: next(calls) == 3)
    with pytest.raises(Stopped):
        within += [torch.get_num_threads() for _ in steps]
    within += [torch.get_num_threads() for _ in rollout(Counter(), constant(0))]
    after = torch.get_num_threads()
    torch.set_num_threads(threads)
    assert (within, after) == ([1] * 5, 2)


def test_random_actions_fill_the_cube(rng: np.random.Generator) -> None:
    policy_fn = random_policy_fn(3, 2, rng)
    actions = np.stack([policy_fn(np.zeros((2, 1), np.float32)) for _ in range(200)])
    assert actions.shape == (200, 2, 3)
    assert actions.dtype == np.float32
    assert actions.min() < -0.95
    assert actions.max() > 0.95
