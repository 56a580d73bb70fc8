"""Two questions about fine-tuning on Walker run, beside the exhibits: results/adaptation.

    python experiments/adaptation.py run      # trains what is missing; resumes
    python experiments/adaptation.py collect  # writes the CSV files and configs

Does another skill, or a longer pre-training, fine-tune better? Pre-trainings are those of
results/walker; runs go to runs/best and runs/longer.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from tables import train, write_csv

from comsd import Run
from comsd.adaptation import FinetuneSettings
from comsd.reproduction.collect import commit_of

ROOT = Path(__file__).parent.parent
RUNS, RESULTS = ROOT / "runs", ROOT / "results" / "adaptation"


def run() -> None:
    for seed in (1, 2, 3):
        words = f"--task walker_run --seed {seed} --rule best-of-k".split()
        source = str(ROOT / "results" / "walker" / f"comsd-{seed}")
        train(RUNS / "best" / f"walker_run-comsd-{seed}", "finetune", source, *words)
    longer = RUNS / "longer" / "comsd-1"
    words = "pretrain comsd --env walker --preset lite --seed 1 --steps 600000"
    train(longer, *words.split())
    for task in ("walker_run", "walker_flip"):
        words = f"--task {task} --seed 1".split()
        train(RUNS / "longer" / f"{task}-comsd-1", "finetune", str(longer), *words)


def collect() -> None:
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for path in sorted([*RUNS.glob("best/walker_*"), *RUNS.glob("longer/walker_*")]):
        run = Run(path)
        if not run.finished:
            continue
        adapt = run.config.adapt
        assert isinstance(adapt, FinetuneSettings)
        source = Run(ROOT / adapt.source)
        what = {
            "task": run.config.run.env,
            "seed": run.config.run.seed,
            "pre-training": source.config.run.steps,
            "rule": adapt.rule,
            "flag": round(float(run.selected_skill[0]), 3),
        }
        evaluations = run.evaluations.rows()
        rows.append(what | {"return": evaluations[-1]["return"], "commit": commit_of(run)})
        curves += [what | row for row in evaluations]
        for kind, of in (("", run), ("pretrain-", source)):
            name = f"{path.parent.name}-{kind}{of.path.name}.json"
            shutil.copy(of.path / "config.json", RESULTS / "configs" / name)
    write_csv(RESULTS / "variants.csv", rows)
    write_csv(RESULTS / "variants-evaluations.csv", curves)


if __name__ == "__main__":
    if sys.argv[1:] not in (["run"], ["collect"]):
        sys.exit(__doc__)
    run() if sys.argv[1:] == ["run"] else collect()
