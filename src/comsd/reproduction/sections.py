"""What a report says about each exhibit: a table beside the paper's, a figure and notes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from comsd.adaptation import FinetuneSettings
from comsd.evaluation import make_evaluator
from comsd.registry import METHODS
from comsd.reproduction.collect import FinishedRun
from comsd.reproduction.exhibits import COMPARED, EXHIBITS, REFERENCES, Exhibit, Shown
from comsd.reproduction.statistics import ENOUGH, Cell, interval, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS: dict[Shown, dict[str, str]] = {  # metric -> name of its row
    "finetune": {"return": ""},
    "combine": {"return": "", "return_without_noise": ", noise-free"},
    "maze": {
        name: f": {name.replace('_', ' ')}"
        for name in ("occupancy_entropy", "owned_arms", "identification", "end_information")
    },
    "analyse": {
        "akd_max_constant": "AKD maximum",
        "akd_range_constant": "AKD range",
        "akd_variance_constant": "AKD variance",
        "ms_coverage3_constant": "MS-coverage",
        "akd_max_flag": "AKD maximum, flag sweep",
        "akd_range_flag": "AKD range, flag sweep",
        "akd_range_random": "AKD range, random skills",
        "ms_coverage3_random": "MS-coverage, random skills",
    },
}


@dataclass(frozen=True)
class Section:
    """One exhibit at one preset."""

    exhibit: str
    shown: Shown
    cells: list[Cell]
    figure: Figure
    notes: list[str]


def paper_values(exhibit: str) -> dict[str, Any]:
    """The published numbers of an exhibit, and where they are."""
    data = json.loads(files("comsd.reproduction").joinpath("paper.json").read_text())
    return data.get(exhibit, {"source": "", "values": {}})


def arms_of(exhibit: Exhibit, runs: list[FinishedRun]) -> list[str]:
    """In the exhibit's order; comparisons of all methods include any other but variants."""
    trained = {r.arm for r in runs}
    names = [arm.name for arm in exhibit.arms]
    if exhibit.arms == COMPARED:
        variants = {arm.name for e in EXHIBITS.values() for arm in e.arms} - set(METHODS)
        names += sorted(trained - variants - {*names} - REFERENCES)
    alone = [exhibit.reference.name] if exhibit.reference else []
    return [name for name in alone + names if name in trained]


def results(run: FinishedRun, shown: Shown) -> dict[str, Any]:
    """Its metrics at the end: of the last evaluation, or of the analysis of its skills."""
    if shown == "analyse":
        return run.analysis["metrics"] if run.analysis else {}
    return run.rows[-1] if run.rows else {}


def make_section(name: str, shown: Shown, runs: list[FinishedRun]) -> Section | None:
    """None if nothing is finished that counts for it."""
    exhibit, adapts = EXHIBITS[name], shown in ("finetune", "combine")
    stages = (shown, "scratch") if exhibit.reference else (shown if adapts else "pretrain",)
    if adapts:
        tasks = [task for domain in exhibit.domains for task in exhibit.tasks_of(domain)]
        envs = sorted({r.env for r in runs if r.stage == shown and r.env in tasks and r.rows})
    else:
        envs = [f"maze-tree-{n}" for n in exhibit.skills] or list(exhibit.domains)
    runs = [r for r in runs if r.stage in stages and r.env in envs and results(r, shown)]
    arms = arms_of(exhibit, runs)
    if not arms:
        return None
    found = [(r.env, r.arm, results(r, shown)) for r in runs]
    paper = paper_values("behaviour" if shown == "analyse" else name)
    cells: list[Cell] = []
    for env, (metric, label), arm in product(envs, METRICS[shown].items(), arms):
        values = [float(x[metric]) for *of, x in found if of == [env, arm] and metric in x]
        if values:
            published = paper["values"].get(env if adapts else metric, {}).get(arm, (None, None))
            row = label if shown == "analyse" else env + label
            cells.append(summarise(row, arm, values, published))
    if adapts:
        figure, notes = learning_curves(envs, arms, runs), adaptation_notes(runs)
    elif shown == "maze":
        figure, notes = skill_paths(envs, arms, runs), ["pictures: the first seed"]
    else:
        figure, notes = bars(cells, arms), []
    if paper["source"]:
        notes.append(f"paper's numbers: {paper['source']}")
    return Section(name, shown, cells, figure, notes)


