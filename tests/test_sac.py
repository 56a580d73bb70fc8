"""SAC: densities and losses against hand-worked numbers, and one update."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from comsd.agents.base import make_policy_fn
from comsd.agents.critics import CRITICS
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.agents.sac import LOG_STD, SAC, SACConfig, mean_and_log_std, squashed_log_prob
from comsd.nn import optimizer_step
from comsd.skills import Box, NoSkill
from comsd.types import Batch
from conftest import make_constant, plain_obs

OBS, SPACE, ROWS = plain_obs(4), Box(3), 16


@pytest.fixture
def agent() -> SAC:
    torch.manual_seed(0)
    return SAC(SACConfig(hidden=16), SPACE, OBS, 2)


def batch_of(rows: int = ROWS) -> Batch:
    g = torch.Generator().manual_seed(1)
    obs, next_obs = torch.randn(2, rows, 4, generator=g)
    skill, action = torch.rand(rows, 3, generator=g), torch.rand(rows, 2, generator=g) * 2 - 1
    return Batch(
        obs, action, next_obs, next_obs, skill, torch.zeros(rows), torch.full((rows,), 0.97)
    )


# --- the density of a squashed Gaussian -----------------------------------------------------------


def test_the_log_probability_by_hand() -> None:
    """mean 0.2, sigma 0.5, noise 0.6: u = 0.5, tanh u = 0.46211716, 1 - tanh^2 u = 0.78644773.

    log N(u) = -0.18 + 0.69314718 - 0.91893853 = -0.40579135; minus log 0.78644773 = +0.24022885.
    """
    log_std, noise = torch.tensor([[math.log(0.5)]]), torch.tensor([[0.6]])
    found = squashed_log_prob(torch.tensor([[0.5]]), log_std, noise)
    assert found.item() == pytest.approx(-0.40579135 + 0.24022885, abs=1e-6)


def test_the_log_probability_is_that_of_torch_and_sums_over_actions() -> None:
    g = torch.Generator().manual_seed(0)
    mean, log_std, noise = torch.randn(3, 7, 2, generator=g, dtype=torch.float64)
    u = mean + log_std.exp() * noise
    squash = torch.distributions.TanhTransform(cache_size=1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    wanted = torch.distributions.TransformedDistribution(normal, squash).log_prob(u.tanh()).sum(-1)
    torch.testing.assert_close(squashed_log_prob(u, log_std, noise), wanted)


def test_the_density_of_one_action_integrates_to_one() -> None:
    a = torch.linspace(-1, 1, 20_001, dtype=torch.float64)[1:-1]
    u, log_std = a.atanh(), torch.tensor(-0.3, dtype=torch.float64)
    noise = (u - 0.4) / log_std.exp()
    density = squashed_log_prob(u[:, None], log_std, noise[:, None]).exp()
    assert torch.trapezoid(density, a).item() == pytest.approx(1, abs=1e-3)


def test_the_log_probability_is_finite_where_tanh_rounds_to_one() -> None:
    u = torch.tensor([[40.0]], requires_grad=True)
    found = squashed_log_prob(u, torch.zeros(1, 1), torch.zeros(1, 1))
    assert u.tanh().item() == 1
    assert found.item() == pytest.approx(-0.9189385 + 2 * 40 - 2 * math.log(2), rel=1e-6)
    (slope,) = torch.autograd.grad(found.sum(), [u])
    assert slope.item() == pytest.approx(2)


def test_log_sigma_stays_between_its_bounds() -> None:
    output = torch.tensor([[7.0, -100.0], [7.0, 0.0], [7.0, 100.0]])
    mean, log_std = mean_and_log_std(output)
    assert mean.tolist() == [[7.0]] * 3
    assert log_std.flatten().tolist() == [LOG_STD[0], -1.5, LOG_STD[1]]


# --- losses ---------------------------------------------------------------------------------------


def constant_agent() -> SAC:
    """mean 0.2 and log sigma log 0.5 everywhere, Q = (3, 5), Q' = (2, 7), alpha 0.1."""
    agent = SAC(SACConfig(hidden=4), NoSkill(0), plain_obs(1), 1)
    low, high = LOG_STD
    make_constant(agent.actor, [0.2, math.atanh(2 * (math.log(0.5) - low) / (high - low) - 1)])
    for critic, values in ((agent.critic, (3, 5)), (agent.target, (2, 7))):
        for head, value in zip(("q1", "q2"), values, strict=True):
            make_constant(critic.get_submodule(head), [float(value)])  # pyright: ignore[reportArgumentType]
    return agent


