"""Trainable encoders: which losses reach them, and how the policy uses them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.encoders import Encoder, EncoderFrom, Identity
from comsd.methods.base import Method
from comsd.methods.task import TaskReward
from comsd.registry import METHODS
from comsd.skills import OneHot
from comsd.types import Batch, ObsSpec
from conftest import plain_obs

OBS, SPACE, ROWS, FEATURES, ACTIONS = plain_obs(4), OneHot(3), 16, 5, 2
ALL: tuple[EncoderFrom, ...] = ("critic", "method", "both", "none")


class TanhEncoder(Encoder):
    def __init__(self) -> None:
        super().__init__()
        self.spec = plain_obs(FEATURES)
        self.layer = nn.Linear(OBS.dim, FEATURES)

    def forward(self, obs: Tensor) -> Tensor:
        return self.layer(obs).tanh()


def batch_of(n: int = 3) -> Batch:
    """Windows of n steps; with n = 1 the next observation is the adjacent one."""
    g = torch.Generator().manual_seed(1)
    obs, one_step_obs, next_obs = torch.randn(3, ROWS, OBS.dim, generator=g)
    action = torch.rand(ROWS, ACTIONS, generator=g) * 2 - 1
    skill = torch.eye(3)[torch.randint(0, 3, (ROWS,), generator=g)]
    after = one_step_obs if n == 1 else next_obs
    return Batch(
        obs, action, after, one_step_obs, skill, torch.randn(ROWS, generator=g), torch.ones(ROWS)
    )


def make_agent(trained_by: EncoderFrom = "both") -> DDPG:
    torch.manual_seed(0)
    config = DDPGConfig(hidden=8, lr=1e-3, encoder_from=trained_by)
    return DDPG(config, SPACE, OBS, ACTIONS, encoder=TanhEncoder())


def make_method(name: str, obs: ObsSpec) -> Method:
    torch.manual_seed(0)
    kind = METHODS.get(name, TaskReward)
    values = {"k": 4} if name == "comsd" else {}
    return kind(kind.config_class(hidden=8, **values), SPACE, obs)  # pyright: ignore[reportArgumentType]


def train(agent: DDPG, method: Method, batch: Batch) -> None:
    """As off-policy training does."""
    encoded = agent.encode(batch)
    output = method.update(encoded.for_method, method.optimizer())
    agent.update(encoded.for_critic, output.reward, torch.Generator().manual_seed(0))
    encoded.step()


def gradients(loss: Tensor, encoder: Encoder) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(encoder.parameters())))


def expected(agent: DDPG, method: Method, batch: Batch) -> dict[str, list[Tensor]]:
    """Gradients of both losses through the encoder, end to end by autograd."""
    encoder, zero = agent.encoder, [torch.zeros_like(p) for p in agent.encoder.parameters()]
    frozen = batch._replace(
        obs=encoder(batch.obs).detach(),
        next_obs=encoder(batch.next_obs).detach(),
        one_step_obs=encoder(batch.one_step_obs).detach(),
    )
    _, noise = agent.clipped_noise(2, batch.action, torch.Generator().manual_seed(0))
    reward = copy.deepcopy(method).intrinsic_reward(frozen).reward
    y = agent.td_target(frozen, reward, batch.skill, noise)
    whole = frozen._replace(obs=encoder(batch.obs))
    by_critic = gradients(agent.critic_loss(whole, batch.skill, y)[0], encoder)
    by_method = zero
    if method.optimizer() is not None:
        following = encoder(batch.next_obs)
        adjacent = batch.one_step_obs is batch.next_obs
        one_step = following if adjacent else encoder(batch.one_step_obs)
        live = batch._replace(obs=encoder(batch.obs), next_obs=following, one_step_obs=one_step)
        method = copy.deepcopy(method)
        by_method = gradients(method.loss(live, method.embed(live))[0], encoder)
    both = [a + b for a, b in zip(by_critic, by_method, strict=True)]
    return {"critic": by_critic, "method": by_method, "both": both, "none": zero}


@pytest.mark.parametrize("trained_by", ALL)
@pytest.mark.parametrize("name", ["comsd", "diayn", "metra", "task"])
@pytest.mark.parametrize("n", [1, 3])
def test_the_losses_that_train_the_encoder(name: str, trained_by: EncoderFrom, n: int) -> None:
    """Exactly theirs, so nothing from the actor's; `both` is the sum. One Adam step follows it."""
    agent, batch = make_agent(trained_by), batch_of(n)
    method = make_method(name, agent.encoder.spec)
    wanted = expected(agent, method, batch)[trained_by]
    before = [p.detach().clone() for p in agent.encoder.parameters()]
    train(agent, method, batch)
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in agent.encoder.parameters()]
    torch.testing.assert_close(found, wanted)
    moved = [p.detach() - old for p, old in zip(agent.encoder.parameters(), before, strict=True)]
    for step, gradient in zip(moved, wanted, strict=True):
        torch.testing.assert_close(step, -1e-3 * gradient.sign(), atol=1e-5, rtol=1e-2)


