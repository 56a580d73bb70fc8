"""The scheduler at 1,000 nodes and 100,000 runs: the real one, on a cluster in virtual time.

    python benchmarks/scheduler.py

20,000 pre-trainings of two hours, each followed by four fine-tunings of a quarter. The scheduler
knows the estimates; true times differ by a factor drawn log-normally. A node fails at a stated
rate, comes back after a while, and what its runs did since their last checkpoint is lost.
"""

from __future__ import annotations

import heapq
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from comsd.jobs.executor import Ended, Status
from comsd.jobs.job import Job
from comsd.jobs.scheduler import Scheduler

NODES, PER_NODE = 1000, 4
HOURS = {"pretrain": 2.0, "finetune": 0.25}
SPREAD = 0.2  # standard deviation of the logarithm of true over estimated time
CHECKPOINT = 0.125  # hours between checkpoints: an eighth of a million of two million steps
REPAIR = 0.5  # hours until a failed node is back
STARTING = 10 / 3600  # hours to start a process


@dataclass(frozen=True, slots=True)
class VirtualJob(Job):
    """Its state is the cluster's."""

    def finished(self, root: Path) -> bool:
        return self.place in FINISHED

    def reached(self, root: Path) -> int:
        return int(SAVED.get(self.place, 0.0) / CHECKPOINT)

    def in_use(self, root: Path) -> bool:
        return False


FINISHED: set[str] = set()
SAVED: dict[str, float] = {}  # hours of work in the last checkpoint


class VirtualCluster:
    """An executor whose clock goes from event to event."""

    def __init__(self, days_between_failures: float | None, seed: int = 0) -> None:
        """days_between_failures: of one node, on average; None: nodes do not fail."""
        self.rng = np.random.default_rng(seed)
        self.days = days_between_failures
        self.now = self.lost = self.worked = 0.0  # hours
        self.failures = 0
        self.free = [n for n in range(NODES) for _ in range(PER_NODE)]
        self.up = [True] * NODES
        self.on: dict[int, dict[str, float]] = {n: {} for n in range(NODES)}  # place -> since
        self.where: dict[str, tuple[int, int]] = {}  # place -> node, number of its event
        self.true: dict[str, float] = {}
        self.events: list[tuple[float, int, str, str, int]] = []
        self.count = 0
        for node in range(NODES):
            self.plan_failure(node)

    @property
    def slots(self) -> int:
        return len(self.free) + len(self.where)

    def push(self, at: float, kind: str, place: str, node: int) -> int:
        self.count += 1
        heapq.heappush(self.events, (at, self.count, kind, place, node))
        return self.count

    def plan_failure(self, node: int) -> None:
        if self.days is not None:
            self.push(self.now + self.rng.exponential(24 * self.days), "fail", "", node)

    def start(self, job: Job, root: Path) -> None:
        node = self.free.pop()
        if job.place not in self.true:
            self.true[job.place] = HOURS[job.stage] * self.rng.lognormal(0, SPREAD)
        left = self.true[job.place] - SAVED.get(job.place, 0.0)
        number = self.push(self.now + STARTING + left, "end", job.place, node)
        self.on[node][job.place] = self.now
        self.where[job.place] = node, number

    def poll(self) -> list[Ended]:
        self.now, number, kind, place, node = heapq.heappop(self.events)
        if kind == "end":
            if self.where.get(place) != (node, number):  # its node failed before
                return []
            del self.where[place], self.on[node][place]
            self.free.append(node)
            self.worked += self.true[place]
            FINISHED.add(place)
            SAVED.pop(place, None)
            return [Ended(place, 0)]
        if kind == "back":
            self.up[node] = True
            self.free += [node] * PER_NODE
            self.plan_failure(node)
            return []
        self.failures += 1
        self.up[node] = False
        self.free = [n for n in self.free if n != node]
        self.push(self.now + REPAIR, "back", "", node)
        ended = [Ended(lost, None, "lost its node") for lost in self.on[node]]
        for lost, since in self.on[node].items():
            del self.where[lost]
            done = SAVED.get(lost, 0.0) + max(0.0, self.now - since - STARTING)
            SAVED[lost] = CHECKPOINT * int(done / CHECKPOINT)
            self.lost += done - SAVED[lost]
        self.on[node] = {}
        return ended

    def status(self) -> dict[str, Status]:
        return {}

    def stop(self) -> None:
        pass


def make_jobs(runs: int = 100_000) -> list[Job]:
    jobs: list[Job] = []
    for i in range(runs // 5):
        source = f"pretrain/walker/trial-{i}-1"
        who = (f"trial-{i}", "comsd", 1, "paper")
        jobs.append(VirtualJob(source, "pretrain", "walker", *who))
        for task in ("stand", "walk", "run", "flip"):
            place = f"finetune/walker_{task}/trial-{i}-1"
            jobs.append(VirtualJob(place, "finetune", f"walker_{task}", *who, source))
    return jobs


def simulate(days_between_failures: float | None, runs: int = 100_000) -> dict[str, float]:
    """Hours, and seconds and megabytes of the driver."""
    FINISHED.clear()
    SAVED.clear()
    began = time.process_time()
    cluster = VirtualCluster(days_between_failures)
    jobs = make_jobs(runs)

    def seconds(job: Job) -> float:
        return HOURS[job.stage]

    scheduler = Scheduler(jobs, Path(), cluster, lambda _: None, seconds)
    planned = time.process_time() - began
    while scheduler.step():
        pass
    assert len(FINISHED) == len(jobs)
    assert not scheduler.failed
    longest = max(
        cluster.true[job.place] + cluster.true[str(job.needs)] for job in jobs if job.needs
    )
    bound = max(cluster.worked / (NODES * PER_NODE), longest)
    return {
        "makespan": cluster.now,  # the clock stops with the last run
        "bound": bound,
        "lost": cluster.lost,
        "worked": cluster.worked,
        "failures": cluster.failures,
        "planned": planned,
        "driver": time.process_time() - began,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    print(f"{NODES:,} nodes of {PER_NODE} runs, 100,000 runs")
    for days in (None, 365.0, 30.0, 7.0):
        r = simulate(days)
        rate = "no failures" if days is None else f"a node fails every {days:g} days"
        print(
            f"{rate}: {r['failures']:.0f} failures, makespan {r['makespan']:.2f} h, "
            f"{r['makespan'] / r['bound']:.3f} of the bound {r['bound']:.2f} h; "
            f"lost work {100 * r['lost'] / r['worked']:.3f} %; "
            f"driver {r['driver']:.0f} s of CPU, {r['memory']:.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
