"""The shared estimators against numbers worked out by hand and against plain formulas."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from comsd import terms
from comsd.errors import InputError
from comsd.terms import (
    ParticleEntropy,
    RunningMoments,
    dynamic_weight,
    info_nce,
    knn_distances,
    knn_within,
    log_q,
)


def plain_nce(query: Tensor, key: Tensor, owner: Tensor, temperature: float) -> Tensor:
    """Eq. 7 written out: for each key, one softmax over itself and the keys of other skills."""
    cosine = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).T
    losses = []
    for i, skill in enumerate(owner):
        row = cosine[skill] / temperature
        others = row[owner != skill]
        losses.append(torch.cat([row[i : i + 1], others]).logsumexp(0) - row[i])
    return torch.stack(losses).mean()


def test_log_q_is_the_cosine_over_temperature() -> None:  # Eq. 6
    query, key = torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 0.0], [0.0, 5.0], [-1.0, 0.0]])
    owner = torch.ones(3, 1)
    assert log_q(query, key, owner, 0.5).tolist() == [2, 0, -2]


def test_nce_of_two_orthogonal_pairs() -> None:  # Eq. 7
    """T = 0.5: the positive has log q = 2, the only negative 0: log(e^2 + 1) - 2 = 0.1269."""
    loss = info_nce(torch.eye(2), torch.eye(2), torch.eye(2), 0.5)
    assert loss.item() == pytest.approx(math.log(math.e**2 + 1) - 2)


def test_nce_does_not_contrast_rows_of_one_skill() -> None:
    """Skill 0 twice, skill 1 once: the two rows of skill 0 each have one negative, not two."""
    key = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    owner = torch.eye(2)[[0, 0, 1]]
    one, two = math.log(math.e**2 + 1) - 2, math.log(math.e**2 + 2) - 2
    assert info_nce(torch.eye(2), key, owner, 0.5).item() == pytest.approx((one + one + two) / 3)


@pytest.mark.parametrize("distinct", [True, False])
def test_nce_gradient_equals_autograd(distinct: bool) -> None:
    torch.manual_seed(0)
    queries, rows = (6, 6) if distinct else (3, 12)
    owner = torch.arange(6) if distinct else torch.randint(0, 3, (12,))
    query = torch.randn(queries, 4, dtype=torch.double, requires_grad=True)
    key = torch.randn(rows, 4, dtype=torch.double, requires_grad=True)
    member = torch.eye(queries, dtype=torch.double)[owner]
    ours, plain = (
        info_nce(F.normalize(query, dim=-1), key, member, 0.3),
        plain_nce(query, key, owner, 0.3),
    )
    torch.testing.assert_close(ours, plain)
    gradients = torch.autograd.grad(3 * ours, [query, key])
    torch.testing.assert_close(gradients, torch.autograd.grad(3 * plain, [query, key]))


def test_nce_survives_a_small_temperature() -> None:
    loss = info_nce(torch.eye(3), -torch.eye(3), torch.eye(3), 0.03)
    assert loss.item() == pytest.approx(1 / 0.03 + math.log(2))


def test_nce_with_discrete_skills_needs_no_table_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest tensor for 10 skills and 20 000 rows stays far below rows x rows."""
    rows = 20_000
    biggest = 0
    original = torch.Tensor.exp_

    def watched(self: Tensor) -> Tensor:
        nonlocal biggest
        biggest = max(biggest, self.numel())
        return original(self)

    monkeypatch.setattr(torch.Tensor, "exp_", watched)
    key, owner = torch.randn(rows, 10), torch.eye(10)[torch.randint(0, 10, (rows,))]
    assert torch.isfinite(info_nce(torch.eye(10), key, owner, 0.5))
    assert biggest == 10 * rows


def test_running_moments_equal_numpy(rng: np.random.Generator) -> None:
    moments = RunningMoments()
    parts = [rng.normal(5, 3, size) for size in (1, 7, 100, 3)]
    for part in parts:
        moments.update(torch.from_numpy(part))
    everything = np.concatenate(parts)
    assert moments.mean.item() == pytest.approx(everything.mean())
    assert moments.variance.item() == pytest.approx(everything.var())
    assert moments.count.item() == len(everything)


def test_running_moments_of_what_is_counted(rng: np.random.Generator) -> None:
    moments = RunningMoments()
    values, counted = torch.from_numpy(rng.normal(5, 3, (2, 40))), torch.rand(2, 40) < 0.7
    for part, at in zip(values, counted, strict=True):
        moments.update(part.masked_fill(~at, torch.inf), at)
    assert moments.mean.item() == pytest.approx(values[counted].mean().item())
    assert moments.variance.item() == pytest.approx(values[counted].var(correction=0).item())
    assert moments.count.item() == counted.sum().item()


def test_knn_within_groups_on_a_line() -> None:
    """Points 0, 7, 1, 3 and 5; the group of two has no third."""
    points, group = torch.tensor([[0.0], [7], [1], [3], [5]]), torch.tensor([1, 0, 1, 1, 0])
    wanted = [[0, 1, 3], [0, 2, math.inf], [0, 1, 2], [0, 2, 3], [0, 2, math.inf]]
    found = knn_within(points, group, 3).sort(1).values
    torch.testing.assert_close(found, torch.tensor(wanted))


