"""What the experiments share: how commands are run and tables written."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_comsd(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "comsd", *words], check=True)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """A column for every key that any row has, in the order of their first appearance."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
