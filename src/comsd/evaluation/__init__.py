"""Evaluation of skills and tasks."""

from __future__ import annotations

from comsd.evaluation.base import Evaluator, Options
from comsd.evaluation.maze import MazeEvaluator
from comsd.evaluation.skills import RobotEvaluator, SkillEvaluator
from comsd.evaluation.tasks import TaskEvaluator
from comsd.runs import Run


def make_evaluator(run: Run, options: Options | None = None) -> Evaluator:
    """Returns of a task, or what the skills do; in a maze, which of its cells they reach."""
    if not run.pretrains:
        return TaskEvaluator(run, options)
    if run.spec.families[0] == "maze":
        return MazeEvaluator(run, options)
    return make_skill_evaluator(run, options)


def make_skill_evaluator(run: Run, options: Options | None = None) -> SkillEvaluator:
    """What needs to know nothing of the environment; more is recorded of our robots."""
    robots = run.spec.families[0] == "robots"
    return (RobotEvaluator if robots else SkillEvaluator)(run, options)
