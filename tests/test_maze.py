"""The mazes: their shape, and that nothing ever leaves them."""

from __future__ import annotations

import numpy as np
import pytest

from comsd.envs.maze import HORIZON, MAZES, PULL_BACK, REACH, Maze, MazeEnv
from mazes import cell_index

TREE = MAZES["tree"]


def moved(maze: Maze, start: tuple[float, float], delta: tuple[float, float]) -> np.ndarray:
    position = np.array([start])
    cell = cell_index(maze, position)
    end, now = maze.move(position, cell, np.array([delta]), np.random.default_rng(0))
    assert cell_index(maze, end)[0] == now[0]
    return end[0]


def test_the_tree_is_the_papers() -> None:
    assert len(TREE.cells) == 31
    assert len(TREE.walls) == 64
    assert sorted(len(arm) for arm in TREE.arms) == [4, 4, 4, 4]
    assert sorted(len(branch) for branch in TREE.branches) == [6, 6]
    assert TREE.depth.max() == 12
    deepest = {TREE.cells[i] for i in np.flatnonzero(TREE.depth == 12)}
    assert deepest == {(-6, -6), (-2, -6), (2, -6), (6, -6)}
    assert np.round(TREE.moments, 2).tolist() == [[0, -3.52], [3.74, 1.59]]


def test_an_arm_is_a_leaf_with_its_corridor() -> None:
    arm = next(a for a in TREE.arms if TREE.number[6, -6] in a)
    assert {TREE.cells[i] for i in arm} == {(6, -6), (6, -5), (6, -4), (5, -4)}
    branch = next(b for b in TREE.branches if TREE.number[1, -2] in b)
    assert {TREE.cells[i] for i in branch} == {
        (1, -2), (2, -2), (3, -2), (4, -2), (4, -3), (4, -4)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "cells", "walls"),
    [("a", 17, 36), ("b", 17, 36), ("c", 17, 36), ("d", 22, 42), ("corridor", 11, 24),
     ("corridor-end", 11, 24), ("large", 100, 121), ("bottleneck", 100, 61)],
)  # fmt: skip
def test_sizes(name: str, cells: int, walls: int) -> None:
    """A spanning tree of 100 cells has 40 outer and 81 inner walls; the bottleneck 40 and 21."""
    assert (len(MAZES[name].cells), len(MAZES[name].walls)) == (cells, walls)


@pytest.mark.parametrize("name", MAZES)
def test_a_million_random_moves_never_leave_the_cells(name: str) -> None:
    maze, rng = MAZES[name], np.random.default_rng(1)
    env = MazeEnv(maze, 2000, seed=0)
    for step in range(500):
        if step % 250 == 0:
            env.reset()
        env.step(rng.uniform(-1, 1, (2000, 2)).astype(np.float32))
        assert bool((cell_index(maze, env.position) == env.cell).all())
        assert bool((env.cell >= 0).all())


def test_no_diagonal_leaks_through_a_corner() -> None:
    """Both edges of the corner are open and reached at the same time, the cell behind is solid."""
    corner = (-2.5, -4.5)
    for eps in (0.0, 1e-9, -1e-9, 1e-4):
        end = moved(TREE, (-2.9, -4.1 + eps), (0.8, -0.8))
        assert cell_index(TREE, end) >= 0
    assert cell_index(TREE, np.array([corner[0] - 0.1, corner[1] - 0.1])) == -1


def test_walls_stop_and_let_slide() -> None:
    """In the start cell moving right hits a wall; the downward part goes on in full."""
    x, y = moved(TREE, (0.0, 0.0), (0.9, -0.8))
    assert 0.5 - PULL_BACK - 2e-6 <= x < 0.5
    assert y == pytest.approx(-0.8)
    assert moved(TREE, (0.2, -0.3), (-0.1, -0.5)).tolist() == pytest.approx([0.1, -0.8])


