"""Jobs of a Slurm cluster, by its plain commands; runs lie on a disk that all nodes share.

Each batch of jobs is one array. Slurm is told not to requeue: a job that was preempted, lost its
node or came to its time limit is submitted again by the scheduler and resumes.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from comsd.errors import InputError, RunError
from comsd.files import Folder
from comsd.jobs.executor import Ended, Resources, Status, read_status
from comsd.jobs.job import Job

POLL_EVERY = 5.0  # seconds between questions to Slurm
SLOTS = 1000  # jobs in the queue at a time
ARRAY = 1000  # of an array, as most clusters allow
WARNING = 120  # seconds before the time limit at which a run is told to save itself
UNKNOWN = 12  # questions after which accounting is not asked again for a job
STOPPING = 120.0  # seconds
TERMINATED = 128 + 15
OUT_OF_MEMORY = 137
CANCELLED = 2  # as an input error: not tried again

LOST = {
    "PREEMPTED": "was preempted",
    "NODE_FAIL": "lost its node",
    "BOOT_FAIL": "lost its node",
    "TIMEOUT": "came to its time limit",
    "DEADLINE": "came to its time limit",
    "REVOKED": "lost its node",
}


class SlurmExecutor:
    def __init__(self, resources: Resources, options: str) -> None:
        """options: of `sbatch`, such as --partition=gpu --time=24:00:00."""
        for name in ("sbatch", "squeue", "scancel"):
            if shutil.which(name) is None:
                raise InputError(f"on is 'slurm' but there is no command {name} on this machine")
        if resources.gpus not in (0, 1):
            raise InputError(f"gpus is {resources.gpus:g}; Slurm gives whole ones: allowed: 0, 1")
        self.resources, self.slots = resources, resources.jobs or SLOTS
        self.options = [f"--cpus-per-task={max(1, resources.cpus)}"]
        self.options += ["--gpus=1"] * bool(resources.gpus)
        try:
            self.options += shlex.split(options)
        except ValueError as error:
            raise InputError(f"slurm is {options!r}: {error}") from None
        tested = call("sbatch", "--test-only", *self.options, "--wrap=true")
        if tested.returncode:
            said = tested.stderr.strip().splitlines()[-1:] or ["sbatch refuses it"]
            raise InputError(f"slurm is {options!r}: {said[0]}")
        self.root: Path | None = None
        self.new: list[Job] = []
        self.written: tuple[Path, int] | None = None  # the script of the first so many of them
        self.running: dict[str, Job] = {}  # by Slurm's number
        self.hosts: dict[str, str] = {}  # the node, or the state of a job that waits
        self.asked: dict[str, int] = {}  # accounting did not know it yet
        self.before: dict[str, str] = {}  # place -> number, of an earlier call of the command
        self.polled = 0.0

    # --- starting -----------------------------------------------------------------------------

    def start(self, job: Job, root: Path) -> None:
        if self.root is None:
            self.root = root.resolve()
            Folder(self.root, "slurm").make()
            self.before = self.adopt()
        number = self.before.pop(job.place, None)
        if number is None:
            self.new.append(job)
        else:
            self.running[number] = job

    def adopt(self) -> dict[str, str]:
        """Jobs that are still in the queue after the driver has died."""
        assert self.root is not None
        try:
            known = Folder(self.root, "slurm").read_json("jobs.json")
            live = self.queue()
            return {str(place): number for place, number in known.items() if number in live}
        except (OSError, RunError, ValueError, AttributeError):
            return {}

    def submit(self) -> None:
        """The new jobs as arrays; what Slurm refuses for a while is submitted later."""
        while self.new:
            script, count = self.written = self.written or self.write(self.new[:ARRAY])
            try:
                number = self.sbatch(script, count)
            except RunError:
                if not self.running:  # it takes none of ours
                    raise
                return
            batch, self.new, self.written = self.new[:count], self.new[count:], None
            self.running |= {f"{number}_{i}": job for i, job in enumerate(batch)}
            self.record()

    def write(self, batch: list[Job]) -> tuple[Path, int]:
        """The script of an array, and how many jobs it has."""
        assert self.root is not None
        folder = Folder(self.root, "slurm", f"{time.time_ns()}")
        folder.make()
        for i, job in enumerate(batch):
            folder.write(f"{i}.sh", self.script(job).encode())
        scripts = shlex.quote(str(folder.path))
        array = f'#!/bin/bash\nexec bash {scripts}/"$SLURM_ARRAY_TASK_ID".sh\n'
        folder.write("array.sh", array.encode())
        return folder.path / "array.sh", len(batch)

    def sbatch(self, script: Path, count: int) -> str:
        done = call(
            "sbatch",
            "--parsable",
            "--job-name=comsd",
            f"--array=0-{count - 1}",
            "--no-requeue",
            f"--signal=B:TERM@{WARNING}",
            "--output=/dev/null",
            *self.options,
            str(script),
        )
        if done.returncode:
            raise RunError(f"sbatch: {done.stderr.strip() or done.returncode}")
        return done.stdout.strip().partition(";")[0]

    def script(self, job: Job) -> str:
        """Start or resume, whatever the run is by the time Slurm comes to it."""
        assert self.root is not None
        config, log = self.root / job.place / "config.json", job.log(self.root)
        Folder(self.root, "logs").append(log.name).close()  # refuses a link
        python = f"exec {shlex.quote(sys.executable)} -m comsd"  # the batch process gets signals
        threads = max(1, self.resources.cpus)
        words = {
            name: shlex.join(self.resources.arguments(argv, threads))
            for name, argv in (
                ("start", job.start_command(self.root)),
                ("resume", job.resume_command(self.root)),
            )
        }
        return (
            f"#!/bin/bash\nexport OMP_NUM_THREADS={threads}\n"
            f"exec >> {shlex.quote(str(log))} 2>&1 < /dev/null\n"
            f"if [ -f {shlex.quote(str(config))} ]; then\n  {python} {words['resume']}\n"
            f"else\n  {python} {words['start']}\nfi\n"
        )

    def record(self) -> None:
        assert self.root is not None
        places = {job.place: number for number, job in self.running.items()}
        Folder(self.root, "slurm").write_json("jobs.json", places)

    # --- watching -----------------------------------------------------------------------------

    def poll(self) -> list[Ended]:
        self.submit()
        time.sleep(max(0.0, min(POLL_EVERY, self.polled + POLL_EVERY - time.monotonic())))
        self.polled = time.monotonic()
        try:
            live = self.queue()
        except RunError:  # Slurm's controller does not answer for a while
            return []
        self.hosts = {n: host or state for n, (state, host) in live.items() if n in self.running}
        gone = [number for number in self.running if number not in live]
        ended = [e for number, e in self.account(gone).items() if self.running.pop(number)]
        if ended:
            self.record()
        return ended

    def queue(self) -> dict[str, tuple[str, str]]:
        """State and node of everything of ours that waits or runs."""
        done = call("squeue", "--me", "--array", "--noheader", "--format=%i|%T|%N")
        if done.returncode:
            raise RunError(f"squeue: {done.stderr.strip()}")
        rows = (line.strip().split("|") for line in done.stdout.splitlines() if line.strip())
        return {row[0]: (row[1], row[2]) for row in rows}

    def account(self, gone: list[str]) -> dict[str, Ended]:
        """How jobs have ended that are not in the queue."""
        if not gone:
            return {}
        fields = "--format=JobID,State,ExitCode"
        rows: dict[str, tuple[str, str]] = {}
        if shutil.which("sacct") is not None:
            done = call("sacct", "-n", "-P", "-X", f"--jobs={','.join(gone)}", fields)
            for line in done.stdout.splitlines():
                number, state, code = line.strip().split("|")
                rows[number] = state.split()[0].rstrip("+"), code
        ended: dict[str, Ended] = {}
        for number in gone:
            state, code = rows.get(number, ("UNKNOWN", "0:0"))
            if state in ("UNKNOWN", "RUNNING", "PENDING", "COMPLETING"):
                self.asked[number] = self.asked.get(number, 0) + 1
                if self.asked[number] < UNKNOWN and shutil.which("sacct") is not None:
                    continue  # accounting is late
            ended[number] = judge(self.running[number].place, state, code)
        return ended

    def status(self) -> dict[str, Status]:
        if self.root is None:  # nothing has started
            return {}
        waiting = {job.place: Status("PENDING") for job in self.new}
        return waiting | {
            job.place: read_status(job.log(self.root), self.hosts.get(number, "PENDING"))
            for number, job in self.running.items()
        }

    def stop(self) -> None:
        """Slurm tells running jobs to stop and kills them half a minute later."""
        self.new.clear()
        if not self.running:
            return
        numbers = list(self.running)
        for i in range(0, len(numbers), ARRAY):
            call("scancel", *numbers[i : i + ARRAY])
        until = time.monotonic() + STOPPING
        while time.monotonic() < until:
            try:
                if not set(numbers) & set(self.queue()):
                    break
            except RunError:
                pass
            time.sleep(min(1.0, POLL_EVERY))
        self.running.clear()


def judge(place: str, state: str, code: str) -> Ended:
    """From Slurm's last word on a job."""
    exit_code, signal = (int(number or 0) for number in code.split(":"))
    if state in LOST:
        return Ended(place, None, LOST[state])
    if state == "CANCELLED":
        return Ended(place, CANCELLED, "was cancelled")
    if state == "OUT_OF_MEMORY":
        return Ended(place, OUT_OF_MEMORY, "ran out of memory")
    if state == "FAILED" and exit_code == TERMINATED:  # saved itself before the end of its time
        return Ended(place, None, "was told to stop")
    if state == "UNKNOWN":
        return Ended(place, None, "left the queue")
    return Ended(place, exit_code or (128 + signal if signal else 0))


def call(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True)
