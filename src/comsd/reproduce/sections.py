"""What a report says about each exhibit: a table beside the paper's, a figure and notes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from comsd.adaptation import FinetuneSettings
from comsd.registry import METHODS
from comsd.reproduce.collect import FinishedRun
from comsd.reproduce.exhibits import COMPARED, EXHIBITS, Exhibit, Shown
from comsd.reproduce.figures import REFERENCE, bars, learning_curves, skill_paths
from comsd.reproduce.statistics import Cell, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEHAVIOUR = {  # metric -> row of the table
    "akd_max_constant": "AKD maximum",
    "akd_range_constant": "AKD range",
    "akd_variance_constant": "AKD variance",
    "ms_coverage3_constant": "MS-coverage",
    "akd_max_flag": "AKD maximum, flag sweep",
    "akd_range_flag": "AKD range, flag sweep",
    "akd_range_random": "AKD range, random skills",
    "ms_coverage3_random": "MS-coverage, random skills",
}
MAZE = ("occupancy_entropy", "owned_arms", "identification", "end_information")


@dataclass(frozen=True)
class Section:
    """One exhibit at one preset."""

    exhibit: Exhibit
    shown: Shown
    cells: list[Cell]
    figure: Figure
    notes: list[str]


def paper_values(exhibit: str) -> dict[str, Any]:
    data = json.loads(files("comsd.reproduce").joinpath("paper.json").read_text())
    return data.get(exhibit, {"source": "", "values": {}})


def arms_of(exhibit: Exhibit, runs: Iterable[FinishedRun]) -> list[str]:
    """In the exhibit's order; comparisons of all methods include any other but variants."""
    trained = {r.arm for r in runs}
    names = [arm.name for arm in exhibit.arms]
    if exhibit.arms == COMPARED:
        variants = {arm.name for e in EXHIBITS.values() for arm in e.arms} - set(METHODS)
        names += sorted(trained - variants - {*names, REFERENCE})
    return [name for name in ([REFERENCE] if exhibit.reference else []) + names if name in trained]


def last_values(runs: list[FinishedRun], env: str, arm: str, metric: str) -> list[float]:
    """Of the last evaluation of every seed."""
    return [float(r.rows[-1][metric]) for r in runs if (r.env, r.arm) == (env, arm)]


def returns_section(exhibit: Exhibit, stage: Shown, runs: list[FinishedRun]) -> Section | None:
    """Fine-tuning or combination: the last return per task and arm, and the curves."""
    stages = (stage, "scratch") if exhibit.reference else (stage,)
    allowed = [task for domain in exhibit.domains for task in exhibit.tasks_of(domain)]
    runs = [r for r in runs if r.stage in stages and r.rows and r.env in allowed]
    arms = arms_of(exhibit, runs)
    tasks = sorted({r.env for r in runs if r.stage == stage})
    if not tasks or not arms:
        return None
    published = paper_values(exhibit.name)["values"] if stage == "finetune" else {}
    noise_free = {"return_without_noise": ", noise-free"} if stage == "combine" else {}
    cells = [
        Cell(task + suffix, arm, summarise(values), published.get(task, {}).get(arm))
        for task in tasks
        for arm in arms
        for name, suffix in {"return": "", **noise_free}.items()
        if (values := last_values(runs, task, arm, name))
    ]
    figure = learning_curves(tasks, arms, runs)
    return Section(exhibit, stage, cells, figure, adaptation_notes(runs))


def adaptation_notes(runs: list[FinishedRun]) -> list[str]:
    notes: list[str] = []
    rules = {r.arm: a.rule for r in runs if isinstance(a := r.run.config.adapt, FinetuneSettings)}
    if rules:
        notes.append("skill rules: " + ", ".join(f"{arm} {rules[arm]}" for arm in sorted(rules)))
    steps = sorted({r.run.config.run.steps for r in runs})
    notes.append(f"steps of adaptation: {', '.join(f'{n:,}' for n in steps)}")
    steps = sorted({source.config.run.steps for r in runs if (source := r.run.source)})
    notes.append(f"of pre-training: {', '.join(f'{n:,}' for n in steps)}")
    settings: dict[str, set[str]] = {}
    for r in runs:
        c = r.run.config.to_json()
        c["adapt"].pop("source", None)
        compared = [c["adapt"], c["agent"], c["train"], c["run"]["steps"]]
        settings.setdefault(f"{r.arm} on {r.env}", set()).add(json.dumps(compared, sort_keys=True))
    differing = [name for name, values in settings.items() if len(values) > 1]
    return notes + [f"settings differ between the runs of {name}" for name in differing]


def behaviour_section(exhibit: Exhibit, runs: list[FinishedRun]) -> Section | None:
    runs = [r for r in runs if r.stage == "pretrain" and r.env in exhibit.domains and r.analysis]
    arms = arms_of(exhibit, runs)
    if not arms:
        return None
    published = paper_values("behaviour")["values"]
    metrics = [(r.arm, r.analysis["metrics"]) for r in runs if r.analysis]
    cells = [
        Cell(row, arm, summarise(values), published.get(name, {}).get(arm))
        for name, row in BEHAVIOUR.items()
        for arm in arms
        if (values := [float(m[name]) for a, m in metrics if a == arm and name in m])
    ]
    return Section(exhibit, "analyse", cells, bars(cells, arms), [])


def maze_section(exhibit: Exhibit, runs: list[FinishedRun]) -> Section | None:
    labels = [f"maze-tree-{n}" for n in exhibit.skills]
    runs = [r for r in runs if r.stage == "pretrain" and r.env in labels and r.rows]
    arms = arms_of(exhibit, runs)
    if not arms:
        return None
    cells = [
        Cell(f"{label}: {name.replace('_', ' ')}", arm, summarise(values))
        for label in labels
        for name in MAZE
        for arm in arms
        if (values := last_values(runs, label, arm, name))
    ]
    figure = skill_paths(labels, arms, runs)
    return Section(exhibit, "maze", cells, figure, ["pictures: the first seed"])


def make_sections(runs: list[FinishedRun], requested: list[str]) -> list[Section]:
    """The exhibits that were requested; without a record, those that compare something."""
    sections: list[Section | None] = []
    for exhibit in EXHIBITS.values():
        if requested and exhibit.name not in requested:
            continue
        for shown in exhibit.shows:
            if shown == "analyse":
                sections.append(behaviour_section(exhibit, runs))
            elif shown == "maze":
                sections.append(maze_section(exhibit, runs))
            else:
                sections.append(returns_section(exhibit, shown, runs))
    return [s for s in sections if s and (requested or len({c.arm for c in s.cells}) > 1)]
