"""Metrics of roll-outs on point sets whose answers are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.evaluation.held_out import held_out, own_above_others, score_metrics
from comsd.evaluation.metrics import (
    activity,
    akd,
    flag_metrics,
    identification,
    identified,
    mean_states,
    mean_with_interval,
    ms_coverage,
    rank_correlation,
    state_coverage,
    sweep_metrics,
    xy_coverage,
)
from comsd.evaluation.rollouts import Rollouts, roll_out
from comsd.methods.cic import CIC, CICConfig
from comsd.methods.statistics import retrieval
from comsd.skill_sets import FLAGS, flag_grid, identified_skills, skill_sweeps, sweep_title
from comsd.skills import Box, OneHot, Sphere
from counter import Counter
from fake_env import FakeEnv


def of(states: NDArray[np.float32], length: object = None, positions: object = None) -> Rollouts:
    """Roll-outs with these states (skills, starts, time, O)."""
    whole = np.full(states.shape[:2], states.shape[2])
    return Rollouts(
        states,
        whole if length is None else np.array(length),
        None if positions is None else np.array(positions, float),
    )


def test_akd_of_points_on_a_line() -> None:
    """0, 1, 3 with k = 2: distances 1 3, 1 2, 2 3; a robot at rest has none."""
    assert akd(np.array([[0.0], [1.0], [3.0]], np.float32), k=2) == pytest.approx(12 / 6)
    assert akd(np.full((3, 1), 5, np.float32), k=2) == 0
    assert akd(np.array([[0.0], [4.0]]), k=16) == 4  # fewer others than k: all of them
    assert akd(np.zeros((1, 3))) == 0


def test_only_steps_of_the_first_episode_count() -> None:
    states = np.array([0.0, 1, 3, 999], np.float32).reshape(1, 1, 4, 1).repeat(2, 1)
    rollouts = of(states, [[3, 2]])
    assert activity(rollouts, k=2).tolist() == [[2, 1]]
    assert mean_states(rollouts).tolist() == [[(4 / 3 + 1 / 2) / 2]]
    assert rollouts.std(states)[0, 1, 0] == 0.5
    assert state_coverage(rollouts, rows=5) == pytest.approx(np.mean([1, 1, 2.0]), abs=2)


def test_a_skill_has_the_mean_over_its_starts() -> None:
    """Two skills, AKD 1 and 3, 5 and 9 from two starts each."""
    values = sweep_metrics("flag", np.array([[1.0, 3], [5, 9]]), np.zeros((2, 1)))
    assert values["akd_max_flag"] == 7
    assert values["akd_range_flag"] == 5
    assert values["akd_variance_flag"] == 6.25
    assert values["akd_mean_flag"] == 4.5
    assert values["akd_sd_flag"] == pytest.approx((math.sqrt(2) + math.sqrt(8)) / 2)
    assert values["ms_coverage1_flag"] == 0
    assert "ms_coverage3_flag" not in values  # there is only one other
    assert "akd_sd_flag" not in sweep_metrics("flag", np.ones((2, 1)), np.zeros((2, 1)))


def test_ms_coverage_of_mean_states() -> None:
    """Means 0, 1, 3, 7: the nearest other of each is 1, 1, 2, 4 away."""
    states = np.array([0.0, 1, 3, 7], np.float32)[:, None, None, None] + np.zeros((4, 2, 10, 1))
    states[:, :, ::2] += 1  # a state that swings around the same mean
    states[:, :, 1::2] -= 1
    means = mean_states(of(states.astype(np.float32)))
    assert ms_coverage(means, k=1) == pytest.approx(2)
    pairwise = np.mean([1, 3, 7, 1, 2, 6, 3, 2, 4, 7, 6, 4])
    assert ms_coverage(means, k=3) == pytest.approx(pairwise)


# --- activity along the flag ----------------------------------------------------------------------


def test_activity_along_the_flag_is_a_mean_with_a_rank_correlation() -> None:
    rng = np.random.default_rng(0)
    active = rng.uniform(0, 4, (len(FLAGS), 5, 6)) + 10 - 8 * np.array(FLAGS)[:, None, None]
    measured = flag_metrics(active)
    assert measured.values["activity_0"] == pytest.approx(active[0].mean())
    assert measured.values["activity_1"] == pytest.approx(active[-1].mean())
    skills = active.mean(2)
    rho = spearmanr(np.repeat(FLAGS, 5), skills.ravel())[0]
    assert measured.values["activity_rho"] == pytest.approx(rho)
    for name, value in measured.values.items():
        low, high = measured.intervals[name]
        assert low <= value <= high
    assert measured.intervals["activity_rho"][1] < -0.5


def test_the_interval_is_as_wide_as_skills_differ() -> None:
    """Skills of AKD 0 and 10: the mean of 12 of them has a standard error of 5 / sqrt(12)."""
    active = np.tile(np.array([0.0, 10] * 6)[:, None], (len(FLAGS), 1, 12))
    low, high = flag_metrics(active).intervals["activity_0"]
    assert high - low == pytest.approx(2 * 1.96 * 5 / math.sqrt(12), rel=0.15)
    assert flag_metrics(active).values["activity_rho"] == pytest.approx(0, abs=1e-9)


def test_no_rank_correlation_where_all_are_alike() -> None:
    assert rank_correlation(np.ones((1, 7, 3))).tolist() == [0]


# --- differences and coverage ---------------------------------------------------------------------


def test_identification_is_one_for_separate_skills_and_chance_for_equal_ones() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(16, 6, 4))
    apart = noise + 100 * np.arange(16)[:, None, None]
    assert identified(apart).all()
    assert identified(noise).mean() < 0.2
    # Leaving one out: a skill of two far-apart roll-outs cannot vouch for itself.
    alone = np.array([[[0.0], [10.0]], [[0.1], [0.1]]])
    assert identified(alone).tolist() == [[False, False], [True, True]]


def test_skills_are_identified_by_mean_and_spread_of_their_states() -> None:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(3, 4, 200, 2)) * np.array([1, 5, 25])[:, None, None, None]
    measured = identification(of(states.astype(np.float32)))
    assert measured.values["identification"] == 1
    assert measured.intervals == {}  # not from 1 to 1


def test_there_is_no_interval_from_a_few() -> None:
    """A bootstrap over two starts may exclude the estimate itself."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(8, 6, 30, 2)).astype(np.float32)
    low, high = identification(of(noise)).intervals["identification"]
    assert low < high
    assert identification(of(noise[:, :3])).intervals == {}
    active = rng.uniform(size=(len(FLAGS), 12, 4))
    assert set(flag_metrics(active).intervals) == set(flag_metrics(active).values)
    for few in (active[..., :3], active[:, :3]):
        assert flag_metrics(few).intervals == {}
        assert "activity_rho" in flag_metrics(few).values
    assert mean_with_interval("x", np.ones(9)).intervals == {}


