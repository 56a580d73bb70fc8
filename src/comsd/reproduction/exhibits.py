"""The tables and figures of the paper, and which runs are behind each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from comsd.adaptation import CONTROLLERS
from comsd.config import SCALES, choose
from comsd.registry import ENVS, METHODS

Shown = Literal["finetune", "combine", "analyse", "maze"]
SEEDS = 3
PAPER_CONTROLLER = next(iter(CONTROLLERS))  # continuous; the others are ours


@dataclass(frozen=True)
class Arm:
    """A method, or a variant of one, under the name it has in directories and tables."""

    name: str
    method: str
    options: tuple[str, ...] = ()  # of `comsd pretrain`
    adapt_options: tuple[str, ...] = ()  # of what is done with its skills


def controlled(arm: str, controller: str) -> str:
    """The name of an arm whose skills a controller combines."""
    return arm if controller == PAPER_CONTROLLER else f"{arm}-{controller}"


def methods(*names: str) -> tuple[Arm, ...]:
    return tuple(Arm(name, name) for name in names)


def alpha(value: float, *options: str, name: str = "") -> Arm:
    return Arm(f"comsd-alpha-{value:g}{name}", "comsd", ("--method.alpha", f"{value:g}", *options))


def pixels(name: str, *options: str, variant: str = "", adapt: tuple[str, ...] = ()) -> Arm:
    return Arm(f"{name}-pixels{variant}", name, ("--pixels", *options), adapt)


RANDOM_ENCODER = ("--agent.encoder-from", "none")
PUBLISHED = (  # as released: nothing trains the encoder, or the method's loss in pre-training alone
    pixels("cic", *RANDOM_ENCODER, variant="-published", adapt=RANDOM_ENCODER),
    pixels("cesd", *RANDOM_ENCODER, variant="-published", adapt=RANDOM_ENCODER),
    pixels(
        "smm",
        *("--agent.encoder-from", "method", "--method.density-trains-input"),
        variant="-published",
        adapt=RANDOM_ENCODER,
    ),
)
DDPG, DRQV2 = Arm("ddpg", "task"), Arm("drqv2", "task", ("--pixels",))
COMSD = Arm("comsd", "comsd")
AUTO = Arm("comsd-auto", "comsd", ("--method.balance", "auto"))  # ours: only where it is asked for
COMPARED = (*methods("diayn", "smm", "aps", "cic", "becl", "cesd"), COMSD)
WITHOUT_SMW = Arm("comsd-without-smw", "comsd", ("--method.no-smw",))
EXPLORATION_ONLY = Arm("comsd-exploration-only", "comsd", ("--method.no-diversity",))
NARROW = ("--method.f-low", "0.3333333", "--method.f-high", "0.6666667")
NARROWED = [alpha(x, *NARROW, name="-narrow") for x in (0.25, 0.5)]
FIXED = [alpha(x, "--method.no-smw", name="-fixed") for x in (0, 0.05, 0.1, 0.25, 0.5, 1)]
ROBOTS = tuple(name for name, spec in ENVS.items() if spec.tasks)


@dataclass(frozen=True)
class Exhibit:
    """One table or figure."""

    where: str  # in the paper
    title: str
    shows: tuple[Shown, ...] = ("finetune",)
    domains: tuple[str, ...] = ("walker",)
    also: tuple[str, ...] = ()  # robots that the paper does not show: only where asked for
    arms: tuple[Arm, ...] = COMPARED
    tasks: tuple[str, ...] = ()  # only these; all of the domain if empty
    ours: str = ""  # what the paper only draws, so that we chose it
    reference: Arm | None = None  # the agent alone, from scratch, beside it
    skills: tuple[int, ...] = ()  # numbers of skills, where they are compared
    paper_seeds: int | None = None  # for ComSD; where the paper does not say, ours are SEEDS

    @property
    def pixels(self) -> bool:
        return all("--pixels" in arm.options for arm in self.arms)

    def seeds(self, preset: str) -> int:
        """How many unless told: the paper's at its scale."""
        at_scale = SCALES[preset] == "paper"
        return self.paper_seeds if self.paper_seeds and at_scale else SEEDS

    @property
    def known(self) -> dict[str, Arm]:
        """All arms that can be asked for: its own, and every other method in its setting."""
        others = {name: pixels(name) if self.pixels else Arm(name, name) for name in METHODS}
        if not self.pixels:
            others[AUTO.name] = AUTO
        own = {arm.name: arm for arm in self.arms}
        return {name: own.get(arm.name, arm) for name, arm in others.items()} | own

    def tasks_of(self, domain: str) -> list[str]:
        return [task for task in ENVS[domain].tasks if not self.tasks or task in self.tasks]


EXHIBITS: dict[str, Exhibit] = {
    "finetuning": Exhibit(
        "Table I",
        "Skill fine-tuning: return",
        domains=ROBOTS,
        reference=DDPG,
        paper_seeds=10,
    ),
    "combination": Exhibit(
        "Fig. 4",
        "Skill combination: return of a controller of frozen skills",
        ("combine",),
        ROBOTS,
        paper_seeds=6,
    ),
    "ablation": Exhibit(
        "Fig. 5",
        "What SMW and the diversity reward add to both adaptations",
        ("combine", "finetune"),
        arms=(COMSD, WITHOUT_SMW, EXPLORATION_ONLY, *methods("aps")),
        tasks=("walker_stand", "walker_run"),
        ours="robot and tasks are ours: the paper only draws them",
    ),
    "sensitivity": Exhibit(
        "Fig. 6",
        "Both adaptations for other alpha and f",
        ("combine", "finetune"),
        arms=(alpha(0), COMSD, alpha(0.5), *NARROWED),
        tasks=("walker_stand", "walker_run"),
        ours="tasks and alpha = 0.5 are ours: the paper only draws them",
    ),
    "behaviour": Exhibit(
        "Fig. 7",
        "State exploration and skill diversity of eleven skills",
        ("analyse",),
        also=ROBOTS[1:],
        ours="which eleven skills and how many neighbours and starts is ours: the paper says "
        "'grid sweep'; a start has 500 states, the paper's skill 1000",
    ),
    "conflict": Exhibit(
        "Fig. 8",
        "Exploration against diversity for fixed alpha, and what SMW changes",
        ("analyse",),
        also=ROBOTS[1:],
        arms=(*FIXED, COMSD),
        ours="the fixed alphas are ours: the paper only draws them; a start has 500 states, the "
        "paper's skill 1000",
    ),
    "distance": Exhibit(
        "Table II",
        "Fine-tuning beside distance-maximising methods",
        domains=("walker", "quadruped"),
        arms=methods("lsd", "csd", "metra", "comsd"),
        paper_seeds=10,
    ),
    "maze": Exhibit(
        "Fig. 11",
        "Skills in the tree maze",
        ("maze",),
        domains=("maze-tree",),
        arms=methods("diayn", "dads", "becl", "cesd", "cic", "comsd"),
        skills=(6, 10),
    ),
    "pixels": Exhibit(
        "Table III",
        "Fine-tuning from images: return",
        domains=("cheetah",),
        arms=(
            *PUBLISHED,
            *map(pixels, ("cic", "cesd", "smm", "comsd")),
            pixels("comsd", "--method.neighbour-weight", "0", variant="-no-neighbours"),
        ),
        reference=DRQV2,
    ),
}
REFERENCES = {exhibit.reference.name for exhibit in EXHIBITS.values() if exhibit.reference}


def find_exhibit(name: str) -> Exhibit:
    return choose("exhibit", name, EXHIBITS)
