"""The maze comparison behind results/maze: every arm, 6 and 10 skills, several seeds.

    python experiments/maze.py run      # trains what is missing, two processes; resumes
    python experiments/maze.py collect  # writes the CSV files, figures and tables

Runs go to runs/maze/<length>/<skills>/<arm>/<seed>.
"""

from __future__ import annotations

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from tables import train, write_csv

from comsd import Run
from comsd.envs.specs import CYCLE
from comsd.errors import InputError
from comsd.evaluation import make_evaluator
from comsd.evaluation.maze import CLAIMS
from comsd.reproduction.statistics import summarise

ROOT = Path(__file__).parent.parent
RUNS = ROOT / "runs" / "maze"
RESULTS = ROOT / "results" / "maze"
TABLES = """\
# Maze: mean ± SD over seeds [95 % bootstrap interval of the mean]

"all bounds": runs that reach every bound of `CLAIMS` (src/comsd/evaluation/maze.py) at the end.
Written by `python experiments/maze.py collect` from runs.csv.

"""
SKILLS = (6, 10)
SEEDS = range(5)


class Arm(NamedTuple):
    title: str
    words: str  # of `comsd pretrain`


NO_DIVERSITY = "comsd --method.no-diversity"
ARMS: dict[str, Arm] = {
    "comsd": Arm("ComSD", "comsd"),
    "frozen-random": Arm(
        "frozen-random k-NN", f"{NO_DIVERSITY} --method.knn frozen-random --method.knn-form log1p"
    ),
    "no-diversity": Arm("ComSD, alpha = 0", NO_DIVERSITY),
    "no-smw": Arm("ComSD without SMW", "comsd --method.no-smw"),
    "diversity-only": Arm("diversity reward only", "comsd --method.no-exploration"),
    "cic": Arm("CIC", "cic"),
    "diayn": Arm("DIAYN", "diayn"),
    "dads": Arm("DADS (forward MI)", "dads"),
    "becl": Arm("BeCL", "becl"),
    "cesd": Arm("CeSD", "cesd"),
}


class Job(NamedTuple):
    preset: str  # see CYCLES
    skills: int
    arm: str
    seed: int

    @property
    def path(self) -> Path:
        return RUNS / self.preset / str(self.skills) / self.arm / str(self.seed)


CYCLES = {"paper": 2500, "lite": 500}  # the paper's length, and a fifth of it


def plan() -> list[Job]:
    return [Job(p, k, arm, seed) for p in CYCLES for seed in SEEDS for arm in ARMS for k in SKILLS]


def run(job: Job) -> None:
    how = f"--env maze-tree --preset {job.preset} --skills {job.skills} --seed {job.seed}"
    train(job.path, "pretrain", *f"{ARMS[job.arm].words} {how}".split())
    print("done:", *job, flush=True)


# --- from runs to results -------------------------------------------------------------------------

FIGURES = {
    "occupancy_entropy": "H/log 31",
    "owned_arms": "arms (4)",
    "owned_branches": "branches (2)",
    "end_depth": "end depth",
    "identification": "5-NN",
    "end_information": "I(Z;end)/log K",
    "time_information": "I(Z;cell)/log K",
    "nearest_occupancy_distance": "nearest JS",
    "territory_evenness": "evenness",
}
BOUNDS = ("occupancy_entropy", "owned_arms", "identification", "end_information")


def finished() -> dict[Job, Run]:
    runs = {job: Run(job.path) for job in plan() if (job.path / "config.json").exists()}
    return {job: run for job, run in runs.items() if run.finished}


def interval(values: list[float]) -> str:
    """Mean, standard deviation and the bootstrap interval over seeds."""
    c = summarise("", "", values)
    if not c.sd or c.low is None:
        return f"{c.mean:.3g}"
    return f"{c.mean:.2f} ± {c.sd:.2f} [{c.low:.2f}, {c.high:.2f}]"


def table(rows: list[dict[str, Any]], preset: str, skills: int) -> str:
    claim = CLAIMS[skills]
    header = ["arm", "n", "all bounds", *FIGURES.values()]
    lines = [" | ".join(header), " | ".join("---" for _ in header)]
    for arm in ARMS:
        runs = [r for r in rows if (r["preset"], r["skills"], r["arm"]) == (preset, skills, arm)]
        if runs:
            passed = sum(all(r[name] >= bound for name, bound in claim.items()) for r in runs)
            cells = [interval([r[name] for r in runs]) for name in FIGURES]
            lines.append(
                " | ".join([ARMS[arm].title, str(len(runs)), f"{passed}/{len(runs)}", *cells])
            )
    return "\n".join(f"| {line} |" for line in lines)


