"""Fine-tuning and combination on Walker behind results/adaptation.

    python experiments/adaptation.py run      # trains what is missing; resumes
    python experiments/adaptation.py collect  # writes the CSV files, configs and the report

Runs go to runs/lite, in the layout of `comsd reproduce`; pre-trainings are those of results/walker.
Two questions beside it, with runs of their own in runs/best and runs/longer: does another skill, or
a longer pre-training, fine-tune better?
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tables import write_csv

from comsd import Run
from comsd.adaptation import FinetuneSettings
from comsd.cli import main
from comsd.reproduction.collect import commit_of, find_runs
from comsd.reproduction.page import write_report

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
    shutil.rmtree(RESULTS / "configs", ignore_errors=True)
    (RESULTS / "configs").mkdir(parents=True)
    found, unfinished = find_runs(RUNS / "lite")
    print("unfinished:", ", ".join(unfinished) or "none")
    evaluations: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    for f in found:
        if f.stage == "pretrain":
            continue
        what = {"stage": f.stage, "task": f.env, "arm": f.arm, "seed": f.seed}
        evaluations += [what | row for row in f.rows]
        adapt = f.run.config.adapt
        runs.append(
            what
            | {
                "rule": adapt.rule if isinstance(adapt, FinetuneSettings) else "",
                "steps": f.run.config.run.steps,
                "return": f.rows[-1]["return"],
                "commit": commit_of(f.run),
            }
        )
        record = json.loads((f.run.path / "config.json").read_text())
        config = RESULTS / "configs" / f"{f.stage}-{f.env}-{f.arm}-{f.seed}.json"
        config.write_text(json.dumps(record, indent=1) + "\n")
    write_csv(RESULTS / "runs.csv", runs)
    variants()
    write_csv(RESULTS / "evaluations.csv", evaluations)
    page = write_report(RUNS)
    for table in page.parent.glob("lite-*"):
        shutil.copy(table, RESULTS)
    shutil.copy(page, RESULTS)


if __name__ == "__main__":
    if sys.argv[1:] not in (["run"], ["collect"]):
        sys.exit(__doc__)
    run() if sys.argv[1:] == ["run"] else collect()
