"""What is said about an exhibit of the paper: the finished runs as cells and figures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from comsd.adaptation import FinetuneSettings
from comsd.errors import InputError, RunError
from comsd.evaluation import make_evaluator
from comsd.registry import METHODS
from comsd.reproduce.exhibits import COMPARED, EXHIBITS, Exhibit, Shown
from comsd.reproduce.plan import analysis_of
from comsd.reproduce.statistics import Summary, interval, summarise
from comsd.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STAGES = ("pretrain", "finetune", "combine", "scratch")
REFERENCE = "ddpg"  # plain, from scratch
BARS = {
    "akd_max_constant": "AKD maximum",
    "akd_range_constant": "AKD range",
    "akd_variance_constant": "AKD variance",
    "ms_coverage3_constant": "MS-coverage",
    "akd_max_flag": "AKD maximum, flag sweep",
    "akd_range_flag": "AKD range, flag sweep",
    "akd_range_random": "AKD range, random skills",
    "ms_coverage3_random": "MS-coverage, random skills",
}


@dataclass(frozen=True)
class Found:
    """A run of the directory, by what it stands for."""

    stage: str
    env: str
    arm: str
    seed: int
    run: Run

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        return self.run.evaluations.rows()

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        return [int(r["step"]) for r in self.rows], [float(r[name]) for r in self.rows]

    @cached_property
    def analysis(self) -> dict[str, Any] | None:
        return analysis_of(self.run.path)


@dataclass(frozen=True)
class Cell:
    row: str
    arm: str
    ours: Summary
    paper: tuple[float, float | None] | None = None

    def text(self) -> str:
        lines = [str(self.ours)]
        if self.paper:
            mean, sd = self.paper
            lines.append(f"paper {mean:g}" + (f" ± {sd:g}" if sd is not None else ""))
        return "\n".join(lines)


@dataclass
class Section:
    """What is said about one exhibit at one preset."""

    exhibit: Exhibit
    shown: Shown
    cells: list[Cell]
    figures: list[Figure]
    notes: list[str]


def find(root: Path) -> tuple[list[Found], list[str]]:
    """The finished runs of one preset, and what is not counted."""
    found, unfinished = [], []
    for stage in STAGES:
        for config in sorted((root / stage).glob("*/*/config.json")):
            arm, _, seed = config.parent.name.rpartition("-")
            if not arm or not seed.isdigit():
                continue
            place = str(config.parent.relative_to(root))
            try:
                run = Run(config.parent)
            except (InputError, RunError) as error:
                unfinished.append(f"{place} ({error})")
                continue
            s = run.config.run
            if (s.stage, s.seed, s.preset) != (stage, int(seed), root.name):
                unfinished.append(f"{place} (its config says otherwise)")
            elif not run.finished:
                unfinished.append(f"{place} (unfinished)")
            else:
                found.append(Found(stage, config.parent.parent.name, arm, int(seed), run))
    return sorted(found, key=lambda f: (f.stage, f.env, f.arm, f.seed)), unfinished


def paper_values(exhibit: str) -> dict[str, Any]:
    data = json.loads(files("comsd.reproduce").joinpath("paper.json").read_text())
    return data.get(exhibit, {"source": "", "values": {}})


def arms_of(exhibit: Exhibit, found: Iterable[Found]) -> list[str]:
    """In the exhibit's order; comparisons of all methods take in any other but variants."""
    present = {f.arm for f in found}
    names = [arm.name for arm in exhibit.arms]
    if exhibit.arms == COMPARED:
        variants = {arm.name for e in EXHIBITS.values() for arm in e.arms} - set(METHODS)
        names += sorted(present - variants - {*names, REFERENCE})
    return [name for name in ([REFERENCE] if exhibit.reference else []) + names if name in present]


# --- one exhibit ----------------------------------------------------------------------------------


def returns_section(exhibit: Exhibit, stage: Shown, found: list[Found]) -> Section | None:
    """Fine-tuning or combination: the last return per task and arm, and the curves."""
    stages = (stage, "scratch") if exhibit.reference else (stage,)
    selected = [f for f in found if f.stage in stages and f.rows]
    if exhibit.tasks:
        selected = [f for f in selected if f.env in exhibit.tasks]
    selected = [f for f in selected if f.env.split("_")[0] in exhibit.domains]
    arms = arms_of(exhibit, selected)
    tasks = sorted({f.env for f in selected if f.stage == stage})
    if not tasks or not arms:
        return None
    published = paper_values(exhibit.name)["values"]
    cells, notes = [], []
    for task in tasks:
        for arm in arms:
            runs = [f for f in selected if (f.env, f.arm) == (task, arm)]
            if runs:
                scores = summarise([f.curve("return")[1][-1] for f in runs])
                theirs = published.get(task, {}).get(arm) if stage == "finetune" else None
                cells.append(Cell(task, arm, scores, theirs))
                if stage == "combine":
                    calm = summarise([f.curve("return_without_noise")[1][-1] for f in runs])
                    cells.append(Cell(f"{task}, noise-free", arm, calm))
    rules = {
        f.arm: a.rule for f in selected if isinstance(a := f.run.config.adapt, FinetuneSettings)
    }
    if rules:
        notes.append("skill rules: " + ", ".join(f"{arm} {rules[arm]}" for arm in sorted(rules)))
    steps = sorted({f.run.config.run.steps for f in selected})
    notes.append(f"steps of adaptation: {', '.join(f'{n:,}' for n in steps)}")
    sources = {source.config.run.steps for f in selected if (source := f.run.source)}
    notes.append(f"of pre-training: {', '.join(f'{n:,}' for n in sorted(sources))}")
    notes += mixed(selected)
    return Section(exhibit, stage, cells, [curves(tasks, arms, selected)], notes)


