"""What the experiments share: how runs are trained and kept, and tables written."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from comsd import Run, checkpoint
from comsd.files import Folder


def run_comsd(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "comsd", *words], check=True)


def train(place: Path, *words: str) -> None:
    """`comsd WORDS --run PLACE`, or what is missing of it."""
    begun = (place / "config.json").exists()
    run_comsd(*(("resume", str(place)) if begun else (*words, "--run", str(place))))


def keep_policy(run: Run, place: Path) -> None:
    """Config, tables and the policy: enough for `comsd.load`, `comsd evaluate` and the explorer."""
    if not run.finished:
        sys.exit(f"{place} stays as it is: {run.path} is not finished")
    place.mkdir(parents=True, exist_ok=True)
    checkpoint.copy(run.checkpoints, Folder(place) / "checkpoints", ["agent", "run"])
    keep_tables(run, place)


def keep_tables(run: Run, place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "metrics.csv", "evaluations.csv"):
        shutil.copy(run.path / name, place)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """A column for every key that any row has, in the order of their first appearance."""
    if not rows:
        sys.exit(f"{path} stays as it is: none of its runs is here")
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