@pytest.mark.parametrize("scale", ["variance", "mean", "std"])
def test_entropy_within_groups_leaves_out_who_is_missing(
    scale: Literal["variance", "mean", "std"],
) -> None:
    """k = 3 on the points above; a row alone with itself has no neighbour and no entropy."""
    entropy = ParticleEntropy(3, "log1p", scale, clip=0)
    points, group = torch.tensor([[0.0], [7], [1], [3], [5], [9]]), torch.tensor([1, 0, 1, 1, 0, 2])
    rows = [[0, 1, 3], [0, 2], [0, 1, 2], [0, 2, 3], [0, 2], [0]]
    by = {"variance": np.var, "mean": np.mean, "std": np.std}[scale](np.concatenate(rows))
    wanted = [math.log1p(np.mean(row) / by) for row in rows]
    assert entropy(points, group=group).tolist() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(("dims", "rows"), [(2, 2100), (2, 50), (30, 50)])  # by tree, by product
def test_knn_equals_brute_force(dims: int, rows: int, rng: np.random.Generator) -> None:
    source = torch.from_numpy(rng.normal(size=(40, dims)).astype(np.float32))
    target = torch.from_numpy(rng.normal(size=(rows, dims)).astype(np.float32))
    target[3] = target[4] = source[5]  # coincident points
    wanted = (source[:, None] - target).norm(dim=-1).sort(1).values[:, :6]
    torch.testing.assert_close(knn_distances(source, target, 6), wanted, atol=1e-6, rtol=1e-5)


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
    """Also with groups that have no row, and in the form for graphs of fixed shape."""
    points, group = bunched(rng)
    group = 2 * group + torch.from_numpy(rng.integers(0, 2, 300)) * 7
    exact = points.double()
    table = (exact[:, None] - exact).norm(dim=-1)
    wanted = table.masked_fill(group[:, None] != group, torch.inf).sort(1).values[:, :20]
    graph = torch.compile(knn_within, fullgraph=True, backend="eager")
    for found in (knn_within(points, group, 20), graph(points, group, 20)):
        torch.testing.assert_close(found.double().sort(1).values, wanted, atol=1e-9, rtol=1e-4)


def test_knn_memory_does_not_grow_with_dimensions() -> None:
    """No (N, N, d) table: the largest single allocation stays near (N, N)."""
    from torch.profiler import ProfilerActivity, profile

    rows, dims = 1024, 64
    points = torch.randn(rows, dims)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        knn_distances(points, points, 16)
    largest = max(event.self_cpu_memory_usage for event in record.events() or [])
    assert largest <= 2 * 4 * rows * rows


def test_too_few_points_for_k_is_said_clearly() -> None:
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


def test_dynamic_weight_is_eq_11() -> None:
    """w = (0, 2): with f = (0, 1) the weight is twice the flag; with f = (1/3, 2/3), 6 flag - 2
    between 0 and 2. The paper's clamp names its bounds in the other order, which would give 0."""
    flag = torch.tensor([0, 1 / 3, 0.5, 2 / 3, 1])
    wide = dynamic_weight(flag, (0, 2), (0, 1)).tolist()
    narrow = dynamic_weight(flag, (0, 2), (1 / 3, 2 / 3)).tolist()
    assert wide == pytest.approx([0, 2 / 3, 1, 4 / 3, 2])
    assert narrow == pytest.approx([0, 0, 1, 2, 2], abs=1e-6)


def test_unit_of_zero_is_zero() -> None:
    assert terms.unit(torch.zeros(1, 3)).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("left_out", [None, math.exp(2)])
@pytest.mark.parametrize("rows", [3, 40])
def test_nce_of_continuous_skills_and_its_gradient(rows: int, left_out: float | None) -> None:
    """A row per skill, over all transitions; with CIC's constant taken off, or not.

    With three rows the constant is larger than the sum: CIC's floor holds, without gradient.
    """
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, rows, 5, generator=generator, dtype=torch.double)
    query = (query / query.norm(dim=1, keepdim=True)).requires_grad_()
    key.requires_grad_()
    table = query @ (key / key.norm(dim=1, keepdim=True)).T / 0.5
    total = table.exp().sum(1)
    if left_out is not None:
        total = (total - left_out).clamp_min(1e-6) + 1e-6
    wanted = (total.log() - table.diagonal()).mean()
    loss = info_nce(query, key, None, 0.5, left_out)
    torch.testing.assert_close(loss, wanted)
    ours = torch.autograd.grad(loss, [query, key])
    torch.testing.assert_close(ours, torch.autograd.grad(wanted, [query, key]))


@pytest.mark.parametrize("scale", ["variance", "mean", "std"])
def test_points_that_coincide_have_no_entropy(scale: Literal["variance", "mean", "std"]) -> None:
    entropy = ParticleEntropy(3, "log1p", scale)
    assert entropy(torch.zeros(8, 2)).tolist() == [0] * 8
