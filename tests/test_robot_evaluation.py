"""AKD, MS-coverage and identification on point sets whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from comsd.evaluation.robots import (
    akd,
    identification,
    ms_coverage,
    skill_sweeps,
    sweep_metrics,
)
from comsd.methods.statistics import by_tercile, retrieval
from comsd.skills import Box, OneHot, Sphere


def test_akd_of_points_on_a_line() -> None:
    """0, 1, 3 with k = 2: distances 1 3, 1 2, 2 3; a robot at rest has none."""
    line = np.array([[[0.0], [1.0], [3.0]], [[5.0], [5.0], [5.0]]], np.float32)
    assert akd(line, k=2) == pytest.approx([12 / 6, 0])


def test_ms_coverage_of_mean_states() -> None:
    """Means 0, 1, 3, 7: the nearest other of each is 1, 1, 2, 4 away."""
    states = np.array([0.0, 1, 3, 7], np.float32)[:, None, None] + np.zeros((4, 10, 2), np.float32)
    states[:, ::2, 0] += 1  # a state that swings around the same mean
    states[:, 1::2, 0] -= 1
    assert ms_coverage(states[..., :1], k=1) == pytest.approx(2)
    pairwise = np.mean([1, 3, 7, 1, 2, 6, 3, 2, 4, 7, 6, 4])
    assert ms_coverage(states[..., :1], k=3) == pytest.approx(pairwise)
    metrics = sweep_metrics("constant", np.repeat(states, 2, 1))
    assert [name for name in metrics if "ms" in name] == [
        f"ms_coverage{k}_constant" for k in (3, 1)
    ]


def test_identification_is_one_for_separate_skills_and_chance_for_equal_ones() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(16, 6, 4))
    apart = noise + 100 * np.arange(16)[:, None, None]
    assert identification(apart) == 1
    assert identification(noise) < 0.2
    # Leaving one out: a skill of two far-apart roll-outs cannot vouch for itself.
    alone = np.array([[[0.0], [10.0]], [[0.1], [0.1]]])
    assert identification(alone) == 0.5


def test_sweeps_are_the_papers_the_flags_and_random_skills() -> None:
    box = skill_sweeps(Box(4))
    assert list(box) == ["constant", "flag", "random"]
    assert box["constant"][3].tolist() == pytest.approx([0.3] * 4)
    assert box["flag"][3].tolist() == pytest.approx([0.3, 0.5, 0.5, 0.5])
    assert torch.equal(box["random"], skill_sweeps(Box(4))["random"])
    assert list(skill_sweeps(OneHot(16))) == ["constant", "random"]
    for space in (OneHot(16), Sphere(3)):
        assert len(skill_sweeps(space)["constant"]) == 11


def test_retrieval_counts_any_transition_of_the_same_skill() -> None:
    skill = torch.tensor([[1.0, 0], [1.0, 0], [0.5, 0.5]])
    scores = torch.tensor([[0.0, 1, 0], [0, 0, 1], [0, 0, 1]])  # row 0 finds row 1: same skill
    assert retrieval(scores, skill).item() == pytest.approx(2 / 3)


def test_terciles_of_the_flag() -> None:
    flag = torch.tensor([0.0, 0.3, 0.5, 0.7, 1.0])
    parts = by_tercile("x", flag, {"r": torch.tensor([1.0, 3, 5, 7, 9])})
    assert {k: v.item() for k, v in parts.items()} == {"x/r_low": 2, "x/r_mid": 5, "x/r_high": 8}