def test_closed_edges_between_neighbours_block() -> None:
    """In the d-shaped maze the cells (0, -3) and (1, -3) touch but are not joined."""
    maze = MAZES["d"]
    assert (1, -3) in maze.cells
    assert (1, -3) not in maze.neighbours((0, -3))
    assert moved(maze, (0.0, -3.0), (0.9, 0.0))[0] < 0.5


def test_a_map_that_opens_one_way_is_refused() -> None:
    with pytest.raises(ValueError, match="not back"):
        Maze("bad", "20")


def test_a_scripted_walker_gets_deep_into_an_arm() -> None:
    env = MazeEnv(TREE, 1, seed=0, fixed_start=True)
    assert env.reset().tolist() == [[0, -0.5]]
    path = ["down"] * 2 + ["right"] * 4 + ["down"] * 2 + ["right"] * 2 + ["down"] * 2
    moves = {"down": (0, -1), "right": (1, 0)}
    for word in path:
        env.step(np.array([moves[word]], dtype=np.float32))
    for _ in range(4):  # steps are 0.95 long
        env.step(np.array([[0.5, -1]], dtype=np.float32))
    assert TREE.depth[cell_index(TREE, env.position)] >= 10


def test_starts_keep_away_from_walls() -> None:
    start = TREE.random_start(5000, np.random.default_rng(0))
    assert start.min(0).tolist() == pytest.approx([-0.45, -0.5], abs=0.01)
    assert start.max(0).tolist() == pytest.approx([0.45, 0.45], abs=0.01)


def test_episodes_last_fifty_steps_of_bounded_length() -> None:
    env = MazeEnv(MAZES["bottleneck"], 3, seed=0)
    before = env.reset()
    for t in range(1, HORIZON + 1):
        step = env.step(np.ones((3, 2), dtype=np.float32))
        assert np.abs(step.obs - before).max() <= REACH + 1e-6
        assert (env.positions().astype(np.float32) == step.obs).all()
        assert step.reward.tolist() == [0, 0, 0]
        assert not step.terminated.any()
        assert step.truncated.tolist() == [t == HORIZON] * 3
        before = step.obs


def test_a_reset_of_some_leaves_the_others_to_the_bit(rng: np.random.Generator) -> None:
    actions = rng.uniform(-1, 1, (70, 4, 2)).astype(np.float32)
    env, undisturbed = MazeEnv(TREE, 4, seed=3), MazeEnv(TREE, 4, seed=3)
    where = np.array([False, True, False, True])
    for t, action in enumerate(actions):
        if t == 20:
            before = env.position.copy()
            obs = env.reset(where)
            assert np.array_equal(obs[~where], before[~where].astype(np.float32))
            assert cell_index(TREE, obs[where]).tolist() == [TREE.number[TREE.start]] * 2
            assert np.array_equal(env.reset(np.zeros(4, bool)), obs)
        ours, theirs = env.step(action), undisturbed.step(action)
        assert np.array_equal(ours.obs[~where], theirs.obs[~where])
        if t == 20:  # later the walls may bring them together again
            assert not (ours.obs[where] == theirs.obs[where]).all(1).any()
        ends = np.where(where, t + 1 >= HORIZON + 20, t + 1 >= HORIZON)
        assert ours.ended.tolist() == ends.tolist()


def test_same_seed_same_path_and_state_restores_exactly(rng: np.random.Generator) -> None:
    actions = rng.uniform(-1, 1, (40, 8, 2)).astype(np.float32)
    first, second = MazeEnv(TREE, 8, seed=3), MazeEnv(TREE, 8, seed=3)
    for action in actions[:20]:
        assert np.array_equal(first.step(action).obs, second.step(action).obs)
    some = np.arange(8) < 3
    first.reset(some)
    other = MazeEnv(TREE, 8, seed=4)
    other.load_state_dict(first.state_dict())
    for action in actions[20:]:
        assert np.array_equal(first.step(action).obs, other.step(action).obs)
    assert np.array_equal(first.clock, other.clock)
    assert np.array_equal(first.reset(some), other.reset(some))
