"""Every method on Walker behind results/methods: pre-training by the lite preset, then a look.

    python experiments/methods.py run      # trains and analyses what is missing; resumes
    python experiments/methods.py collect  # writes the CSV files, configs, table and figure

Runs go to runs/lite/pretrain/walker/<method>-<seed>, in the layout of `comsd reproduce`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from tables import write_csv

from comsd.cli import main
from comsd.registry import METHODS
from comsd.reproduction.collect import commit_of, find_runs
from comsd.reproduction.page import write_report

ROOT = Path(__file__).parent.parent
RUNS, RESULTS = ROOT / "runs", ROOT / "results" / "methods"
HEALTH = ("held_out_retrieval", "held_out_chance")


def run() -> None:
    words = f"reproduce behaviour --preset lite --domains walker --seeds 1 --dir {RUNS} --methods"
    main([*words.split(), *METHODS])


def collect() -> None:
    found, unfinished = find_runs(RUNS / "lite")
    print("unfinished:", ", ".join(unfinished) or "none")
    runs: list[dict[str, Any]] = []
    skills: list[dict[str, Any]] = []
    configs: dict[str, Path] = {}
    for f in found:
        if (f.stage, f.env) != ("pretrain", "walker") or f.analysis is None:
            continue
        what = {"method": f.arm, "seed": f.seed}
        health = {key: f.rows[-1].get(key, "") for key in HEALTH}
        about = {"steps": f.run.config.run.steps, "commit": commit_of(f.run)}
        runs.append(what | about | f.analysis["metrics"] | health)
        skills += [what | row for row in f.analysis["skills"]]
        configs[f"{f.arm}-{f.seed}.json"] = f.run.path / "config.json"
    write_csv(RESULTS / "runs.csv", runs)
    write_csv(RESULTS / "skills.csv", skills)
    shutil.rmtree(RESULTS / "configs", ignore_errors=True)
    (RESULTS / "configs").mkdir()
    for name, config in configs.items():
        shutil.copy(config, RESULTS / "configs" / name)
    page = write_report(RUNS)
    for part in page.parent.glob("lite-behaviour.*"):
        shutil.copy(part, RESULTS)


if __name__ == "__main__":
    if sys.argv[1:] not in (["run"], ["collect"]):
        sys.exit(__doc__)
    run() if sys.argv[1:] == ["run"] else collect()
