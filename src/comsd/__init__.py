"""Unsupervised skill discovery: pre-train skills, look at them, adapt them, compare methods.

>>> import comsd
>>> run = comsd.pretrain("comsd", env="maze-tree", skills=10, seed=0, run="runs/tree")
>>> comsd.evaluate(run).metrics["occupancy_entropy"]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comsd.analysis import Analysis
    from comsd.api import Evaluation, analyse, combine, evaluate, finetune, load, pretrain, resume
    from comsd.errors import InputError, RunError
    from comsd.methods.base import Method, MethodConfig
    from comsd.registry import METHODS, make_task, register_file
    from comsd.runs.run import Run
    from comsd.skills import Box, OneHot, SkillSpace, Sphere
    from comsd.types import Batch

_MODULES = {  # loaded with the first name that is used: torch takes a second
    "analysis": ("Analysis",),
    "api": (
        "Evaluation",
        "analyse",
        "combine",
        "evaluate",
        "finetune",
        "load",
        "pretrain",
        "resume",
    ),
    "errors": ("InputError", "RunError"),
    "methods.base": ("Method", "MethodConfig"),
    "registry": ("METHODS", "make_task", "register_file"),
    "runs.run": ("Run",),
    "skills": ("Box", "OneHot", "SkillSpace", "Sphere"),
    "types": ("Batch",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

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


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'comsd' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"comsd.{_MODULE_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
