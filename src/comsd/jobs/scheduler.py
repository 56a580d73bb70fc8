"""Carrying out a plan, wherever it runs: what starts when, what is continued, what has failed."""

from __future__ import annotations

import fcntl
import heapq
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from comsd.errors import InputError, Interrupted, RunError
from comsd.files import Folder
from comsd.jobs.executor import Ended, Executor, last_line
from comsd.jobs.job import UNREADABLE, Job
from comsd.training.signals import graceful_stop

ATTEMPTS = 3  # of a job that comes no further
LOSSES = 20  # of nodes under a job that comes no further
LOOK_AGAIN = 1.0  # seconds between looks at runs that other processes write to
INPUT_ERROR = 2  # exit code of a command that would fail in the same way again

Report = Callable[[str], None]
More = Callable[[Job, bool], Iterable[Job]]  # (a job that has ended, did it finish?)


def no_more(*_: object) -> tuple[Job, ...]:
    """All jobs are known from the beginning."""
    return ()


class Scheduler:
    """The state of a plan that is carried out.

    A job is ready once the run it needs is finished. Those with the longest way to the end of the
    plan, by their estimated seconds, start first.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        root: Path,
        executor: Executor,
        report: Report,
        seconds: Callable[[Job], float] = lambda _: 0.0,
        more: More = no_more,
    ) -> None:
        """more: the jobs that follow from the result of another, such as promotions."""
        self.root, self.executor, self.report = root, executor, report
        self.seconds, self.more = seconds, more
        self.jobs: dict[str, Job] = {}
        self.ways: dict[str, float] = {}
        self.needing: dict[str, list[Job]] = {}  # place -> jobs that wait for its run
        self.ready: list[tuple[float, int, Job]] = []  # a heap
        self.order = 0  # of jobs with equal priority
        self.busy: list[Job] = []  # other processes write to them
        self.looked = 0.0
        self.running: dict[str, Job] = {}
        self.finished: set[str] = set()
        self.failed: dict[str, str] = {}  # place -> reason
        self.tries = Counter[str]()  # since a job came further
        self.losses = Counter[str]()
        self.before: dict[str, int] = {}  # place -> step at which its last process started
        self.add(jobs)

    def add(self, jobs: Iterable[Job]) -> None:
        """Take in jobs, in an order in which they can be done."""
        new = list(jobs)
        while new:
            self.jobs |= {job.place: job for job in new}
            self.measure_ways(new)
            following: list[Job] = []
            for job in new:
                self.finished.discard(job.place)  # a run that is trained on
                try:
                    finished = job.finished(self.root)
                except UNREADABLE:  # looked at again when it would start
                    finished = False
                if finished:
                    self.finished.add(job.place)
                    following += self.more(job, True)
                elif job.needs is None or job.needs in self.finished:
                    self.make_ready(job, self.ways[job.place])
                elif job.needs in self.failed:
                    self.fail(job, f"{job.needs} failed")
                else:
                    self.needing.setdefault(job.needs, []).append(job)
            new = following

    def measure_ways(self, jobs: list[Job]) -> None:
        """Seconds from the start of each job to the end of the longest chain that needs it."""
        after: dict[str, float] = {}
        for job in reversed(jobs):
            way = self.ways[job.place] = self.seconds(job) + after.get(job.place, 0.0)
            if job.needs is not None:
                after[job.needs] = max(after.get(job.needs, 0.0), way)

    def make_ready(self, job: Job, way: float = 0.0) -> None:
        self.order += 1
        heapq.heappush(self.ready, (-way, self.order, job))

    def make_ready_first(self, job: Job) -> None:
        """What was under way goes on before anything new begins."""
        self.make_ready(job, float("inf"))

    def step(self) -> bool:
        """Start what can start and handle what has ended; is anything left?"""
        self.start_ready()
        if self.running or self.busy:
            for ended in self.executor.poll():
                self.handle_end(ended)
        return bool(self.ready or self.running or self.busy)

    def start_ready(self) -> None:
        now = time.monotonic()
        if self.busy and now - self.looked >= LOOK_AGAIN:
            self.looked, again = now, self.busy
            self.busy = []
            for job in again:
                self.make_ready_first(job)
        while self.ready and len(self.running) < self.executor.slots:
            _, _, job = heapq.heappop(self.ready)
            if (seen := self.look(job)) is None:
                continue
            used, finished, reached = seen
            if used:
                self.busy.append(job)
            elif finished:  # by another process
                self.finish(job)
            else:
                self.before[job.place] = reached
                self.running[job.place] = job
                try:
                    self.executor.start(job, self.root)
                except BaseException:
                    del self.running[job.place]
                    raise

    def handle_end(self, ended: Ended) -> None:
        place, code, note = ended
        job, how = self.running.pop(place), note or f"ended with exit code {code}"
        if (seen := self.look(job)) is None:
            return
        used, finished, reached = seen
        if finished:
            self.finish(job)
            return
        if used:  # another process was faster, or is still saving
            self.busy.append(job)
            self.report(f"{place} {how}; it is continued once nobody writes to it")
            return
        if reached > self.before[place]:
            self.tries[place] = self.losses[place] = 0
        count, most = (self.losses, LOSSES) if code is None else (self.tries, ATTEMPTS)
        count[place] += 1
        if code == INPUT_ERROR or count[place] >= most:
            self.give_up(job, note or last_line(job.log(self.root)) or how)
        else:
            self.report(f"{place} {how}; it is continued")
            self.make_ready_first(job)

    def look(self, job: Job) -> tuple[bool, bool, int] | None:
        """Is it in use, is it finished, and its step; None if its run cannot be read.

        A damaged run fails; a disk that does not answer is asked again.
        """
        try:
            return job.in_use(self.root), job.finished(self.root), job.reached(self.root)
        except UNREADABLE as error:
            self.tries[job.place] += 1
            if isinstance(error, OSError) and self.tries[job.place] < ATTEMPTS:
                self.busy.append(job)
            else:
                self.give_up(job, str(error))
            return None

    def give_up(self, job: Job, reason: str) -> None:
        self.report(f"failed: {job.place}: {reason} (log: {job.log(self.root)})")
        self.fail(job, reason)

    def finish(self, job: Job) -> None:
        self.finished.add(job.place)
        self.report(f"{len(self.finished)} of {len(self.jobs)} done: {job.place}")
        for other in self.needing.pop(job.place, []):
            self.make_ready(other, self.ways[other.place])
        self.add(self.more(job, True))

    def fail(self, job: Job, reason: str) -> None:
        """The job, and everything that needs it."""
        self.failed[job.place] = reason
        for other in self.needing.pop(job.place, []):
            self.fail(other, f"{job.place} failed")
        self.add(self.more(job, False))


Watch = Callable[[Scheduler], None]


@contextmanager
def driver_lock(root: Path) -> Iterator[None]:
    """One command carries out the plan of a directory."""
    root.mkdir(parents=True, exist_ok=True)
    with Folder(root).open("lock", "r", os.O_RDONLY | os.O_CREAT) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another `comsd` command works in {root}") from None
        yield


def execute(
    jobs: Iterable[Job],
    root: Path,
    executor: Executor,
    report: Report,
    *,
    seconds: Callable[[Job], float] = lambda _: 0.0,
    more: More = no_more,
    watch: Watch = lambda _: None,
) -> Mapping[str, str]:
    """Carry out a plan and return what has failed, with reasons; watch: called all the time."""
    (Folder(root) / "logs").make()
    with graceful_stop() as stop:
        scheduler = Scheduler(jobs, root, executor, report, seconds, more)
        try:
            while stop.signal is None and scheduler.step():
                watch(scheduler)
        finally:  # also after an error such as a full disk
            executor.stop()
    done, total = len(scheduler.finished), len(scheduler.jobs)
    if stop.signal is not None:
        saved = f"{done} of {total} done, the rest is saved; the same command continues"
        raise Interrupted(saved, stop.signal)
    return scheduler.failed


def raise_failures(failed: Mapping[str, str], root: Path) -> None:
    """RunError if a job failed: the first, its reason and where the logs are."""
    if failed:
        place, why = next(iter(failed.items()))
        logs = f"logs: {root / 'logs'}"
        raise RunError(f"{len(failed)} failed, the first {place}: {why}; {logs}")
