"""Evaluation of skills in a maze: how well they cover it, and whether they differ.

"Cells visited at least once" is not a metric here: a random policy visits them all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree
from scipy.spatial.distance import pdist
from scipy.special import entr

from comsd.agents.base import Policy
from comsd.envs.maze import MAZES, Maze, MazeEnv
from comsd.evaluation.base import Evaluator, Options, policy_fn_of
from comsd.evaluation.metrics import Measured, Values
from comsd.evaluation.pictures import skill_colours
from comsd.evaluation.rollouts import roll_out
from comsd.runs import Run
from comsd.skills import SkillSpace
from comsd.training.rollout import StopFn, never
from comsd.training.trainer import Trainer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Paths = NDArray[np.float32]  # (skills, rollouts, time, 2)
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


def maze_rollouts(
    maze: Maze,
    policy: Policy | None,
    space: SkillSpace,
    per_skill: int,
    seed: int,
    *,
    greedy: bool = False,
    random_start: bool = False,
    stopped: StopFn = never,
) -> tuple[Paths, Cells]:
    """Positions and the cells they are in, (skills, rollouts, time).

    Without a policy, actions are uniformly random. Cells are the environment's: a position rounded
    to float32 may lie on a wall.
    """
    skills = space.grid(space.dim).repeat_interleave(per_skill, 0)
    env_seed, action_seed = np.random.SeedSequence(seed).generate_state(2)
    rng = np.random.default_rng(action_seed)
    env = MazeEnv(maze, len(skills), int(env_seed), fixed_start=not random_start)
    policy_fn = policy_fn_of(env, policy, skills, rng, noise=not greedy)
    watch = lambda: {"cell": env.cell}  # noqa: E731
    rollouts = roll_out(env, policy_fn, space.dim, watch=watch, stopped=stopped)
    start = np.full((*rollouts.length.shape, 1), maze.number[maze.start])
    assert rollouts.positions is not None
    cells = np.concatenate([start, rollouts.watched["cell"]], 2)
    return rollouts.positions.astype(np.float32), cells


def entropy(counts: NDArray[Any]) -> float:
    """Of the distribution that the counts are proportional to, in nats."""
    return float(entr(counts / counts.sum()).sum())


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


def jensen_shannon(distributions: NDArray[np.float64]) -> NDArray[np.floating]:
    """Distances in [0, 1] of all pairs of rows: the roots of their divergences in bits."""
    return pdist(distributions, "jensenshannon") / math.sqrt(math.log(2))


def owners(ends: Cells, places: list[set[int]]) -> list[int | None]:
    """The skill with the largest share of its rollouts ending in each place, if it owns it."""
    shares = [np.isin(ends, list(place)).mean(1) for place in places]  # of each skill
    return [int(share.argmax()) if share.max() >= OWNED else None for share in shares]


def end_depths(maze: Maze, cells: Cells) -> NDArray[np.int64]:
    """(skills, rollouts): the number of cells from the start to the end."""
    return maze.depth[cells[:, :, -1]]


def maze_metrics(maze: Maze, paths: Paths, cells: Cells, seed: int = 0) -> Values:
    """All metrics of the result of `maze_rollouts`."""
    num_skills, per_skill, length = cells.shape
    num_cells, log_skills = len(maze.cells), math.log(num_skills)
    label = np.repeat(np.arange(num_skills), per_skill)
    ends = cells[:, :, -1]
    counts = np.stack([np.bincount(c.ravel(), minlength=num_cells) for c in cells])
    share = counts / counts.sum(1, keepdims=True)  # (skills, cells)

    time = np.random.default_rng(seed).integers(1, length, size=(num_skills, per_skill, 1))
    at_random_time = np.take_along_axis(cells, time, 2)
    arms, branches = owners(ends, maze.arms), owners(ends, maze.branches)
    distances = jensen_shannon(share)
    territory = np.bincount(share.argmax(0)[share.any(0)], minlength=num_skills)
    owned = [o for o in arms + branches if o is not None]
    return {
        "occupancy_entropy": entropy(counts.sum(0)) / math.log(num_cells),
        "owned_arms": float(sum(o is not None for o in arms)),
        "owned_branches": float(sum(o is not None for o in branches)),
        "arms_and_branches_apart": float(
            0 < len(set(owned)) == len(owned) == len(maze.arms) + len(maze.branches)
        ),
        "end_depth": float(end_depths(maze, cells).mean()),
        "identification": identification(paths[:, :, -1].reshape(-1, 2), label),
        "end_information": corrected_information(label, ends.ravel()) / log_skills,
        "time_information": corrected_information(label, at_random_time.ravel()) / log_skills,
        "occupancy_distance": float(np.mean(distances)),
        "nearest_occupancy_distance": float(np.min(distances)),
        "duplicate_pairs": float(np.sum(distances < DUPLICATES)),
        "territory_evenness": entropy(territory) / log_skills,
        "skills_without_territory": float(np.sum(territory == 0)),
    }


class MazeEvaluator(Evaluator):
    """`run.rollouts` rollouts of every skill, always the same ones for the same run."""

    takes = ("starts", "greedy", "random_start")
    meanings = MEANINGS
    progress_metrics = {
        "occupancy_entropy": "coverage",
        "identification": "5-NN",
        "end_information": "I(z;end)",
    }

    def __init__(self, run: Run, options: Options | None = None) -> None:
        super().__init__(run, options)
        self.rollouts = self.options.starts or self.rollouts
        self.maze = MAZES[run.spec.name.removeprefix("maze-")]
        if run.spec.name == "maze-tree" and self.space.kind == "one-hot":
            self.bounds = CLAIMS.get(self.space.dim, {})

    def training_metrics(self, trainer: Trainer) -> Values:
        return self.baseline(trainer.policy)

    def measure(self, policy: Policy) -> Measured:
        return Measured(self.baseline(policy), {})

    def baseline(self, policy: Policy | None) -> Values:
        return maze_metrics(self.maze, *self.roll_out(policy, self.rollouts), self.seed)

    def roll_out(self, policy: Policy | None, rollouts: int) -> tuple[Paths, Cells]:
        return maze_rollouts(
            self.maze,
            policy,
            self.space,
            rollouts,
            self.seed,
            greedy=bool(self.options.greedy),
            random_start=bool(self.options.random_start),
            stopped=self.stopped,
        )

    def draw(self, axes: Axes, policy: Policy) -> None:
        """Rollouts in one colour per skill, inside the walls."""
        from matplotlib.collections import LineCollection  # slow to import

        paths, _ = self.roll_out(policy, SHOWN)
        for skill, colour in zip(paths, skill_colours(len(paths)), strict=True):
            lines = LineCollection(list(skill), colors=[colour], alpha=0.25, linewidths=1.5)
            axes.add_collection(lines)
            axes.scatter(*skill[:, -1].T, s=9, color=colour, zorder=2, linewidths=0)
        draw_maze(axes, self.maze)


def draw_maze(axes: Axes, maze: Maze) -> None:
    """Walls and the point where evaluations start."""
    from matplotlib.collections import LineCollection  # slow to import

    axes.add_collection(LineCollection(list(maze.walls), colors="black", linewidths=2))
    axes.plot(*maze.origin, "o", color="black", markersize=4)
    axes.set_aspect("equal")
    axes.autoscale_view()
    axes.axis("off")
