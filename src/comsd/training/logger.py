"""Where the figures of training go: tables, TensorBoard, a live bar or lines of progress."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comsd.errors import RunError
from comsd.files import Folder, checksum

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

LINE_EVERY = 10.0  # seconds between lines when there is no terminal
REFRESH = 0.2  # seconds between updates


Sealed = tuple[int, str | None]  # bytes of a table at a checkpoint, and their checksum if known


def no_checkpoint() -> Sealed | None:
    return None


class Table:
    """A CSV file that grows line by line and is sealed by every checkpoint.

    sealed: says what the checkpoint in use knows of it. What comes after that is cut off.
    """

    def __init__(
        self, folder: Folder, name: str, sealed: Callable[[], Sealed | None] = no_checkpoint
    ) -> None:
        self.folder, self.name, self.sealed = folder, name, sealed
        self.columns: list[str] | None = None
        self.written = hashlib.sha256()  # the content so far, once it is written to
        self.restored = False

    @property
    def path(self) -> Path:
        return self.folder.path / self.name

    @property
    def size(self) -> int:
        return self.folder.size(self.name)

    def begin(self) -> None:
        if not self.restored:
            self.restore((self.size, None))

    def append(self, row: Mapping[str, float]) -> None:
        self.begin()
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        if self.columns is None:
            self.columns = list(row)
            writer.writerow(self.columns)
        if lost := [name for name in row if name not in self.columns]:
            warnings.warn(f"{self.path} has no column {lost[0]}", stacklevel=2)
        writer.writerow([row.get(name, "") for name in self.columns])
        content = text.getvalue().encode()
        with self.folder.append(self.name) as file:
            file.write(content)
        self.written.update(content)

    def seal(self) -> tuple[int, str]:
        """For a checkpoint: the size, and the checksum of what was written."""
        self.begin()
        self.folder.sync(self.name)
        return self.size, self.written.hexdigest()

    def check(self, sealed: Sealed) -> bytes:
        """The content at a checkpoint; raises RunError if it is not what it was."""
        size, expected = sealed
        content = self.folder.read(self.name) if self.size else b""
        if len(content) < size:
            raise RunError(f"{self.path} is damaged: shorter than the checkpoint saw it")
        if expected not in (None, checksum(content[:size])):
            raise RunError(f"{self.path} is damaged: its checksum does not match")
        return content[:size]

    def restore(self, sealed: Sealed) -> None:
        """Back to where it was at a checkpoint."""
        content = self.check(sealed)
        if self.size > len(content):
            self.folder.truncate(self.name, len(content))
        self.columns = self.parse(content)[0] if content else None
        self.written, self.restored = hashlib.sha256(content), True

    def rows(self) -> list[dict[str, str]]:
        content = self.check(self.sealed() or (self.size, None))
        if not content:
            return []
        columns, *rows = self.parse(content)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def parse(self, content: bytes) -> list[list[str]]:
        """The lines of a table of numbers; raises RunError for anything else."""
        try:
            columns, *rows = lines = list(csv.reader(io.StringIO(content.decode(), newline="")))
            if columns[0] == "step" and all(len(row) == len(columns) for row in rows):
                _ = [float(value or 0) for row in rows for value in row]
                return lines
        except (ValueError, csv.Error, LookupError):
            pass
        raise RunError(f"{self.path} is damaged: no table of numbers")


class Logger:
    """Metrics of training and of evaluations by step; a context, since some are kept open."""

    def __init__(
        self,
        metrics: Table,
        evaluations: Table,
        progress: Progress,
        tensorboard: Folder | None = None,
    ) -> None:
        self.metrics, self.evaluations, self.progress = metrics, evaluations, progress
        self.board: Any = None
        if tensorboard is not None:
            from torch.utils.tensorboard import SummaryWriter

            tensorboard.make()
            # What it has of steps that are made again is replaced.
            self.board = SummaryWriter(str(tensorboard.path), purge_step=progress.first + 1)

    def __enter__(self) -> Logger:
        self.progress.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.__exit__()
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
        self.last_shown, self.counted = 0.0, first
        self.bar: Bar | None = None
        if sys.stderr.isatty():
            from rich.console import Console

            from comsd.training.bar import make_bar

            self.bar = make_bar(Console(stderr=True))
            self.task = self.bar.add_task("", total=total, completed=first, speed="", figures=())

    def __enter__(self) -> Progress:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def count(self, steps: int) -> None:
        """Some more steps."""
        self.counted += steps
        self.advance(self.counted)

    def advance(self, step: int) -> None:
        now = time.monotonic()
        if now - self.last_shown < REFRESH and step < self.total:
            return
        self.last_shown = now
        rate = (step - self.first) / max(now - self.began, 1e-9)
        speed = f"{rate:,.0f} steps/s"
        known = {short: self.figures.get(name) for name, short in self.shown.items()}
        parts = [f"{short} {x:.2f}" for short, x in known.items() if x is not None]
        if self.bar:
            self.bar.update(self.task, completed=step, speed=speed, figures=parts)
        elif now - self.last_line >= LINE_EVERY or step >= self.total:
            self.last_line = now
            left = max(self.total - step, 0) / rate / 60
            text = "  ".join(parts)
            self.report(f"{step:,} of {self.total:,} steps, {speed}, {left:.1f} min left  {text}")


def read_progress(text: str) -> tuple[int, int, float] | None:
    """Step, steps in all and steps per second, from the last line of progress in a log."""
    found = re.findall(r"^([\d,]+) of ([\d,]+) steps, ([\d,]+) steps/s", text, re.MULTILINE)
    if not found:
        return None
    step, steps, rate = (int(number.replace(",", "")) for number in found[-1])
    return step, steps, float(rate)
