"""bf16: hidden layers in bfloat16, everything that is added up or compared in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from comsd.agents.critics import CRITICS
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.agents.ppo import PPO, PPOConfig
from comsd.agents.sac import SAC, SACConfig
from comsd.methods.base import Method
from comsd.methods.spectral import SingularVectors, SpectralLinear, SpectralMLP
from comsd.nn import MLP, Network, use_bf16
from comsd.registry import METHODS
from comsd.skills import OneHot
from conftest import make_batch, make_method, make_space, method_cases, plain_obs

ROWS = 32
NETWORKS = {
    "mlp": lambda: MLP(4, 64, 64, 3),
    "norm": lambda: MLP(4, 64, 64, 3, norm=True),
    "spectral": lambda: SpectralMLP(4, 64, 64, 3),
}


def pair(make: Any) -> tuple[Any, Any]:
    """The same twice, one of them in bfloat16."""
    torch.manual_seed(0)
    plain = make()
    torch.manual_seed(0)
    use_bf16(half := make())
    return plain, half


def close(found: Tensor, wanted: Tensor) -> None:
    """Near, not equal: bfloat16 has eight bits, a relative error of 0.4 per cent per product."""
    assert found.dtype == wanted.dtype == torch.float32
    assert not torch.equal(found, wanted)
    assert (found - wanted).norm() < 0.03 * wanted.norm()


# --- networks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_gradients_are_float32_and_near(name: str) -> None:
    plain, half = pair(NETWORKS[name])
    x = torch.randn(ROWS, 4)
    close(half(x), plain(x))
    for net in (plain, half):
        net(x).square().mean().backward()
    for p, q in zip(half.parameters(), plain.parameters(), strict=True):
        assert p.dtype == torch.float32
        assert p.grad is not None
        assert p.grad.dtype == torch.float32
        assert (p.grad - q.grad).norm() < 0.1 * q.grad.norm() + 1e-6


@pytest.mark.parametrize("form", CRITICS)
def test_values_are_float32_and_near(form: str) -> None:
    plain, half = pair(lambda: CRITICS[form](4, 3, 2, 64))
    x = torch.randn(ROWS, 4), torch.eye(3)[torch.randint(0, 3, (ROWS,))], torch.randn(ROWS, 2)
    close(half(*x), plain(*x))


def test_the_output_layer_does_not_round() -> None:
    """A value of 100.3 would become 100.5."""
    use_bf16(net := MLP(4, 8, 1))
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
        net.out.bias.fill_(100.3)  # pyright: ignore
    assert net(torch.randn(3, 4))[0].item() == pytest.approx(100.3, abs=1e-4)


def test_singular_vectors_are_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lipschitz constant depends on them: they must be those of float32."""
    plain, half = pair(NETWORKS["spectral"])
    original, used = SpectralLinear.singular_vectors, []

    def record(layer: SpectralLinear) -> SingularVectors:
        used.append(original(layer))
        return used[-1]

    monkeypatch.setattr(SpectralLinear, "singular_vectors", record)
    for net in (plain, half):
        net(torch.randn(2, 4))
    assert len(used) == 6
    for exact, found in zip(used[:3], used[3:], strict=True):
        assert all(map(torch.equal, exact, found))


def test_all_networks_of_a_module_are_switched() -> None:
    method = make_method("comsd", OneHot(3))
    use_bf16(method)
    assert all(m.bf16 for m in method.modules() if isinstance(m, Network))
    assert not make_method("comsd", OneHot(3)).encoder.state.bf16  # pyright: ignore


# --- methods --------------------------------------------------------------------------------------


def half_method(name: str, kind: str) -> Method:
    method = make_method(name, make_space(kind), hidden=64)
    use_bf16(method)
    return method