def long_runs(curves: list[dict[str, Any]], skills: int, arm: str) -> dict[int, dict[str, Any]]:
    """By cycle, the mean over the seeds that were run at the paper's length."""
    rows = [c for c in curves if (c["preset"], c["skills"], c["arm"]) == ("paper", skills, arm)]
    cycles = sorted({int(row["step"]) // CYCLE for row in rows})
    at = {cycle: [row for row in rows if row["step"] == cycle * CYCLE] for cycle in cycles}
    return {
        cycle: {name: float(np.mean([row[name] for row in same])) for name in BOUNDS}
        for cycle, same in at.items()
    }


def long_table(curves: list[dict[str, Any]]) -> str:
    """What changed after 500 cycles?"""
    header = ["arm", "skills", *(f"{FIGURES[name]}, 500 → 2500" for name in BOUNDS)]
    lines = [" | ".join(header), " | ".join("---" for _ in header)]
    for arm in ARMS:
        for skills in SKILLS:
            if run := long_runs(curves, skills, arm):
                cells = [f"{run[500][name]:.3g} → {run[2500][name]:.3g}" for name in BOUNDS]
                lines.append(" | ".join([ARMS[arm].title, str(skills), *cells]))
    return "\n".join(f"| {line} |" for line in lines)


def drawable(runs: dict[Job, Run], skills: int, arm: str) -> tuple[Job, Any] | None:
    """The first seed of full length whose policy this version can read; older figures count too."""
    for job in (Job("paper", skills, arm, seed) for seed in SEEDS):
        with suppress(InputError):
            if job in runs:
                return job, runs[job].policy
    return None


def draw_arms(runs: dict[Job, Run], skills: int) -> None:
    """One picture of the skills per arm, after 2500 cycles."""
    arms = [arm for arm in ARMS if any(Job("paper", skills, arm, seed) in runs for seed in SEEDS)]
    found = [pair for arm in arms if (pair := drawable(runs, skills, arm))]
    if len(found) < len(arms):
        print(f"skills-{skills}.png stays as it is: {len(found)} of {len(arms)} can be read")
        return
    figure = Figure(figsize=(13, 8.5), layout="constrained")
    for position, (job, policy) in enumerate(found, 1):
        axes = figure.add_subplot(-(-len(found) // 3), 3, position)
        make_evaluator(runs[job]).draw(axes, policy)
        axes.set_title(f"{ARMS[job.arm].title}, seed {job.seed}", fontsize=10)
    figure.savefig(RESULTS / f"skills-{skills}.png", dpi=80)


def draw_curves(curves: list[dict[str, Any]]) -> None:
    """The runs of 2500 cycles: does anything change after 500?"""
    arms = [arm for arm in ARMS if any(long_runs(curves, skills, arm) for skills in SKILLS)]
    figure = Figure(figsize=(13, 7), layout="constrained")
    axes = figure.subplots(len(SKILLS), len(BOUNDS), sharex=True)
    for row, skills in enumerate(SKILLS):
        for column, name in enumerate(BOUNDS):
            for number, arm in enumerate(arms):
                run = long_runs(curves, skills, arm)
                points = [figures[name] for figures in run.values()]
                style = {"lw": 1.2, "color": f"C{number}", "label": ARMS[arm].title}
                axes[row, column].plot(list(run), points, **style)
            axes[row, column].axvline(500, color="grey", lw=0.8, ls=":")
            axes[row, column].set_title(f"{FIGURES[name]}, {skills} skills", fontsize=9)
    axes[-1, 0].set_xlabel("cycles")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
    )
    figure.savefig(RESULTS / "curves.png", dpi=80)


def collect() -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    runs = finished()
    ends, curves = [], []
    for job, run in runs.items():
        commit = json.loads((run.path / "config.json").read_text())["versions"]["commit"]
        figures = [{k: float(v) for k, v in row.items()} for row in run.evaluations.rows()]
        about = {"preset": job.preset, "skills": job.skills, "arm": job.arm, "seed": job.seed}
        curves += [{**about, **row} for row in figures]
        ends.append({**about, "commit": commit, **figures[-1]})
        if job.seed == 0:
            name = f"{job.preset}-{job.skills}-{job.arm}.json"
            (RESULTS / "configs").mkdir(exist_ok=True)
            shutil.copy(run.path / "config.json", RESULTS / "configs" / name)
    write_csv(RESULTS / "runs.csv", ends)
    write_csv(RESULTS / "evaluations.csv", curves)
    text = "".join(
        f"## {cycles} cycles, {k} skills\n\n{table(ends, preset, k)}\n\n"
        for preset, cycles in CYCLES.items()
        for k in SKILLS
    )
    text += f"## From 500 to 2500 cycles, means\n\n{long_table(curves)}\n"
    (RESULTS / "tables.md").write_text(TABLES + text)
    for skills in SKILLS:
        draw_arms(runs, skills)
    draw_curves(curves)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", *rest]:
            with ThreadPoolExecutor(int(rest[0]) if rest else 2) as pool:
                list(pool.map(run, plan()))
        case ["collect"]:
            collect()
        case _:
            sys.exit(__doc__)
