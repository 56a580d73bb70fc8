"""Carrying out a plan: processes that are started, watched, continued and counted.

Where a process runs is up to an `Executor`; this file knows only this machine.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from comsd.errors import InputError, Interrupted, RunError
from comsd.registry import LOADED
from comsd.reproduce.plan import Job, Plan, note_exhibit
from comsd.training.trainer import graceful_stop

ATTEMPTS = 3
POLL_EVERY = 0.2  # seconds
HOPELESS = 2  # exit code of a command that would fail in the same way again


class Process(Protocol):
    """A command on its way."""

    def poll(self) -> int | None:
        """Its exit code, once it has one."""
        ...

    def stop(self) -> None:
        """Ask it to save and end."""
        ...


class Executor(Protocol):
    slots: int  # processes at a time

    def start(self, argv: list[str], log: Path) -> Process:
        """Run `comsd` with these arguments; what it prints goes to the end of `log`."""
        ...


class LocalProcess:
    def __init__(self, argv: list[str], log: Path, threads: int) -> None:
        several = argv[0] in ("pretrain", "finetune", "combine")
        options = ["--threads", str(threads)] if several and threads > 1 else []
        for path in LOADED:
            options += ["--method-file", str(path)]
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "comsd", *argv, *options],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=os.environ | {"OMP_NUM_THREADS": str(threads)},
                start_new_session=True,  # Ctrl-C reaches the driver alone, which asks to stop once
            )

    def poll(self) -> int | None:
        return self.process.poll()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)


class LocalExecutor:
    """One process per core; if there are fewer processes than cores, each gets several threads."""

    def __init__(self, slots: int | None = None) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self.slots = slots or cores or 1
        self.threads = max(1, (cores or 1) // self.slots)

    def start(self, argv: list[str], log: Path) -> LocalProcess:
        return LocalProcess(argv, log, self.threads)


class Execution:
    """A plan on its way to being done."""

    def __init__(
        self, plan: Plan, root: Path, executor: Executor, report: Callable[[str], None]
    ) -> None:
        self.plan, self.root, self.executor, self.report = plan, root, executor, report
        self.logs = root / "logs"
        self.finished = {job.place for job in plan.jobs if job.finished(root)}
        self.waiting = [job for job in plan.jobs if job.place not in self.finished]
        self.running: dict[str, tuple[Job, Process]] = {}
        self.attempts: dict[str, int] = {}
        self.before: dict[str, int] = {}  # place -> step at which its last process began
        self.failed: dict[str, str] = {}  # place -> why

    def run(self) -> dict[str, str]:
        """Do all that can be done; returns what failed and why."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with graceful_stop() as stop:
            try:
                while (self.waiting or self.running) and stop.signal is None:
                    self.fill()
                    self.collect_ended()
                    time.sleep(POLL_EVERY)
            finally:  # also where the disk is full: no process is left behind
                self.stop_all()
            if stop.signal is not None:
                done = f"{len(self.finished)} of {len(self.plan.jobs)} done"
                saved = f"{done}, the rest is saved; the same command continues"
                raise Interrupted(saved, stop.signal)
        return self.failed

    def fill(self) -> None:
        """Start what can start."""
        for job in list(self.waiting):
            if len(self.running) >= self.executor.slots:
                return
            if job.needs in self.failed:
                self.waiting.remove(job)
                self.failed[job.place] = f"{job.needs} failed"
            elif (job.needs is None or job.needs in self.finished) and not job.in_use(self.root):
                self.waiting.remove(job)
                if job.finished(self.root):  # by another process, meanwhile
                    self.finished.add(job.place)
                    continue
                self.before[job.place] = job.reached(self.root)
                process = self.executor.start(job.command(self.root), self.log_of(job.place))
                self.running[job.place] = job, process

    def collect_ended(self) -> None:
        """Take note of what has ended."""
        for place, (job, process) in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[place]
            total = len(self.plan.jobs)
            if code == 0 and job.finished(self.root):
                self.finished.add(place)
                self.report(f"{len(self.finished)} of {total} done: {place}")
                continue
            if job.in_use(self.root) or job.finished(self.root):  # another process is at it
                self.waiting.append(job)
                continue
            if job.reached(self.root) > self.before.get(place, 0):
                self.attempts[place] = 0  # it has come further
            self.attempts[place] = self.attempts.get(place, 0) + 1
            if code == HOPELESS or self.attempts[place] >= ATTEMPTS:
                self.failed[place] = self.last_words(place) or f"exit code {code}"
                self.report(f"failed: {place}: {self.failed[place]}")
            else:
                self.report(f"{place} ended with exit code {code}; it is continued")
                self.waiting.insert(0, job)

    def log_of(self, place: str) -> Path:
        return self.logs / (place.replace("/", "-") + ".log")

    def last_words(self, place: str) -> str:
        lines = self.log_of(place).read_text().strip().splitlines()
        return lines[-1] if lines else ""

    def stop_all(self) -> None:
        for _, process in self.running.values():
            process.stop()
        while any(process.poll() is None for _, process in self.running.values()):
            time.sleep(POLL_EVERY)


def execute(plan: Plan, root: Path, executor: Executor, report: Callable[[str], None]) -> None:
    """Carry out a plan; raises RunError at the end if something failed."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another `comsd reproduce` works in {root}") from None
        note_exhibit(root, plan.exhibit.name)
        failed = Execution(plan, root, executor, report).run()
    if failed:
        place, why = next(iter(failed.items()))
        raise RunError(f"{len(failed)} of {len(plan.jobs)} failed, the first {place}: {why}")
