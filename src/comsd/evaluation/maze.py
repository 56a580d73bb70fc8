"""How well do skills explore a maze, and can they be told apart? Numbers, not pictures.

"Cells touched at least once" is not among them: a random policy touches them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from scipy.special import entr

from comsd.envs.maze import MAZES, Maze, MazeEnv
from comsd.evaluation.base import Stopped, never
from comsd.learners.base import Learner, Policy
from comsd.skills import SkillSpace
from comsd.agents.base import make_policy_fn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from comsd.run import Run

Cells = NDArray[np.int64]

OWNED = 0.5  # a skill owns a place when at least this share of its rollouts ends there
NEIGHBOURS = 5
SHOWN = 20  # rollouts drawn per skill
DUPLICATES = 0.3  # Jensen-Shannon distance below which two skills count as the same

MEANINGS: dict[str, str] = {
    "occupancy_entropy": "H(cell) / log(cells) over all visited states; 1 = even coverage",
    "owned_arms": "dead-end arms in which some skill ends at least half its rollouts",
    "owned_branches": "branches outside the arms owned in the same way",
    "arms_and_branches_apart": "1 if distinct skills own each arm and each branch",
    "end_depth": "mean number of cells from the start to the end of a rollout",
    "identification": "5-NN leave-one-out accuracy of the skill from the end position",
    "end_information": "I(skill; end cell) / log(skills), Miller-Madow corrected",
    "time_information": "I(skill; cell at a random time) / log(skills), corrected",
    "occupancy_distance": "mean Jensen-Shannon distance between skills' occupancies",
    "nearest_occupancy_distance": "the smallest of them",
    "duplicate_pairs": "pairs of skills closer than 0.3",
    "territory_evenness": "Pielou evenness of the numbers of cells where each skill leads",
    "skills_without_territory": "skills that lead in no cell",
}

CLAIMS: dict[int, dict[str, float]] = {  # skills: what the paper's figure shows, as numbers
    6: {
        "occupancy_entropy": 0.93,
        "owned_arms": 4,
        "owned_branches": 2,
        "arms_and_branches_apart": 1,
        "identification": 0.95,
        "end_information": 0.93,
    },
    10: {
        "occupancy_entropy": 0.93,
        "owned_arms": 4,
        "identification": 0.90,
        "end_information": 0.88,
    },
}


def rollouts(
    maze: Maze,
    policy: Policy | None,
    space: SkillSpace,
    per_skill: int,
    seed: int,
    *,
    greedy: bool = False,
    random_start: bool = False,
    stopped: Callable[[], bool] = never,
) -> tuple[NDArray[np.float32], Cells]:
    """Positions (skills, rollouts, time, 2) and the cells they are in, (skills, rollouts, time).

    Without a policy of uniformly random actions. A position in float32 may lie on a wall, so the
    environment says which side it is on. Raises `Stopped` when `stopped` says so.
    """
    skills = space.grid(space.dim)
    env_seed, action_seed = np.random.SeedSequence(seed).generate_state(2)
    rng = np.random.default_rng(action_seed)
    env = MazeEnv(maze, len(skills) * per_skill, int(env_seed), fixed_start=not random_start)
    skill = skills.repeat_interleave(per_skill, 0)
    path, cells = [env.reset()], [env.cell]
    for _ in range(env.horizon):
        if stopped():
            raise Stopped
        if policy is None:
            action = rng.uniform(-1, 1, (env.num_envs, 2)).astype(np.float32)
        else:
            obs = torch.from_numpy(path[-1])
            action = make_policy_fn(policy, skill, None if greedy else rng)(obs.numpy())
        path.append(env.step(action).obs)
        cells.append(env.cell)
    shape = len(skills), per_skill, env.horizon + 1
    return np.stack(path, 1).reshape(*shape, 2), np.stack(cells, 1).reshape(shape)


def entropy(counts: NDArray[Any], base: float = math.e) -> float:
    """Of the distribution that the counts are proportional to."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum() / math.log(base))


def corrected_information(label: Cells, value: Cells) -> float:
    """I(label; value) in nats from counts, each entropy with Miller and Madow's correction."""

    def nats(*columns: Cells) -> float:
        counts = np.unique(np.stack(columns), axis=1, return_counts=True)[1]
        return entropy(counts) + (len(counts) - 1) / (2 * counts.sum())

    return float(nats(label) + nats(value) - nats(label, value))


def identification(ends: NDArray[np.float32], label: Cells) -> float:
    """Leave-one-out accuracy of a k-nearest-neighbour vote."""
    neighbours = min(NEIGHBOURS, len(ends) - 1)
    nearest = np.asarray(KDTree(ends, balanced_tree=False).query(ends, k=neighbours + 1)[1])
    rows = np.arange(len(ends))
    is_self = nearest == rows[:, None]
    is_self[~is_self.any(1), -1] = True  # many coincident points: drop the last instead
    votes = label[nearest[~is_self].reshape(len(ends), neighbours)]
    agree = (votes[:, :, None] == votes[:, None, :]).sum(2)
    first = np.where(agree == agree.max(1, keepdims=True), votes, label.max() + 1).min(1)
    return float((first == label).mean())


