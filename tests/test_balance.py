"""The automatic balance of exploration and diversity, by hand."""

from __future__ import annotations

import pytest
import torch

from comsd.methods.balance import FlagBalance, MovingMoments
from comsd.methods.comsd import ComSD
from comsd.skills import Box
from conftest import make_batch, make_method


def test_moving_moments_begin_with_the_plain_mean() -> None:
    """Batches (0, 2) and (4, 4): means 1 and 4, variances 1 and 0."""
    moments = MovingMoments()
    moments.update(torch.tensor([0.0, 2.0]))
    moments.update(torch.tensor([4.0, 4.0]))
    assert (float(moments.mean), float(moments.variance)) == (2.5, 0.5)
    assert moments.standardise(torch.tensor([2.5])).tolist() == [0]


def test_moving_moments_forget() -> None:
    """After 100 batches of 0, one of 1 moves the mean by a hundredth."""
    moments = MovingMoments()
    for _ in range(200):
        moments.update(torch.zeros(4))
    moments.update(torch.ones(4))
    assert float(moments.mean) == pytest.approx(0.01)


def test_the_reward_is_exploration_at_flag_0_and_diversity_at_flag_1() -> None:
    """r_exp (1, 3) and r_div (5, 1): standardised (-1, 1) and (1, -1)."""
    r_exp, r_div = torch.tensor([1.0, 3.0]), torch.tensor([5.0, 1.0])
    for flag, expected in ((0.0, [-1, 1]), (1.0, [1, -1]), (0.5, [0, 0]), (0.75, [0.5, -0.5])):
        reward = FlagBalance()(r_exp, r_div, torch.full((2,), flag))
        assert reward.tolist() == pytest.approx(expected)


def test_looking_changes_nothing() -> None:
    balance = FlagBalance()
    balance(torch.rand(8), torch.rand(8), torch.rand(8))
    before = {name: value.clone() for name, value in balance.state_dict().items()}
    balance.eval()(torch.rand(8), torch.rand(8), torch.rand(8))
    assert all(torch.equal(before[name], value) for name, value in balance.state_dict().items())


def test_comsd_is_rewarded_by_it_whatever_alpha_is() -> None:
    space = Box(4)
    batch = make_batch(space, 32)
    rewards = []
    for alpha in (0.1, 1.0):
        torch.manual_seed(0)
        method = make_method("comsd", space, balance="auto", alpha=alpha)
        assert isinstance(method, ComSD)
        rewards.append(method.intrinsic_reward(batch).reward)
    assert torch.equal(*rewards)
    assert float(rewards[0].std()) > 0.3
