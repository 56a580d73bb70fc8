"""Off-policy training: what acts when, what is stored, and that it goes on from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from comsd import checkpoint
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.agents.sac import SAC, SACConfig
from comsd.config import Config, RunSettings, Settings
from comsd.encoders import Encoder
from comsd.errors import InputError, RunError
from comsd.methods.base import Method
from comsd.methods.task import TaskReward
from comsd.registry import METHODS
from comsd.skills import Box, OneHot, SkillSpace
from comsd.training.checks import check_off_policy
from comsd.training.off_policy import OffPolicySettings, OffPolicyTrainer
from comsd.training.skill_selection import BestOfK, SkillSelector
from conftest import make_space, method_cases, plain_obs
from fake_env import Ends, FakeEnv, NextStepEnv, at_once, uneven

AGENT = (
    "hidden",
    "lr",
    "discount",
    "noise",
    "noise_start",
    "noise_steps",
    "encoder_from",
    "compile",
)


class TanhEncoder(Encoder):
    def __init__(self) -> None:
        super().__init__()
        self.spec = plain_obs(5)
        self.layer = nn.Linear(4, 5)

    def forward(self, obs: Tensor) -> Tensor:
        return self.layer(obs).tanh()


def make_method(name: str, space: SkillSpace, encoder: Encoder | None) -> Method:
    kind = METHODS.get(name, TaskReward)
    narrow: dict[str, Any] = {"comsd": {"k": 4}, "cic": {"k": 4}, "aps": {"k": 4}, "cesd": {"k": 4}}
    values = {"hidden": 8, **narrow.get(name, {})}
    return kind(kind.config_class(**values), space, encoder.spec if encoder else plain_obs(4))


def make(
    name: str = "comsd",
    num_envs: int = 1,
    ends: Ends | None = None,
    *,
    space: SkillSpace | None = None,
    selector: SkillSelector | None = None,
    precision: str = "float32",
    encoder: bool = False,
    sac: bool = False,
    env_class: type[FakeEnv] = FakeEnv,
    **values: Any,
) -> OffPolicyTrainer:
    torch.manual_seed(0)
    space, module = space or OneHot(3), TanhEncoder() if encoder else None
    of_agent = {key: values.pop(key) for key in AGENT if key in values}
    method = make_method(name, space, module)
    make_agent: Any = SAC if sac else DDPG
    config = SACConfig if sac else DDPGConfig
    agent = make_agent(
        config(**{"hidden": 8, **of_agent}), space, plain_obs(4), 2, method.critic, module
    )
    usual = {"batch_size": 8, "replay": 200, "random_steps": 20, "update_every": 2, "hold": 4}
    settings = OffPolicySettings(envs=num_envs, **{**usual, **values})
    seed = np.random.SeedSequence(0)
    env = env_class(num_envs, ends=ends)
    return OffPolicyTrainer(env, agent, method, settings, seed, selector, precision)


def train(trainer: OffPolicyTrainer, steps: int) -> None:
    while trainer.steps < steps:
        trainer.train_step()


# --- acting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_envs", "every"), [(1, 4), (4, 4), (10, 2), (4, 6)])
@pytest.mark.parametrize("ends", [None, uneven])
def test_updates_begin_after_the_random_steps_and_keep_their_ratio(
    num_envs: int, every: int, ends: Ends | None
) -> None:
    trainer = make(num_envs=num_envs, update_every=every, ends=ends, random_steps=40)
    while trainer.steps < 40:
        assert (trainer.train_step() == {}) == (trainer.steps < 40)
    start, first = trainer.updates, trainer.steps
    train(trainer, 80)
    assert trainer.updates - start == trainer.steps // every - first // every


def test_learning_waits_for_a_whole_window() -> None:
    trainer = make(random_steps=0, update_every=1, n_step=3)
    assert [bool(trainer.train_step()) for _ in range(4)] == [False, False, True, True]


@pytest.mark.parametrize("ends", [None, uneven])
def test_a_skill_is_held_and_starts_anew_with_the_episode(ends: Ends | None) -> None:
    trainer = make(num_envs=2, ends=ends, hold=3, space=Box(2), random_steps=10**6)
    clocks: list[np.ndarray] = []
    skills: list[np.ndarray] = []
    for _ in range(60):
        clocks.append(trainer.obs[:, 2].copy())
        trainer.collect_step()
        skills.append(trainer.skill.numpy().copy())
    for i in range(2):
        for t in range(1, 60):
            changed = bool((skills[t][i] != skills[t - 1][i]).any())
            assert changed == (clocks[t][i] % 3 == 0)


def test_actions_come_from_the_policy_of_the_skill_that_is_stored() -> None:
    trainer = make(num_envs=2, ends=uneven, noise=0.0, update_every=10**6, space=Box(3))
    for _ in range(60):
        trainer.collect_step()
    batch = trainer.replay.transitions()
    wanted = trainer.policy(batch.obs, batch.skill)
    acted = (batch.action - wanted).abs().amax(-1) < 1e-5
    assert len(batch.obs) == 120
    assert int(acted.sum()) == 120 - 20  # all but the random ones
    moved = batch.next_obs - batch.obs
    torch.testing.assert_close(moved[:, :2], 0.3 * batch.action, atol=1e-5, rtol=1e-4)
    assert bool((moved[:, 2] == 1).all())  # never from one episode into another
    assert bool((moved[:, 3] == 0).all())
    torch.testing.assert_close(batch.reward, batch.next_obs[:, 0], atol=1e-5, rtol=1e-4)


def test_terminations_reach_the_batch() -> None:
    trainer = make(num_envs=2, ends=uneven)
    train(trainer, 60)
    batch = trainer.replay.transitions()
    for episode, clock, discount in zip(
        batch.obs[:, 3].tolist(),
        batch.next_obs[:, 2].tolist(),
        batch.discount.tolist(),
        strict=True,
    ):
        possible = [uneven(env, int(episode)) == clock for env in range(2)]
        assert discount in (0, 1)
        assert all(possible) <= (discount == 0) <= any(possible)


def test_every_step_may_terminate_an_episode() -> None:
    trainer = make(num_envs=2, ends=at_once, n_step=3)
    train(trainer, 40)
    batch = trainer.sample("replay")
    assert not batch.discount.any()
    assert torch.equal(batch.next_obs, batch.one_step_obs)
    assert trainer.updates > 0


def test_no_step_that_begins_an_episode_is_replayed() -> None:
    trainer = make(num_envs=3, ends=uneven, hold=3, replay=90, env_class=NextStepEnv)
    seen = set()
    for _ in range(200):
        trainer.train_step()
        batch = trainer.replay.transitions()
        obs, after = batch.obs.numpy(), batch.next_obs.numpy()
        np.testing.assert_allclose(after[:, :2], obs[:, :2] + 0.3 * batch.action.numpy(), atol=1e-6)
        np.testing.assert_array_equal(after[:, 2:], obs[:, 2:] + [1, 0])  # clock, episode
        np.testing.assert_allclose(batch.reward, after[:, 0], atol=1e-6)
        seen |= set(map(tuple, obs[:, 2:].tolist()))
    starts = {int(episode) for clock, episode in seen if clock == 0}
    assert starts == set(range(len(starts)))  # every episode, from its first step
    assert len(starts) > 30


def test_a_selected_skill_acts_from_the_first_step() -> None:
    """The best of two by the rewards of the replay; no random actions."""
    candidates = torch.eye(3)[:2]
    trainer = make("task", selector=BestOfK(candidates), noise=0.0, random_steps=20, hold=8)
    assert trainer.selected_skill is None
    train(trainer, 16)
    batch = trainer.replay.transitions()
    torch.testing.assert_close(batch.action, trainer.policy(batch.obs, batch.skill))
    means = [batch.reward[(batch.skill == c).all(-1)].mean().item() for c in candidates]
    train(trainer, 18)
    assert trainer.selected_skill is not None
    assert torch.equal(trainer.selected_skill, candidates[int(np.argmax(means))])


# --- learning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3])
def test_steps_of_the_representation_per_update(steps: int) -> None:
    trainer = make("becl", representation_steps=steps)
    train(trainer, 40)
    assert trainer.updates > 0
    assert trainer.optimizer is not None
    counts = [state["step"].item() for state in trainer.optimizer.state.values()]
    assert set(counts) == {steps * trainer.updates}
    critic = trainer.agent.optimizers["critic"]
    assert {state["step"].item() for state in critic.state.values()} == {trainer.updates}


def test_a_representation_that_learns_less_often_than_the_agent() -> None:
    trainer = make("comsd", representation_every=4)
    figures = [metrics for metrics in (trainer.train_step() for _ in range(40)) if metrics]
    assert all("comsd/nce" in metrics for metrics in figures)  # logged whether it learns or not
    assert trainer.optimizer is not None
    counts = {state["step"].item() for state in trainer.optimizer.state.values()}
    assert trainer.updates > 4
    assert counts == {-(-trainer.updates // 4)}


def test_the_diagnostics_change_nothing() -> None:
    ours, twin = make(ends=uneven), make(ends=uneven)
    for trainer in (ours, twin):
        train(trainer, 40)
    figures = ours.diagnostics()
    assert {"comsd/r_exp_low", "comsd/r_div_weighted_high", "health/retrieval"} <= set(figures)
    for _ in range(5):
        a, b = ours.train_step() or {}, twin.train_step() or {}
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_there_are_no_diagnostics_before_the_first_update() -> None:
    assert make().diagnostics() == {}


def test_an_encoder_is_trained() -> None:
    trainer = make("diayn", encoder=True)
    before = [p.detach().clone() for p in trainer.agent.encoder.parameters()]
    train(trainer, 30)
    pairs = zip(trainer.agent.encoder.parameters(), before, strict=True)
    assert not any(torch.equal(p, old) for p, old in pairs)
    assert trainer.diagnostics().keys() >= {"health/retrieval"}


@pytest.mark.parametrize("layer", ["hidden.0", "out"])  # ReLU can mask the first
def test_weights_that_are_not_finite_stop_the_run_by_name(layer: str) -> None:
    trainer = make()
    train(trainer, 24)
    actor: Any = trainer.agent.get_submodule(f"actor.{layer}")
    with torch.no_grad():
        actor.weight[0] = float("nan")
    with pytest.raises(RunError, match=rf"NaN or infinity in actor\.{layer}\.weight"):
        train(trainer, 400)


def test_metrics_that_are_not_finite_stop_the_run_by_name() -> None:
    trainer = make()
    train(trainer, 24)
    critic: Any = trainer.agent.get_submodule("critic.q1.out")
    with torch.no_grad():
        critic.weight[0] = float("nan")
    with pytest.raises(RunError, match="NaN or infinity in ddpg/q, ddpg/squared_error"):
        trainer.train_step()


# --- checkpoints ----------------------------------------------------------------------------------


def tensors(trainer: OffPolicyTrainer) -> dict[str, Tensor]:
    """Everything that training depends on, by name."""
    state = trainer.state_dict()
    state["replay"].pop("chunks")  # where they are cut depends on when it was saved
    found: dict[str, Tensor] = {}
    found["tree"] = torch.tensor(list(str(checkpoint.pack(state, "", found)).encode()))
    batch = trainer.replay.transitions()
    return found | {f"replay/{name}": x for name, x in zip(batch._fields, batch, strict=True)}


def check_continues(folder: Path, at: tuple[int, ...], until: int, **options: Any) -> None:
    """Interrupted and restored at some steps, or not at all: the same bits."""
    whole = make(**options)
    train(whole, until)
    trainer = make(**options)
    for step in at:
        train(trainer, step)
        checkpoint.save(folder, trainer.steps, trainer.state_dict())
        trainer = make(**options)
        torch.randn(7)  # a new process is somewhere else in torch's random numbers
        trainer.load_state_dict(checkpoint.latest(folder)[0])
    train(trainer, until)
    ours, wanted = tensors(trainer), tensors(whole)
    assert ours.keys() == wanted.keys()
    assert [name for name in wanted if not torch.equal(ours[name], wanted[name])] == []


@pytest.mark.parametrize("sac", [False, True], ids=["ddpg", "sac"])
@pytest.mark.parametrize(("name", "kind"), method_cases())
def test_every_method_goes_on_from_a_checkpoint(
    name: str, kind: str, sac: bool, tmp_path: Path
) -> None:
    space = make_space(kind, 3)
    check_continues(tmp_path, (27,), 50, name=name, space=space, num_envs=3, ends=uneven, sac=sac)


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("ends", [None, uneven, at_once])
def test_training_goes_on_from_several_checkpoints(
    num_envs: int, ends: Ends | None, tmp_path: Path
) -> None:
    """Before learning begins, in the middle of episodes, and after the replay is full."""
    options = {"num_envs": num_envs, "ends": ends, "replay": 60, "n_step": 2}
    check_continues(tmp_path, (9, 33, 51, 120), 160, **options)


def test_episodes_that_begin_in_the_next_step_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    check_continues(tmp_path, (52, 61), 90, num_envs=3, ends=uneven, env_class=NextStepEnv)


@pytest.mark.parametrize("sac", [False, True], ids=["ddpg", "sac"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_an_encoder_goes_on_from_a_checkpoint(precision: str, sac: bool, tmp_path: Path) -> None:
    options = {"name": "metra", "encoder": True, "precision": precision, "ends": uneven}
    check_continues(tmp_path, (31,), 60, sac=sac, **options)


def test_exploration_noise_goes_on_from_a_checkpoint() -> None:
    """From the moment it is loaded, as an evaluation that was put off comes first."""
    trainer, again = (make(noise_start=1.0, noise_steps=100) for _ in range(2))
    train(trainer, 40)
    again.load_state_dict(trainer.state_dict())
    assert again.agent.noise.std == trainer.agent.noise.std == pytest.approx(0.68)  # pyright: ignore


def test_a_checkpoint_of_another_kind_of_device_is_loaded() -> None:
    """Its generator has a state of another size: CUDA's has 16 bytes."""
    trainer, again = make(), make()
    train(trainer, 40)
    state = trainer.state_dict()
    state["training"]["noise"] = state["training"]["noise"][:16]
    again.load_state_dict(state)
    train(again, 60)


