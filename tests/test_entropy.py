"""Nearest neighbours and the entropy estimate, against brute force and hand-worked numbers."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from comsd.errors import InputError
from comsd.methods.entropy import ParticleEntropy, knn_distances, knn_within


def test_knn_within_groups_on_a_line() -> None:
    """Points 0, 7, 1, 3 and 5; the group of two has no third."""
    points, group = torch.tensor([[0.0], [7], [1], [3], [5]]), torch.tensor([1, 0, 1, 1, 0])
    wanted = [[0, 1, 3], [0, 2, math.inf], [0, 1, 2], [0, 2, 3], [0, 2, math.inf]]
    found = knn_within(points, group, 3).sort(1).values
    torch.testing.assert_close(found, torch.tensor(wanted))


@pytest.mark.parametrize("scale", ["variance", "mean", "std"])
def test_entropy_within_groups_leaves_out_missing_neighbours(
    scale: Literal["variance", "mean", "std"],
) -> None:
    """k = 3 on the points above; a row alone with itself has no neighbour and no entropy."""
    entropy = ParticleEntropy(3, "log1p", scale, clip=0)
    points, group = torch.tensor([[0.0], [7], [1], [3], [5], [9]]), torch.tensor([1, 0, 1, 1, 0, 2])
    rows = [[0, 1, 3], [0, 2], [0, 1, 2], [0, 2, 3], [0, 2], [0]]
    by = {"variance": np.var, "mean": np.mean, "std": np.std}[scale](np.concatenate(rows))
    wanted = [math.log1p(np.mean(row) / by) for row in rows]
    assert entropy(points, group=group).tolist() == pytest.approx(wanted, rel=1e-5)
    assert entropy.moments.count.item() == sum(map(len, rows))


@pytest.mark.parametrize(("dims", "rows"), [(2, 2100), (2, 50), (30, 50)])  # by tree, by product
@pytest.mark.parametrize("ordered", [True, False])
def test_knn_equals_brute_force(
    dims: int, rows: int, ordered: bool, rng: np.random.Generator
) -> None:
    source = torch.from_numpy(rng.normal(size=(40, dims)).astype(np.float32))
    target = torch.from_numpy(rng.normal(size=(rows, dims)).astype(np.float32))
    target[3] = target[4] = source[5]  # coincident points
    wanted = (source[:, None] - target).norm(dim=-1).sort(1).values[:, :6]
    found = knn_distances(source, target, 6, ordered=ordered)
    found = found if ordered else found.sort(1).values
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)


def bunched(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Ten bunches, a thousandth as wide as they are far from each other, and whose row is where."""
    group = rng.integers(0, 10, 300)
    points = rng.normal(size=(10, 10))[group] + 1e-3 * rng.normal(size=(300, 10))
    return torch.from_numpy(points.astype(np.float32)), torch.from_numpy(group)


def test_knn_is_exact_where_neighbours_are_near(rng: np.random.Generator) -> None:
    """In single precision the difference of squares is off by several per cent here."""
    points, _ = bunched(rng)
    exact = points.double()
    wanted = (exact[:, None] - exact).norm(dim=-1).sort(1).values[:, :6]
    found = knn_distances(points, points, 6)
    torch.testing.assert_close(found.double(), wanted, atol=0, rtol=1e-4)


def test_knn_within_groups_equals_brute_force(rng: np.random.Generator) -> None:
    """Also with groups that have no row."""
    points, group = bunched(rng)
    group = 2 * group + torch.from_numpy(rng.integers(0, 2, 300)) * 7
    exact = points.double()
    table = (exact[:, None] - exact).norm(dim=-1)
    wanted = table.masked_fill(group[:, None] != group, torch.inf).sort(1).values[:, :20]
    found = knn_within(points, group, 20)
    torch.testing.assert_close(found.double().sort(1).values, wanted, atol=1e-9, rtol=1e-4)


def test_knn_memory_does_not_grow_with_dimensions() -> None:
    """No (N, N, d) table: the largest single allocation stays near (N, N)."""
    from torch.profiler import ProfilerActivity, profile

    rows, dims = 1024, 64
    points = torch.randn(rows, dims)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        knn_distances(points, points, 16)
    largest = max(event.self_cpu_memory_usage for event in record.events() or [])
    assert 0 < largest <= 2 * 4 * rows * rows


def test_too_few_points_for_k_are_refused() -> None:
    with pytest.raises(InputError, match="k is too large"):
        ParticleEntropy(16, "log")(torch.randn(10, 2))


def test_log_entropy_on_a_line() -> None:  # Eq. 10
    """Points 0, 1, 3 with k = 2: distances (1, 3), (1, 2), (2, 3), self not counted."""
    reward = ParticleEntropy(2, "log")(torch.tensor([[0.0], [1.0], [3.0]]))
    pairs = [(1, 3), (1, 2), (2, 3)]
    wanted = [(math.log(a + 1e-3) + math.log(b + 1e-3)) / 2 for a, b in pairs]
    assert reward.tolist() == pytest.approx(wanted)


def test_log1p_entropy_on_a_line() -> None:
    """k = 2 counts the point itself: distances (0, 1), (0, 1), (0, 2); variance 5/9."""
    entropy = ParticleEntropy(2, "log1p", "variance")
    reward = entropy(torch.tensor([[0.0], [1.0], [3.0]]))
    variance = np.var([0, 1, 0, 1, 0, 2])
    assert variance == pytest.approx(5 / 9)
    wanted = [math.log1p((d / variance - 5e-4) / 2) for d in (1, 1, 2)]
    assert reward.tolist() == pytest.approx(wanted)


def test_entropy_against_other_points() -> None:
    source, target = torch.tensor([[0.0]]), torch.tensor([[1.0], [-2.0]])
    wanted = (math.log(1.001) + math.log(2.001)) / 2
    assert ParticleEntropy(2, "log")(source, target).item() == pytest.approx(wanted)


@pytest.mark.parametrize("scale", ["variance", "mean", "std"])
def test_points_that_coincide_have_no_entropy(scale: Literal["variance", "mean", "std"]) -> None:
    entropy = ParticleEntropy(3, "log1p", scale)
    assert entropy(torch.zeros(8, 2)).tolist() == [0] * 8


def test_the_scale_is_updated_in_training_only() -> None:
    entropy = ParticleEntropy(3, "log1p").eval()
    entropy(torch.randn(8, 2))
    assert entropy.moments.count.item() == 0
    entropy.train()(torch.randn(8, 2))
    assert entropy.moments.count.item() == 24


def test_the_floor_of_logarithms_can_be_all_but_nothing() -> None:
    points = torch.tensor([[0.0], [1.0], [3.0], [3.0]])
    printed = ParticleEntropy(2, "log", floor=1e-30)(points)
    assert torch.allclose(printed[:2], torch.tensor([[1.0, 3.0], [1.0, 2.0]]).log().mean(1))
    assert torch.isfinite(printed).all()  # two equal points: log 0 as printed
