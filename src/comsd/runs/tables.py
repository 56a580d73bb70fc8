"""CSV tables that grow with a run."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Mapping
from pathlib import Path

from comsd import checkpoint
from comsd.errors import RunError

TIME_COLUMNS = ("seconds",)


class Table:
    """Grows line by line and can be truncated to its length at a checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: list[str] | None = None
        if path.exists() and path.stat().st_size:
            with path.open(newline="") as file:
                self.columns = next(csv.reader(file))

    def append(self, row: Mapping[str, float]) -> None:
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            if self.columns is None:
                self.columns = list(row)
                writer.writerow(self.columns)
            if lost := [name for name in row if name not in self.columns]:
                warnings.warn(f"{self.path} has no column {lost[0]}", stacklevel=2)
            writer.writerow([row.get(name, "") for name in self.columns])

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def check(self, size: int) -> None:
        if self.size < size:
            raise RunError(f"{self.path} is damaged: shorter than the checkpoint saw it")

    def truncate(self, size: int) -> None:
        self.check(size)
        if self.size > size:
            os.truncate(self.path, size)
        if size == 0:
            self.columns = None

    def flush(self) -> None:
        if self.path.exists():
            checkpoint.flush(self.path)

    def rows(self) -> list[dict[str, str]]:
        if not self.size:
            return []
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))