def mixed(found: list[Found]) -> list[str]:
    """Arms whose runs were not made with the same settings."""
    kinds: dict[str, set[str]] = {}
    for f in found:
        c = f.run.config.to_json()
        c["adapt"].pop("source", None)
        settings = json.dumps(
            [c["adapt"], c["agent"], c["train"], c["run"]["steps"]], sort_keys=True
        )
        kinds.setdefault(f"{f.arm} on {f.env}", set()).add(settings)
    return [
        f"settings differ between the runs of {name}" for name, s in kinds.items() if len(s) > 1
    ]


def curves(tasks: list[str], arms: list[str], found: list[Found]) -> Figure:
    figure, grid = panels(len(tasks), 4, 3.6, 2.9)
    for axes, task in zip(grid, tasks, strict=True):
        for i, arm in enumerate(arms):
            runs = [f.curve("return") for f in found if (f.env, f.arm) == (task, arm)]
            if not runs:
                continue
            shared = sorted(set.intersection(*(set(steps) for steps, _ in runs)))
            values = np.array([[dict(zip(*r, strict=True))[s] for s in shared] for r in runs])
            colour = "black" if arm == REFERENCE else f"C{i}"
            axes.plot(shared, values.mean(0), color=colour, label=f"{arm} (n={len(runs)})")
            if len(runs) >= 3:
                axes.fill_between(shared, *interval(values), color=colour, alpha=0.15, linewidth=0)
        axes.set_title(task, fontsize=10)
        axes.set_ylim(bottom=0)
        axes.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
        axes.set_xlabel("environment steps")
    grid[0].set_ylabel("return")
    grid[0].legend(frameon=False, fontsize=8)
    return figure


def behaviour_section(exhibit: Exhibit, found: list[Found]) -> Section | None:
    selected = [
        f for f in found if f.stage == "pretrain" and f.env in exhibit.domains and f.analysis
    ]
    arms = arms_of(exhibit, selected)
    if not arms:
        return None
    published = paper_values("behaviour")["values"]
    cells: list[Cell] = []
    for name, title in BARS.items():
        for arm in arms:
            figures = [f.analysis["metrics"] for f in selected if f.arm == arm and f.analysis]
            values = [float(m[name]) for m in figures if name in m]
            if values:
                cells.append(Cell(title, arm, summarise(values), published.get(name, {}).get(arm)))
    return Section(exhibit, "analyse", cells, [bars(cells, arms)], [])


def bars(cells: list[Cell], arms: list[str]) -> Figure:
    titles = [t for t in BARS.values() if any(c.row == t for c in cells)]
    figure, grid = panels(len(titles), 4, 3.3, 2.8)
    for axes, title in zip(grid, titles, strict=True):
        for i, arm in enumerate(arms):
            for cell in (c for c in cells if (c.row, c.arm) == (title, arm)):
                axes.bar(i, cell.ours.mean, yerr=cell.ours.sd, color=f"C{i}", capsize=3)
                if cell.paper:
                    axes.plot(i, cell.paper[0], "k_", markersize=14)
        axes.set_xticks(range(len(arms)), arms, rotation=45, ha="right", fontsize=8)
        axes.set_title(title, fontsize=10)
    return figure


def maze_section(exhibit: Exhibit, found: list[Found]) -> Section | None:
    labels = [f"maze-tree-{n}" for n in exhibit.skills]
    selected = [f for f in found if f.stage == "pretrain" and f.env in labels and f.rows]
    arms = arms_of(exhibit, selected)
    if not arms:
        return None
    cells = [
        Cell(f"{label}: {name.replace('_', ' ')}", arm, summarise(values))
        for label in labels
        for name in ("occupancy_entropy", "owned_arms", "identification", "end_information")
        for arm in arms
        if (values := [float(f.rows[-1][name]) for f in selected if (f.env, f.arm) == (label, arm)])
    ]
    figure, grid = panels(len(arms) * len(labels), len(arms), 2.6, 2.8)
    for axes, (label, arm) in zip(grid, product(labels, arms), strict=True):
        axes.axis("off")
        first = next((f for f in selected if (f.env, f.arm) == (label, arm)), None)
        if first:
            make_evaluator(first.run).draw(axes, first.run.policy)
            axes.set_title(f"{arm}, {label.rpartition('-')[2]} skills", fontsize=10)
    return Section(exhibit, "maze", cells, [figure], ["pictures: the first seed"])


def panels(count: int, columns: int, width: float, height: float) -> tuple[Figure, list[Any]]:
    """A figure with that many axes, the rest of its grid left blank."""
    from matplotlib.figure import Figure  # only who draws waits for it

    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    every = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in every[count:]:
        axes.axis("off")
    return figure, every[:count]


def sections(found: list[Found], asked: list[str]) -> list[Section]:
    """The exhibits that were asked for; without a record, those that compare something."""
    result: list[Section | None] = []
    for exhibit in EXHIBITS.values():
        if asked and exhibit.name not in asked:
            continue
        for shown in exhibit.shows:
            if shown in ("finetune", "combine"):
                result.append(returns_section(exhibit, shown, found))
            elif shown == "analyse":
                result.append(behaviour_section(exhibit, found))
            else:
                result.append(maze_section(exhibit, found))
    made = [section for section in result if section]
    return [section for section in made if asked or len({c.arm for c in section.cells}) > 1]
