"""Looking at what was learned, without rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comsd.envs.maze import MAZES, Maze
from comsd.evaluation import maze as maze_evaluation
from comsd.evaluation.maze import MEANINGS

if TYPE_CHECKING:
    from comsd.learners.base import Policy
    from comsd.run import Run

__all__ = ["MEANINGS", "claims", "evaluate_policy", "evaluation_seed", "maze_of"]


def maze_of(run: Run) -> Maze:
    return MAZES[run.spec.name.removeprefix("maze-")]


def claims(run: Run) -> dict[str, float]:
    """What the paper says about this setting, as lower bounds; empty where it says nothing."""
    named = run.spec.name == "maze-tree" and run.config.run.space == "one-hot"
    return maze_evaluation.CLAIMS.get(run.config.run.skills, {}) if named else {}


def evaluation_seed(run: Run) -> int:
    """The same for every evaluation of a run, and apart from all randomness of training."""
    return int(run.seeds()[3].generate_state(1)[0])


def evaluate_policy(run: Run, policy: Policy | None, **options: Any) -> dict[str, float]:
    """The metrics of a policy of this run, or of random actions if there is none."""
    maze, seed = maze_of(run), evaluation_seed(run)
    per_skill = run.config.run.rollouts
    paths = maze_evaluation.rollouts(maze, policy, run.space, per_skill, seed, **options)
    return maze_evaluation.measure(maze, paths, seed)
