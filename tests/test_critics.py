"""The forms of a critic, against plain formulas and hand-worked numbers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from comsd.agents.critics import CRITICS, PerSkillCritic, SuccessorCritic, TwinCritic
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.nn import MLP
from comsd.registry import METHODS
from comsd.skills import OneHot, SkillSpace, Sphere
from comsd.types import Batch
from conftest import make_constant, plain_obs

OBS, SKILLS, ACTIONS, HIDDEN, ROWS = 4, 3, 2, 16, 20
SPACES: dict[str, SkillSpace] = {
    "plain": Sphere(SKILLS),
    "successor": Sphere(SKILLS),
    "per-skill": OneHot(SKILLS),
}


def skills(index: list[int]) -> Tensor:
    return torch.eye(SKILLS)[index]


def batch_for(form: str, rows: int = ROWS) -> Batch:
    g = torch.Generator().manual_seed(1)
    obs, next_obs = torch.randn(2, rows, OBS, generator=g)
    z = SPACES[form].decode(torch.randn(rows, SKILLS, generator=g))
    action = torch.rand(rows, ACTIONS, generator=g) * 2 - 1
    return Batch(obs, action, next_obs, next_obs, z, torch.zeros(rows), torch.full((rows,), 0.97))


def inputs(form: str) -> tuple[Tensor, Tensor, Tensor]:
    b = batch_for(form)
    return b.obs, b.skill, b.action


def make(form: str) -> Any:
    torch.manual_seed(0)
    return CRITICS[form](OBS, SKILLS, ACTIONS, HIDDEN)


def agent_with(form: str) -> DDPG:
    torch.manual_seed(0)
    return DDPG(DDPGConfig(hidden=HIDDEN), SPACES[form], plain_obs(OBS), ACTIONS, form)


def test_every_method_names_a_form() -> None:
    assert {m.critic for m in METHODS.values()} <= set(CRITICS)
    assert METHODS["aps"].critic == "successor"
    assert METHODS["cesd"].critic == "per-skill"
    assert METHODS["comsd"].critic == "plain"


@pytest.mark.parametrize("form", CRITICS)
def test_values_are_twins(form: str) -> None:
    """Two heads that start from different weights."""
    q = make(form)(*inputs(form))
    assert q.shape == (ROWS, 2)
    assert not torch.isclose(q[:, 0], q[:, 1]).any()


@pytest.mark.parametrize("form", CRITICS)
def test_a_copy_is_a_critic_of_its_own_and_survives_saving(form: str) -> None:
    critic, x = make(form), inputs(form)
    twin = copy.deepcopy(critic)
    assert type(twin) is type(critic)
    with torch.no_grad():
        before = critic(*x)
        assert torch.equal(twin(*x), before)
        for parameter in twin.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        assert not torch.equal(twin(*x), before)
        twin.load_state_dict(critic.state_dict())
        assert torch.equal(twin(*x), before)


def test_the_plain_heads_are_two_critics_on_one_trunk() -> None:
    """[s, z, a] -> H, LayerNorm, tanh -> H, ReLU -> Q; changing one head leaves the other."""
    critic, x = make("plain"), inputs("plain")
    assert isinstance(critic, TwinCritic)
    h = critic.trunk(torch.cat(x, -1))
    first, norm, _ = critic.trunk.hidden  # pyright: ignore[reportGeneralTypeIssues]
    torch.testing.assert_close(h, norm(first(torch.cat(x, -1))).tanh())
    before = critic(*x)
    torch.testing.assert_close(before, torch.cat([critic.q1(h), critic.q2(h)], -1))
    with torch.no_grad():
        for parameter in critic.q1.parameters():
            parameter.add_(1)
    after = critic(*x)
    assert torch.equal(after[:, 1], before[:, 1])
    assert not torch.isclose(after[:, 0], before[:, 0]).any()


# --- successor ------------------------------------------------------------------------------------


def test_successor_values_are_the_skill_times_the_heads() -> None:
    critic, x = make("successor"), inputs("successor")
    assert isinstance(critic, SuccessorCritic)
    h = critic.trunk(torch.cat(x, -1))
    wanted = torch.stack([(head(h) * x[1]).sum(-1) for head in (critic.q1, critic.q2)], -1)
    torch.testing.assert_close(critic(*x), wanted)


def test_successor_value_by_hand() -> None:
    """psi = (1, 2, 3) and (-1, 0, 4) whatever the input, w = (0.6, 0, 0.8): 3.0 and 2.6."""
    critic = make("successor")
    make_constant(critic.q1, [1.0, 2, 3])
    make_constant(critic.q2, [-1.0, 0, 4])
    obs, _, action = inputs("successor")
    w = torch.tensor([[0.6, 0, 0.8]]).expand(ROWS, -1)
    assert critic(obs, w, action)[0].tolist() == pytest.approx([3.0, 2.6])


# --- per skill ------------------------------------------------------------------------------------


def test_rows_go_to_the_heads_of_their_skill() -> None:
    """The last layers' biases tell which heads answered."""
    critic = make("per-skill")
    for i, (q1, q2) in enumerate(zip(critic.q1, critic.q2, strict=True)):
        make_constant(q1, [2.0 * i])
        make_constant(q2, [2.0 * i + 1])
    q = critic(torch.randn(4, OBS), skills([2, 0, 0, 1]), torch.randn(4, ACTIONS))
    assert q.tolist() == [[4, 5], [0, 1], [0, 1], [2, 3]]


