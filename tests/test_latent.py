"""What METRA, LSD and CSD share: steps in a latent space, dual variable, units of the states."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from comsd.methods.latent import (
    DualVariable,
    WarmupNormalizer,
    cosines,
    directional_reward,
    latent_steps,
)
from comsd.nn import MLP
from comsd.skills import OneHot, Sphere
from conftest import make_batch


def test_latent_steps_are_differences_of_embeddings_over_one_and_n_steps() -> None:
    phi, batch = MLP(2, 8, 3), make_batch(Sphere(2), 5)
    s, one, n = torch.randn(3, 5, 2)
    steps = latent_steps(phi, batch._replace(obs=s, one_step_obs=one, next_obs=n))
    torch.testing.assert_close(steps.one_step, phi(one) - phi(s))
    torch.testing.assert_close(steps.n_step, (phi(n) - phi(s)).detach())
    assert steps.one_step.requires_grad
    assert not steps.n_step.requires_grad
    steps = latent_steps(phi, batch._replace(obs=s, one_step_obs=one, next_obs=one))
    assert steps.n_step is steps.one_step


def test_the_directional_reward_is_the_step_along_the_skill() -> None:
    step = torch.tensor([[2.0, 1.0, -1.0]])
    reward = directional_reward(step, torch.tensor([[0.0, 0.6, 0.8]]))
    assert reward.item() == pytest.approx(-0.2)
    first = OneHot(3).direction(torch.eye(3)[:1])  # 1, -1/2, -1/2
    assert directional_reward(step, first).item() == pytest.approx(2 - 0.5 + 0.5)
    opposite = cosines(torch.tensor([[0.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, -1.0]]))
    assert opposite[0].tolist() == pytest.approx([0.8, -1.0])


def test_the_directional_reward_telescopes() -> None:
    phi, path, z = MLP(2, 8, 3), torch.randn(10, 2), torch.randn(1, 3)
    steps = make_batch(Sphere(2), 9)._replace(
        obs=path[:-1], one_step_obs=path[1:], next_obs=path[1:]
    )
    ends = make_batch(Sphere(2), 1)._replace(
        obs=path[:1], one_step_obs=path[1:2], next_obs=path[-1:]
    )
    torch.testing.assert_close(
        directional_reward(latent_steps(phi, steps).one_step, z).sum(),
        directional_reward(latent_steps(phi, ends).n_step, z).sum(),
    )


def test_the_dual_term_has_one_gradient_for_the_gap_and_another_for_lam() -> None:
    dual, gap = DualVariable(start=3.0, slack=0.1), torch.tensor([0.5, -2.0], requires_grad=True)
    term = dual(gap)
    counted = (0.1 - 2.0) / 2
    assert term.item() == pytest.approx(math.log(3) * counted - 3 * counted)
    to_gap, to_log = torch.autograd.grad(term, [gap, dual.log])
    assert to_gap.tolist() == pytest.approx([0, -3 / 2])  # the slack row moves nothing
    assert to_log.item() == pytest.approx(counted)


def test_the_warmup_normalizer_takes_the_statistics_of_the_first_rows() -> None:
    torch.manual_seed(0)
    known = np.array([1.0, 2.0]), np.array([2.0, 4.0])
    x = torch.randn(90, 2) * torch.tensor([3.0, 0.5]) + 7
    fixed, learned = WarmupNormalizer(*known, 0), WarmupNormalizer(*known, 60)
    point, wanted = torch.tensor([[3.0, -2.0]]), [[1.0, -1.0]]
    assert fixed(point).tolist() == wanted
    assert learned(point).tolist() == wanted  # until there is something to see
    for part in x.split(30):
        fixed.observe(part)
        learned.observe(part)  # the third is one too many
    assert fixed(point).tolist() == wanted
    first = x[:60]
    torch.testing.assert_close(learned(x), (x - first.mean(0)) / first.std(0, correction=0))


def test_a_coordinate_that_never_changes_has_a_bounded_scale() -> None:
    normalizer = WarmupNormalizer(np.zeros(1), np.ones(1), 10)
    normalizer.observe(torch.full((10, 1), 5.0))
    assert normalizer(torch.tensor([[5.1]])).item() == pytest.approx(10, rel=1e-3)
