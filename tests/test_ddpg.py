"""DDPG against autograd and hand formulas, and the learner's calendar."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from comsd.agents.ddpg import DDPG, EDGE, DDPGConfig
from comsd.envs import ENVS
from comsd.errors import RunError
from comsd.learners.off_policy import OffPolicyLearner
from comsd.methods import METHODS
from comsd.skills import Box
from comsd.types import Batch, ObsInfo

OBS, SPACE, ROWS = ObsInfo(4, torch.zeros(4), torch.ones(4)), Box(3), 16


@pytest.fixture
def agent() -> DDPG:
    torch.manual_seed(0)
    return DDPG(DDPGConfig(hidden=16), SPACE, OBS, 2)


def batch_of(rows: int = ROWS) -> Batch:
    g = torch.Generator().manual_seed(1)
    obs, next_obs = torch.randn(2, rows, 4, generator=g)
    skill, action = torch.rand(rows, 3, generator=g), torch.rand(rows, 2, generator=g) * 2 - 1
    return Batch(
        obs, action, next_obs, next_obs, skill, torch.zeros(rows), torch.full((rows,), 0.97)
    )


def gradient(optimizer: object) -> torch.Tensor:
    return 10 * optimizer.mean[0]  # type: ignore[attr-defined]  # Adam's first mean is a tenth


def test_the_steps_follow_the_gradients_of_the_losses(agent: DDPG) -> None:
    b = batch_of()
    x, y = torch.cat([b.obs, b.skill], -1), torch.randn(ROWS)
    noise = 0.3 * torch.randn(ROWS, 2)
    loss, q = agent.critic_loss(torch.cat([x, b.action], -1), y)
    (wanted,) = torch.autograd.grad(loss, [agent.critic.flat])
    with torch.no_grad():
        values, errors = agent.critic_step(torch.cat([x, b.action], -1), y)
    torch.testing.assert_close(gradient(agent.critic_optimizer), wanted, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close((values, errors), (q, q - y[:, None]))
    assert loss.item() == pytest.approx(errors.square().sum(-1).mean().item())

    before = agent.critic.flat.clone()
    (wanted,) = torch.autograd.grad(agent.actor_loss(x, noise), [agent.actor.flat])
    with torch.no_grad():
        agent.actor_step(x, noise)
    torch.testing.assert_close(gradient(agent.actor_optimizer), wanted, atol=1e-7, rtol=1e-4)
    assert torch.equal(agent.critic.flat, before)  # the actor's step leaves the critic alone


def test_the_target_is_the_lesser_value_of_the_next_action(agent: DDPG) -> None:
    b = batch_of()
    next_x, noise = torch.cat([b.next_obs, b.skill], -1), 0.3 * torch.randn(ROWS, 2)
    reward = torch.randn(ROWS)
    with torch.no_grad():
        agent.target.flat.add_(0.1 * torch.randn_like(agent.target.flat))
        y = agent.bootstrap(next_x, noise, reward, b.discount)
        action = (agent.actor(next_x).tanh() + noise).clamp(-EDGE, EDGE)
        q1, q2 = agent.target(torch.cat([next_x, action], -1)).T
    torch.testing.assert_close(y, reward + 0.97 * torch.minimum(q1, q2))


def test_noise_in_the_losses_is_clipped_and_the_target_follows_slowly(agent: DDPG) -> None:
    noise = agent.smoothing(2, torch.zeros(5000, 2), torch.Generator().manual_seed(0))
    assert noise.abs().max() == pytest.approx(0.3)
    assert noise.std().item() == pytest.approx(0.18, abs=0.02)  # 0.2 before the clip
    old = agent.target.flat.clone()
    agent.update(batch_of(), torch.randn(ROWS), torch.Generator().manual_seed(0))
    wanted = 0.99 * old + 0.01 * agent.critic.flat.detach()
    torch.testing.assert_close(agent.target.flat.detach(), wanted.detach())


def test_the_heads_are_two_critics_on_one_trunk(agent: DDPG) -> None:
    """Changing one head's layers must not move the other."""
    x = torch.randn(5, 9)
    before = agent.critic(x).detach()
    twin = copy.deepcopy(agent.critic)
    hidden, last = twin.layers[1], twin.layers[2]
    hidden[0][:16] += 1  # the first head's hidden layer
    last[0][0, :16] += 1
    after = twin(x).detach()
    assert torch.equal(after[:, 1], before[:, 1])
    assert not torch.isclose(after[:, 0], before[:, 0]).any()


