"""Does it learn? Minutes each; run by `make test-slow`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import comsd
from comsd.agents.base import make_policy_fn
from comsd.agents.sac import SAC, SACConfig
from comsd.evaluation.maze import CLAIMS
from comsd.methods.task import TaskReward
from comsd.skills import NoSkill
from comsd.training.off_policy import OffPolicySettings, OffPolicyTrainer
from comsd.types import PolicyFn
from pendulum import Pendulum

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("skills", [6, 10])
def test_comsd_reaches_the_papers_claim(skills: int, tmp_path: Path) -> None:
    """A seed that no published figure uses, 200 cycles."""
    run = comsd.pretrain(
        "comsd",
        env="maze-tree",
        preset="lite",
        skills=skills,
        seed=1000,
        steps=500_000,
        run=tmp_path / "run",
    )
    figures = comsd.evaluate(run).metrics
    assert {n: figures[n] for n, b in CLAIMS[skills].items() if figures[n] < b} == {}


def mean_return(policy_fn: PolicyFn) -> float:
    """Of an episode each of 20 pendulums, always the same."""
    env = Pendulum(20, seed=7)
    obs, total = env.reset(), 0.0
    for _ in range(env.horizon):
        step = env.step(policy_fn(obs))
        obs, total = step.obs, total + float(step.reward.mean())
    return total


@pytest.mark.parametrize("seed", [0, 1])
def test_sac_swings_up_a_pendulum(seed: int) -> None:
    """Random actions earn -1177; 16,000 steps -147 with seed 0 and -148 with seed 1."""
    rng = np.random.default_rng(0)
    random = mean_return(lambda obs: rng.uniform(-1, 1, (len(obs), 1)).astype(np.float32))
    torch.manual_seed(seed)
    env, space = Pendulum(4, seed), NoSkill(0)
    config = SACConfig(hidden=64, lr=1e-3, temperature_lr=1e-3)
    agent = SAC(config, space, env.obs_spec, env.action_dim)
    method = TaskReward(TaskReward.config_class(), space, env.obs_spec)
    settings = OffPolicySettings(
        envs=4,
        batch_size=128,
        replay=50_000,
        n_step=1,
        hold=env.horizon,
        random_steps=1000,
        update_every=4,
    )
    trainer = OffPolicyTrainer(env, agent, method, settings, np.random.SeedSequence(seed))
    while trainer.steps < 16_000:
        trainer.train_step()
    learned = mean_return(make_policy_fn(trainer.policy, torch.zeros(20, 0), None))
    assert random < -900
    assert learned > -300


def test_without_the_diversity_reward_skills_are_harder_to_tell_apart(tmp_path: Path) -> None:
    figures = {}
    for diversity in (True, False):
        run = comsd.pretrain(
            "comsd",
            env="maze-tree",
            preset="lite",
            skills=10,
            seed=1001,
            steps=375_000,
            run=tmp_path / str(diversity),
            method={"diversity": diversity},
        )
        figures[diversity] = comsd.evaluate(run).metrics
    for name in ("identification", "end_information"):
        assert figures[True][name] > figures[False][name] + 0.05