LOG_PROB = -0.40579135 + 0.24022885  # for noise 0.6, as above
NOISE = torch.full((2, 1), 0.6)


def one_row_batch(discount: float) -> Batch:
    zeros = torch.zeros(2, 1)
    rate = torch.tensor([discount, 0.0])  # the second row ends in a terminal state
    return Batch(zeros, zeros, zeros, zeros, torch.zeros(2, 0), torch.zeros(2), rate)


def test_the_target_by_hand() -> None:
    """y = 1 + 0.97 (2 - 0.1 log pi), and 1 where nothing follows."""
    batch = one_row_batch(0.97)
    y = constant_agent().td_target(batch, torch.ones(2), batch.skill, NOISE)
    assert y.tolist() == pytest.approx([1 + 0.97 * (2 - 0.1 * LOG_PROB), 1], abs=1e-5)


def test_the_critic_loss_by_hand() -> None:
    """(3 - 4)^2 + (5 - 4)^2."""
    batch = one_row_batch(0.97)
    loss, q = constant_agent().critic_loss(batch, batch.skill, torch.full((2,), 4.0))
    assert loss.item() == pytest.approx(2)
    assert q.tolist() == [[3, 5], [3, 5]]


def test_the_actor_loss_by_hand() -> None:
    """0.1 log pi - 3."""
    batch = one_row_batch(0.97)
    loss, log_prob = constant_agent().actor_loss(batch.obs, batch.skill, NOISE)
    assert loss.item() == pytest.approx(0.1 * LOG_PROB - 3, abs=1e-5)
    assert log_prob.tolist() == pytest.approx([LOG_PROB] * 2, abs=1e-5)
    assert not log_prob.requires_grad


def test_the_temperature_loss_by_hand() -> None:
    """-alpha (log pi - |A|), one action: its slope in log alpha is itself."""
    agent = constant_agent()
    loss = agent.temperature_loss(torch.full((2,), LOG_PROB))
    assert loss.item() == pytest.approx(-0.1 * (LOG_PROB - 1), abs=1e-6)
    (slope,) = torch.autograd.grad(loss, [agent.log_temperature])
    assert slope.item() == pytest.approx(loss.item())


def test_the_temperature_falls_when_the_policy_is_random_enough() -> None:
    """The entropy is 1.17 and -|A| is -1: less is needed; a narrow policy needs more."""
    agent = constant_agent()
    for log_prob, sign in ((-1.17, -1), (3.0, 1)):
        before = agent.temperature.item()
        loss = agent.temperature_loss(torch.full((8,), log_prob))
        optimizer_step(agent.optimizers["temperature"], loss)
        assert np.sign(agent.temperature.item() - before) == sign
        agent.optimizers["temperature"].state.clear()


def test_the_actor_gradient_goes_through_action_and_density(agent: SAC) -> None:
    """Against differences of the loss along a random direction, in double precision."""
    agent.double()
    b, noise = batch_of(), torch.randn(ROWS, 2, dtype=torch.float64)
    obs, skill = b.obs.double(), b.skill.double()
    weights = list(agent.actor.parameters())
    loss, _ = agent.actor_loss(obs, skill, noise)
    gradients = torch.autograd.grad(loss, weights)
    directions = [torch.randn_like(w) for w in weights]
    step, losses = 1e-6, []
    for sign in (1, -1):
        with torch.no_grad():
            for w, d in zip(weights, directions, strict=True):
                w.add_(d, alpha=sign * step)
            losses.append(agent.actor_loss(obs, skill, noise)[0].item())
            for w, d in zip(weights, directions, strict=True):
                w.sub_(d, alpha=sign * step)
    slope = sum((g * d).sum().item() for g, d in zip(gradients, directions, strict=True))
    assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("form", CRITICS)
