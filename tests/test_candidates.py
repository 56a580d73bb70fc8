"""Candidate skills: farthest points by hand, and skills of a pool whose roll-outs differ."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from comsd.errors import InputError
from comsd.skills import Box, OneHot
from comsd.training.candidates import draw_pool, farthest_points


def test_farthest_points_on_a_line() -> None:
    """The centre of 0, 1, 2, 10 is 3.25, so 2 is first; 10 is farthest from it, then 0."""
    points = np.array([[0.0], [1.0], [2.0], [10.0]])
    assert farthest_points(points, 1) == [2]
    assert farthest_points(points, 3) == [2, 3, 0]
    assert sorted(farthest_points(points, 4)) == [0, 1, 2, 3]


def test_a_pool_holds_each_skill_once() -> None:
    rng = np.random.default_rng(0)
    assert draw_pool(Box(3), 4, rng).shape == (128, 3)
    pool = draw_pool(OneHot(16), 16, rng)
    assert torch.equal(pool.sum(0), torch.ones(16))
    with pytest.raises(InputError, match="it must be at most 16"):
        draw_pool(OneHot(16), 17, rng)
