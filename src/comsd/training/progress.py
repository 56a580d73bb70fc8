"""Progress: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

LINE_EVERY = 10.0  # seconds between lines when there is no terminal
REFRESH = 0.2  # seconds between updates


class Progress:
    def __init__(
        self, total: int, first: int, shown: Mapping[str, str], report: Callable[[str], None]
    ) -> None:
        """first: the step it continues from; shown: the short names of the figures on the line."""
        self.shown = shown
        self.total, self.first, self.step, self.report = total, first, first, report
        self.figures: dict[str, float] = {}
        self.began = self.last_line = time.monotonic()
        self.last_shown = 0.0
        self.bar: Bar | None = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self.bar = Bar(
                TextColumn("{task.percentage:>3.0f}%"),
                BarColumn(),
                TextColumn("{task.fields[speed]}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[figures]}"),
                console=Console(stderr=True),
            )
            self.task = self.bar.add_task("", total=total, completed=first, speed="", figures="")

    def start(self) -> None:
        if self.bar:
            self.bar.start()

    def stop(self) -> None:
        if self.bar:
            self.bar.stop()

    def show(self, figures: Mapping[str, float]) -> None:
        self.figures |= figures

    def advance(self, step: int) -> None:
        self.step = step
        now = time.monotonic()
        if now - self.last_shown < REFRESH and step < self.total:
            return
        self.last_shown = now
        rate = (step - self.first) / max(now - self.began, 1e-9)
        speed = f"{rate:,.0f} steps/s"
        text = "  ".join(
            f"{short} {self.figures[name]:.2f}"
            for name, short in self.shown.items()
            if name in self.figures
        )
        if self.bar:
            self.bar.update(self.task, completed=step, speed=speed, figures=text)
        elif now - self.last_line >= LINE_EVERY or step >= self.total:
            self.last_line = now
            left = max(self.total - step, 0) / rate
            self.report(
                f"{step:,} of {self.total:,} steps, {speed}, {left / 60:.1f} min left  {text}"
            )
