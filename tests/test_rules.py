"""Who chooses the skill, and the environment whose action is one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from comsd.methods import METHODS
from comsd.replay import Layout, Replay
from comsd.rules import BestOf, Prior, Regress, Resample, Rule
from comsd.skills import Box, NoSkill, OneHot, Sphere
from comsd.types import Batch


def unseen() -> Batch:
    raise AssertionError("no look at the experience is needed")


def seen(skill: Tensor, reward: list[float]) -> Batch:
    rows = len(reward)
    empty = torch.zeros(rows, 1)
    rewards = torch.tensor(reward, dtype=torch.float32)
    return Batch(empty, empty, empty, empty, skill, rewards, torch.ones(rows))


def test_the_prior_draws_anew_and_a_settled_rule_never(rng: np.random.Generator) -> None:
    prior, skill = Prior(Box(3)), torch.tensor([0.1, 0.2, 0.3])
    assert not torch.equal(prior.choose(2, 0, rng, unseen), prior.choose(2, 50, rng, unseen))
    assert prior.skill is None
    for steps in (0, 4000):
        assert torch.equal(Rule(skill).choose(2, steps, rng, unseen), torch.stack([skill] * 2))


def test_resample_goes_on_drawing_and_shows_what_acts(rng: np.random.Generator) -> None:
    rule = Resample(OneHot(4), torch.eye(4)[2])
    assert rule.skill is not None
    assert torch.equal(rule.skill, torch.eye(4)[2])  # for a look before the first step
    drawn = torch.stack([rule.choose(2, 0, rng, unseen) for _ in range(20)])
    assert len(drawn[:, 0].unique(dim=0)) == 4
    again = Resample(OneHot(4), torch.eye(4)[0])
    again.load_state_dict(rule.state_dict())
    assert again.skill is not None
    assert torch.equal(again.skill, drawn[-1, 0])


def test_best_of_k_tries_each_once_and_keeps_the_best(rng: np.random.Generator) -> None:
    candidates = torch.eye(3)
    rule = BestOf(candidates)
    assert rule.acts
    tried = torch.cat([rule.choose(1, 0, rng, unseen) for _ in range(3)])
    assert torch.equal(tried, candidates)
    # Means 1, 2 and 1.5: the second, though the third has the best single step.
    rows = candidates[[0, 0, 1, 1, 2, 2]]
    chosen = rule.choose(2, 0, rng, lambda: seen(rows, [1, 1, 2, 2, 0, 3]))
    assert torch.equal(chosen, candidates[[1, 1]])
    again = BestOf(candidates)
    again.load_state_dict(rule.state_dict())
    assert torch.equal(again.choose(1, 0, rng, unseen), candidates[[1]])


def test_regress_waits_until_enough_was_seen(rng: np.random.Generator) -> None:
    rule = Regress(Sphere(2), 100, lambda batch: batch.reward[:2])
    assert not torch.equal(rule.choose(1, 50, rng, unseen), rule.choose(1, 99, rng, unseen))
    wanted = rule.choose(1, 100, rng, lambda: seen(torch.zeros(3, 2), [0.6, 0.8, 0.0]))
    assert wanted.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]
    assert torch.equal(rule.choose(1, 150, rng, unseen), wanted)


def test_the_usual_skills() -> None:
    assert METHODS["comsd"].usual_skill(Box(4)).tolist() == [0, 0.5, 0.5, 0.5]  # pyright: ignore[reportOptionalMemberAccess]
    assert METHODS["cic"].usual_skill(Box(3)).tolist() == [0.5] * 3  # pyright: ignore[reportOptionalMemberAccess]
    assert METHODS["diayn"].usual_skill(OneHot(3)) is None
    assert METHODS["comsd"].candidates(Box(2), 3).tolist() == [[0, 0.5], [0.5, 0.5], [1, 0.5]]


def test_single_steps_of_a_replay_do_not_cross_episodes() -> None:
    replay = Replay(Layout(100, 1, 1, 1, 1, horizon=3, hold=3), torch.device("cpu"))
    for episode in range(2):
        replay.begin(np.full((1, 1), 10.0 * episode, np.float32))
        replay.hold(torch.full((1, 1), float(episode)))
        for t in range(1, 4):
            reached = np.full((1, 1), 10.0 * episode + t, np.float32)
            replay.add(np.zeros((1, 1), np.float32), np.full(1, 0.1 * t), reached, t == 3)
    batch = replay.transitions()
    assert batch.obs.flatten().tolist() == [0, 1, 2, 10, 11, 12]
    assert batch.next_obs.flatten().tolist() == [1, 2, 3, 11, 12, 13]
    assert batch.skill.flatten().tolist() == [0, 0, 0, 1, 1, 1]
    assert batch.reward.tolist() == pytest.approx([0.1, 0.2, 0.3] * 2)


def test_an_agent_without_skills_has_the_empty_one(rng: np.random.Generator) -> None:
    assert NoSkill(0).sample(3, rng).shape == (3, 0)
    assert NoSkill(0).centre().shape == (0,)
