"""The contrast between transitions and skills, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from comsd.methods.cic import CICConfig
from comsd.methods.contrastive import ContrastiveEncoder, ContrastiveFeatures, info_nce
from comsd.skills import Box, OneHot, SkillSpace
from conftest import OBS, make_batch


def plain_nce(query: Tensor, key: Tensor, skill: Tensor, temperature: float) -> Tensor:
    """Eq. 7 written out: for each key, one softmax over itself and the keys of other skills."""
    cosine = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).T
    losses = []
    for i, own in enumerate(skill):
        row = cosine[own] / temperature
        others = row[skill != own]
        losses.append(torch.cat([row[i : i + 1], others]).logsumexp(0) - row[i])
    return torch.stack(losses).mean()


def test_nce_of_two_orthogonal_pairs() -> None:  # Eq. 7
    """T = 0.5: the positive has log q = 2, the only negative 0: log(e^2 + 1) - 2 = 0.1269."""
    wanted = pytest.approx(math.log(math.e**2 + 1) - 2)
    assert info_nce(torch.eye(2), torch.eye(2), 0.5).item() == wanted
    assert info_nce(torch.eye(2), torch.eye(2), 0.5, torch.eye(2)).item() == wanted


def test_nce_does_not_contrast_rows_of_one_skill() -> None:
    """Skill 0 twice, skill 1 once: the two rows of skill 0 each have one negative, not two."""
    key = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assignment = torch.eye(2)[[0, 0, 1]]
    one, two = math.log(math.e**2 + 1) - 2, math.log(math.e**2 + 2) - 2
    loss = info_nce(torch.eye(2), key, 0.5, assignment)
    assert loss.item() == pytest.approx((one + one + two) / 3)


@pytest.mark.parametrize("unique", [True, False])
def test_nce_and_its_gradient_equal_the_equation_row_by_row(unique: bool) -> None:
    torch.manual_seed(0)
    queries, rows = (6, 6) if unique else (3, 12)
    skill = torch.arange(6) if unique else torch.randint(0, 3, (12,))
    query = torch.randn(queries, 4, dtype=torch.double, requires_grad=True)
    key = torch.randn(rows, 4, dtype=torch.double, requires_grad=True)
    assignment = torch.eye(queries, dtype=torch.double)[skill]
    ours = info_nce(F.normalize(query, dim=-1), F.normalize(key, dim=-1), 0.3, assignment)
    wanted = plain_nce(query, key, skill, 0.3)
    torch.testing.assert_close(ours, wanted)
    gradients = torch.autograd.grad(ours, [query, key])
    torch.testing.assert_close(gradients, torch.autograd.grad(wanted, [query, key]))


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
    loss = info_nce(query, F.normalize(key, dim=-1), 0.5, None, left_out)
    torch.testing.assert_close(loss, wanted)
    ours = torch.autograd.grad(loss, [query, key])
    torch.testing.assert_close(ours, torch.autograd.grad(wanted, [query, key]))


@pytest.mark.parametrize("assignment", [None, torch.eye(3)])
def test_nce_is_finite_at_the_smallest_temperature(assignment: Tensor | None) -> None:
    loss = info_nce(torch.eye(3), -torch.eye(3), 0.03, assignment)
    assert loss.item() == pytest.approx(1 / 0.03 + math.log(2))


def test_nce_with_discrete_skills_needs_no_table_of_pairs() -> None:
    """The largest tensor for 10 skills and 20 000 rows stays far below rows x rows."""
    from torch.profiler import ProfilerActivity, profile

    rows = 20_000
    key = F.normalize(torch.randn(rows, 10), dim=-1).requires_grad_()
    assignment = torch.eye(10)[torch.randint(0, 10, (rows,))]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        info_nce(torch.eye(10), key, 0.5, assignment).backward()
    largest = max(event.self_cpu_memory_usage for event in record.events() or [])
    assert 0 < largest <= 2 * 4 * 10 * rows


# --- the encoder ----------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [OneHot(4), Box(4)])
def test_the_encoder_is_its_three_networks(space: SkillSpace) -> None:
    torch.manual_seed(0)
    encoder = ContrastiveEncoder(OBS, space, CICConfig(hidden=8))
    batch = make_batch(space, 6)
    f = encoder(batch)
    mean, std = torch.from_numpy(OBS.mean), torch.from_numpy(OBS.std)
    before, after = (encoder.state((x - mean) / std) for x in (batch.obs, batch.next_obs))
    torch.testing.assert_close((f.state, f.next_state), (before, after))
    torch.testing.assert_close(f.key, encoder.pair(torch.cat([before, after], -1)))
    torch.testing.assert_close(f.own_query, F.normalize(encoder.f2(batch.skill), dim=-1))
    assert f.query.shape == ((4, 4) if isinstance(space, OneHot) else (6, 4))


def test_log_q_is_the_cosine_over_temperature() -> None:  # Eq. 6
    encoder = ContrastiveEncoder(OBS, OneHot(2), CICConfig(hidden=8, temperature=0.5))
    key = torch.tensor([[3.0, 0.0], [0.0, 5.0], [-1.0, 0.0]])
    query, assignment = torch.tensor([[1.0, 0.0]]), torch.ones(3, 1)
    f = ContrastiveFeatures(key, key, key, query, assignment)
    assert encoder.log_q(f).tolist() == [2, 0, -2]
    assert encoder.skill_scores(f).tolist() == [[2, 0, -2]] * 3


def test_the_loss_takes_keys_of_any_length() -> None:
    encoder = ContrastiveEncoder(OBS, OneHot(2), CICConfig(hidden=8, temperature=0.5))
    key = torch.tensor([[5.0, 0.0], [0.0, 0.1]])
    f = ContrastiveFeatures(key, key, key, torch.eye(2), torch.eye(2))
    assert encoder.loss(f).item() == pytest.approx(math.log(math.e**2 + 1) - 2)
    zero = f._replace(key=torch.zeros(2, 2))  # no direction: as far from one skill as another
    assert encoder.loss(zero).item() == pytest.approx(math.log(2))


def test_tau_of_adjacent_states_does_not_depend_on_the_window() -> None:
    """The paper's tau is (s_t, s_t+1) whatever n-step return the critic has."""
    space = Box(4)
    batch = make_batch(space, 8)
    batch = batch._replace(next_obs=batch.obs + 3 * (batch.next_obs - batch.obs))
    torch.manual_seed(0)
    window = ContrastiveEncoder(OBS, space, CICConfig(hidden=8))
    adjacent = ContrastiveEncoder(OBS, space, CICConfig(hidden=8, tau="adjacent"))
    adjacent.load_state_dict(window.state_dict())
    assert not torch.equal(window(batch).key, adjacent(batch).key)
    one_step = batch._replace(next_obs=batch.one_step_obs)
    assert torch.equal(window(one_step).key, adjacent(batch).key)


def test_neighbouring_states_by_hand() -> None:
    """Three orthogonal pairs at T = 0.5: the positive has log q = 2, both negatives have 0."""
    encoder = ContrastiveEncoder(OBS, Box(3), CICConfig(hidden=4, neighbour_weight=0.5))
    eye = torch.eye(3)
    features = ContrastiveFeatures(3 * eye, eye, eye, eye, None)  # lengths do not matter
    expected = math.log(math.exp(2) + 2) - 2
    assert encoder.neighbour_loss(features).item() == pytest.approx(expected)
    moved = features._replace(next_state=eye[[1, 2, 0]])  # each s' looks like another's s
    assert encoder.neighbour_loss(moved).item() == pytest.approx(expected + 2)
    total, terms = encoder.losses(features, "comsd")
    assert total.item() == pytest.approx(1.5 * expected)
    assert set(terms) == {"comsd/nce", "comsd/nce_neighbours"}