def test_states_are_pooled_over_skills() -> None:
    """Each skill stays in one place; together they are on a line."""
    states = np.arange(6, dtype=np.float32).reshape(6, 1, 1, 1).repeat(3, 2)
    assert activity(of(states), k=2).max() == 0
    assert state_coverage(of(states)) > 1
    assert state_coverage(of(0 * states)) == 0


def test_squares_of_the_plane_are_counted_once() -> None:
    places = [[[0.1, 0.1], [0.9, 0.2], [1.1, 0.2]], [[0.5, 0.5], [-0.1, 0.5], [77, 77]]]
    rollouts = of(np.zeros((2, 1, 2, 1), np.float32), [[2], [1]], np.array(places)[:, None])
    assert xy_coverage(rollouts, 1.0) == 3  # what follows the end does not count
    assert xy_coverage(rollouts, 10.0) == 2


# --- roll-outs ------------------------------------------------------------------------------------


def test_roll_outs_are_by_skill_and_start_and_end_with_the_episode() -> None:
    env = FakeEnv(6, horizon=8, ends=lambda i, _: 3 if i == 4 else None)
    action = np.linspace(0, 0.5, 6, dtype=np.float32)[:, None].repeat(2, 1)
    told: list[int] = []
    watch = lambda: {"clock": env.clock}  # noqa: E731
    rollouts = roll_out(env, lambda _: action, 2, watch=watch, tick=told.append)
    assert rollouts.obs.shape == (2, 3, 8, 4)
    assert rollouts.length.tolist() == [[8, 8, 8], [8, 3, 8]]
    assert sum(told) == 6 * 8
    assert rollouts.watched["clock"][0, 0].tolist() == list(range(1, 9))
    assert rollouts.positions is not None
    assert rollouts.positions.shape == (2, 3, 9, 2)
    track = rollouts.tracks()[1][1]  # environment 4
    assert track - track[0] == pytest.approx(0.12 * np.arange(4)[:, None].repeat(2, 1))
    assert rollouts.obs[1, 1, :3, :2] == pytest.approx(track[1:])


def test_entries_of_the_observation_can_stand_for_the_position() -> None:
    env = FakeEnv(2, horizon=4)
    rollouts = roll_out(env, lambda _: np.ones((2, 2), np.float32), 1, xy=(2, 0))
    assert rollouts.positions is not None
    assert rollouts.positions[0, 0, :, 0].tolist() == [0, 1, 2, 3, 4]  # the clock
    assert rollouts.positions[:, :, 1:] == pytest.approx(rollouts.obs[..., [2, 0]])


