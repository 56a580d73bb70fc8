"""Carrying out a plan: starting, polling and continuing its processes.

An `Executor` decides where a process runs; the one in this file uses this machine.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from comsd import checkpoint
from comsd.errors import InputError, Interrupted, RunError
from comsd.registry import LOADED
from comsd.reproduce.collect import requested_exhibits
from comsd.reproduce.plan import Job, Plan
from comsd.training.signals import graceful_stop

ATTEMPTS = 3
POLL_EVERY = 0.2  # seconds
INPUT_ERROR = 2  # exit code of a command that would fail in the same way again


class Process(Protocol):
    """A started command, such as a `subprocess.Popen`."""

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...


class Executor(Protocol):
    slots: int  # processes at a time

    def start(self, argv: list[str], log: Path) -> Process:
        """Run `comsd` with these arguments and append its output to `log`."""
        ...


class LocalExecutor:
    """One process per core; if there are fewer processes than cores, each gets several threads."""

    def __init__(self, slots: int | None = None) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self.slots = slots or cores or 1
        self.threads = max(1, (cores or 1) // self.slots)

    def start(self, argv: list[str], log: Path) -> subprocess.Popen[bytes]:
        trains = argv[0] in ("pretrain", "finetune", "combine")
        options = ["--threads", str(self.threads)] if trains and self.threads > 1 else []
        for path in LOADED:
            options += ["--method-file", str(path)]
        with log.open("ab") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "comsd", *argv, *options],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=os.environ | {"OMP_NUM_THREADS": str(self.threads)},
                start_new_session=True,  # Ctrl-C goes to the driver, which stops each process once
            )


class Execution:
    """The state of a plan that is carried out."""

    def __init__(
        self, plan: Plan, root: Path, executor: Executor, report: Callable[[str], None]
    ) -> None:
        self.plan, self.root, self.executor, self.report = plan, root, executor, report
        self.finished = {job.place for job in plan.jobs if job.finished(root)}
        self.waiting = [job for job in plan.jobs if job.place not in self.finished]
        self.running: dict[str, tuple[Job, Process]] = {}
        self.tries = Counter[str]()  # since a job came further
        self.before: dict[str, int] = {}  # place -> step at which its last process started
        self.failed: dict[str, str] = {}  # place -> reason

    def step(self) -> bool:
        """Start what can start and handle what has ended; is anything left?"""
        self.start_ready()
        for place, (job, process) in list(self.running.items()):
            code = process.poll()
            if code is not None:
                del self.running[place]
                self.handle_end(job, code)
        return bool(self.waiting or self.running)

    def start_ready(self) -> None:
        """Start jobs whose needs are finished, as many as there are free slots."""
        for job in list(self.waiting):
            if len(self.running) >= self.executor.slots:
                return
            if job.needs in self.failed:
                self.waiting.remove(job)
                self.failed[job.place] = f"{job.needs} failed"
            elif (job.needs is None or job.needs in self.finished) and not job.in_use(self.root):
                self.waiting.remove(job)
                if job.finished(self.root):  # by our process or another one
                    self.finished.add(job.place)
                    self.report(f"{len(self.finished)} of {len(self.plan.jobs)} done: {job.place}")
                    continue
                self.before[job.place] = job.reached(self.root)
                process = self.executor.start(job.command(self.root), self.log_of(job.place))
                self.running[job.place] = job, process

    def handle_end(self, job: Job, code: int) -> None:
        if job.finished(self.root) or job.in_use(self.root):  # in use by another process
            self.waiting.insert(0, job)
            return
        place = job.place
        if job.reached(self.root) > self.before[place]:
            self.tries[place] = 0
        self.tries[place] += 1
        if code == INPUT_ERROR or self.tries[place] >= ATTEMPTS:
            said = self.log_of(place).read_text().strip().splitlines()
            self.failed[place] = said[-1] if said else f"exit code {code}"
            self.report(f"failed: {place}: {self.failed[place]}")
        else:
            self.report(f"{place} ended with exit code {code}; it is continued")
            self.waiting.insert(0, job)

    def log_of(self, place: str) -> Path:
        return self.root / "logs" / f"{place.replace('/', '-')}.log"

    def stop_all(self) -> None:
        for _, process in self.running.values():
            process.terminate()
        while any(process.poll() is None for _, process in self.running.values()):
            time.sleep(POLL_EVERY)


def execute(plan: Plan, root: Path, executor: Executor, report: Callable[[str], None]) -> None:
    """Carry out a plan; raises RunError at the end if a job failed."""
    (root / "logs").mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("a+") as lock, graceful_stop() as stop:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another `comsd reproduce` works in {root}") from None
        exhibits = sorted({*requested_exhibits(root), plan.exhibit})
        checkpoint.write_json(root / "exhibits.json", exhibits)
        execution = Execution(plan, root, executor, report)
        try:
            while stop.signal is None and execution.step():
                time.sleep(POLL_EVERY)
        finally:  # also after an error such as a full disk
            execution.stop_all()
    done, failed = len(execution.finished), execution.failed
    if stop.signal is not None:
        saved = f"{done} of {len(plan.jobs)} done, the rest is saved; the same command continues"
        raise Interrupted(saved, stop.signal)
    if failed:
        place, why = next(iter(failed.items()))
        raise RunError(f"{len(failed)} of {len(plan.jobs)} failed, the first {place}: {why}")
