"""The paper's exhibits at `lite` scale: results/exhibits.

    python experiments/exhibits.py run      # trains what is missing, by priority; resumes
    python experiments/exhibits.py collect  # adds what is finished to results/exhibits

Runs go to runs/reproduction/lite, as those of `comsd reproduce` do; policies that are kept in
results/ are taken from there. Runs are in bf16 where the processor has it. One question beside it,
with runs of its own in runs/tune: fine-tuning at the paper's learning rate for Cheetah and Hopper,
2e-5; `lite` has 1e-4.
"""

from __future__ import annotations

import shutil
import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch
from tables import write_csv

from comsd import Run
from comsd.cli import main
from comsd.reproduction.collect import commit_of
from comsd.training.checks import has_bf16

ROOT = Path(__file__).parent.parent
RUNS, RESULTS = ROOT / "runs" / "reproduction", ROOT / "results" / "exhibits"
PRECISION = "bf16" if has_bf16(torch.device("cpu")) else "float32"
SCALE = f"--preset lite --precision {PRECISION}"
THREE = "--methods comsd comsd-auto cic"
PIXELS = (
    "comsd-pixels cic-pixels cic-pixels-published smm-pixels-published cesd-pixels-published "
    "comsd-pixels-no-neighbours smm-pixels cesd-pixels"
)
PLANS = (
    f"behaviour {THREE} --domains walker hopper cheetah quadruped --seeds 3",
    f"combination {THREE} --controllers discrete --domains walker --seeds 3",
    f"combination {THREE} --controllers discrete --domains cheetah --seeds 2",
    "combination --methods comsd cic --controllers continuous --domains walker --seeds 2 "
    "--tasks walker_stand walker_run",
    f"finetuning {THREE} --domains walker --seeds 3",
    f"finetuning {THREE} --domains quadruped cheetah --seeds 2 "
    "--tasks quadruped_stand quadruped_walk cheetah_run cheetah_flip",
    "finetuning --methods comsd-auto --domains hopper --tasks hopper_hop hopper_flip --seeds 1",
    f"pixels --methods {PIXELS} --seeds 2",
    "distance --domains walker --tasks walker_stand walker_run --seeds 2",
    "ablation --seeds 1",
    "sensitivity --seeds 1",
    "conflict --seeds 1",
)
KEPT = {  # pre-trainings by the place of their policy in results/
    **{f"walker/{m}-{seed}": f"walker/{m}-{seed}" for m in ("comsd", "cic") for seed in (1, 2, 3)},
    **{f"cheetah/{m}-pixels-1": f"pixels/{m}-1" for m in ("comsd", "cic")},
    **{
        f"{robot}/comsd-auto-1": f"balance/auto-{robot}-1"
        for robot in ("walker", "hopper", "cheetah", "quadruped")
    },
}
CHEETAH = product(("comsd-auto", "comsd"), ("cheetah_run", "cheetah_flip"))
HOPPER = product(("comsd-auto",), ("hopper_hop", "hopper_flip"))
SHORT = {"comsd-auto": "auto", "comsd": "tuned"}
RATES = {  # runs in runs/tune by the pre-training they start from
    f"lr-{SHORT[arm]}-1-{task}-2e-5": f"pretrain/{task.partition('_')[0]}/{arm}-1"
    for arm, task in (*CHEETAH, *HOPPER)
}


def run() -> None:
    for place, policy in KEPT.items():
        to = RUNS / "lite" / "pretrain" / place
        if not to.exists():
            shutil.copytree(ROOT / "results" / policy, to)
    for plan in PLANS:
        main(f"reproduce {plan} {SCALE} --dir {RUNS} --kept {RESULTS}".split())
    for name, source in RATES.items():
        if (RESULTS / "learning-rate" / f"{name}.csv").exists():
            continue
        _, _, seed, task = name.split("-")[:4]
        how = f"--task {task} --agent.lr 2e-5 {SCALE} --seed {seed} --run {ROOT}/runs/tune/{name}"
        main(f"finetune {RUNS}/lite/{source} {how}".split())


def keep_rates() -> None:
    """The fine-tunings at 2e-5, if they are here."""
    rows: list[dict[str, Any]] = []
    for name, source in RATES.items():
        path = ROOT / "runs" / "tune" / name
        if not (path / "config.json").exists() or not Run(path).finished:
            continue
        run = Run(path)
        settings = run.config.run
        what = {"source": source, "task": settings.env, "seed": settings.seed, "lr": 2e-5}
        points = [float(row["return"]) for row in run.evaluations.rows()]
        figures = {"first": round(points[0], 1), "return": round(points[-1], 1)}
        rows.append(what | figures | {"commit": commit_of(run)})
        shutil.copy(path / "config.json", RESULTS / "learning-rate" / f"{name}.json")
        shutil.copy(path / "evaluations.csv", RESULTS / "learning-rate" / f"{name}.csv")
    if rows:
        write_csv(RESULTS / "learning-rate.csv", rows)


def collect() -> None:
    main(f"report {RUNS} --keep {RESULTS}".split())
    main(f"report {RESULTS}".split())
    keep_rates()


if __name__ == "__main__":
    if sys.argv[1:] not in (["run"], ["collect"]):
        sys.exit(__doc__)
    run() if sys.argv[1:] == ["run"] else collect()
