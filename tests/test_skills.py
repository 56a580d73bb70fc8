"""Skill spaces."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from comsd.skills import SPACES, Box, NoSkill, OneHot, SkillSpace, Sphere


@pytest.mark.parametrize("space", [OneHot(6), Box(4), Sphere(5)])
def test_samples_have_the_stated_moments(space: SkillSpace, rng: np.random.Generator) -> None:
    skill = space.sample(20_000, rng)
    assert skill.shape == (20_000, space.dim)
    assert skill.dtype == torch.float32
    lengths = skill.norm(dim=-1)
    assert torch.allclose(lengths, torch.ones_like(lengths)) != isinstance(space, Box)
    assert skill.mean(0).tolist() == pytest.approx([space.mean] * space.dim, abs=0.02)
    assert skill.std(0).tolist() == pytest.approx([space.std] * space.dim, abs=0.02)


@pytest.mark.parametrize("space", [OneHot(6), Box(4), Sphere(5)])
def test_flags_and_grids_stay_in_range(space: SkillSpace, rng: np.random.Generator) -> None:
    for skill in (
        space.sample(100, rng),
        space.grid(6),
        space.decode(2 * torch.rand(9, space.dim) - 1),
    ):
        flag = space.flag(skill)
        assert flag.shape == (len(skill),)
        assert bool(((flag >= -1e-6) & (flag <= 1 + 1e-6)).all())


@pytest.mark.parametrize("space", [OneHot(16), Box(4), Sphere(5)])
@pytest.mark.parametrize("n", [2, 4, 11])
def test_flags_run_along_the_whole_range(space: SkillSpace, n: int) -> None:
    skills = space.flags(n)
    assert skills.shape == (n, space.dim)
    assert space.flag(skills).tolist() == pytest.approx(np.linspace(0, 1, n), abs=0.51 / 15)
    if isinstance(space, Sphere):
        assert skills.norm(dim=-1).tolist() == pytest.approx([1] * n)


@pytest.mark.parametrize("kind", SPACES)
def test_unique_gives_every_skill_back(kind: str, rng: np.random.Generator) -> None:
    skill = SPACES[kind](4).sample(50, rng)
    skills, assignment = SPACES[kind](4).unique(skill)
    assert torch.equal(skills if assignment is None else assignment @ skills, skill)
    assert (assignment is None) == (kind != "one-hot")


def test_one_hot_balances_the_counts(rng: np.random.Generator) -> None:
    """50 episodes: 5 of each of 10 skills; 8 or 9 of each of 6, not always the same ones."""
    assert OneHot(10).sample_balanced(50, rng).sum(0).tolist() == [5] * 10
    counts = torch.stack([OneHot(6).sample_balanced(50, rng).sum(0) for _ in range(20)])
    assert set(counts.flatten().tolist()) == {8, 9}
    assert bool((counts.std(0) > 0).all())


def test_six_maze_skills_are_flagged_in_equal_steps() -> None:
    assert OneHot(6).flag(torch.eye(6)).tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])


def test_one_hot_listing_has_each_skill_once() -> None:
    skills, assignment = OneHot(3).unique(torch.eye(3)[[2, 2, 0]])
    assert skills.tolist() == torch.eye(3).tolist()
    assert assignment.argmax(-1).tolist() == [2, 2, 0]


def test_centred_one_hot() -> None:
    """(z - 1/4) * 4/3: one on the chosen coordinate, -1/3 elsewhere."""
    assert OneHot(4).direction(torch.eye(4)[0]).tolist() == pytest.approx(
        [1, -1 / 3, -1 / 3, -1 / 3]
    )


def test_decoding_of_a_controllers_action() -> None:
    assert OneHot(3).decode(torch.tensor([[0.1, 0.9, -1.0]])).tolist() == [[0, 1, 0]]
    assert Box(2).decode(torch.tensor([[-1.0, 0.5]])).tolist() == [[0, 0.75]]
    assert Sphere(2).decode(torch.tensor([[3.0, 4.0]]))[0].tolist() == pytest.approx([0.6, 0.8])


def test_alternatives_of_one_hot_skills_are_all_others_once() -> None:
    skill = torch.eye(4)[[1, 3]]
    others = OneHot(4).alternatives(skill, 100).argmax(-1)  # (3, 2)
    assert [sorted(column) for column in others.T.tolist()] == [[0, 2, 3], [0, 1, 2]]


@pytest.mark.parametrize("space", [Box(4), Sphere(5)])
def test_alternatives_of_continuous_skills_are_draws_from_the_prior(space: SkillSpace) -> None:
    torch.manual_seed(0)
    skill = torch.zeros(2, space.dim)
    others = space.alternatives(skill, 20_000)
    assert others.shape == (20_000, 2, space.dim)
    assert torch.equal(others[:, 0], others[:, 1])  # shared by the rows
    lengths = others.norm(dim=-1)
    assert torch.allclose(lengths, torch.ones_like(lengths)) != isinstance(space, Box)
    assert others[:, 0].mean(0).tolist() == pytest.approx([space.mean] * space.dim, abs=0.02)
    assert others[:, 0].std(0).tolist() == pytest.approx([space.std] * space.dim, abs=0.02)


def test_grids() -> None:
    assert OneHot(3).grid(11).tolist() == torch.eye(3).tolist()
    assert Box(2).grid(3).tolist() == [[0, 0], [0.5, 0.5], [1, 1]]
    assert Sphere(3).grid(4).norm(dim=-1).tolist() == pytest.approx([1] * 4)
    assert math.isclose(Sphere(3).grid(4)[1, 1].item(), 1)


def test_an_agent_without_skills_has_the_empty_one(rng: np.random.Generator) -> None:
    assert NoSkill(0).sample(3, rng).shape == (3, 0)
    assert NoSkill(0).centre().shape == (0,)