# --- skills ---------------------------------------------------------------------------------------


def test_sweeps_are_the_papers_the_flags_and_random_skills() -> None:
    box = skill_sweeps(Box(4))
    assert list(box) == ["constant", "flag", "random"]
    assert box["constant"][3].tolist() == pytest.approx([0.3] * 4)
    assert box["flag"][3].tolist() == pytest.approx([0.3, 0.5, 0.5, 0.5])
    assert torch.equal(box["random"], skill_sweeps(Box(4))["random"])
    assert list(skill_sweeps(OneHot(16))) == ["constant", "random"]
    for space in (OneHot(16), Sphere(3)):
        assert len(skill_sweeps(space)["constant"]) == 11
        assert len(skill_sweeps(space)["random"]) == 12
    assert len(skill_sweeps(OneHot(12))["random"].unique(dim=0)) == 12
    small = skill_sweeps(OneHot(5))  # the random ones would be the same five
    assert [(name, len(skills)) for name, skills in small.items()] == [("constant", 5)]
    titles = [sweep_title(OneHot(n), "constant", OneHot(n).grid(11)) for n in (5, 16)]
    assert titles == ["all 5 skills", "constant sweep"]
    assert len(identified_skills(OneHot(5), seed=3)) == 5
    assert len(identified_skills(Box(5), seed=3)) == 32


def test_the_same_random_skills_are_at_every_flag() -> None:
    grid = flag_grid(Box(4))
    assert grid is not None
    assert grid.shape == (len(FLAGS), 12, 4)
    assert grid[:, 5, 0].tolist() == pytest.approx(FLAGS)
    assert torch.equal(grid[0, :, 1:], grid[-1, :, 1:])
    assert torch.equal(grid[0, :, 1:], skill_sweeps(Box(4))["random"][:, 1:])
    assert flag_grid(Sphere(4)) is None
    assert flag_grid(OneHot(4)) is None


# --- what the representation knows ----------------------------------------------------------------


def test_retrieval_counts_any_transition_of_the_same_skill() -> None:
    skill = torch.tensor([[1.0, 0], [1.0, 0], [0.5, 0.5]])
    scores = torch.tensor([[0.0, 1, 0], [0, 0, 1], [0, 0, 1]])  # row 0 finds row 1: same skill
    assert retrieval(scores, skill).item() == pytest.approx(2 / 3)


def test_area_under_the_curve_by_hand() -> None:
    """Rows of one skill are not each other's rivals; a tie is half."""
    skill = torch.tensor([[1.0, 0], [1.0, 0], [0.0, 1]])
    scores = torch.tensor([[2.0, 9, 1], [0, 3, 3], [5, 1, 4]])
    assert own_above_others(scores, skill).tolist() == [1, 0.5, 0.5]


def test_nats_of_scores_by_hand() -> None:
    """Two skills, own scores higher by a: log 2 - log(1 + e^-a); nothing known is no nats."""
    skill = torch.eye(2)
    measured = score_metrics(torch.tensor([[1.5, 0], [0, 1.5]]), skill)
    assert measured.values["held_out_nats"] == pytest.approx(math.log(2 / (1 + math.exp(-1.5))))
    assert measured.values["held_out_auc"] == 1
    assert score_metrics(torch.zeros(2, 2), skill).values["held_out_nats"] == pytest.approx(
        0, abs=1e-6
    )
    assert score_metrics(torch.zeros(2, 2), skill).values["held_out_auc"] == 0.5
    sure_and_wrong = score_metrics(torch.tensor([[0, 9.0], [9.0, 0]]), skill).values
    assert sure_and_wrong["held_out_nats"] < -8


def test_skills_that_no_episode_outlasts_are_scored() -> None:
    """Episodes end after 3 steps, skills are held for 5."""
    space, env = Box(2), Counter(4, goal=2.5)
    agent = DDPG(DDPGConfig(hidden=8, noise=0.0), space, env.obs_spec, 1)
    torch.nn.init.constant_(agent.actor.out.get_parameter("bias"), 9.0)  # always 1
    method = CIC(CICConfig(hidden=8), space, env.obs_spec)
    found = held_out(env, space, agent.policy, method, hold=5, n_step=2, seed=0)
    assert found.values["held_out_chance"] == 0.25
    assert "held_out_auc" in found.values
    found = held_out(env, space, agent.policy, method, hold=5, n_step=4, seed=0)
    assert found.values == {}
