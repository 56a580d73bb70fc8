"""ComSD and CIC on Walker behind results/walker: pre-training by the lite preset, then a look.

    python experiments/walker.py run      # trains what is missing, two processes; resumes
    python experiments/walker.py keep     # copies configs, tables and policies to results/walker
    python experiments/walker.py measure  # analyses the policies kept there; minutes each
    python experiments/walker.py collect  # writes the CSV files, figure and table from that

Runs go to runs/walker/<method>-<seed>, analyses to runs/walker-analysis/<method>-<seed>.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from tables import keep_policy, train, write_csv

import comsd
from comsd import Run
from comsd.reproduction.collect import commit_of
from comsd.skill_sets import FLAGS

ROOT = Path(__file__).parent.parent
RUNS, RESULTS = ROOT / "runs" / "walker", ROOT / "results" / "walker"
ANALYSES = ROOT / "runs" / "walker-analysis"
METHODS, SEEDS = ("comsd", "cic"), (1, 2, 3)
STYLES = {"1": "o-", "2": "s--", "3": "^:"}
COLOURS = {"comsd": "tab:blue", "cic": "tab:orange"}
NAMES = [f"{method}-{seed}" for seed in SEEDS for method in METHODS]
LOGGED = ("held_out_retrieval", "held_out_chance")  # of the last evaluation of the training


def run(name: str) -> None:
    method, seed = name.split("-")
    how = ["--env", "walker", "--preset", "lite", "--seed", seed]
    train(RUNS / name, "pretrain", method, *how)


def measure(name: str) -> None:
    if not (ANALYSES / name / "analysis.json").exists():
        comsd.analyse(RESULTS / name, out=ANALYSES / name, report=print)


def collect() -> None:
    rows: list[dict[str, Any]] = []
    skills: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for name in NAMES:
        run, found = (
            Run(RESULTS / name),
            json.loads((ANALYSES / name / "analysis.json").read_text()),
        )
        last, log = run.evaluations.rows()[-1], run.metrics.rows()[-1]
        figures = rounded(found["metrics"])
        for baseline in ("untrained", "random"):
            figures |= {f"{k}, {baseline}": v for k, v in rounded(found[baseline]).items()}
        figures |= {key: round(float(last[key]), 4) for key in LOGGED}
        figures["retrieval"] = round(float(log["health/retrieval"]), 4)
        rows.append(
            {"run": name, "steps": run.config.run.steps, "commit": commit_of(run)} | figures
        )
        skills += [{"run": name} | rounded(row) for row in found["skills"]]
        for key, (low, high) in found["intervals"].items():
            row = {"run": name, "figure": key, "value": found["metrics"][key]}
            curves.append(rounded(row | {"low": low, "high": high}))
    write_csv(RESULTS / "runs.csv", rows)
    write_csv(RESULTS / "akd.csv", skills)
    write_csv(RESULTS / "intervals.csv", curves)
    draw(skills, curves).savefig(RESULTS / "akd.png", dpi=130)
    shown = [k for k in rows[0] if k not in ("steps", "commit", "run")]
    lines = ["| figure | " + " | ".join(row["run"] for row in rows) + " |"]
    lines += ["|---" * (len(rows) + 1) + "|"]
    lines += [f"| {k} | " + " | ".join(f"{row[k]:.3g}" for row in rows) + " |" for k in shown]
    (RESULTS / "table.md").write_text("\n".join(lines) + "\n")


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {key: round(x, 4) if isinstance(x, float) else x for key, x in row.items()}


def draw(skills: list[dict[str, Any]], intervals: list[dict[str, Any]]) -> Figure:
    """A(f) with its interval, then the sweeps: mean and standard deviation over starts."""
    figure = Figure(figsize=(13.5, 3.6), layout="constrained")
    panels = figure.subplots(1, 4, sharey=True)
    for name in NAMES:
        style, colour = STYLES[name[-1]], COLOURS[name.split("-")[0]]
        known = {row["figure"]: row for row in intervals if row["run"] == name}
        at = [known[f"activity_{f:g}"] for f in FLAGS]
        rho = known["activity_rho"]["value"]
        shown = {"color": colour, "markersize": 4, "label": f"{name}, rho {rho:.2f}"}
        panels[0].plot(FLAGS, [row["value"] for row in at], style, **shown)
        band = [row["low"] for row in at], [row["high"] for row in at]
        panels[0].fill_between(FLAGS, *band, color=colour, alpha=0.1, linewidth=0)
        for axes, sweep in zip(panels[1:], ("constant", "flag", "random"), strict=True):
            own = [row for row in skills if (row["run"], row["sweep"]) == (name, sweep)]
            if sweep == "random":
                own.sort(key=lambda row: -row["akd"])
            place = [i / (len(own) - 1) for i in range(len(own))]
            akd, spread = ([row[key] for row in own] for key in ("akd", "akd_sd"))
            looks = {"fmt": style, "color": colour, "markersize": 4, "elinewidth": 0.5}
            axes.errorbar(place, akd, spread, **looks)
    titles = ["A(f), 12 random skills each", "constant sweep", "flag sweep", "random skills"]
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    for axes, what in zip(panels, ("flag f", "c", "flag z1, others .5", "rank"), strict=True):
        axes.set_xlabel(what)
    panels[0].set_ylabel("AKD: how active the skill is")
    panels[0].set_ylim(bottom=0)
    panels[0].legend(frameon=False, fontsize=7)
    return figure


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run"]:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(run, NAMES))
        case ["keep"]:
            [keep_policy(Run(RUNS / name), RESULTS / name) for name in NAMES]
        case ["measure"]:
            [measure(name) for name in NAMES]
        case ["collect"]:
            collect()
        case _:
            sys.exit(__doc__)
