"""Stand-ins for Slurm's commands: a queue in a JSON file that every call moves on.

Called as sbatch, squeue, scancel or sacct (links to this file). FAKE_SLURM is the folder of the
queue; FAKE_CPUS how many array elements run at a time. A file `preempt`, `node_fail` or `timeout`
in the folder makes that happen to every running job, once; as long as there is one `refuse`, sbatch
fails.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["FAKE_SLURM"])
RUNNING = ("RUNNING", "COMPLETING")
GRACE = 20.0  # seconds between TERM and KILL


def spawn(number: str, job: dict) -> None:
    base, _, index = number.partition("_")
    env = os.environ | {"SLURM_JOB_ID": base, "SLURM_ARRAY_TASK_ID": index}
    code = FOLDER / f"{number}.code"
    # The batch process is the child of slurmstepd, which learns its exit code.
    script = f'bash "$0"; echo $? > "{code}.tmp"; mv "{code}.tmp" "{code}"'
    step = f'trap "" TERM; {script}'.replace('bash "$0"', '(trap - TERM; exec bash "$0")')
    nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    argv = ["bash", "-c", step, job["script"]]
    process = subprocess.Popen(argv, env=env, start_new_session=True, **nothing)
    job |= {"state": "RUNNING", "node": "node1", "group": process.pid}


def send(job: dict, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job["group"], number)


def finish(number: str, job: dict) -> None:
    """slurmctld notes the end of a running job."""
    code = FOLDER / f"{number}.code"
    why = job.get("ending")
    if not code.exists():
        if why and time.time() - job["asked"] > GRACE:
            send(job, signal.SIGKILL)
            job |= {"state": why, "code": "0:9"}
        return
    value = int(code.read_text())
    state = why or ("COMPLETED" if value == 0 else "FAILED")
    job |= {"state": state, "code": f"{value}:0"}


def end(job: dict, state: str) -> None:
    if job["state"] == "PENDING":
        job |= {"state": state, "code": "0:0"}
    elif job["state"] in RUNNING and "ending" not in job:
        job |= {"state": "COMPLETING", "ending": state, "asked": time.time()}
        send(job, signal.SIGTERM)


def advance(jobs: dict[str, dict]) -> None:
    for number, job in jobs.items():
        if job["state"] in RUNNING:
            finish(number, job)
    running = [job for job in jobs.values() if job["state"] == "RUNNING"]
    for event in ("preempt", "timeout", "node_fail"):
        if running and (FOLDER / event).exists():
            (FOLDER / event).unlink()
            for job in running:
                if event == "node_fail":  # without a word to the job
                    send(job, signal.SIGKILL)
                    job |= {"state": "NODE_FAIL", "code": "0:0"}
                elif event == "timeout":  # --signal=B:TERM@120: the job ends by itself before it
                    send(job, signal.SIGTERM)
                else:
                    end(job, "PREEMPTED")
    free = int(os.environ.get("FAKE_CPUS", "2")) - sum(j["state"] in RUNNING for j in jobs.values())
    for number, job in jobs.items():
        if job["state"] == "PENDING" and free > 0:
            spawn(number, job)
            free -= 1


def sbatch(argv: list[str], jobs: dict[str, dict]) -> int:
    given = [a.partition("=") for a in argv if a.startswith("--")]
    options = {name: value for name, _, value in given}
    if options.get("--partition") not in (None, "gpu"):
        print("sbatch: error: invalid partition specified: x", file=sys.stderr)
        print("sbatch: error: Batch job submission failed: Invalid partition name", file=sys.stderr)
        return 1
    if "--test-only" in options:
        return 0
    if (FOLDER / "refuse").exists():
        print("sbatch: error: Job violates accounting/QOS policy", file=sys.stderr)
        return 1
    assert options["--signal"] == "B:TERM@120"
    assert "--no-requeue" in options
    match = re.fullmatch(r"0-(\d+)", options["--array"])
    assert match
    base = 1 + max((int(n.partition("_")[0]) for n in jobs), default=100)
    for i in range(int(match[1]) + 1):
        jobs[f"{base}_{i}"] = {"state": "PENDING", "script": argv[-1]}
    print(f"{base};cluster")
    return 0


def squeue(jobs: dict[str, dict]) -> int:
    for number, job in jobs.items():
        if job["state"] in ("PENDING", *RUNNING):
            print(f"{number}|{job['state']}|{job.get('node', '')}")
    return 0


def sacct(argv: list[str], jobs: dict[str, dict]) -> int:
    wanted = next(a for a in argv if a.startswith("--jobs=")).removeprefix("--jobs=").split(",")
    for number in wanted:
        if number in jobs:
            state = jobs[number]["state"]
            state = "CANCELLED by 0" if state == "CANCELLED" else state
            print(f"{number}|{state}|{jobs[number].get('code', '0:0')}")
    return 0


def main() -> int:
    name, argv = Path(sys.argv[0]).name, sys.argv[1:]
    with (FOLDER / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = FOLDER / "jobs.json"
        jobs = json.loads(file.read_text()) if file.exists() else {}
        code = 0
        if name == "sbatch":
            code = sbatch(argv, jobs)
        elif name == "scancel":
            for number in argv:
                end(jobs[number], "CANCELLED")
        advance(jobs)
        if name == "squeue":
            code = squeue(jobs)
        elif name == "sacct":
            code = sacct(argv, jobs)
        file.write_text(json.dumps(jobs))
    return code


if __name__ == "__main__":
    sys.exit(main())
