"""The maze metrics on scripted agents whose scores are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import entropy

from comsd.envs.maze import MAZES, REACH, MazeEnv
from comsd.evaluation.maze import (
    CLAIMS,
    MEANINGS,
    corrected_information,
    identification,
    jensen_shannon,
    maze_metrics,
    maze_rollouts,
    owners,
)
from comsd.skills import OneHot
from comsd.training.rollout import Stopped
from mazes import cell_index

TREE = MAZES["tree"]
Paths = NDArray[np.float32]


def staying(cells: list[tuple[int, int]], per_skill: int = 100) -> Paths:
    """Skill i sits in cell i all the time, with a little noise."""
    rng = np.random.default_rng(0)
    places = np.array(cells, dtype=np.float32)[:, None, None]
    noise = rng.uniform(-0.3, 0.3, (len(cells), per_skill, 51, 2))
    return (places + noise).astype(np.float32)


def metrics_of(paths: Paths) -> dict[str, float]:
    return maze_metrics(TREE, paths, cell_index(TREE, paths))


def test_distinct_places_are_fully_informative() -> None:
    metrics = metrics_of(staying([(-6, -6), (-2, -6), (2, -6), (6, -6), (-3, -2), (3, -2)]))
    assert metrics["identification"] == 1
    assert metrics["end_information"] == pytest.approx(1, abs=0.01)
    assert metrics["time_information"] == pytest.approx(1, abs=0.01)
    assert metrics["owned_arms"] == 4
    assert metrics["owned_branches"] == 2
    assert metrics["arms_and_branches_apart"] == 1
    assert metrics["occupancy_entropy"] == pytest.approx(math.log(6) / math.log(31))
    assert metrics["occupancy_distance"] == pytest.approx(1)
    assert metrics["duplicate_pairs"] == 0
    assert metrics["territory_evenness"] == pytest.approx(1)
    assert metrics["end_depth"] == pytest.approx((4 * 12 + 2 * 5) / 6)
    assert all(metrics[name] >= bound for name, bound in CLAIMS[6].items() if "occup" not in name)


def test_one_place_for_all_is_uninformative() -> None:
    metrics = metrics_of(staying([(0, 0)] * 10))
    assert metrics["identification"] < 0.2
    assert metrics["end_information"] == pytest.approx(0, abs=0.01)
    assert metrics["occupancy_entropy"] == pytest.approx(0)
    assert metrics["duplicate_pairs"] == 45
    assert metrics["owned_arms"] == 0
    assert metrics["skills_without_territory"] == 9


def test_one_skill_cannot_own_two_places_and_the_rest_stand_apart() -> None:
    """Two leaves shared by two skills half and half: both arms are owned, by the same skill."""
    paths = staying([(-6, -6), (-6, -6)])
    paths[:, 50:] += np.array([12, 0], dtype=np.float32)  # half the rollouts in the other leaf
    metrics = metrics_of(paths)
    assert metrics["owned_arms"] == 2
    assert metrics["arms_and_branches_apart"] == 0


def test_owning_takes_half_of_the_rollouts() -> None:
    ends = np.array([[0] * 49 + [1] * 51, [2] * 100])
    assert owners(ends, [{0}, {1}, {0, 1}, {3}]) == [None, 0, 0, None]


def test_a_random_policy_has_the_known_metrics() -> None:
    """Reference values of a uniform random walk: H .65, end depth 3.5, no information."""
    metrics = maze_metrics(TREE, *maze_rollouts(TREE, None, OneHot(10), 100, seed=0))
    assert metrics["occupancy_entropy"] == pytest.approx(0.65, abs=0.03)
    assert metrics["end_depth"] == pytest.approx(3.6, abs=0.4)
    assert metrics["identification"] == pytest.approx(0.1, abs=0.04)
    assert metrics["end_information"] == pytest.approx(0, abs=0.04)
    assert metrics["owned_arms"] == 0
    assert set(metrics) == set(MEANINGS)


def test_information_is_corrected_for_few_samples(rng: np.random.Generator) -> None:
    """300 rollouts, 6 skills, 31 cells, no relation: plain counts would claim .25 nats."""
    label, value = np.repeat(np.arange(6), 50), rng.integers(31, size=300)
    joint = np.histogram2d(label, value, bins=(6, 31))[0]
    plain = float(entropy(joint.sum(1)) + entropy(joint.sum(0)) - entropy(joint.ravel()))
    assert plain > 0.25
    assert abs(corrected_information(label, value)) < plain / 2


def test_information_by_hand() -> None:
    """Two labels and two values in perfect agreement, 2 N = 8: log 2 + 1/8 + 1/8 - 1/8."""
    label = np.array([0, 0, 1, 1])
    assert corrected_information(label, label) == pytest.approx(math.log(2) + 1 / 8)


def test_identification_leaves_the_point_itself_out() -> None:
    """Alternating labels on a line: every neighbour is of the other kind more often than not."""
    line = np.arange(40, dtype=np.float32)[:, None].repeat(2, 1)
    assert identification(line, np.arange(40) % 2) < 0.5
    same_spot = np.zeros((20, 2), dtype=np.float32)
    assert identification(same_spot, np.arange(20) // 10) <= 0.6


def test_jensen_shannon_bounds() -> None:
    p, q = [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]
    assert jensen_shannon(np.array([p, q, p])) == pytest.approx([1, 0, 1])
    assert jensen_shannon(np.array([[1.0, 0], [0.5, 0.5]])) == pytest.approx(0.558, abs=1e-3)


def test_a_vote_is_won_by_the_most_and_a_tie_by_the_first() -> None:
    """Six points and five neighbours: each sees the labels of all others, three against two."""
    ends = np.arange(6, dtype=np.float32)[:, None].repeat(2, 1)
    assert identification(ends, np.array([0, 0, 0, 1, 1, 1])) == 0  # its own are always two of five
    assert identification(ends, np.array([0, 0, 0, 0, 1, 2])) == pytest.approx(4 / 6)
    assert identification(ends[:3], np.array([1, 1, 0])) == pytest.approx(0)  # 0 before 1


@pytest.mark.parametrize("after", [0, 10, 49])
def test_a_signal_ends_rollouts(after: int) -> None:
    calls = iter(range(100))
    with pytest.raises(Stopped):
        maze_rollouts(TREE, None, OneHot(3), 2, 0, stopped=lambda: next(calls) >= after)


def test_a_handful_of_rollouts_can_be_evaluated() -> None:
    metrics = maze_metrics(TREE, *maze_rollouts(TREE, None, OneHot(2), 1, seed=0))
    assert math.isfinite(metrics["identification"])


def test_starts_and_actions_are_independent() -> None:
    paths, _ = maze_rollouts(TREE, None, OneHot(2), 2000, seed=0, random_start=True)
    paths = paths.reshape(-1, 51, 2)
    start, move = paths[:, 0, 0], paths[:, 2, 1] - paths[:, 1, 1]
    assert abs(np.corrcoef(start, move)[0, 1]) < 0.1


def test_rollouts_are_seeded_and_start_where_asked() -> None:
    (one, cells), (two, _) = (maze_rollouts(TREE, None, OneHot(3), 4, seed=9) for _ in range(2))
    assert np.array_equal(one, two)
    assert np.array_equal(cells, cell_index(TREE, one))
    assert one.shape == (3, 4, 51, 2)
    assert bool((one[:, :, 0] == [0, -0.5]).all())
    spread, _ = maze_rollouts(TREE, None, OneHot(3), 4, seed=9, random_start=True)
    assert spread[:, :, 0].std() > 0.1


@pytest.mark.parametrize("name", MAZES)
def test_every_maze_can_be_evaluated(name: str) -> None:
    maze = MAZES[name]
    metrics = maze_metrics(maze, *maze_rollouts(maze, None, OneHot(3), 10, seed=0))
    if not maze.arms and not maze.branches:
        assert metrics["arms_and_branches_apart"] == 0
    assert all(math.isfinite(value) for value in metrics.values())


def test_a_point_that_rounds_onto_a_wall_stays_in_its_cell() -> None:
    """1e-9 from the right edge of the last cell: in float32 it lies on the edge."""
    maze = MAZES["corridor"]
    env = MazeEnv(maze, 1, seed=0)
    env.position, env.cell = np.array([[5.4, 0.0]]), np.array([maze.number[5, 0]])
    delta = np.array([[(5.5 - 1e-9 - 5.4) / REACH, 0.0]])
    obs = env.step(delta).obs
    assert obs[0, 0] == 5.5
    assert cell_index(maze, obs)[0] == -1
    assert env.cell[0] == maze.number[5, 0]
    paths = np.broadcast_to(obs, (2, 3, 4, 2)).copy()
    metrics = maze_metrics(maze, paths, np.full((2, 3, 4), env.cell[0]))
    assert metrics["end_depth"] == 5