def test_acting_adds_unclipped_noise_and_keeps_inside(agent: DDPG) -> None:
    obs, skill = torch.randn(4000, 4), torch.rand(4000, 3)
    mean = agent.act(obs, skill)
    noisy = agent.act(obs, skill, np.random.default_rng(0))
    assert (noisy - mean).std().item() == pytest.approx(0.2, abs=0.02)
    assert (noisy - mean).abs().max() > 0.5
    assert noisy.abs().max() <= EDGE
    assert torch.equal(mean, agent.act(obs, skill))


# --- the learner --------------------------------------------------------------------------------


def learner(num_envs: int = 1, **values: object) -> OffPolicyLearner:
    small = {
        "envs": num_envs,
        "hidden": 8,
        "batch_size": 8,
        "replay": 3000,
        "random_steps": 100,
        **values,
    }
    env = ENVS["cheetah"].make(num_envs, 0)
    dim = env.obs_spec.dim
    info = ObsInfo(dim, torch.zeros(dim), torch.ones(dim))
    torch.manual_seed(0)
    agent = DDPG(DDPGConfig(**small), SPACE, info, env.action_dim)  # pyright: ignore
    method = METHODS["comsd"](METHODS["comsd"].config_class(hidden=8, k=4), SPACE, info)  # pyright: ignore
    return OffPolicyLearner(env, agent, method, np.random.SeedSequence(0))


@pytest.mark.parametrize(("num_envs", "every"), [(1, 4), (4, 4), (10, 2), (4, 6)])
def test_updates_begin_after_the_random_steps_and_keep_their_ratio(
    num_envs: int, every: int
) -> None:
    it = learner(num_envs, update_every=every)
    while it.steps < 100:
        assert (it.cycle() == {}) == (it.steps < 100)
    start, first = it.updates, it.steps
    while it.steps < 300:
        it.cycle()
    assert it.updates - start == it.steps // every - first // every


def test_a_skill_is_held_and_starts_anew_with_the_episode() -> None:
    it = learner(hold=30, update_every=10)
    while it.steps < 1100:
        it.cycle()
    segment = it.replay.segment[:, 0].tolist()
    changes = [t for t in range(1, 1100) if segment[t] != segment[t - 1]]
    in_first = [t for t in changes if t < 1000]
    assert in_first == list(range(30, 1000, 30))
    assert [t for t in changes if t >= 1001][:2] == [1001, 1031]  # row 1000 ends the episode


def test_actions_come_from_the_policy_of_the_skill_that_is_stored() -> None:
    it = learner(noise=0.0, random_steps=60, update_every=10_000, hold=20)
    for _ in range(200):
        it.step()
    rows = it.replay
    for t in (60, 79, 80, 119, 150):
        skill = rows.skill[rows.segment[t].long()]
        wanted = it.agent.act(rows.obs[t], skill)
        torch.testing.assert_close(rows.action[t], wanted, atol=1e-5, rtol=1e-4)


def test_looking_at_the_health_changes_nothing() -> None:
    ours, twin = learner(), learner()
    for it in (ours, twin):
        while it.steps < 140:
            it.cycle()
    figures = ours.health()
    assert {"comsd/r_exp_low", "comsd/r_div_weighted_high", "health/retrieval"} <= set(figures)
    for _ in range(5):
        a, b = ours.cycle(), twin.cycle()
        assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("place", [0, -1])  # the first weight hides behind a ReLU
def test_weights_that_are_none_stop_the_run_by_name(place: int) -> None:
    it = learner()
    while it.steps < 120:
        it.cycle()
    with torch.no_grad():
        it.agent.actor.flat[place] = float("nan")
    with pytest.raises(RunError, match=r"actor\.flat.* NaN"):
        all(it.cycle() for _ in range(70))


def test_numbers_that_are_none_stop_the_run_by_name() -> None:
    it = learner()
    while it.steps < 120:
        it.cycle()
    with torch.no_grad():
        it.agent.critic.flat[0] = float("nan")
    with pytest.raises(RunError, match="ddpg/q and ddpg/squared_error hold NaN"):
        it.cycle()
