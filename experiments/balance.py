"""Hand-tuned and automatic balance of ComSD beside CIC on four robots: results/balance.

    python experiments/balance.py run [ROBOT ...]  # trains and measures what is missing, in order
    python experiments/balance.py collect          # keeps what is finished, writes table and figure

Runs go to runs/balance/<variant>-<robot>-<seed>. `lite`, bf16, 300,000 steps without reward, a
thread each; two of these commands with different robots keep two cores busy.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from tables import keep_policy, keep_tables, run_comsd, write_csv
from tables import train as train_run

from comsd import Run
from comsd.reproduction.collect import commit_of
from comsd.skill_sets import FLAGS

ROOT = Path(__file__).parent.parent
RUNS, RESULTS = ROOT / "runs" / "balance", ROOT / "results" / "balance"
ROBOTS = ("walker", "hopper", "cheetah", "quadruped")
SEEDS = (1, 2, 3)
VARIANTS: dict[str, list[str]] = {
    "auto": ["comsd", "--method.balance", "auto"],
    "tuned": ["comsd"],  # alpha and range of the flag by robot, as in the paper's table
    "cic": ["cic"],
}
LABELS = {"auto": "ComSD, automatic", "tuned": "ComSD, the paper's weights", "cic": "CIC"}
COLOURS = {"auto": "tab:green", "tuned": "tab:blue", "cic": "tab:orange"}
KEPT = 1  # the seed whose policies are kept for the docs and the explorer
FIGURES = (
    "activity_rho",
    "akd_range_flag",
    "akd_range_random",
    "ms_coverage3_random",
    "identification",
    "state_coverage",
    "held_out_auc",
)


def train(variant: str, robot: str, seed: int) -> None:
    place = RUNS / f"{variant}-{robot}-{seed}"
    if (place / "evaluation" / "evaluation.json").exists():
        return
    how = ["--preset", "lite", "--precision", "bf16", "--threads", "1", "--seed", str(seed)]
    train_run(place, "pretrain", *VARIANTS[variant], "--env", robot, *how)
    run_comsd("evaluate", str(place), "--out", str(place / "evaluation"))


def keep(name: str) -> None:
    """Config, tables and figures, and of one seed the policy, enough for `comsd explore`."""
    run, place = Run(RUNS / name), RESULTS / name
    with_policy = name.startswith("auto") and run.config.run.seed == KEPT
    (keep_policy if with_policy else keep_tables)(run, place)
    found = json.loads((run.path / "evaluation" / "evaluation.json").read_text())
    found = {key: value for key, value in found.items() if key not in ("picture", "seal")}
    (place / "evaluation.json").write_text(json.dumps(found, indent=1))


def finished() -> list[tuple[str, str, int]]:
    runs = [(v, r, s) for r in ROBOTS for v in VARIANTS for s in SEEDS]
    return [run for run in runs if (RESULTS / name_of(*run) / "evaluation.json").exists()]


def name_of(variant: str, robot: str, seed: int) -> str:
    return f"{variant}-{robot}-{seed}"


def measured(variant: str, robot: str, seed: int) -> dict[str, Any]:
    return json.loads((RESULTS / name_of(variant, robot, seed) / "evaluation.json").read_text())


def collect() -> None:
    for variant in VARIANTS:
        for robot in ROBOTS:
            for seed in SEEDS:
                name = name_of(variant, robot, seed)
                if (RUNS / name / "evaluation" / "evaluation.json").exists():
                    keep(name)
    rows: list[dict[str, Any]] = []
    for run in finished():
        variant, robot, seed = run
        found = measured(*run)
        row: dict[str, Any] = {"robot": robot, "variant": variant, "seed": seed}
        row |= {f"A({f:g})": found["metrics"][f"activity_{f:g}"] for f in FLAGS}
        row |= {key: found["metrics"].get(key) for key in FIGURES}
        row["rho_low"], row["rho_high"] = found["intervals"]["activity_rho"]
        row["identification_untrained"] = found["untrained"]["identification"]
        row["commit"] = commit_of(Run(RESULTS / name_of(*run)))
        rows.append({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})
    write_csv(RESULTS / "runs.csv", rows)
    draw([*rows, *on_walker()]).savefig(RESULTS / "activity.png", dpi=110)


def on_walker() -> list[dict[str, Any]]:
    """A(f) of the runs in results/walker, which have the paper's weights, or are CIC's."""
    rows: list[dict[str, Any]] = []
    with (ROOT / "results" / "walker" / "runs.csv").open() as file:
        for found in csv.DictReader(file):
            method, seed = found["run"].split("-")
            variant = "tuned" if method == "comsd" else method
            row = {"robot": "walker", "variant": variant, "seed": int(seed)}
            rows.append(row | {f"A({f:g})": float(found[f"activity_{f:g}"]) for f in FLAGS})
    return rows


def draw(rows: list[dict[str, Any]]) -> Figure:
    """A(f) of every run, a panel per robot."""
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    panels = figure.subplots(1, len(ROBOTS))
    for axes, robot in zip(panels, ROBOTS, strict=True):
        for row in (row for row in rows if row["robot"] == robot):
            variant = row["variant"]
            label = LABELS[variant] if row["seed"] == SEEDS[0] else None
            values = [row[f"A({f:g})"] for f in FLAGS]
            axes.plot(FLAGS, values, ".-", color=COLOURS[variant], label=label)
        axes.set(title=robot, xlabel="flag")
        axes.set_ylim(bottom=0)
    panels[0].set_ylabel("activity A(f): mean AKD")
    panels[0].legend(frameon=False, fontsize=7, loc="upper right", bbox_to_anchor=(1, 0.93))
    return figure


if __name__ == "__main__":
    if sys.argv[1] == "collect":
        collect()
    else:
        for seed in SEEDS:
            for variant in VARIANTS:
                for robot in sys.argv[2:] or ROBOTS:
                    train(variant, robot, seed)
