"""Figures that several methods log."""

from __future__ import annotations

import pytest
import torch

from comsd.methods.statistics import by_tercile, chance, retrieval
from comsd.skills import Box, OneHot, SkillSpace, Sphere


def test_retrieval_counts_rows_whose_best_transition_has_their_skill() -> None:
    """The best of the first is another row of its skill; of the third, a row of another."""
    skill = torch.eye(2)[[0, 0, 1]]
    scores = torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 1, 0]])
    assert retrieval(scores, skill).item() == pytest.approx(2 / 3)


def test_chance_of_finding_the_own_skill() -> None:
    """Two rows of one skill, one of another: 4/9 + 1/9; all different: 1/B."""
    assert chance(torch.eye(3)[[0, 2, 0]]).item() == pytest.approx(5 / 9)
    assert chance(torch.rand(8, 2)).item() == pytest.approx(1 / 8)


def test_means_by_tercile_of_the_flag() -> None:
    """A third that has skills, but no rows, shows the mean of all."""
    skill, term = torch.tensor([[0.0], [0.3], [1.0]]), torch.tensor([1.0, 3.0, 8.0])
    means = by_tercile("x", Box(1), skill, {"r": term})
    assert {name: value.item() for name, value in means.items()} == {
        "x/r_low": 2,
        "x/r_mid": 4,
        "x/r_high": 8,
    }


def test_two_skills_have_no_middle_tercile() -> None:
    """Skills 0 and 1, rewards 0 and 10: no 5, not even in a batch of one skill."""
    space = OneHot(2)
    skill, term = torch.eye(2)[[0, 1, 1]], torch.tensor([0.0, 10.0, 10.0])
    means = by_tercile("x", space, skill, {"r": term})
    assert {name: value.item() for name, value in means.items()} == {"x/r_low": 0, "x/r_high": 10}
    assert by_tercile("x", space, skill[:1], {"r": term[:1]}).keys() == means.keys()


@pytest.mark.parametrize("space", [OneHot(3), OneHot(1000), Box(2), Sphere(64)], ids=repr)
def test_other_spaces_have_skills_in_every_tercile(space: SkillSpace) -> None:
    skill = space.flags(1)
    assert len(by_tercile("x", space, skill, {"r": torch.zeros(1)})) == 3