def jensen_shannon(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance in [0, 1] between distributions along the last axis: the root of their divergence
    in bits."""
    apart = entr((p + q) / 2) - (entr(p) + entr(q)) / 2
    return np.sqrt(np.maximum(apart.sum(-1) / math.log(2), 0.0))


def owners(ends: Cells, places: list[set[int]]) -> list[int | None]:
    """The skill with the largest share of its rollouts ending in each place, if it owns it."""
    result: list[int | None] = []
    for place in places:
        share = np.isin(ends, list(place)).mean(1)  # (skills,)
        best = int(share.argmax())
        result.append(best if share[best] >= OWNED else None)
    return result


def measure(
    maze: Maze,
    paths: NDArray[np.float32],
    cells: Cells,
    seed: int = 0,
    stopped: Callable[[], bool] = never,
) -> dict[str, float]:
    """All metrics of what `rollouts` returns. Raises `Stopped` when `stopped` says so."""
    num_skills, per_skill, length = cells.shape
    num_cells, log_skills = len(maze.cells), math.log(num_skills)
    label = np.repeat(np.arange(num_skills), per_skill)
    ends = cells[:, :, -1]
    counts = np.stack([np.bincount(c.ravel(), minlength=num_cells) for c in cells])
    share = counts / counts.sum(1, keepdims=True)  # (skills, cells)

    when = np.random.default_rng(seed).integers(1, length, size=(num_skills, per_skill, 1))
    sometime = np.take_along_axis(cells, when, 2)
    arms, branches = owners(ends, maze.arms), owners(ends, maze.branches)
    rows = []
    for i in range(num_skills - 1):
        if stopped():
            raise Stopped
        rows.append(jensen_shannon(share[i], share[i + 1 :]))
    distances = np.concatenate(rows)
    visited = share.sum(0) > 0
    territory = np.bincount(share.argmax(0)[visited], minlength=num_skills)
    owned = [o for o in arms + branches if o is not None]
    return {
        "occupancy_entropy": entropy(counts.sum(0)) / math.log(num_cells),
        "owned_arms": float(sum(o is not None for o in arms)),
        "owned_branches": float(sum(o is not None for o in branches)),
        "arms_and_branches_apart": float(
            0 < len(set(owned)) == len(owned) == len(maze.arms) + len(maze.branches)
        ),
        "end_depth": float(maze.depth[ends].mean()),
        "identification": identification(paths[:, :, -1].reshape(-1, 2), label),
        "end_information": corrected_information(label, ends.ravel()) / log_skills,
        "time_information": corrected_information(label, sometime.ravel()) / log_skills,
        "occupancy_distance": float(np.mean(distances)),
        "nearest_occupancy_distance": float(np.min(distances)),
        "duplicate_pairs": float(np.sum(distances < DUPLICATES)),
        "territory_evenness": entropy(territory) / log_skills,
        "skills_without_territory": float(np.sum(territory == 0)),
    }


class MazeEvaluator:
    """`run.rollouts` rollouts of every skill, always the same ones for the same run."""

    meanings: ClassVar[dict[str, str]] = MEANINGS
    at_start: ClassVar[bool] = False
    headline: dict[str, str] = {
        "occupancy_entropy": "coverage",
        "identification": "5-NN",
        "end_information": "I(z;end)",
    }

    def __init__(self, run: Run) -> None:
        settings = run.config.run
        self.maze = MAZES[run.spec.name.removeprefix("maze-")]
        self.space, self.per_skill = run.space, settings.rollouts
        self.seed = int(run.seeds()[3].generate_state(1)[0])  # apart from all training
        self.stopped = never
        named = run.spec.name == "maze-tree" and settings.space == "one-hot"
        self.bounds = CLAIMS.get(settings.skills, {}) if named else {}

    def follow(self, learner: Learner, stopped: Callable[[], bool]) -> dict[str, float] | None:
        self.stopped = stopped
        try:
            return self.measure(learner.policy)
        except Stopped:
            return None
        finally:
            self.stopped = never

    def measure(self, policy: Policy | None, **options: bool) -> dict[str, float]:
        what, stopped = (self.maze, policy, self.space, self.per_skill, self.seed), self.stopped
        seen = rollouts(*what, stopped=stopped, **options)
        return measure(self.maze, *seen, self.seed, stopped)

    def draw(self, axes: Axes, policy: Policy) -> None:
        draw_maze(axes, self.maze, rollouts(self.maze, policy, self.space, SHOWN, self.seed)[0])


def skill_colours(n: int) -> list[tuple[float, ...]]:
    import matplotlib  # only who draws waits for it

    if n <= 20:  # the first n of a palette, as integers select them
        return [matplotlib.colormaps["tab10" if n <= 10 else "tab20"](i) for i in range(n)]
    return [tuple(c) for c in matplotlib.colormaps["turbo"](np.linspace(0, 1, n))]


def draw_maze(axes: Axes, maze: Maze, paths: NDArray[np.float32]) -> None:
    """Rollouts (skills, rollouts, time, 2) in one colour per skill, inside the walls."""
    from matplotlib.collections import LineCollection

    for skill, colour in zip(paths, skill_colours(len(paths)), strict=True):
        axes.add_collection(
            LineCollection(list(skill), colors=[colour], alpha=0.25, linewidths=1.5)
        )
        axes.scatter(*skill[:, -1].T, s=9, color=colour, zorder=2, linewidths=0)
    axes.add_collection(LineCollection(list(maze.walls), colors="black", linewidths=2))
    axes.plot(*maze.origin, "o", color="black", markersize=4)
    axes.set_aspect("equal")
    axes.autoscale_view()
    axes.axis("off")
