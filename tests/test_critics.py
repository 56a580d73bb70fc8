"""The forms of a critic: values and gradients against plain formulas and autograd."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from comsd.agents import critics
from comsd.agents.critics import CRITICS, PIECE, Critic, PerSkill, Successor
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.nets import MLP, Scratch
from comsd.registry import METHODS
from comsd.skills import OneHot, SkillSpace, Sphere
from comsd.types import Batch, ObsInfo

OBS, SKILLS, ACTIONS, HIDDEN, ROWS = 4, 3, 2, 16, 20
INFO = ObsInfo(OBS, torch.zeros(OBS), torch.ones(OBS))
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


def rows_for(form: str) -> Tensor:
    b = batch_for(form)
    return torch.cat([b.obs, b.skill, b.action], -1)


def make(form: str) -> Any:
    torch.manual_seed(0)
    return CRITICS[form](OBS, SKILLS, ACTIONS, HIDDEN)


def agent_with(form: str) -> DDPG:
    torch.manual_seed(0)
    return DDPG(DDPGConfig(hidden=HIDDEN), SPACES[form], INFO, ACTIONS, form)


def test_every_method_names_a_form() -> None:
    assert {m.critic for m in METHODS.values()} <= set(CRITICS)
    assert METHODS["aps"].critic == "successor"
    assert METHODS["cesd"].critic == "per-skill"
    assert METHODS["comsd"].critic == "plain"


def test_the_plain_form_is_the_network_it_was() -> None:
    torch.manual_seed(0)
    net = MLP(OBS + SKILLS + ACTIONS, HIDDEN, HIDDEN, 1, norm=True, heads=2)
    critic = make("plain")
    assert torch.equal(critic.flat, net.flat)


def to_weights(critic: Critic, grad: Tensor, taken: Scratch) -> Tensor:
    """The pieces of the gradient in their places; moving the weights in between does no harm."""
    whole = torch.full_like(critic.flat.detach(), torch.nan)
    taken.flat_grad.fill_(torch.nan)  # nothing may be left over from before
    before = critic.flat.detach().clone()
    for where, piece in critic.gradients(grad, taken):
        whole[where] = piece
        critic.flat[where] += 1
    critic.flat.copy_(before)
    return whole


@pytest.mark.parametrize("form", CRITICS)
def test_values_and_gradients_equal_autograd(form: str) -> None:
    """`run` and `gradients` against `plain`."""
    critic, x = make(form).double(), rows_for(form).double()
    weight = torch.randn(ROWS, 2, dtype=torch.double)
    flat = critic.flat.detach().clone().requires_grad_()
    wanted = critic.plain(x, flat)
    (gradient,) = torch.autograd.grad((wanted * weight).sum(), [flat])
    with torch.no_grad():
        values, taken = critic.run(x)
        torch.testing.assert_close(values, wanted.detach())
        torch.testing.assert_close(to_weights(critic, weight, taken), gradient)
        critic.give_back(taken)
        torch.testing.assert_close(critic(x), values)


@pytest.mark.parametrize("form", CRITICS)
@pytest.mark.parametrize("shift", [0, 100])
def test_the_gradient_of_the_lesser_value_equals_autograd(form: str, shift: int) -> None:
    """Also where one head is the lesser in all rows."""
    critic = make(form).double()
    critic.layers[-1][1][: len(critic.layers[-1][1]) // 2] += shift
    x = rows_for(form).double().requires_grad_()
    wanted = critic.plain(x, critic.flat.detach()).amin(-1)
    (to_x,) = torch.autograd.grad(wanted.sum(), [x])
    with torch.no_grad():
        q, taken = critic.run(x.detach())
        to_action = critic.to_action(q, taken)
    torch.testing.assert_close(to_action, to_x[:, -ACTIONS:])


def test_heads_that_agree_count_once() -> None:
    """The general form and the one that leaves the greater head out take the same of two."""
    critic, x = make("plain"), rows_for("plain")
    with torch.no_grad():
        for part in (critic.layers[1][0], critic.layers[1][1]):
            part.chunk(2)[1].copy_(part.chunk(2)[0])
        last = critic.layers[2][0]
        last[1, HIDDEN:] = last[0, :HIDDEN]
        q, taken = critic.run(x)
        assert torch.equal(q[:, 0], q[:, 1])
        other = critic.run(x)[1]
        torch.testing.assert_close(Critic.to_action(critic, q, taken), critic.to_action(q, other))


@pytest.mark.parametrize("form", CRITICS)
def test_the_steps_of_ddpg_follow_the_losses(form: str) -> None:
    agent, b = agent_with(form), batch_for(form)
    x, y = torch.cat([b.obs, b.skill], -1), torch.randn(ROWS)
    noise = 0.3 * torch.randn(ROWS, ACTIONS)
    x_action = torch.cat([x, b.action], -1)
    (wanted,) = torch.autograd.grad(agent.critic_loss(x_action, y)[0], [agent.critic.flat])
    with torch.no_grad():
        agent.critic_step(x_action, y)
    ours = 10 * agent.critic_optimizer.mean[0]  # Adam's first mean is a tenth of the gradient
    torch.testing.assert_close(ours, wanted, atol=1e-6, rtol=1e-4)
    (wanted,) = torch.autograd.grad(agent.actor_loss(x, noise), [agent.actor.flat])
    with torch.no_grad():
        agent.actor_step(x, noise)
    ours = 10 * agent.actor_optimizer.mean[0]
    torch.testing.assert_close(ours, wanted, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("form", CRITICS)
def test_a_copy_is_a_critic_of_its_own_and_survives_saving(form: str) -> None:
    critic, x = make(form), rows_for(form)
    twin = copy.deepcopy(critic)
    assert type(twin) is type(critic)
    with torch.no_grad():
        before = critic(x)
        assert torch.equal(twin(x), before)
        twin.flat.add_(0.1)
        assert not torch.equal(twin(x), before)
        twin.load_state_dict(critic.state_dict())
        assert torch.equal(twin(x), before)


# --- successor -----------------------------------------------------------------------------------


def test_successor_values_are_the_skill_times_the_heads() -> None:
    critic, x = make("successor"), rows_for("successor")
    assert isinstance(critic, Successor)
    with torch.no_grad():
        psi = MLP.plain(critic, x, critic.flat)  # (B, 2 * Z), the first head's Z first
        q, w = critic(x), batch_for("successor").skill
        torch.testing.assert_close(q[:, 0], (psi[:, :SKILLS] * w).sum(-1))
        torch.testing.assert_close(q[:, 1], (psi[:, SKILLS:] * w).sum(-1))


def test_successor_value_by_hand() -> None:
    """psi = (1, 2, 3) and (-1, 0, 4) whatever the input, w = (0.6, 0, 0.8): 3.0 and 2.6."""
    critic = make("successor")
    with torch.no_grad():
        critic.layers[-1][0].zero_()
        critic.layers[-1][1].copy_(torch.tensor([1.0, 2, 3, -1, 0, 4]))
        x = rows_for("successor")[:1]
        x[:, OBS : OBS + SKILLS] = torch.tensor([0.6, 0, 0.8])
        assert critic(x)[0].tolist() == pytest.approx([3.0, 2.6])


# --- per skill -----------------------------------------------------------------------------------


def test_rows_go_to_the_heads_of_their_skill() -> None:
    """The last layers' biases tell which heads spoke."""
    critic = make("per-skill")
    with torch.no_grad():
        critic.layers[-1][0].zero_()
        critic.layers[-1][1].copy_(torch.arange(6.0))
        x = torch.randn(4, OBS + SKILLS + ACTIONS)
        x[:, OBS : OBS + SKILLS] = skills([2, 0, 0, 1])
        assert critic(x).tolist() == [[4, 5], [0, 1], [0, 1], [2, 3]]


