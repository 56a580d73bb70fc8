"""The maze comparison behind results/maze: every arm, 6 and 10 skills, several seeds.

    python experiments/maze.py run      # trains what is missing, two processes; resumes
    python experiments/maze.py collect  # writes the CSV files, figures and tables

Runs go to runs/maze/<length>/<skills>/<arm>/<seed>.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
RUNS = ROOT / "runs" / "maze"
SKILLS = (6, 10)
SEEDS = range(5)


class Arm(NamedTuple):
    title: str
    method: str
    settings: dict[str, Any]


NO_DIVERSITY = {"diversity": False}
ARMS: dict[str, Arm] = {
    "comsd": Arm("ComSD", "comsd", {}),
    "frozen-random": Arm(
        "frozen-random k-NN",
        "comsd",
        {**NO_DIVERSITY, "knn": "frozen-random", "knn_form": "log1p"},
    ),
    "no-diversity": Arm("ComSD, alpha = 0", "comsd", NO_DIVERSITY),
    "no-smw": Arm("ComSD without SMW", "comsd", {"smw": False}),
    "diversity-only": Arm("diversity reward only", "comsd", {"exploration": False}),
    "cic": Arm("CIC", "cic", {}),
    "diayn": Arm("DIAYN", "diayn", {}),
    "dads": Arm("DADS (forward MI)", "dads", {}),
    "becl": Arm("BeCL", "becl", {}),
}


class Job(NamedTuple):
    preset: str  # lite: 500 cycles, paper: 2500 cycles
    skills: int
    arm: str
    seed: int

    @property
    def path(self) -> Path:
        return RUNS / self.preset / str(self.skills) / self.arm / str(self.seed)


def plan() -> list[Job]:
    """Every arm at 500 cycles, then each once at the paper's 2500."""
    lite = [Job("lite", k, arm, seed) for seed in SEEDS for arm in ARMS for k in SKILLS]
    paper = [Job("paper", k, arm, 0) for arm in ARMS if arm != "no-diversity" for k in SKILLS]
    return lite + paper


def train(job: Job) -> None:
    import comsd

    arm = ARMS[job.arm]
    if (job.path / "config.json").exists():
        run = comsd.load(job.path)
        steps = (
            [int(row["step"]) for row in run.evaluations.rows()] if run.evaluations.size else [0]
        )
        if steps[-1] < run.config.run.steps:
            comsd.resume(job.path)
    else:
        settings = {"skills": job.skills, "seed": job.seed, "method": arm.settings}
        comsd.pretrain(arm.method, env="maze-tree", preset=job.preset, run=job.path, **settings)


def launch(job: Job) -> None:
    words = [job.preset, str(job.skills), job.arm, str(job.seed)]
    subprocess.run([sys.executable, __file__, "one", *words], check=True)
    print("done:", *words, flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", *rest]:
            with ThreadPoolExecutor(int(rest[0]) if rest else 2) as pool:
                list(pool.map(launch, plan()))
        case ["one", preset, skills, arm, seed]:
            train(Job(preset, int(skills), arm, int(seed)))
        case _:
            sys.exit(__doc__)
