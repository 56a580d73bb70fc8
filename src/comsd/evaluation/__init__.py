"""Looking at what was learned: one evaluator per family of environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from comsd.evaluation.base import Evaluator
from comsd.evaluation.maze import MazeEvaluator
from comsd.evaluation.robots import RobotEvaluator
from comsd.evaluation.tasks import TaskEvaluator

if TYPE_CHECKING:
    from comsd.runs.run import Run

EVALUATORS: dict[str, Callable[[Run], Evaluator]] = {
    "maze": MazeEvaluator,
    "robots": RobotEvaluator,
    "tasks": TaskEvaluator,
}


def make_evaluator(run: Run) -> Evaluator:
    return EVALUATORS[run.spec.families[0]](run)


__all__ = ["EVALUATORS", "Evaluator", "make_evaluator"]