def test_an_update_is_adam_on_three_losses_and_a_soft_update(form: str) -> None:
    """Written out with torch.optim: critic, then actor and temperature on the new critic."""
    torch.manual_seed(0)
    agent, b, reward = SAC(SACConfig(hidden=16), SPACE, OBS, 2, form), batch_of(), torch.randn(16)
    other = copy.deepcopy(agent)
    metrics = agent.update(b, reward, torch.Generator().manual_seed(0))

    now, later = torch.randn(2, ROWS, 2, generator=torch.Generator().manual_seed(0))
    y = other.td_target(b, reward, b.skill, later)
    critic_loss, q = other.critic_loss(b, b.skill, y)
    optimizer = torch.optim.Adam(other.critic.parameters(), 1e-4)
    critic_loss.backward()
    optimizer.step()
    parameters = list(other.actor.parameters())
    loss, log_prob = other.actor_loss(b.obs, b.skill, now)
    for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        p.grad = g
    torch.optim.Adam(parameters, 1e-4).step()
    optimizer = torch.optim.Adam([other.log_temperature], 1e-4)
    other.temperature_loss(log_prob).backward()
    optimizer.step()
    with torch.no_grad():
        for p, p_target in zip(other.critic.parameters(), other.target.parameters(), strict=True):
            p_target.copy_(0.995 * p_target + 0.005 * p)
    torch.testing.assert_close(dict(agent.state_dict()), dict(other.state_dict()))
    for ours, wanted in zip(agent.critic.parameters(), other.critic.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, wanted.grad)  # nothing from the actor's loss
    torch.testing.assert_close(metrics["sac/q"], q)
    torch.testing.assert_close(metrics["sac/entropy"], -log_prob)
    torch.testing.assert_close(metrics["sac/temperature"], other.temperature)
    assert all(not value.requires_grad for value in metrics.values())


def test_a_temperature_that_is_not_to_learn_stays() -> None:
    agent = SAC(SACConfig(hidden=8, temperature=0.3, temperature_lr=0), SPACE, OBS, 2)
    agent.update(batch_of(), torch.randn(ROWS), torch.Generator().manual_seed(0))
    assert agent.temperature.item() == pytest.approx(0.3)


# --- acting, starting from another ----------------------------------------------------------------


def test_acting_draws_from_the_squashed_gaussian(agent: SAC) -> None:
    obs, skill = np.zeros((20_000, 4), np.float32), torch.full((20_000, 3), 0.5)
    mean, log_std = agent.policy.gaussian(torch.zeros(4), skill[0])
    drawn = make_policy_fn(agent.policy, skill, np.random.default_rng(0))(obs)
    u = np.arctanh(np.clip(drawn.astype(np.float64), -1 + 1e-7, 1 - 1e-7))
    np.testing.assert_allclose(u.mean(0), mean.detach().numpy(), atol=0.02)
    np.testing.assert_allclose(u.std(0), log_std.exp().detach().numpy(), rtol=0.05)
    assert drawn.dtype == np.float32
    greedy = make_policy_fn(agent.policy, skill, None)(obs)
    np.testing.assert_allclose(greedy[0], mean.tanh().detach().numpy(), atol=1e-6)


def test_the_temperature_starts_anew_with_another_reward(agent: SAC) -> None:
    """It is a price of entropy in units of the reward, which is another one in a task."""
    torch.manual_seed(1)
    other = SAC(SACConfig(hidden=16), SPACE, OBS, 2)
    for _ in range(3):
        agent.update(batch_of(), torch.randn(ROWS), torch.Generator().manual_seed(0))
    other.init_from(agent, "full")
    assert torch.equal(
        other.policy(batch_of().obs, SPACE.grid(ROWS)),
        agent.policy(batch_of().obs, SPACE.grid(ROWS)),
    )
    assert other.temperature.item() == pytest.approx(0.1)
    assert agent.temperature.item() != pytest.approx(0.1, rel=1e-6)


def test_weights_of_another_agent_are_not_taken(agent: SAC) -> None:
    with pytest.raises(AssertionError):
        agent.init_from(DDPG(DDPGConfig(hidden=16), SPACE, OBS, 2), "none")
