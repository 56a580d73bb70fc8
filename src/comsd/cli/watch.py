"""The progress of all jobs in one table: live on a terminal, now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING

from comsd.cli.console import say
from comsd.jobs.scheduler import Scheduler

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

REFRESH = 1.0  # seconds on a terminal
EVERY = 60.0  # seconds elsewhere
ROWS = 40
WIDTH = 160  # columns elsewhere


class JobTable:
    """A context; called with the scheduler all the time."""

    def __init__(self) -> None:
        self.live: Live | None = None
        self.shown = time.monotonic()
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self.live = Live(console=Console(stderr=True), auto_refresh=False)

    def __enter__(self) -> JobTable:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def report(self, message: str) -> None:
        if self.live:
            self.live.console.print(message, markup=False, highlight=False)
        else:
            say(message)

    def __call__(self, scheduler: Scheduler) -> None:
        now = time.monotonic()
        if now - self.shown < (REFRESH if self.live else EVERY):
            return
        self.shown = now
        table = job_table(scheduler)
        if self.live:
            self.live.update(table, refresh=True)
        else:
            from rich.console import Console

            width = shutil.get_terminal_size((WIDTH, 24)).columns  # COLUMNS, if it is set
            Console(stderr=True, width=width).print(table)


def job_table(scheduler: Scheduler) -> Table:
    from rich import box
    from rich.table import Column, Table

    done, failed = len(scheduler.finished), len(scheduler.failed)
    running = scheduler.executor.status()
    waiting = len(scheduler.jobs) - done - failed - len(running)
    names = (Column(name, overflow="fold") for name in ("run", "host", "step"))  # and reasons
    figures = (Column(name, no_wrap=True) for name in ("steps/s", "left"))
    table = Table(*names, *figures, box=box.SIMPLE)
    table.title = f"{done} done, {len(running)} running, {waiting} waiting, {failed} failed"
    for place, s in list(running.items())[:ROWS]:
        step = "" if s.step is None else f"{s.step:,} of {s.steps:,}"
        rate = "" if s.rate is None else f"{s.rate:,.0f}"
        table.add_row(place, s.host, step, rate, duration(s.seconds_left))
    if len(running) > ROWS:
        table.add_row(f"and {len(running) - ROWS} more")
    for place, reason in list(scheduler.failed.items())[-5:]:
        table.add_row(place, "failed", reason)
    return table


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
