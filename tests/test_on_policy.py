"""On-policy training: what a cycle collects, and that it goes on from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from comsd import checkpoint
from comsd.agents.ppo import PPO, PPOConfig
from comsd.config import Config, RunSettings, Settings
from comsd.errors import InputError, RunError
from comsd.registry import METHODS
from comsd.skills import OneHot, SkillSpace
from comsd.training.checks import check_on_policy
from comsd.training.on_policy import OnPolicySettings, OnPolicyTrainer
from comsd.types import Batch
from conftest import make_space, method_cases, plain_obs
from fake_env import Ends, FakeEnv, NextStepEnv, at_once, uneven

HORIZON, ENVS = 8, 3


def make(
    name: str = "diayn",
    ends: Ends | None = None,
    *,
    space: SkillSpace | None = None,
    precision: str = "float32",
    env_class: type[FakeEnv] = FakeEnv,
) -> OnPolicyTrainer:
    torch.manual_seed(0)
    space, kind = space or OneHot(3), METHODS[name]
    values: dict[str, Any] = {"k": 4} if hasattr(kind.config_class, "k") else {}
    values |= kind.config_class.on_policy
    method = kind(kind.config_class(hidden=8, **values), space, plain_obs(4))
    agent = PPO(PPOConfig(hidden=8, epochs=2, minibatches=2), space, plain_obs(4), 2)
    env, settings = env_class(ENVS, HORIZON, ends), OnPolicySettings(envs=ENVS)
    seed = np.random.SeedSequence(0)
    return OnPolicyTrainer(env, agent, method, settings, seed, precision=precision)


# --- collecting -----------------------------------------------------------------------------------


def by_time(batch: Batch) -> Batch:
    return Batch(*(x.unflatten(0, (HORIZON, ENVS)) for x in batch))


@pytest.mark.parametrize("ends", [None, uneven, at_once])
def test_a_cycle_is_the_horizon_of_every_environment(ends: Ends | None) -> None:
    trainer = make(ends=ends, space=OneHot(5))
    batch, terminated, ended = trainer.collect()
    assert terminated.shape == ended.shape == (HORIZON, ENVS)
    b = by_time(batch)
    moved = b.next_obs - b.obs
    torch.testing.assert_close(moved[..., :2], 0.3 * b.action, atol=1e-5, rtol=1e-4)
    assert bool((moved[..., 2] == 1).all())  # the true next observation, also at an end
    assert bool((moved[..., 3] == 0).all())
    assert b.one_step_obs.data_ptr() == b.next_obs.data_ptr()
    torch.testing.assert_close(b.reward, b.next_obs[..., 0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(b.discount, 0.99 * (~terminated).float())
    for i in range(ENVS):
        for t in range(HORIZON):
            episode, clock = int(b.obs[t, i, 3]), int(b.next_obs[t, i, 2])
            assert bool(terminated[t, i]) == bool(ends and ends(i, episode) == clock)
            assert bool(ended[t, i]) == (bool(terminated[t, i]) or clock == HORIZON)


@pytest.mark.parametrize("ends", [None, uneven])
def test_an_episode_has_one_skill_and_the_next_another(ends: Ends | None) -> None:
    trainer = make(ends=ends, space=OneHot(50))
    batch, _, ended = trainer.collect()
    b = by_time(batch)
    for t in range(1, HORIZON):
        assert torch.equal(b.obs[t][~ended[t - 1]], b.next_obs[t - 1][~ended[t - 1]])
        same = (b.skill[t] == b.skill[t - 1]).all(-1)
        assert torch.equal(same, ~ended[t - 1])  # of 50 skills hardly ever the same twice
    first = b.skill[0].argmax(-1).tolist()
    assert len(set(first)) == ENVS  # drawn evenly


def test_actions_come_from_the_policy_of_the_episodes_skill() -> None:
    trainer = make(ends=uneven)
    with torch.no_grad():
        for name, p in trainer.agent.actor.named_parameters():
            p.mul_(0 if "hidden" in name else 1)  # deaf to the observation and the skill
        trainer.agent.actor.out.bias.copy_(torch.tensor([1e5, 1e5, 1e5, 1e5]))  # pyright: ignore
    batch, _, _ = trainer.collect()
    assert batch.action.abs().max() < 0.05  # a narrow distribution around zero


# --- learning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), method_cases())
def test_every_method_learns(name: str, kind: str) -> None:
    trainer = make(name, uneven, space=make_space(kind, 3))
    before = [p.detach().clone() for p in trainer.agent.parameters()]
    metrics = trainer.train_step()
    assert trainer.steps == HORIZON * ENVS
    assert {"ppo/reward", "ppo/value_loss"} <= metrics.keys()
    assert all(bool(torch.isfinite(value).all()) for value in metrics.values())
    pairs = zip(trainer.agent.parameters(), before, strict=True)
    assert not any(torch.equal(p, old) for p, old in pairs)
    assert trainer.selected_skill is None
    assert trainer.diagnostics() == {}


def test_the_representation_takes_as_many_steps_as_the_agent() -> None:
    trainer = make()
    trainer.train_step()
    for optimizer in (trainer.optimizer, trainer.agent.optimizer):
        assert optimizer is not None
        assert {state["step"].item() for state in optimizer.state.values()} == {4}


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("agent.value.out", "NaN or infinity in .*value.out.weight"),
        ("method.classifier.out", "NaN or infinity in .*classifier.out.weight"),
    ],
)
def test_weights_that_are_not_finite_stop_the_run(part: str, sentence: str) -> None:
    trainer = make()
    owner, _, name = part.partition(".")
    layer: Any = getattr(trainer, owner).get_submodule(name)
    with torch.no_grad():
        layer.weight[0] = float("nan")
    with pytest.raises(RunError, match=sentence):
        trainer.train_step()


def test_an_episode_that_begins_in_a_step_of_its_own_stops_the_run() -> None:
    make(env_class=NextStepEnv).train_step()  # all end together and begin by a whole reset
    with pytest.raises(RunError, match="allowed: the modes SameStep and Disabled, or the agents"):
        make(ends=uneven, env_class=NextStepEnv).train_step()


def test_rewards_that_are_not_finite_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make()
    rewards = torch.full((HORIZON * ENVS,), float("inf"))
    monkeypatch.setattr(trainer.method, "reward", lambda *_: (rewards, {}))
    with pytest.raises(RunError, match="NaN or infinity in the reward of diayn"):
        trainer.train_step()


# --- checkpoints ----------------------------------------------------------------------------------


def tensors(trainer: OnPolicyTrainer) -> dict[str, Tensor]:
    """Everything that training depends on, by name."""
    found: dict[str, Tensor] = {}
    tree = checkpoint.pack(trainer.state_dict(), "", found)
    return found | {"tree": torch.tensor(list(str(tree).encode()))}


def train(trainer: OnPolicyTrainer, cycles: int) -> None:
    for _ in range(cycles):
        trainer.train_step()


def check_continues(folder: Path, **options: Any) -> None:
    """Restored after one and after two of four cycles, or not at all: the same bits."""
    whole, trainer = make(**options), None
    torch.manual_seed(5)
    train(whole, 4)
    trainer = make(**options)
    torch.manual_seed(5)
    for cycle in (1, 2):
        train(trainer, 1)
        checkpoint.save(folder, cycle, trainer.state_dict())
        trainer = make(**options)
        trainer.load_state_dict(checkpoint.latest(folder)[0])
    train(trainer, 2)
    ours, wanted = tensors(trainer), tensors(whole)
    assert ours.keys() == wanted.keys()
    assert [name for name in wanted if not torch.equal(ours[name], wanted[name])] == []


@pytest.mark.parametrize("name", METHODS)
def test_every_method_goes_on_from_a_checkpoint(name: str, tmp_path: Path) -> None:
    space = make_space(METHODS[name].spaces[0].kind, 3)
    check_continues(tmp_path, name=name, space=space, ends=uneven)


@pytest.mark.parametrize("ends", [None, uneven, at_once])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_training_goes_on_from_a_checkpoint(
    ends: Ends | None, precision: str, tmp_path: Path
) -> None:
    check_continues(tmp_path, ends=ends, precision=precision)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "agent", "sentence"),
    [
        (("cic", {"k": 25}), {}, r"method.k is 25; it must be at most 24 \(24 states of a cycle"),
        (("diayn", {}), {"minibatches": 13}, r"agent.minibatches is 13; it must be at most 12"),
        (("cesd", {"k": 4}), {}, r"method.outside is 'credit', but PPO can only teach"),
    ],
)
def test_a_run_that_could_not_learn_is_refused(
    method: tuple[str, dict[str, Any]], agent: dict[str, Any], sentence: str
) -> None:
    name, values = method
    settings = METHODS[name].config_class(**values)
    train = OnPolicySettings(envs=ENVS)
    config = Config(RunSettings(), settings, PPOConfig(**agent), train, Settings())
    with pytest.raises(InputError, match=sentence):
        check_on_policy(config, OneHot(3), FakeEnv(ENVS, HORIZON))