@pytest.mark.parametrize("trained_by", ALL)
def test_rewards_and_the_other_networks_do_not_depend_on_who_trains_the_encoder(
    trained_by: EncoderFrom,
) -> None:
    """At the first update: a batch with gradient has the same values as one without."""
    ours, reference = make_agent(trained_by), make_agent("none")
    for agent in (ours, reference):
        train(agent, make_method("comsd", agent.encoder.spec), batch_of())
    for part in ("actor", "critic", "target"):
        one, other = getattr(ours, part), getattr(reference, part)
        assert all(map(torch.equal, one.parameters(), other.parameters()))


def test_each_update_has_a_gradient_of_its_own() -> None:
    """Nothing is left over from the update before."""
    agent, method = make_agent(), make_method("diayn", plain_obs(FEATURES))
    train(agent, method, batch_of())
    wanted = expected(agent, method, batch_of(1))["both"]
    train(agent, method, batch_of(1))
    torch.testing.assert_close([p.grad for p in agent.encoder.parameters()], wanted)


def test_the_features_of_adjacent_observations_stay_one_tensor() -> None:
    """Methods recognise n = 1 by it and save a forward pass."""
    for trained_by in ALL:
        encoded = make_agent(trained_by).encode(batch_of(1))
        for batch in (encoded.for_method, encoded.for_critic):
            assert batch.one_step_obs is batch.next_obs


def test_the_identity_passes_the_batch_through() -> None:
    agent = DDPG(DDPGConfig(hidden=8), SPACE, OBS, ACTIONS)
    assert isinstance(agent.encoder, Identity)
    assert agent.encoder.spec is OBS
    batch = batch_of()
    encoded = agent.encode(batch)
    assert encoded.for_method is encoded.for_critic is batch
    assert "encoder" not in agent.optimizers
    encoded.step()  # nothing to train


@pytest.mark.parametrize("critic", ["none", "trunk", "full"])
def test_another_agent_takes_the_encoder_over(critic: str) -> None:
    agent, other = make_agent(), make_agent()
    train(agent, make_method("diayn", agent.encoder.spec), batch_of())
    other.init_from(agent, critic)
    pairs = zip(agent.encoder.parameters(), other.encoder.parameters(), strict=True)
    assert all(torch.equal(p, q) and p is not q for p, q in pairs)


def test_the_policy_takes_observations_and_follows_the_encoder() -> None:
    agent = make_agent()
    policy, obs, skill = agent.policy, batch_of().obs, torch.eye(3)[0]
    before = policy(obs, skill)
    features = torch.cat([agent.encoder(obs), skill.expand(ROWS, -1)], -1)
    torch.testing.assert_close(before, agent.actor(features).tanh())
    with torch.no_grad():
        for p in agent.encoder.parameters():
            p.add_(0.1)
    assert not torch.equal(policy(obs, skill), before)


def test_the_state_of_an_agent_holds_encoder_and_optimizer() -> None:
    agent, twin = make_agent(), make_agent()
    method = make_method("diayn", agent.encoder.spec)
    train(agent, method, batch_of())
    twin.load_state_dict(copy.deepcopy(agent.state_dict()))
    twin.load_optimizer_state(copy.deepcopy(agent.optimizer_state()))
    for it in (agent, twin):
        train(it, copy.deepcopy(method), batch_of(1))
    assert all(map(torch.equal, agent.state_dict().values(), twin.state_dict().values()))


class ImageEncoder(Encoder):
    """A convolution for bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = plain_obs(18)
        self.convolution = nn.Conv2d(3, 2, 3, stride=2)

    def forward(self, obs: Tensor) -> Tensor:
        return self.convolution(obs.float() / 255 - 0.5).flatten(-3).tanh()


def test_images_go_through_a_convolution() -> None:
    spec = ObsSpec((3, 8, 8), "uint8", np.zeros(()), np.ones(()))
    config = DDPGConfig(hidden=8, encoder_from="both")
    agent = DDPG(config, SPACE, spec, ACTIONS, encoder=ImageEncoder())
    obs, after = torch.randint(0, 256, (2, ROWS, 3, 8, 8), dtype=torch.uint8)
    batch = batch_of()._replace(obs=obs, next_obs=after, one_step_obs=after)
    train(agent, make_method("diayn", agent.encoder.spec), batch)
    assert all(p.grad is not None and p.grad.any() for p in agent.encoder.parameters())
    policy, skill = agent.policy, torch.eye(3)[0]
    many = policy(obs, skill)
    assert many.shape == (ROWS, ACTIONS)
    torch.testing.assert_close(policy(obs[0], skill), many[0])
    one = policy(obs[0].numpy(), skill.numpy())
    torch.testing.assert_close(torch.from_numpy(one), many[0].detach())