@pytest.mark.parametrize("index", [[0] * 8, [1, 0] * 4, [2, 1, 0, 0, 2, 2, 2, 1]])
def test_routed_heads_equal_masked_dense_heads(index: list[int]) -> None:
    """Also where a skill has no row: its heads must get a gradient of exactly zero."""
    critic = make("per-skill").double()
    obs, action = torch.randn(8, OBS).double(), torch.randn(8, ACTIONS).double()
    z, y = skills(index).double(), torch.randn(8, 1).double()
    q = critic(obs, z, action)
    h = critic.trunk(torch.cat([obs, action], -1))
    pairs = list(zip(critic.q1, critic.q2, strict=True))
    every = torch.stack([torch.cat([q1(h), q2(h)], -1) for q1, q2 in pairs], 1)
    dense = (every * z[..., None]).sum(1)  # all heads, those of other skills times zero
    torch.testing.assert_close(q, dense)
    parameters = list(critic.parameters())
    found = torch.autograd.grad((q - y).square().sum(), parameters)
    torch.testing.assert_close(found, torch.autograd.grad((dense - y).square().sum(), parameters))
    loss = (critic(obs, z, action) - y).square().sum()
    loss.backward()
    for i, pair in enumerate(pairs):
        gradients = [p.grad for head in pair for p in head.parameters()]
        assert all(g is not None for g in gradients)
        assert any(g.any() for g in gradients) == (i in index)


def test_the_work_does_not_grow_with_the_number_of_skills() -> None:
    """Products of one loss and its gradient, counted: hardly more for 12 skills than for 3."""

    def products(count: int) -> int:
        critic = PerSkillCritic(OBS, count, ACTIONS, 512)
        z = torch.eye(count).repeat(24 // count, 1)
        with FlopCounterMode(display=False) as counter:
            critic(torch.randn(24, OBS), z, torch.randn(24, ACTIONS)).square().sum().backward()
        return counter.get_total_flops()

    assert products(12) < 1.1 * products(3)  # all heads would be four times as many


@pytest.mark.parametrize("count", [2, 5])
def test_every_head_starts_orthogonal_on_a_narrower_trunk(count: int) -> None:
    critic = PerSkillCritic(OBS, count, ACTIONS, HIDDEN)
    first = next(m for m in critic.trunk.modules() if isinstance(m, nn.Linear))
    assert first.weight.shape == (HIDDEN // 2, OBS + ACTIONS)
    heads = [m for m in critic.modules() if isinstance(m, MLP)]
    assert len(heads) == 2 * count
    for head in heads:
        hidden, last = (m for m in head.modules() if isinstance(m, nn.Linear))
        torch.testing.assert_close(hidden.weight.T @ hidden.weight, torch.eye(HIDDEN // 2))
        assert not last.bias.any()


# --- the skill whose value learns -----------------------------------------------------------------


def test_value_skill_trains_the_heads_of_another_skill() -> None:
    """Rows of skill 0 relabelled as skill 2: the critic's heads 2 learn, the actor uses 0's."""
    agent, b = agent_with("per-skill"), batch_for("per-skill")
    b = b._replace(skill=skills([0] * ROWS))
    before = copy.deepcopy(agent.critic)
    value_skill = skills([2] * ROWS)
    agent.update(b, torch.randn(ROWS), torch.Generator().manual_seed(0), value_skill)
    assert isinstance(before, PerSkillCritic)
    assert isinstance(agent.critic, PerSkillCritic)
    moved = [
        any(not torch.equal(p, q) for p, q in zip(now.parameters(), old.parameters(), strict=True))
        for now, old in zip(agent.critic.q1, before.q1, strict=True)
    ]
    assert moved == [False, False, True]


def test_the_next_state_is_valued_by_the_value_skill_and_the_acting_one_moves() -> None:
    """y = r + d min Q'_c(s', mu(s', z)): the action of the skill that acted."""
    agent, b = agent_with("per-skill"), batch_for("per-skill")
    value_skill, reward = b.skill.roll(1, -1), torch.randn(ROWS)
    with torch.no_grad():
        y = agent.td_target(b, reward, value_skill, torch.zeros(ROWS, ACTIONS))
        action = agent.actor(torch.cat([b.next_obs, b.skill], -1)).tanh()
        q = agent.target(b.next_obs, value_skill, action)
    torch.testing.assert_close(y, reward + 0.97 * q.amin(-1))


def test_the_acting_skill_as_value_skill_changes_nothing() -> None:
    one, two = agent_with("plain"), agent_with("plain")
    b, reward = batch_for("plain"), torch.randn(ROWS)
    one.update(b, reward, torch.Generator().manual_seed(0))
    two.update(b, reward, torch.Generator().manual_seed(0), b.skill)
    assert all(map(torch.equal, one.state_dict().values(), two.state_dict().values()))