def states(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [value for state in optimizer.state.values() for value in state.values()]


@pytest.mark.parametrize(("name", "kind"), method_cases())
def test_losses_rewards_and_optimizer_state_are_float32(name: str, kind: str) -> None:
    batch = make_batch(make_space(kind), ROWS)
    method, plain = half_method(name, kind), make_method(name, make_space(kind), hidden=64)
    outputs = []
    for it in (method, plain):
        torch.manual_seed(0)
        loss, metrics = it.loss(batch, it.embed(batch))
        assert loss.dtype == torch.float32
        torch.manual_seed(0)
        reward = it.eval().intrinsic_reward(batch).reward
        outputs.append((loss.detach(), reward))
        it.train()
        assert all(m.dtype in (torch.float32, torch.float64) for m in metrics.values())
    (loss, reward), (wanted_loss, wanted_reward) = outputs
    assert reward.dtype == torch.float32
    assert loss.item() == pytest.approx(wanted_loss.item(), rel=0.05, abs=0.05)
    assert bool(torch.isfinite(reward).all())
    spread = wanted_reward.std() + 0.1 * wanted_reward.abs().mean()
    assert (reward - wanted_reward).abs().median() < 0.1 * spread
    optimizer = method.optimizer()
    method.update(batch, optimizer)
    assert all(p.dtype == torch.float32 for p in method.parameters())
    if optimizer is not None:
        assert states(optimizer)
        assert all(value.dtype == torch.float32 for value in states(optimizer))


@pytest.mark.parametrize(("make", "config"), [(DDPG, DDPGConfig), (SAC, SACConfig)])
@pytest.mark.parametrize("name", METHODS)
def test_three_updates_twice_give_the_same_bits(name: str, make: Any, config: Any) -> None:
    """Of a method and an agent together."""
    found = []
    for _ in range(2):
        kind = METHODS[name].spaces[0].kind
        method = half_method(name, kind)
        space = make_space(kind)
        agent = make(config(hidden=64), space, plain_obs(2), 2, method.critic)
        use_bf16(agent)
        optimizer, noise = method.optimizer(), torch.Generator().manual_seed(0)
        for i in range(3):
            batch = make_batch(space, ROWS, seed=i)
            reward, _, value_skill = method.update(batch, optimizer)
            agent.update(batch, reward, noise, value_skill)
        found.append([*method.state_dict().values(), *agent.state_dict().values()])
    assert all(map(torch.equal, *found))


# --- agents ---------------------------------------------------------------------------------------


def make_agent(name: str) -> Any:
    if name == "ddpg":
        return DDPG(DDPGConfig(hidden=64), OneHot(3), plain_obs(2), 2)
    if name == "sac":
        return SAC(SACConfig(hidden=64), OneHot(3), plain_obs(2), 2)
    return PPO(PPOConfig(hidden=64, epochs=1, minibatches=1), OneHot(3), plain_obs(2), 2)


@pytest.mark.parametrize("name", ["ddpg", "sac", "ppo"])
def test_the_policy_acts_in_float32(name: str) -> None:
    plain, half = pair(lambda: make_agent(name))
    obs, skill = torch.randn(ROWS, 2), torch.eye(3)[0]
    assert torch.equal(half.policy(obs, skill), plain.policy(obs, skill))
    x = torch.randn(ROWS, 5)
    assert not torch.equal(half.actor(x), plain.actor(x))  # the losses do not


@pytest.mark.parametrize("name", ["ddpg", "sac", "ppo"])
def test_an_update_is_float32_and_near(name: str) -> None:
    plain, half = pair(lambda: make_agent(name))
    batch, reward = make_batch(OneHot(3), ROWS), torch.randn(ROWS)
    metrics = []
    for agent in (plain, half):
        if isinstance(agent, (DDPG, SAC)):
            metrics.append(agent.update(batch, reward, torch.Generator().manual_seed(0)))
        else:
            ends = torch.zeros(8, 4, dtype=torch.bool)
            metrics.append(agent.update(batch, reward, ends, ends, np.random.default_rng(0)))
    wanted, found = metrics
    for key in wanted:
        assert found[key].dtype == wanted[key].dtype
        torch.testing.assert_close(found[key].mean(), wanted[key].mean(), atol=0.05, rtol=0.1)
    optimizers = [half.optimizer] if isinstance(half, PPO) else list(half.optimizers.values())
    assert all(value.dtype == torch.float32 for o in optimizers for value in states(o))
    assert all(value.dtype != torch.bfloat16 for value in half.state_dict().values())


@pytest.mark.parametrize("name", ["ddpg", "sac"])
def test_td_targets_are_float32(name: str) -> None:
    """y = r + d min Q' with a reward of 100.3 keeps its digits."""
    use_bf16(agent := make_agent(name))
    batch = make_batch(OneHot(3), ROWS)._replace(discount=torch.zeros(ROWS))
    y = agent.td_target(batch, torch.full((ROWS,), 100.3), batch.skill, torch.zeros(ROWS, 2))
    assert y.dtype == torch.float32
    assert y[0].item() == pytest.approx(100.3, abs=1e-4)
