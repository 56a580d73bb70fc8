"""The paper's exhibits at `lite` scale in bf16, beside those of Walker: results/exhibits.

    python experiments/exhibits.py run      # trains what is missing; resumes
    python experiments/exhibits.py collect  # keeps configs, curves, tables and figures

Runs go to reproduction/lite, as those of `comsd reproduce` do. Pre-trainings of ComSD and CIC on
Walker are those of results/walker, in float32.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tables import keep_adaptations, keep_report

from comsd.cli import main
from comsd.reproduction.collect import find_runs

ROOT = Path(__file__).parent.parent
RUNS, RESULTS = ROOT / "reproduction", ROOT / "results" / "exhibits"
SCALE = "--preset lite --precision bf16"
THREE = "--methods comsd comsd-auto cic"
PLANS = (
    f"behaviour {THREE} --domains walker hopper cheetah quadruped --seeds 3",
    f"combination {THREE} --controllers discrete --domains walker --seeds 3",
    f"combination {THREE} --controllers discrete --domains cheetah --seeds 2",
    "combination --methods comsd cic --controllers continuous --domains walker --seeds 2 "
    "--tasks walker_stand walker_run",
    f"finetuning {THREE} --domains walker --seeds 3",
    f"finetuning {THREE} --domains quadruped cheetah --seeds 2 "
    "--tasks quadruped_stand quadruped_walk cheetah_run cheetah_flip",
    "distance --domains walker --tasks walker_stand walker_run --seeds 2",
    "ablation --seeds 1",
    "sensitivity --seeds 1",
    "conflict --seeds 1",
)


def run() -> None:
    for plan in PLANS:
        main(f"reproduce {plan} {SCALE} --dir {RUNS}".split())


def collect() -> None:
    found, unfinished = find_runs(RUNS / "lite")
    print("unfinished:", ", ".join(unfinished) or "none")
    keep_adaptations(found, RESULTS)
    keep_report(RUNS, RESULTS)


if __name__ == "__main__":
    if sys.argv[1:] not in (["run"], ["collect"]):
        sys.exit(__doc__)
    run() if sys.argv[1:] == ["run"] else collect()
