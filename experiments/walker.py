"""ComSD and CIC on Walker behind results/walker: pre-training by the lite preset, then a look.

    python experiments/walker.py run      # trains what is missing, two processes; resumes
    python experiments/walker.py collect  # writes the CSV files, policies, figure and table

Runs go to runs/walker/<method>-<seed>.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from tables import write_csv

import comsd
from comsd import Run, checkpoint
from comsd.evaluation.robots import RobotEvaluator, akd, skill_sweeps

ROOT = Path(__file__).parent.parent
RUNS, RESULTS = ROOT / "runs" / "walker", ROOT / "results" / "walker"
METHODS, SEEDS = ("comsd", "cic"), (1, 2, 3)
STYLES = {"1": "o-", "2": "s--", "3": "^:"}
COLOURS = {"comsd": "tab:blue", "cic": "tab:orange"}
NAMES = [f"{method}-{seed}" for seed in SEEDS for method in METHODS]


def train(name: str) -> None:
    method, seed = name.split("-")
    verb = [sys.executable, "-m", "comsd"]
    if (RUNS / name / "config.json").exists():
        words = ["resume", str(RUNS / name)]
    else:
        words = ["pretrain", method, "--env", "walker", "--preset", "lite", "--seed", seed]
        words += ["--run", str(RUNS / name)]
    subprocess.run([*verb, *words], check=True)


def keep(run: Run) -> None:
    """Config, tables and the policy: enough for `comsd.load` and `comsd evaluate`."""
    place = RESULTS / run.path.name
    shutil.rmtree(place, ignore_errors=True)
    last = max(checkpoint.found(run.path / "checkpoints"))
    (place / "checkpoints" / last.name).mkdir(parents=True)
    for name in ("config.json", "metrics.csv", "evaluations.csv"):
        shutil.copy(run.path / name, place)
    for name in ("state.json", "agent.safetensors"):
        shutil.copy(last / name, place / "checkpoints" / last.name)


def collect() -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    rows, curves = [], []
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for name in NAMES:
        run = comsd.load(RUNS / name)
        keep(run)
        evaluator = RobotEvaluator(run)
        measured = comsd.evaluate(run)
        last = run.evaluations.rows()[-1]
        commit = json.loads((run.path / "config.json").read_text())["versions"]["commit"]
        figures = {k: round(v, 4) for k, v in measured.metrics.items()}
        for key in ("held_out_retrieval", "held_out_chance"):
            figures[key] = round(float(last[key]), 4)
        figures["retrieval"] = round(float(run.metrics.rows()[-1]["health/retrieval"]), 4)
        rows.append({"run": name, "steps": run.config.run.steps, "commit": commit, **figures})
        for axes, (sweep, skills) in zip(panels, skill_sweeps(run.space).items(), strict=True):
            values = akd(evaluator.states(run.policy, skills, seed=0))
            at = np.linspace(0, 1, len(values))
            curves += [
                {"run": name, "sweep": sweep, "position": round(x, 2), "akd": round(v, 4)}
                for x, v in zip(at.tolist(), values.tolist(), strict=True)
            ]
            shown = np.sort(values)[::-1] if sweep == "random" else values
            style = STYLES[name[-1]]
            colour = COLOURS[run.config.run.method]
            axes.plot(at, shown, style, color=colour, label=name, markersize=4)
            axes.set_title(f"{sweep} sweep", fontsize=10)
            axes.set_xlabel({"constant": "c", "flag": "flag z1"}.get(sweep, "rank"))
    panels[0].set_ylabel("AKD: how active the skill is")
    panels[2].legend(frameon=False, fontsize=8)
    figure.savefig(RESULTS / "akd.png", dpi=130)
    for name, table in (("runs.csv", rows), ("akd.csv", curves)):
        write_csv(RESULTS / name, table)
    shown = [k for k in rows[0] if k not in ("steps", "commit", "run")]
    lines = ["| figure | " + " | ".join(row["run"] for row in rows) + " |"]
    lines += ["|---" * (len(rows) + 1) + "|"]
    lines += [f"| {k} | " + " | ".join(f"{row[k]:.3g}" for row in rows) + " |" for k in shown]
    (RESULTS / "table.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(train, NAMES))
    elif sys.argv[1:] == ["collect"]:
        collect()
    else:
        sys.exit(__doc__)
