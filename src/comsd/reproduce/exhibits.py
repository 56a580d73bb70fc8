"""The tables and figures of the paper, and which runs are behind each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from comsd.config import choose
from comsd.errors import InputError
from comsd.registry import ENVS, METHODS

Shown = Literal["finetune", "combine", "analyse", "maze"]


@dataclass(frozen=True)
class Arm:
    """A method, or a variant of one, under the name it has in directories and tables."""

    name: str
    method: str
    options: tuple[str, ...] = ()  # of `comsd pretrain`


@dataclass(frozen=True)
class Exhibit:
    """One table or figure."""

    name: str
    title: str
    where: str  # in the paper
    domains: tuple[str, ...]
    arms: tuple[Arm, ...]
    shows: tuple[Shown, ...]
    tasks: tuple[str, ...] = ()  # only these; all of the domain if empty
    reference: bool = False  # plain DDPG from scratch beside it
    skills: tuple[int, ...] = ()  # numbers of skills, where they are compared

    def tasks_of(self, domain: str) -> list[str]:
        return [task for task in ENVS[domain].tasks if not self.tasks or task in self.tasks]


def methods(*names: str) -> tuple[Arm, ...]:
    return tuple(Arm(name, name) for name in names if name in METHODS)


def alpha(value: float, *options: str, name: str = "") -> Arm:
    return Arm(f"comsd-alpha-{value:g}{name}", "comsd", ("--method.alpha", f"{value:g}", *options))


WITHOUT_SMW = Arm("comsd-without-smw", "comsd", ("--method.no-smw",))
EXPLORATION_ONLY = Arm("comsd-exploration-only", "comsd", ("--method.no-diversity",))
NARROW = ("--method.f-low", "0.3333333", "--method.f-high", "0.6666667")
ROBOTS = tuple(name for name, spec in ENVS.items() if spec.tasks)
COMPARED = methods("diayn", "smm", "aps", "cic", "becl", "cesd", "comsd")

EXHIBITS: dict[str, Exhibit] = {
    e.name: e
    for e in (
        Exhibit(
            "finetuning",
            "Skill fine-tuning: return after 100k steps",
            "Table I",
            ROBOTS,
            COMPARED,
            ("finetune",),
            reference=True,
        ),
        Exhibit(
            "combination",
            "Skill combination: return of a controller of frozen skills",
            "Fig. 4",
            ROBOTS,
            COMPARED,
            ("combine",),
        ),
        Exhibit(
            "ablation",
            "What SMW and the diversity reward add to both adaptations",
            "Fig. 5",
            ("walker",),
            (*methods("comsd"), WITHOUT_SMW, EXPLORATION_ONLY, *methods("aps")),
            ("combine", "finetune"),
            tasks=("walker_stand", "walker_run"),
        ),
        Exhibit(
            "sensitivity",
            "Both adaptations for other alpha and f",
            "Fig. 6",
            ("walker",),
            (
                alpha(0),
                *methods("comsd"),
                alpha(0.5),
                alpha(0.25, *NARROW, name="-narrow"),
                alpha(0.5, *NARROW, name="-narrow"),
            ),
            ("combine", "finetune"),
            tasks=("walker_stand", "walker_run"),
        ),
        Exhibit(
            "behaviour",
            "State exploration and skill diversity of eleven skills",
            "Fig. 7",
            ("walker",),
            COMPARED,
            ("analyse",),
        ),
        Exhibit(
            "conflict",
            "Exploration against diversity for fixed alpha, and what SMW changes",
            "Fig. 8",
            ("walker",),
            (
                *(
                    alpha(value, "--method.no-smw", name="-fixed")
                    for value in (0, 0.05, 0.1, 0.25, 0.5, 1)
                ),
                *methods("comsd"),
            ),
            ("analyse",),
        ),
        Exhibit(
            "distance",
            "Fine-tuning beside distance-maximising methods",
            "Table II",
            ("walker", "quadruped"),
            methods("lsd", "csd", "metra", "comsd"),
            ("finetune",),
        ),
        Exhibit(
            "maze",
            "Skills in the tree maze",
            "Fig. 11",
            ("maze-tree",),
            methods("diayn", "dads", "becl", "cesd", "cic", "comsd"),
            ("maze",),
            skills=(6, 10),
        ),
    )
}


def exhibit(name: str) -> Exhibit:
    if name == "pixels":
        raise InputError(
            "exhibit is 'pixels' (Table III), which needs the pixel setting: not built yet"
        )
    return choose("exhibit", name, EXHIBITS)
