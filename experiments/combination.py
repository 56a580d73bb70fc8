"""Discrete combination of the policies of results/walker and results/balance: results/combination.

    python experiments/combination.py run [TASK ...]  # trains and measures what is missing
    python experiments/combination.py collect         # keeps what is finished, writes tables

Runs go to runs/combination/<method>-<seed>-<task>: 100,000 steps of a double DQN over 16 candidate
skills, the seed of pre-training for the controller, too.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from tables import run_comsd, write_csv
from tables import train as train_run

from comsd import Run
from comsd.reproduction.collect import commit_of

ROOT = Path(__file__).parent.parent
RUNS, RESULTS = ROOT / "runs" / "combination", ROOT / "results" / "combination"
SOURCES = {
    "comsd": ROOT / "results" / "walker" / "comsd-{}",
    "auto": ROOT / "results" / "balance" / "auto-walker-{}",
    "cic": ROOT / "results" / "walker" / "cic-{}",
}
TASKS = ("walker_stand", "walker_run", "walker_walk", "walker_flip")
SEEDS = (1, 2, 3)
COLOURS = {"comsd": "tab:blue", "auto": "tab:green", "cic": "tab:orange"}
LABELS = {"comsd": "ComSD", "auto": "ComSD, automatic balance", "cic": "CIC"}
RUN_NAMES = [f"{method}-{seed}-{t}" for t in TASKS for seed in SEEDS for method in SOURCES]


def train(name: str) -> None:
    method, seed, task = name.split("-")
    place = RUNS / name
    source = Path(str(SOURCES[method]).format(seed))
    if (place / "evaluation" / "evaluation.json").exists() or not (source / "checkpoints").exists():
        return  # done, or its policy was not kept
    how = ["--task", task, "--controller", "discrete", "--preset", "lite", "--seed", seed]
    train_run(place, "combine", str(source), *how)
    run_comsd("evaluate", str(place), "--out", str(place / "evaluation"))


def collect() -> None:
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for name in RUN_NAMES:
        path = RUNS / name / "evaluation" / "evaluation.json"
        if not path.exists():
            continue
        run, found = Run(RUNS / name), json.loads(path.read_text())["metrics"]
        method, seed, task = name.split("-")
        about: dict[str, Any] = {"task": task, "method": method, "seed": int(seed)}
        points = [(int(row["step"]), float(row["return"])) for row in run.evaluations.rows()]
        curves += [about | {"step": step, "return": round(value, 2)} for step, value in points]
        figures = {"first": points[0][1], **{k: found[k] for k in sorted(found)}}
        figures = {key: round(value, 1) for key, value in figures.items()}
        rows.append(about | figures | {"commit": commit_of(run)})
        (RESULTS / "configs").mkdir(parents=True, exist_ok=True)
        shutil.copy(run.path / "config.json", RESULTS / "configs" / f"{name}.json")
    write_csv(RESULTS / "runs.csv", rows)
    write_csv(RESULTS / "evaluations.csv", curves)
    draw(rows, curves).savefig(RESULTS / "curves.png", dpi=110)


def draw(rows: list[dict[str, Any]], curves: list[dict[str, Any]]) -> Figure:
    """Curves of all seeds; a dotted line where the best candidate of a seed ends up alone."""
    tasks = [task for task in TASKS if any(row["task"] == task for row in rows)]
    figure = Figure(figsize=(3.6 * len(tasks), 3.4), layout="constrained")
    for axes, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        for row in (row for row in rows if row["task"] == task):
            colour, method = COLOURS[row["method"]], row["method"]
            same = [c for c in curves if all(c[k] == row[k] for k in ("task", "method", "seed"))]
            x, y = [c["step"] / 1000 for c in same], [c["return"] for c in same]
            label = LABELS[method] if row["seed"] == SEEDS[0] else None
            axes.plot(x, y, ".-", color=colour, label=label)
            axes.axhline(row["return_best_candidate"], color=colour, ls=":", lw=1)
        axes.set(title=task, xlabel="thousand steps")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8)
    figure.axes[0].set_ylabel("return (dotted: best candidate alone)")
    return figure


if __name__ == "__main__":
    if sys.argv[1] == "collect":
        collect()
    else:
        for name in RUN_NAMES:
            if not sys.argv[2:] or name.split("-")[-1] in sys.argv[2:]:
                train(name)
