"""Evaluation of skills and tasks: one evaluator per family of environments."""

from __future__ import annotations

from comsd.config import choose
from comsd.evaluation.base import Evaluator
from comsd.evaluation.maze import MazeEvaluator
from comsd.evaluation.robots import RobotEvaluator
from comsd.evaluation.tasks import TaskEvaluator
from comsd.runs import Run

EVALUATORS = {"maze": MazeEvaluator, "robots": RobotEvaluator, "tasks": TaskEvaluator}
EVALUATORS["gymnasium"] = RobotEvaluator


def make_evaluator(run: Run) -> Evaluator:
    return choose("family of the environment", run.spec.families[0], EVALUATORS)(run)
