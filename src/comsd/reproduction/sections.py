"""What a report says about each exhibit: a table beside the paper's, a figure and notes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any

from comsd.adaptation import CONTROLLERS, CombineSettings, FinetuneSettings
from comsd.evaluation import MazeEvaluator, TaskEvaluator
from comsd.registry import METHODS
from comsd.reproduction import behaviour
from comsd.reproduction.behaviour import Measurement
from comsd.reproduction.collect import FinishedRun
from comsd.reproduction.exhibits import (
    AUTO,
    COMPARED,
    EXHIBITS,
    Exhibit,
    Shown,
    controlled,
)
from comsd.reproduction.figures import learning_curves, skill_paths
from comsd.reproduction.statistics import Cell, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS: dict[Shown, dict[str, str]] = {  # metric -> name of its row
    "finetune": {"return": ""},
    "combine": {
        "return": "",
        "return_without_noise": ", noise-free",
        "return_best_candidate": ", best candidate alone",
    },
    "maze": {
        name: f": {name.replace('_', ' ')}"
        for name in ("occupancy_entropy", "owned_arms", "identification", "end_information")
    },
    "analyse": behaviour.ROWS,
}


CONTROLLER = {
    "continuous": "the paper's",
    "discrete": "ours: among candidate skills, in the arms whose names say so",
}


@dataclass(frozen=True)
class Section:
    """One exhibit at one preset."""

    exhibit: str
    shown: Shown
    title: str
    cells: list[Cell]
    figure: Figure
    notes: list[str]
    meanings: list[str]  # of its rows
    measured: list[Measurement]  # of the runs behind it, one by one


def paper_values(exhibit: str) -> dict[str, Any]:
    """The published numbers of an exhibit, and where they are."""
    data = json.loads(files("comsd.reproduction").joinpath("paper.json").read_text())
    return data.get(exhibit, {"source": "", "values": {}})


def arms_of(exhibit: Exhibit, shown: Shown, runs: list[FinishedRun]) -> list[str]:
    """In the exhibit's order, then ComSD with the automatic balance; comparisons of all methods
    include every other one. Arms of the paper's controller come before those of ours.
    """
    trained = {r.arm for r in runs}
    names = [arm.name for arm in exhibit.arms]
    names += [] if exhibit.pixels else [AUTO.name]
    if exhibit.arms == COMPARED:
        names += sorted(set(METHODS) - {*names})
    if shown == "combine":
        names = [controlled(name, controller) for controller in CONTROLLERS for name in names]
    alone = [exhibit.reference.name] if exhibit.reference else []
    return [name for name in alone + names if name in trained]


def results(run: FinishedRun, shown: Shown) -> dict[str, Any]:
    """Its metrics at the end: of the last evaluation, or of the analysis of its skills."""
    if shown == "analyse":
        return behaviour.figures(run.analysis) if run.analysis else {}
    return run.rows[-1] if run.rows else {}


def make_section(name: str, shown: Shown, runs: list[FinishedRun]) -> Section | None:
    """None if nothing is finished that counts for it."""
    exhibit, adapts = EXHIBITS[name], shown in ("finetune", "combine")
    stages = (shown, "scratch") if exhibit.reference else (shown if adapts else "pretrain",)
    if adapts:
        tasks = [task for domain in exhibit.domains for task in exhibit.tasks_of(domain)]
        used = {*arms_of(exhibit, shown, runs)}
        done = [r for r in runs if r.stage == shown and r.arm in used and r.rows]
        envs = sorted({r.env for r in done if r.env in tasks})
    else:
        envs = [f"maze-tree-{n}" for n in exhibit.skills] or [*exhibit.domains, *exhibit.also]
    runs = [r for r in runs if r.stage in stages and r.env in envs and results(r, shown)]
    arms = arms_of(exhibit, shown, runs)
    if not arms:
        return None
    runs = [r for r in runs if r.arm in arms]
    found = [(r.env, r.arm, results(r, shown)) for r in runs]
    paper = paper_values("behaviour" if shown == "analyse" else name)
    cells: list[Cell] = []
    for env, (metric, label), arm in product(envs, METRICS[shown].items(), arms):
        values = [float(x[metric]) for *of, x in found if of == [env, arm] and metric in x]
        if values:
            published = paper["values"].get(env if adapts else metric, {}).get(arm, (None, None))
            theirs = published if adapts or env in exhibit.domains else (None, None)
            row = f"{env}: {label}" if shown == "analyse" else env + label
            cells.append(summarise(row, arm, values, theirs))
    measured: list[Measurement] = []
    if adapts:
        figure, notes = learning_curves(envs, arms, runs), adaptation_notes(runs)
    elif shown == "maze":
        figure, notes = skill_paths(envs, arms, runs), ["pictures: the first seed"]
    else:
        measured = behaviour.measurements(runs)
        figure, notes = behaviour.draw(envs, arms, cells), behaviour.notes(measured)
    if paper["source"]:
        notes.append(f"paper's numbers: {paper['source']}")
    notes += [exhibit.ours] if exhibit.ours else []
    notes += [] if exhibit.paper_seeds else ["the paper does not say how many seeds it has"]
    notes += how_trained(runs)
    made = {r.run.config.run.steps for r in runs} if adapts else set()
    title = exhibit.title + (f" after {made.pop():,} steps" if len(made) == 1 else "")
    return Section(name, shown, title, cells, figure, notes, meanings(shown, cells), measured)


def adaptation_notes(runs: list[FinishedRun]) -> list[str]:
    notes: list[str] = []
    rules = {r.arm: a.rule for r in runs if isinstance(a := r.run.config.adapt, FinetuneSettings)}
    if rules:
        notes.append("skill rules: " + ", ".join(f"{arm} {rules[arm]}" for arm in sorted(rules)))
    used = {a.controller for r in runs if isinstance(a := r.run.config.adapt, CombineSettings)}
    if used:
        notes.append("controllers: " + ", ".join(f"{c} ({CONTROLLER[c]})" for c in sorted(used)))
    return notes


def how_trained(runs: list[FinishedRun]) -> list[str]:
    """How long, in which precision, on which images; where it differs, which arms."""
    adapted = [(r, f"{r.run.config.run.steps:,}") for r in runs if not r.run.pretrains]
    sources = [(r, r.run if r.run.pretrains else r.run.source) for r in runs]
    pretrained = [(r, f"{source.config.run.steps:,}") for r, source in sources if source]
    precisions = [(r, r.run.config.run.precision) for r in runs]
    images = [(r, f"{p.size} x {p.size}, {p.render}") for r in runs if (p := r.images)]
    notes = told_apart("steps of adaptation", adapted)
    notes += told_apart("steps of pre-training", pretrained)
    notes += told_apart("precision", precisions) + told_apart("images", images)
    groups: dict[str, list[FinishedRun]] = {}
    for r in runs:
        groups.setdefault(f"{r.arm} on {r.env}", []).append(r)
    for name, (first, *others) in groups.items():
        if unlike := differing(first, others):
            notes.append(f"settings differ between the runs of {name}: {', '.join(unlike)}")
    return notes


def told_apart(what: str, found: list[tuple[FinishedRun, str]]) -> list[str]:
    """A note on what runs have; on the arms that have it if they differ."""
    of_arm: dict[str, set[str]] = {}
    for r, text in found:
        of_arm.setdefault(r.arm, set()).add(text)
    who: dict[str, set[str]] = {}
    for r, text in found:
        alike = len(of_arm[r.arm]) == 1
        who.setdefault(text, set()).add(r.arm if alike else f"{r.arm} on {r.env}")
    if len(who) < 2:
        return [f"{what}: {text}" for text in who]
    return [f"{what}: " + ", ".join(f"{t} ({', '.join(sorted(arms))})" for t, arms in who.items())]


def differing(first: FinishedRun, others: list[FinishedRun]) -> list[str]:
    names = {name for r in (first, *others) for name in r.settings}
    wanted = first.settings
    return sorted(n for n in names if any(r.settings.get(n) != wanted.get(n) for r in others))


def meanings(shown: Shown, cells: list[Cell]) -> list[str]:
    """Of the rows whose names do not say it."""
    if shown == "analyse":
        return behaviour.meanings({cell.row.partition(": ")[2] for cell in cells})
    known = MazeEvaluator.meanings if shown == "maze" else TaskEvaluator.meanings
    named = {metric: label.strip(":, ") for metric, label in METRICS[shown].items()}
    rows = [cell.row for cell in cells]
    return [
        f"{label}: {known[metric]}"
        for metric, label in named.items()
        if label and any(row.endswith(label) for row in rows)
    ]


def make_sections(runs: list[FinishedRun], requested: list[str]) -> list[Section]:
    """The exhibits that were requested; without a record, those that compare something."""
    names = [name for name in EXHIBITS if not requested or name in requested]
    sections = [make_section(name, s, runs) for name in names for s in EXHIBITS[name].shows]
    return [s for s in sections if s and (requested or len({c.arm for c in s.cells}) > 1)]