def test_a_selector_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    whole, trainer, again = (
        make("task", selector=BestOfK(torch.eye(3)), ends=uneven) for _ in range(3)
    )
    train(whole, 60)
    train(trainer, 5)
    checkpoint.save(tmp_path, 5, trainer.state_dict())
    again.load_state_dict(checkpoint.latest(tmp_path)[0])
    train(again, 60)
    assert again.selected_skill is not None
    ours, wanted = tensors(again), tensors(whole)
    assert [name for name in wanted if not torch.equal(ours[name], wanted[name])] == []


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_the_same_seed_gives_the_same_bits(precision: str) -> None:
    one, two = (make(precision=precision, num_envs=2, ends=uneven) for _ in range(2))
    # torch's random numbers belong to the process: one after the other
    torch.manual_seed(1)
    train(one, 50)
    torch.manual_seed(1)
    train(two, 50)
    ours, wanted = tensors(one), tensors(two)
    assert [name for name in wanted if not torch.equal(ours[name], wanted[name])] == []


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"n_step": 9}, r"train.n_step is 9; it must be at most 8 \(episode, half the replay"),
        ({"n_step": 5, "replay": 8}, r"train.n_step is 5; it must be at most 4"),
        ({"n_step": 5, "one_skill": True, "hold": 4}, r"at most 4 \(.* or train.hold\)"),
        ({"batch_size": 3}, r"method.k is 4; it must be at most 3 \(train.batch_size\)"),
        ({"random_steps": 1000}, r"steps is 1000; it must be more than train.random_steps 1000"),
    ],
)
def test_a_run_that_could_not_learn_is_refused(values: dict[str, Any], sentence: str) -> None:
    method = METHODS["cic"].config_class(k=4)  # pyright: ignore[reportCallIssue]
    train = OffPolicySettings(**{"random_steps": 10, **values})
    config = Config(RunSettings(steps=1000), method, DDPGConfig(), train, Settings())
    with pytest.raises(InputError, match=sentence):
        check_off_policy(config, OneHot(3), FakeEnv(1))
