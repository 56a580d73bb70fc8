"""Where the figures of training go: tables, TensorBoard, a live bar or lines of progress."""

from __future__ import annotations

import csv
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comsd import checkpoint
from comsd.errors import RunError

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

LINE_EVERY = 10.0  # seconds between lines when there is no terminal
REFRESH = 0.2  # seconds between updates


class Table:
    """A CSV file that grows line by line and can be truncated to its length at a checkpoint."""

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


class Logger:
    """Metrics of training and of evaluations by step; a context, since some are kept open."""

    def __init__(
        self,
        metrics: Table,
        evaluations: Table,
        progress: Progress,
        tensorboard: Path | None = None,
    ) -> None:
        self.metrics, self.evaluations, self.progress = metrics, evaluations, progress
        self.board: Any = None
        if tensorboard is not None:
            from torch.utils.tensorboard import SummaryWriter

            # What it has of steps that are made again is replaced.
            self.board = SummaryWriter(str(tensorboard), purge_step=progress.first + 1)

    def __enter__(self) -> Logger:
        if self.progress.bar:
            self.progress.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.progress.bar:
            self.progress.bar.stop()
        if self.board:
            self.board.close()

    def log_metrics(self, step: int, values: Mapping[str, float], seconds: float) -> None:
        self.metrics.append({"step": step, **values, "seconds": round(seconds, 2)})
        self._show(step, values, "")

    def log_evaluation(self, step: int, values: Mapping[str, float]) -> None:
        self.evaluations.append({"step": step, **values})
        self._show(step, values, "evaluation/")

    def _show(self, step: int, values: Mapping[str, float], prefix: str) -> None:
        if self.board:
            for name, value in values.items():
                self.board.add_scalar(prefix + name, value, step)
        self.progress.figures |= values


class Progress:
    """A live bar on a terminal, a line now and then elsewhere."""

    def __init__(
        self, total: int, first: int, shown: Mapping[str, str], report: Callable[[str], None]
    ) -> None:
        """first: the step it continues from; shown: the short names of the figures on the line."""
        self.total, self.first, self.shown, self.report = total, first, shown, report
        self.figures: dict[str, float] = {}
        self.began = self.last_line = time.monotonic()
        self.last_shown = 0.0
        self.bar: Bar | None = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self.bar = Bar(
                "{task.percentage:>3.0f}%",
                BarColumn(),
                "{task.fields[speed]}",
                TimeRemainingColumn(),
                "{task.fields[figures]}",
                console=Console(stderr=True),
            )
            self.task = self.bar.add_task("", total=total, completed=first, speed="", figures="")

    def advance(self, step: int) -> None:
        now = time.monotonic()
        if now - self.last_shown < REFRESH and step < self.total:
            return
        self.last_shown = now
        rate = (step - self.first) / max(now - self.began, 1e-9)
        speed = f"{rate:,.0f} steps/s"
        known = {short: self.figures.get(name) for name, short in self.shown.items()}
        text = "  ".join(f"{short} {x:.2f}" for short, x in known.items() if x is not None)
        if self.bar:
            self.bar.update(self.task, completed=step, speed=speed, figures=text)
        elif now - self.last_line >= LINE_EVERY or step >= self.total:
            self.last_line = now
            left = max(self.total - step, 0) / rate / 60
            self.report(f"{step:,} of {self.total:,} steps, {speed}, {left:.1f} min left  {text}")


def read_progress(text: str) -> tuple[int, int, float] | None:
    """Step, steps in all and steps per second, from the last line of progress in a log."""
    found = re.findall(r"^([\d,]+) of ([\d,]+) steps, ([\d,]+) steps/s", text, re.MULTILINE)
    if not found:
        return None
    step, steps, rate = (int(number.replace(",", "")) for number in found[-1])
    return step, steps, float(rate)
