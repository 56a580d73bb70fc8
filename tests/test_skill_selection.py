"""Which skill acts: the prior, or a selection rule of fine-tuning."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from comsd.registry import METHODS
from comsd.skills import Box, OneHot, Sphere
from comsd.training.skill_selection import (
    BestOfK,
    ResampleSkill,
    RewardRegression,
    SampleSkill,
    SkillSelector,
)
from comsd.types import Batch


def not_asked() -> Batch:
    raise AssertionError("the experience so far plays no part here")


def experience(skill: Tensor, reward: list[float]) -> Batch:
    rows = len(reward)
    empty = torch.zeros(rows, 1)
    rewards = torch.tensor(reward, dtype=torch.float32)
    return Batch(empty, empty, empty, empty, skill, rewards, torch.ones(rows))


def test_the_prior_draws_anew_and_a_selected_skill_stays(rng: np.random.Generator) -> None:
    prior, skill = SampleSkill(Box(3)), torch.tensor([0.1, 0.2, 0.3])
    assert not torch.equal(prior.choose(2, 0, rng, not_asked), prior.choose(2, 50, rng, not_asked))
    assert prior.selected_skill is None
    for steps in (0, 4000):
        assert torch.equal(
            SkillSelector(skill).choose(2, steps, rng, not_asked), torch.stack([skill] * 2)
        )


def test_resample_goes_on_drawing_and_shows_what_acts(rng: np.random.Generator) -> None:
    selector = ResampleSkill(OneHot(4), torch.eye(4)[2])
    assert selector.selected_skill is not None
    assert torch.equal(selector.selected_skill, torch.eye(4)[2])  # for a look before the first step
    drawn = torch.stack([selector.choose(2, 0, rng, not_asked) for _ in range(20)])
    assert len(drawn[:, 0].unique(dim=0)) == 4
    again = ResampleSkill(OneHot(4), torch.eye(4)[0])
    again.load_state_dict(selector.state_dict())
    assert again.selected_skill is not None
    assert torch.equal(again.selected_skill, drawn[-1, 0])


def test_best_of_k_tries_each_once_and_keeps_the_best(rng: np.random.Generator) -> None:
    candidates = torch.eye(3)
    selector = BestOfK(candidates)
    assert selector.acts_at_once
    tried = torch.cat([selector.choose(1, 0, rng, not_asked) for _ in range(3)])
    assert torch.equal(tried, candidates)
    # Returns 2, 4 and 3: the second, though the third has the best single step.
    rows = candidates[[0, 0, 1, 1, 2, 2]]
    chosen = selector.choose(2, 0, rng, lambda: experience(rows, [1, 1, 2, 2, 0, 3]))
    assert torch.equal(chosen, candidates[[1, 1]])
    again = BestOfK(candidates)
    again.load_state_dict(selector.state_dict())
    assert torch.equal(again.choose(1, 0, rng, not_asked), candidates[[1]])


def test_best_of_k_prefers_the_higher_return_to_the_higher_reward_per_step(
    rng: np.random.Generator,
) -> None:
    """The first falls after one step."""
    selector = BestOfK(torch.eye(2))
    for _ in range(2):
        selector.choose(1, 0, rng, not_asked)
    past = experience(torch.eye(2)[[0, 1, 1, 1]], [1.5, 1, 1, 1])
    assert selector.choose(1, 0, rng, lambda: past).tolist() == [[0, 1]]


def test_best_of_k_with_several_environments(rng: np.random.Generator) -> None:
    """Three candidates for two environments, then one; a candidate without rows is passed over."""
    selector = BestOfK(torch.eye(3))
    assert selector.choose(2, 0, rng, not_asked).argmax(-1).tolist() == [0, 1]
    assert selector.choose(2, 0, rng, not_asked).argmax(-1).tolist() == [2, 0]
    past = experience(torch.eye(3)[[0, 2]], [-4, -1])  # the first was tried twice
    assert selector.choose(1, 0, rng, lambda: past).argmax(-1).tolist() == [2]
    assert selector.selected_skill is not None
    assert selector.selected_skill.tolist() == [0, 0, 1]


def test_reward_regression_waits_for_enough_steps(rng: np.random.Generator) -> None:
    selector = RewardRegression(Sphere(2), 100, lambda batch: batch.reward[:2])
    assert not torch.equal(
        selector.choose(1, 50, rng, not_asked), selector.choose(1, 99, rng, not_asked)
    )
    wanted = selector.choose(1, 100, rng, lambda: experience(torch.zeros(3, 2), [0.6, 0.8, 0.0]))
    assert wanted.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]
    assert torch.equal(selector.choose(1, 150, rng, not_asked), wanted)


def test_default_skills() -> None:
    assert METHODS["comsd"].default_skill(Box(4)).tolist() == [0, 0.5, 0.5, 0.5]  # pyright: ignore[reportOptionalMemberAccess]
    assert METHODS["cic"].default_skill(Box(3)).tolist() == [0.5] * 3  # pyright: ignore[reportOptionalMemberAccess]
    assert METHODS["diayn"].default_skill(OneHot(3)) is None
    assert METHODS["comsd"].candidates(Box(2), 3).tolist() == [[0, 0.5], [0.5, 0.5], [1, 0.5]]
