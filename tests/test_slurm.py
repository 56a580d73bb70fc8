"""Slurm, by stand-ins of its commands that behave as they do: real Slurm was not at hand."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from comsd.cli import main
from comsd.errors import InputError, RunError
from comsd.jobs import slurm_executor
from comsd.jobs.executor import Ended, Resources
from comsd.jobs.job import Job
from comsd.jobs.scheduler import execute
from comsd.jobs.slurm_executor import SlurmExecutor, judge
from comsd.runs.run import Run
from processes import call

FAKE = Path(__file__).parent / "fake_slurm.py"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the queue."""
    commands, queue = tmp_path / "bin", tmp_path / "queue"
    commands.mkdir()
    queue.mkdir()
    for name in ("sbatch", "squeue", "scancel", "sacct"):
        file = commands / name
        file.write_text(f"#!{sys.executable} -S\n{FAKE.read_text()}")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(queue))
    monkeypatch.setattr(slurm_executor, "POLL_EVERY", 0.2)
    return queue


def maze_job(seed: int, steps: int = 2000) -> Job:
    return Job(f"run-{seed}", "pretrain", "maze-tree", "comsd", "comsd", seed, "smoke", steps=steps)


def states(queue: Path) -> dict[str, str]:
    return {n: job["state"] for n, job in json.loads((queue / "jobs.json").read_text()).items()}


def test_many_short_runs_are_one_array(slurm: Path, tmp_path: Path) -> None:
    jobs = [maze_job(seed) for seed in (1, 2, 3)]
    executor = SlurmExecutor(Resources(), "--partition=gpu --time=24:00:00")
    assert not execute(jobs, tmp_path, executor, lambda _: None)
    assert states(slurm) == dict.fromkeys(("101_0", "101_1", "101_2"), "COMPLETED")
    assert all(job.finished(tmp_path) for job in jobs)


@pytest.mark.parametrize(
    ("event", "said"),
    [("preempt", "was preempted"), ("timeout", "was told to stop"), ("node_fail", "lost its node")],
)
def test_what_ends_a_job_before_its_time_is_no_attempt(
    event: str, said: str, slurm: Path, tmp_path: Path
) -> None:
    job, heard = maze_job(1, steps=20_000), list[str]()

    def strike() -> None:
        wait_for(lambda: job.reached(tmp_path) > 0)
        (slurm / event).touch()

    threading.Thread(target=strike, daemon=True).start()
    assert not execute([job], tmp_path, SlurmExecutor(Resources(), ""), heard.append)
    assert heard[0].startswith(f"run-1 {said}; it is continued")
    assert len(states(slurm)) == 2  # submitted again
    assert job.finished(tmp_path)
    assert [int(r["step"]) for r in Run(tmp_path / "run-1").evaluations.rows()][-1] == 20_000


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_jobs_in_the_queue_outlive_their_driver(slurm: Path, tmp_path: Path) -> None:
    job = maze_job(1, steps=20_000)
    (tmp_path / "logs").mkdir()
    first = SlurmExecutor(Resources(), "")
    first.start(job, tmp_path)
    first.poll()  # and the driver dies
    assert not execute([job], tmp_path, SlurmExecutor(Resources(), ""), lambda _: None)
    assert len(states(slurm)) == 1  # nothing was submitted twice


def test_what_slurm_refuses_for_a_while_is_submitted_later(slurm: Path, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    executor = SlurmExecutor(Resources(), "")
    (slurm / "refuse").touch()
    executor.start(maze_job(1, 10**7), tmp_path)
    with pytest.raises(RunError, match="Job violates"):  # nothing of ours is there
        executor.poll()
    (slurm / "refuse").unlink()
    executor.poll()
    (slurm / "refuse").touch()
    executor.start(maze_job(2, 10**7), tmp_path)
    assert not executor.poll()
    assert not executor.poll()
    assert len(list((tmp_path / "slurm").glob("*/array.sh"))) == 2  # written once each
    assert (states(slurm), [*executor.status()]) == ({"101_0": "RUNNING"}, ["run-2", "run-1"])
    (slurm / "refuse").unlink()
    executor.poll()
    assert states(slurm) == {"101_0": "RUNNING", "102_0": "RUNNING"}
    executor.stop()


def test_cancelling_saves(slurm: Path, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    jobs, executor = [maze_job(seed, 10**7) for seed in (1, 2, 3)], SlurmExecutor(Resources(), "")
    for job in jobs:
        executor.start(job, tmp_path)
    executor.poll()
    wait_for(lambda: not executor.poll() and jobs[0].reached(tmp_path) > 0)
    hosts = {place: status.host for place, status in executor.status().items()}
    assert hosts == {"run-1": "node1", "run-2": "node1", "run-3": "PENDING"}
    executor.stop()
    assert set(states(slurm).values()) == {"CANCELLED"}
    assert "stopped at step" in jobs[0].log(tmp_path).read_text()


@pytest.mark.parametrize(
    ("state", "code", "ended"),
    [
        ("COMPLETED", "0:0", (0, "")),
        ("FAILED", "1:0", (1, "")),
        ("FAILED", "143:0", (None, "was told to stop")),
        ("FAILED", "0:11", (139, "")),
        ("OUT_OF_MEMORY", "0:125", (137, "ran out of memory")),
        ("TIMEOUT", "0:0", (None, "came to its time limit")),
        ("NODE_FAIL", "0:0", (None, "lost its node")),
        ("PREEMPTED", "0:15", (None, "was preempted")),
        ("CANCELLED", "0:15", (2, "was cancelled")),
        ("UNKNOWN", "0:0", (None, "left the queue")),
    ],
)
def test_slurm_s_last_word(state: str, code: str, ended: tuple[int | None, str]) -> None:
    assert judge("a", state, code) == Ended("a", *ended)


@pytest.mark.usefixtures("slurm")
def test_a_job_that_somebody_cancels_is_not_submitted_again(tmp_path: Path) -> None:
    job = maze_job(1, 10**7)

    def cancel() -> None:
        wait_for(lambda: job.reached(tmp_path) > 0)
        os.system("scancel 101_0")

    threading.Thread(target=cancel, daemon=True).start()
    failed = execute([job], tmp_path, SlurmExecutor(Resources(), ""), lambda _: None)
    assert failed == {"run-1": "was cancelled"}


def test_bad_input_is_one_sentence(
    slurm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "sweep comsd --env maze-tree skills=6 --dir new --on slurm"
    code, _, err = call(f"{words} --slurm=--partition=x", capsys)
    assert code == 2
    assert "Invalid partition name" in err
    assert err.count("\n") == 1
    assert "Slurm gives whole ones" in call(f"{words} --gpus 0.5", capsys)[2]
    assert (
        "slurm is for --on slurm"
        in call(words.removesuffix("--on slurm") + "--slurm=--time=1", capsys)[2]
    )
    with pytest.raises(InputError, match="No closing quotation"):
        SlurmExecutor(Resources(), "'")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "there is no command sbatch on this machine" in call(words, capsys)[2]
    assert not (tmp_path / "new").exists()
    assert not (slurm / "jobs.json").exists() or not states(slurm)


@pytest.mark.usefixtures("slurm")
def test_the_command(tmp_path: Path) -> None:
    words = "sweep comsd --env maze-tree skills=6 --preset smoke --seeds 1 --on slurm --cpus 1"
    main([*words.split(), "--slurm", "--time=1:00:00", "--dir", str(tmp_path / "sweep")])
    assert (tmp_path / "sweep" / "report" / "report.html").exists()
