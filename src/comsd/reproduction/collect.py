"""Reading a directory of reproduced runs: which are finished, and what each has found."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from comsd.errors import InputError, RunError
from comsd.jobs.job import read_analysis
from comsd.runs.run import Run

STAGES = ("pretrain", "finetune", "combine", "scratch")


@dataclass(frozen=True)
class FinishedRun:
    """A run of the directory by its place <stage>/<env>/<arm>-<seed>."""

    stage: str
    env: str
    arm: str
    seed: int
    run: Run

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """Its evaluations."""
        return self.run.evaluations.rows()

    @cached_property
    def analysis(self) -> dict[str, Any] | None:
        return read_analysis(self.run.path)


def find_runs(root: Path) -> tuple[list[FinishedRun], list[str]]:
    """The finished runs of one preset; the others, with the reason why they do not count."""
    finished: list[FinishedRun] = []
    excluded: list[str] = []
    for stage in STAGES:
        for config in sorted((root / stage).glob("*/*/config.json")):
            path = config.parent
            arm, _, seed = path.name.rpartition("-")
            if not arm or not seed.isdigit():
                continue
            try:
                run = Run(path)
                s = run.config.run
                if (s.stage, s.seed, s.preset) != (stage, int(seed), root.name):
                    raise RunError("its config says otherwise")
                if not run.finished:
                    raise RunError("unfinished")
                finished.append(FinishedRun(stage, path.parent.name, arm, int(seed), run))
            except (InputError, RunError) as error:
                excluded.append(f"{path.relative_to(root)} ({error})")
    return sorted(finished, key=lambda r: (r.stage, r.env, r.arm, r.seed)), excluded


def commit_of(run: Run) -> str:
    record = json.loads((run.path / "config.json").read_text())
    return record.get("versions", {}).get("commit", "unknown")


def requested_exhibits(root: Path) -> list[str]:
    """The exhibits that were reproduced in this directory; the report shows these."""
    file = root / "exhibits.json"
    return json.loads(file.read_text()) if file.exists() else []