def adaptation_notes(runs: list[FinishedRun]) -> list[str]:
    notes: list[str] = []
    rules = {r.arm: a.rule for r in runs if isinstance(a := r.run.config.adapt, FinetuneSettings)}
    if rules:
        notes.append("skill rules: " + ", ".join(f"{arm} {rules[arm]}" for arm in sorted(rules)))
    adapted = {r.run.config.run.steps for r in runs}
    pretrained = {source.config.run.steps for r in runs if (source := r.run.source)}
    for name, steps in (("steps of adaptation", adapted), ("of pre-training", pretrained)):
        notes.append(f"{name}: {', '.join(f'{n:,}' for n in sorted(steps))}")
    seen = {f"{p.size} x {p.size}, {p.render}" for r in runs if (p := r.images)}
    notes += [f"images: {', '.join(sorted(seen))}"] if seen else []
    settings: dict[str, set[str]] = {}
    for r in runs:
        c = r.run.config.to_json()
        c["adapt"].pop("source", None)
        compared = [c["adapt"], c["agent"], c["train"], c.get("pixels"), c["run"]["steps"]]
        settings.setdefault(f"{r.arm} on {r.env}", set()).add(json.dumps(compared, sort_keys=True))
    differing = [name for name, values in settings.items() if len(values) > 1]
    return notes + [f"settings differ between the runs of {name}" for name in differing]


def make_sections(runs: list[FinishedRun], requested: list[str]) -> list[Section]:
    """The exhibits that were requested; without a record, those that compare something."""
    names = [name for name in EXHIBITS if not requested or name in requested]
    sections = [make_section(name, s, runs) for name in names for s in EXHIBITS[name].shows]
    return [s for s in sections if s and (requested or len({c.arm for c in s.cells}) > 1)]


# --- figures --------------------------------------------------------------------------------------


def panels(count: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure  # slow to import, and a plan draws nothing

    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, i + 1) for i in range(count)]


def learning_curves(tasks: list[str], arms: list[str], runs: list[FinishedRun]) -> Figure:
    """Mean return over seeds at the steps that all seeds share, with its interval."""
    figure, grid = panels(len(tasks), 4, 3.6, 2.9)
    for axes, task in zip(grid, tasks, strict=True):
        for i, arm in enumerate(arms):
            rows = [r.rows for r in runs if (r.env, r.arm) == (task, arm)]
            curves = [{int(row["step"]): float(row["return"]) for row in run} for run in rows]
            if not curves:
                continue
            shared = sorted(set.intersection(*map(set, curves)))
            values = np.array([[curve[step] for step in shared] for curve in curves])
            colour = "black" if arm in REFERENCES else f"C{i}"
            axes.plot(shared, values.mean(0), color=colour, label=f"{arm} (n={len(curves)})")
            if len(curves) >= ENOUGH:
                axes.fill_between(shared, *interval(values), color=colour, alpha=0.15, linewidth=0)
        axes.set_title(task, fontsize=10)
        axes.set_ylim(bottom=0)
        axes.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
        axes.set_xlabel("environment steps")
    grid[0].set_ylabel("return")
    grid[0].legend(frameon=False, fontsize=8)
    return figure


def bars(cells: list[Cell], arms: list[str]) -> Figure:
    """A panel per row of the table; a black line is the paper's number."""
    rows = list(dict.fromkeys(cell.row for cell in cells))
    figure, grid = panels(len(rows), 4, 3.3, 2.8)
    for axes, row in zip(grid, rows, strict=True):
        for cell in (c for c in cells if c.row == row):
            i = arms.index(cell.arm)
            axes.bar(i, cell.mean, yerr=cell.sd, color=f"C{i}", capsize=3)
            if cell.paper_mean is not None:
                axes.plot(i, cell.paper_mean, "k_", markersize=14)
        axes.set_xticks(range(len(arms)), arms, rotation=45, ha="right", fontsize=8)
        axes.set_title(row, fontsize=10)
    return figure


def skill_paths(labels: list[str], arms: list[str], runs: list[FinishedRun]) -> Figure:
    """The skills of the first seed of every arm."""
    figure, grid = panels(len(arms) * len(labels), len(arms), 2.6, 2.8)
    for axes, (label, arm) in zip(grid, product(labels, arms), strict=True):
        axes.axis("off")
        first = next((r.run for r in runs if (r.env, r.arm) == (label, arm)), None)
        if first:
            make_evaluator(first).draw(axes, first.policy)
            axes.set_title(f"{arm}, {label.rpartition('-')[2]} skills", fontsize=10)
    return figure
