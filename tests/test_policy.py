"""The policy as a module for inference: what it takes, and that it can be copied and exported."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from comsd.agents.base import Policy, make_policy_fn
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.agents.ppo import PPO, PPOConfig
from comsd.agents.sac import SAC, SACConfig
from comsd.errors import InputError
from comsd.skills import Box, NoSkill, SkillSpace
from conftest import make_batch, plain_obs

OBS, SPACE, ROWS, ACTIONS = plain_obs(2), Box(3), 5, 2


def make_agent(name: str, space: SkillSpace = SPACE) -> Any:
    torch.manual_seed(0)
    if name == "ddpg":
        return DDPG(DDPGConfig(hidden=8), space, OBS, ACTIONS)
    if name == "sac":
        return SAC(SACConfig(hidden=8), space, OBS, ACTIONS)
    return PPO(PPOConfig(hidden=8, epochs=1, minibatches=1), space, OBS, ACTIONS)


def update(agent: Any) -> None:
    batch = make_batch(SPACE, 8)
    if isinstance(agent, (DDPG, SAC)):
        agent.update(batch, torch.randn(8), torch.Generator().manual_seed(0))
    else:
        ends = torch.zeros(4, 2, dtype=torch.bool)
        agent.update(batch, torch.randn(8), ends, ends, np.random.default_rng(0))


@pytest.fixture(params=["ddpg", "sac", "ppo"])
def agent(request: pytest.FixtureRequest) -> Any:
    return make_agent(request.param)


@pytest.fixture
def policy(agent: Any) -> Policy:
    return agent.policy


@pytest.fixture
def obs() -> torch.Tensor:
    return torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def skill() -> torch.Tensor:
    return torch.rand(ROWS, 3, generator=torch.Generator().manual_seed(1))


# --- what it takes --------------------------------------------------------------------------------


def test_arrays_and_tensors_give_the_same(
    policy: Policy, obs: torch.Tensor, skill: torch.Tensor
) -> None:
    action = policy(obs, skill)
    assert action.shape == (ROWS, ACTIONS)
    assert action.requires_grad
    assert bool((action.abs() < 1).all())
    array = policy(obs.numpy(), skill.numpy())
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.float32
    assert np.array_equal(array, action.detach().numpy())


def test_one_row_or_many_in_any_shape(
    policy: Policy, obs: torch.Tensor, skill: torch.Tensor
) -> None:
    many = policy(obs, skill)
    one = policy(obs[0], skill[0])
    assert one.shape == (ACTIONS,)
    torch.testing.assert_close(one, many[0])
    assert policy(obs[0].numpy(), skill[0].numpy()).shape == (ACTIONS,)
    grid = policy(obs.expand(2, ROWS, 2), skill.expand(2, ROWS, 3))
    torch.testing.assert_close(grid, many.expand(2, ROWS, ACTIONS))
    assert policy(obs[:0], skill[:0]).shape == (0, ACTIONS)


def test_one_skill_serves_many_observations(
    policy: Policy, obs: torch.Tensor, skill: torch.Tensor
) -> None:
    wanted = policy(obs, skill[:1].expand(ROWS, -1))
    torch.testing.assert_close(policy(obs, skill[0]), wanted)
    array = policy(obs.numpy(), skill[0].numpy())
    torch.testing.assert_close(torch.from_numpy(array), wanted.detach())


def test_arrays_in_double_precision_are_taken_too(
    policy: Policy, obs: torch.Tensor, skill: torch.Tensor
) -> None:
    """NumPy's default, and what simulators give."""
    wanted = policy(obs.numpy(), skill.numpy())
    found = policy(obs.double().numpy(), skill.double().numpy())
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("name", ["ddpg", "sac", "ppo"])
def test_an_agent_without_skills_takes_the_empty_one(name: str, obs: torch.Tensor) -> None:
    policy = make_agent(name, NoSkill(0)).policy
    assert policy(obs, torch.zeros(0)).shape == (ROWS, ACTIONS)
    assert policy(obs.numpy(), np.zeros((ROWS, 0), np.float32)).shape == (ROWS, ACTIONS)


