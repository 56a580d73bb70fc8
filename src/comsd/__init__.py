"""Unsupervised skill discovery: pre-train skills, look at them, adapt them, compare methods.

>>> import comsd
>>> run = comsd.pretrain("comsd", env="maze-tree", skills=10, seed=0, run="runs/tree")
>>> comsd.evaluate(run).metrics["occupancy_entropy"]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comsd.analysis import Analysis, EpisodeAnalysis
    from comsd.api import (
        Evaluation,
        analyse,
        analyse_episodes,
        combine,
        evaluate,
        explore,
        finetune,
        load,
        pretrain,
        resume,
    )
    from comsd.check import Verdict, check_method
    from comsd.envs.foreign import register_env
    from comsd.envs.recipe import Part
    from comsd.envs.reward import register_reward
    from comsd.errors import InputError, RunError
    from comsd.methods.base import Method, MethodConfig
    from comsd.registry import METHODS, make_task
    from comsd.runs.run import Run
    from comsd.skills import Box, OneHot, SkillSpace, Sphere
    from comsd.studies import SweepResult, report, reproduce, sweep
    from comsd.types import Batch
    from comsd.user_files import register_env_file, register_file, register_reward_file

__all__ = [
    "METHODS",
    "Analysis",
    "Batch",
    "Box",
    "EpisodeAnalysis",
    "Evaluation",
    "InputError",
    "Method",
    "MethodConfig",
    "OneHot",
    "Part",
    "Run",
    "RunError",
    "SkillSpace",
    "Sphere",
    "SweepResult",
    "Verdict",
    "analyse",
    "analyse_episodes",
    "check_method",
    "combine",
    "evaluate",
    "explore",
    "finetune",
    "load",
    "make_task",
    "pretrain",
    "register_env",
    "register_env_file",
    "register_file",
    "register_reward",
    "register_reward_file",
    "report",
    "reproduce",
    "resume",
    "sweep",
]

# Where the names are, the modules that are loaded fastest first.
_MODULES = ["errors", "types", "envs.foreign", "envs.reward", "skills", "methods.base", "registry"]
_MODULES += ["user_files", "runs.run", "analysis", "api"]
_MODULES += ["studies", "envs.recipe", "check"]


def __getattr__(name: str) -> Any:
    """Load the module of a name when it is first used: torch alone takes a second."""
    if name not in __all__:
        raise AttributeError(f"module 'comsd' has no attribute {name!r}")
    modules = (import_module(f"comsd.{module}") for module in _MODULES)
    value = globals()[name] = next(vars(m)[name] for m in modules if name in vars(m))
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
