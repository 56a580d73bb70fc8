"""Evaluation of skills and tasks: one evaluator per family of environments."""

from __future__ import annotations

from collections.abc import Callable

from comsd.config import choose
from comsd.evaluation.base import EvaluatedRun, Evaluator
from comsd.evaluation.maze import MazeEvaluator
from comsd.evaluation.robots import RobotEvaluator
from comsd.evaluation.tasks import TaskEvaluator

EVALUATORS: dict[str, Callable[[EvaluatedRun], Evaluator]] = {
    "maze": MazeEvaluator,
    "robots": RobotEvaluator,
    "tasks": TaskEvaluator,
}


def make_evaluator(run: EvaluatedRun) -> Evaluator:
    return choose("family of the environment", run.spec.families[0], EVALUATORS)(run)


__all__ = ["EVALUATORS", "EvaluatedRun", "Evaluator", "make_evaluator"]
