"""Unsupervised skill discovery: pre-train skills, look at them, adapt them, compare methods.

>>> import comsd
>>> run = comsd.pretrain("comsd", env="maze-tree", skills=10, seed=0, run="runs/tree")
>>> comsd.evaluate(run).metrics["occupancy_entropy"]
"""

from comsd.analysis import Analysis
from comsd.api import Evaluation, analyse, combine, evaluate, finetune, load, pretrain, resume
from comsd.errors import InputError, RunError
from comsd.methods.base import Method, MethodConfig
from comsd.registry import METHODS, make_task, register_file
from comsd.runs.run import Run
from comsd.skills import Box, OneHot, SkillSpace, Sphere
from comsd.types import Batch

__all__ = [
    "METHODS",
    "Analysis",
    "Batch",
    "Box",
    "Evaluation",
    "InputError",
    "Method",
    "MethodConfig",
    "OneHot",
    "Run",
    "RunError",
    "SkillSpace",
    "Sphere",
    "analyse",
    "combine",
    "evaluate",
    "finetune",
    "load",
    "make_task",
    "pretrain",
    "register_file",
    "resume",
]
