"""Fine-tuning and combination on Walker behind results/adaptation.

    python experiments/adaptation.py run      # trains what is missing; resumes
    python experiments/adaptation.py collect  # writes the CSV files, configs and the report

Runs go to runs/lite, in the layout of `comsd reproduce`; pre-trainings are those of results/walker.
Two questions beside it, with runs of their own in runs/best and runs/longer: does another skill, or
a longer pre-training, fine-tune better?
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from tables import keep_adaptations, keep_report, write_csv

from comsd import Run
from comsd.adaptation import FinetuneSettings
from comsd.cli import main
from comsd.reproduction.collect import commit_of, find_runs

ROOT = Path(__file__).parent.parent
RUNS, RESULTS = ROOT / "runs", ROOT / "results" / "adaptation"
COMMON = "--preset lite --domains walker --methods comsd cic"


def run() -> None:
    for words in (
        f"reproduce finetuning {COMMON} --seeds 3 --dir {RUNS}",
        # results/adaptation holds 60,000 steps of this, and a variant with --hold 10
        f"reproduce combination {COMMON} --seeds 1 --controllers continuous --dir {RUNS} "
        "--tasks walker_stand walker_run",
        f"reproduce behaviour {COMMON} --seeds 3 --dir {RUNS}",
    ):
        main(words.split())
    for seed in (1, 2, 3):
        main(
            f"finetune {RUNS}/lite/pretrain/walker/comsd-{seed} --task walker_run --seed {seed} "
            f"--rule best-of-k --run {RUNS}/best/walker_run-comsd-{seed}".split()
        )
    longer = f"{RUNS}/longer/comsd-1"
    lite = "--env walker --preset lite --seed 1"
    main(f"pretrain comsd {lite} --steps 600000 --run {longer}".split())
    for task in ("walker_run", "walker_flip"):
        main(f"finetune {longer} --task {task} --seed 1 --run {RUNS}/longer/{task}-comsd-1".split())


def variants() -> None:
    """Fine-tuning of another skill, and after a longer pre-training."""
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
    if rows:
        write_csv(RESULTS / "variants.csv", rows)
        write_csv(RESULTS / "variants-evaluations.csv", curves)


def collect() -> None:
    found, unfinished = find_runs(RUNS / "lite")
    print("unfinished:", ", ".join(unfinished) or "none")
    keep_adaptations(found, RESULTS)
    variants()
    keep_report(RUNS, RESULTS)


if __name__ == "__main__":
    if sys.argv[1:] not in (["run"], ["collect"]):
        sys.exit(__doc__)
    run() if sys.argv[1:] == ["run"] else collect()
