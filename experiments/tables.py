"""What the experiments share: how commands are run, tables written and runs kept."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from comsd.adaptation import FinetuneSettings
from comsd.reproduction.collect import FinishedRun, commit_of
from comsd.reproduction.page import write_report


def run_comsd(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "comsd", *words], check=True)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """A column for every key that any row has, in the order of their first appearance."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)


def keep_adaptations(found: Iterable[FinishedRun], results: Path) -> None:
    """runs.csv, evaluations.csv and configs of adaptations and of runs from scratch."""
    shutil.rmtree(results / "configs", ignore_errors=True)
    (results / "configs").mkdir(parents=True)
    evaluations: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    for f in found:
        if f.stage == "pretrain":
            continue
        what = {"stage": f.stage, "task": f.env, "arm": f.arm, "seed": f.seed}
        evaluations += [what | row for row in f.rows]
        config, adapt = f.run.config, f.run.config.adapt
        how = {
            "rule": adapt.rule if isinstance(adapt, FinetuneSettings) else "",
            "steps": config.run.steps,
            "precision": config.run.precision,
        }
        runs.append(what | how | {"return": f.rows[-1]["return"], "commit": commit_of(f.run)})
        record = json.loads((f.run.path / "config.json").read_text())
        place = results / "configs" / f"{f.stage}-{f.env}-{f.arm}-{f.seed}.json"
        place.write_text(json.dumps(record, indent=1) + "\n")
    write_csv(results / "runs.csv", runs)
    write_csv(results / "evaluations.csv", evaluations)


def keep_report(directory: Path, results: Path) -> None:
    """The page, tables and figures of a directory of `comsd reproduce`."""
    page = write_report(directory)
    for table in page.parent.glob("lite-*"):
        shutil.copy(table, results)
    shutil.copy(page, results)