@pytest.mark.parametrize("piece", [1, 2 * HIDDEN**2, PIECE])  # 1, 2 or 3 skills
@pytest.mark.parametrize("index", [[0] * 8, [1, 0] * 4, [2, 1, 0, 0, 2, 2, 2, 1]])
def test_routed_heads_equal_masked_dense_heads(
    index: list[int], piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a skill has no row: its heads must get a gradient of exactly zero."""
    monkeypatch.setattr(critics, "PIECE", piece)
    critic = make("per-skill").double()
    x = torch.randn(8, OBS + SKILLS + ACTIONS, dtype=torch.double)
    x[:, OBS : OBS + SKILLS] = skills(index)
    y = torch.randn(8, dtype=torch.double)
    flat = critic.flat.detach().clone().requires_grad_()
    every = critic.every(x, flat)
    mask = skills(index).double()[:, :, None]
    dense = ((every - y[:, None, None]).square() * mask).sum()
    (wanted,) = torch.autograd.grad(dense, [flat])
    with torch.no_grad():
        q, taken = critic.run(x)
        found = to_weights(critic, 2 * (q - y[:, None]), taken)
    torch.testing.assert_close(q, (every * mask).sum(1).detach())
    torch.testing.assert_close(found, wanted)
    hidden = critic.views(found)[0][1][0].view(SKILLS, -1)
    unused = [i for i in range(SKILLS) if i not in index]
    assert not hidden[unused].any()
    assert hidden[index].any()


def test_the_work_does_not_grow_with_the_number_of_skills() -> None:
    """Products of one update of the critic, counted: hardly more for 12 skills than for 3."""

    def products(count: int) -> int:
        critic = PerSkill(OBS, count, ACTIONS, 512)
        x = torch.randn(24, OBS + count + ACTIONS)
        x[:, OBS : OBS + count] = torch.eye(count).repeat(24 // count, 1)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            q, taken = critic.run(x)
            to_weights(critic, q, taken)
        return counter.get_total_flops()

    assert products(12) < 1.1 * products(3)  # all heads would be four times as many


def test_credit_teaches_the_heads_of_another_skill() -> None:
    """Rows of skill 0 that count for skill 2: the critic's heads 2 learn, the actor uses 0's."""
    agent, b = agent_with("per-skill"), batch_for("per-skill")
    b = b._replace(skill=skills([0] * ROWS))
    credit = skills([2] * ROWS)
    before = agent.critic.layers[1][0].clone()
    agent.update(b, torch.randn(ROWS), torch.Generator().manual_seed(0), credit)
    moved = (agent.critic.layers[1][0] != before).view(SKILLS, -1).any(1)
    assert moved.tolist() == [False, False, True]


def test_credit_values_the_next_state_by_the_credited_skill_and_the_acting_one_moves() -> None:
    """y = r + d min Q'_c(s', mu(s', z)): the action of the skill that acted."""
    agent, b = agent_with("per-skill"), batch_for("per-skill")
    credit = b.skill.roll(1, -1)
    next_x, noise = torch.cat([b.next_obs, b.skill], -1), torch.zeros(ROWS, ACTIONS)
    reward = torch.randn(ROWS)
    with torch.no_grad():
        y = agent.bootstrap(next_x, noise, reward, b.discount, credit)
        action = agent.actor(next_x).tanh()
        q = agent.target(torch.cat([b.next_obs, credit, action], -1))
    torch.testing.assert_close(y, reward + 0.97 * q.amin(-1))


def test_credit_to_the_acting_skill_changes_nothing() -> None:
    one, two = agent_with("plain"), agent_with("plain")
    b, reward = batch_for("plain"), torch.randn(ROWS)
    one.update(b, reward, torch.Generator().manual_seed(0))
    two.update(b, reward, torch.Generator().manual_seed(0), b.skill)
    assert all(map(torch.equal, one.state_dict().values(), two.state_dict().values()))


@pytest.mark.parametrize("skills_", [2, 5])
def test_every_head_starts_orthogonal(skills_: int) -> None:
    critic = PerSkill(OBS, skills_, ACTIONS, HIDDEN)
    assert critic.shapes[0] == (HIDDEN // 2, OBS + ACTIONS)
    for block in critic.layers[1][0].split(HIDDEN):
        torch.testing.assert_close(block.T @ block, torch.eye(HIDDEN // 2))
    assert not critic.layers[2][1].any()