@pytest.mark.parametrize(
    ("obs_shape", "skill_shape", "sentence"),
    [
        ((5, 3), (5, 3), r"obs has shape \(5, 3\); it must end in \(2,\)"),
        ((), (3,), r"obs has shape \(\); it must end in \(2,\)"),
        ((5, 2), (5, 4), r"skill has shape \(5, 4\); it must be \(3,\) or a row of 3 numbers"),
        ((5, 2), (4, 3), r"skill has shape \(4, 3\); .* for each of the \(5,\) observations"),
        ((2,), (5, 3), r"skill has shape \(5, 3\); it must be \(3,\)"),
        ((5, 2), (), r"skill has shape \(\); it must be \(3,\)"),
    ],
)
def test_wrong_sizes_are_said_in_one_sentence(
    policy: Policy, obs_shape: tuple[int, ...], skill_shape: tuple[int, ...], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        policy(torch.zeros(obs_shape), torch.zeros(skill_shape))
    with pytest.raises(InputError, match=sentence):
        policy(np.zeros(obs_shape, np.float32), np.zeros(skill_shape, np.float32))


def test_a_policy_function_is_the_policy_for_skills_that_stay(
    policy: Policy, obs: torch.Tensor, skill: torch.Tensor
) -> None:
    mean = make_policy_fn(policy, skill, None)(obs.numpy())
    assert np.array_equal(mean, policy(obs.numpy(), skill.numpy()))
    one, two = (
        make_policy_fn(policy, skill, np.random.default_rng(0))(obs.numpy()) for _ in range(2)
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, mean)


def test_samples_are_arrays_of_bounded_actions(
    policy: Policy, obs: torch.Tensor, skill: torch.Tensor
) -> None:
    drawn = policy.sample(obs, skill, np.random.default_rng(0))
    assert isinstance(drawn, np.ndarray)
    assert drawn.shape == (ROWS, ACTIONS)
    assert drawn.dtype == np.float32
    assert np.abs(drawn).max() <= 1
    function = make_policy_fn(policy, skill, np.random.default_rng(0))
    assert np.array_equal(drawn, function(obs.numpy()))


# --- what it is -----------------------------------------------------------------------------------


def test_it_holds_the_actor_and_nothing_else(agent: Any) -> None:
    """No critic, value, target or optimiser."""
    policy = agent.policy
    inside = {id(p) for p in policy.parameters()}
    assert inside == {id(p) for p in agent.actor.parameters()}  # states have no encoder to train
    assert sum(p.numel() for p in policy.parameters()) == sum(
        p.numel() for p in agent.actor.parameters()
    )
    assert len(pickle.dumps(policy)) < 2 * len(pickle.dumps(agent.actor))


def test_it_follows_the_agents_weights(agent: Any, obs: torch.Tensor, skill: torch.Tensor) -> None:
    policy = agent.policy
    acts = make_policy_fn(policy, skill, None)
    before, acted = policy(obs, skill), acts(obs.numpy())
    update(agent)
    assert not torch.equal(policy(obs, skill), before)
    assert not np.array_equal(acts(obs.numpy()), acted)
    assert torch.equal(policy(obs, skill), agent.policy(obs, skill))
    agent.load_state_dict(make_agent(type(agent).__name__.lower()).state_dict())
    assert torch.equal(policy(obs, skill), before)


def test_a_copy_keeps_its_weights(agent: Any, obs: torch.Tensor, skill: torch.Tensor) -> None:
    policy = agent.policy
    twin, loaded = copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))
    before = policy(obs, skill)
    update(agent)
    for other in (twin, loaded):
        assert torch.equal(other(obs, skill), before)
    assert not torch.equal(policy(obs, skill), before)


def test_its_weights_can_be_saved_and_loaded(
    policy: Policy, obs: torch.Tensor, skill: torch.Tensor
) -> None:
    other = copy.deepcopy(policy)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    other.load_state_dict(policy.state_dict())
    assert torch.equal(other(obs, skill), policy(obs, skill))


def test_it_acts_in_another_process(policy: Policy, obs: torch.Tensor, skill: torch.Tensor) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        action = pool.apply(policy, (obs.numpy(), skill.numpy()))
    np.testing.assert_allclose(action, policy(obs.numpy(), skill.numpy()), rtol=1e-6)


@pytest.mark.parametrize("rows", ["fixed", "any"])
def test_it_can_be_exported(
    policy: Policy, obs: torch.Tensor, skill: torch.Tensor, rows: str
) -> None:
    batch = torch.export.Dim("batch")
    shapes = ({0: batch}, {0: batch}) if rows == "any" else None
    program = torch.export.export(policy, (obs, skill), dynamic_shapes=shapes).module()
    torch.testing.assert_close(program(obs, skill), policy(obs, skill))
    if rows == "any":
        more = torch.cat([obs, obs + 1]), torch.cat([skill, skill])
        torch.testing.assert_close(program(*more), policy(*more))
