"""The order of jobs, what is continued and what fails, and processes on this machine."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from comsd.errors import InputError, Interrupted, RunError
from comsd.jobs.executor import Ended, Resources, Status, last_line, read_status
from comsd.jobs.executors import make_executor
from comsd.jobs.job import Job
from comsd.jobs.local import LocalExecutor, available_cores
from comsd.jobs.ray_executor import RayExecutor
from comsd.jobs.ray_worker import Board, Order, run_job
from comsd.jobs.scheduler import Scheduler, driver_lock, execute, raise_failures
from comsd.runs.creation import take_lock
from comsd.runs.run import Run
from scripted import Script, Scripted, scripted


def silent(_: str) -> None:
    pass


def test_a_killed_worker_is_continued_and_finished_work_is_not_repeated(tmp_path: Path) -> None:
    jobs = scripted(("a", None), ("b", "a"), ("c", None))
    (tmp_path / "c").touch()
    script, said = Script({"b": [-9, -9]}), list[str]()
    assert not execute(jobs, tmp_path, script, said.append)
    assert script.started == ["a", "b", "b", "b"]
    assert sum("it is continued" in line for line in said) == 2
    assert script.stopped == 1


def test_what_cannot_work_fails_once_and_the_rest_goes_on(tmp_path: Path) -> None:
    jobs = scripted(("a", None), ("b", "a"), ("c", None), ("d", None), ("e", "b"))
    script = Script({"a": [2], "d": [1, 1, 1]})
    failed = execute(jobs, tmp_path, script, silent)
    assert list(failed) == ["a", "b", "e", "d"]
    assert failed["e"] == "b failed"
    with pytest.raises(RunError, match=r"4 failed, the first a: said by a; logs: .*logs"):
        raise_failures(failed, tmp_path)
    assert sorted(script.started) == ["a", "c", "d", "d", "d"]


def test_a_lost_node_is_no_attempt(tmp_path: Path) -> None:
    script, said = Script({"a": [None] * 5 + [1, None, 1]}), list[str]()
    assert not execute(scripted(("a", None)), tmp_path, script, said.append)
    assert len(script.started) == 9
    assert said[0] == "a lost its node; it is continued"


def test_what_loses_every_node_ends(tmp_path: Path) -> None:
    failed = execute(scripted(("a", None)), tmp_path, Script({"a": [None] * 50}), silent)
    assert list(failed) == ["a"]


class Unreadable(Scripted):
    """Looking at it fails as told, then no more."""

    ERRORS: ClassVar[list[Exception]] = []

    def finished(self, root: Path) -> bool:
        if self.ERRORS:
            raise self.ERRORS.pop(0)
        return Scripted.finished(self, root)


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (RunError("config.json is damaged"), {"a": "config.json is damaged"}),
        (OSError(116, "Stale file handle"), {}),
    ],
)
def test_a_run_that_cannot_be_read_stops_no_other(
    error: Exception, failed: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comsd.jobs.scheduler.LOOK_AGAIN", 0.0)
    Unreadable.ERRORS[:] = [error, error]  # in making the plan, and when it would start
    who = ("pretrain", "walker", "comsd", "comsd", 1, "smoke")
    script = Script({})
    jobs = [Unreadable("a", *who), *scripted(("b", None), ("c", None))]
    assert execute(jobs, tmp_path, script, silent) == failed
    assert {"b", "c"} <= {*script.started}


def test_the_longest_way_to_the_end_starts_first(tmp_path: Path) -> None:
    jobs = scripted(("short", None), ("first", None), ("then", "first"), ("long", None))
    seconds = {"short": 1.0, "first": 2.0, "then": 10.0, "long": 5.0}
    script = Script({})
    script.slots = 1
    execute(jobs, tmp_path, script, silent, seconds=lambda job: seconds[job.place])
    assert script.started == ["first", "then", "long", "short"]


def test_jobs_that_follow_from_results(tmp_path: Path) -> None:
    ended: list[tuple[str, bool]] = []

    def more(job: Job, finished: bool) -> list[Scripted]:
        ended.append((job.place, finished))
        return scripted(("b", None), ("c", "b")) if job.place == "a" else []

    script = Script({"b": [2]})
    assert list(execute(scripted(("a", None)), tmp_path, script, silent, more=more)) == ["b", "c"]
    assert sorted(ended) == [("a", True), ("b", False), ("c", False)]
    again = Script({})
    assert not execute(scripted(("a", None)), tmp_path, again, silent, more=more)
    assert again.started == ["b", "c"]  # a was finished before, what follows from it is done


class Endless(Script):
    """Its processes end only when they are asked to."""

    def __init__(self, fails_at: str = "") -> None:
        super().__init__({})
        self.fails_at = fails_at

    def start(self, job: Job, root: Path) -> None:
        if job.place == self.fails_at:
            raise OSError(28, "No space left on device", str(root))
        self.started.append(job.place)

    def poll(self) -> list[Ended]:
        time.sleep(0.01)
        return []


def test_ctrl_c_stops_the_executor_once(tmp_path: Path) -> None:
    script = Endless()
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(Interrupted, match="0 of 1 done, the rest is saved"):
        execute(scripted(("a", None)), tmp_path, script, silent)
    assert script.stopped == 1


def test_a_failure_of_the_driver_leaves_no_process_behind(tmp_path: Path) -> None:
    script = Endless(fails_at="b")
    with pytest.raises(OSError, match="No space left"):
        execute(scripted(("a", None), ("b", None)), tmp_path, script, silent)
    assert script.stopped == 1


def test_one_driver_per_directory(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with (
            pytest.raises(InputError, match="another `comsd` command works in"),
            driver_lock(tmp_path),
        ):
            pass


# --- processes of this machine --------------------------------------------------------------------


def maze_job(place: str, steps: int | None = None, seed: int = 1) -> Job:
    return Job(place, "pretrain", "maze-tree", "comsd", "comsd", seed, "smoke", steps=steps)


def test_a_run_is_trained_on_from_where_it_was(tmp_path: Path) -> None:
    short, long = maze_job("run", 1000), maze_job("run", 2000)
    said: list[str] = []
    executor = LocalExecutor(Resources(jobs=1, cpus=1))
    assert not execute([short], tmp_path, executor, said.append)
    assert short.finished(tmp_path)
    assert not long.finished(tmp_path)
    assert not execute([long], tmp_path, executor, said.append)
    assert short.finished(tmp_path)
    assert long.finished(tmp_path)
    assert [int(row["step"]) for row in Run(tmp_path / "run").evaluations.rows()][-1] == 2000
    status = read_status(long.log(tmp_path))
    assert (status.step, status.steps) == (2000, 2000)
    assert status.seconds_left == 0


def test_a_run_that_another_process_writes_to_is_waited_for(tmp_path: Path) -> None:
    job = maze_job("run")
    execute([job], tmp_path, LocalExecutor(Resources(jobs=1)), silent)
    held = take_lock(tmp_path / "run")
    script = Endless()
    scheduler = Scheduler([maze_job("run", 4000)], tmp_path, script, silent)
    assert scheduler.step()
    assert not script.started
    held.close()
    scheduler.looked = 0.0
    scheduler.step()
    assert script.started == ["run"]


def test_processes_are_asked_to_stop_and_save(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    executor, job = LocalExecutor(Resources(jobs=1)), maze_job("run", 10**7)
    executor.start(job, tmp_path)
    while not job.reached(tmp_path):
        assert not executor.poll()
    assert list(executor.status()) == ["run"]
    executor.stop()
    assert [ended.code for ended in executor.poll()] == [128 + signal.SIGTERM]
    # at a step, or on a busy machine in the middle of a long one
    assert re.search("stopped .*saved.* continues", job.log(tmp_path).read_text())


def test_links_in_the_directory_of_a_plan_are_not_followed(tmp_path: Path) -> None:
    root, mine = tmp_path / "root", tmp_path / "mine"
    (root / "pretrain").mkdir(parents=True)
    (root / "logs").mkdir()
    mine.mkdir()
    (root / "pretrain" / "run").symlink_to(mine)
    executor = LocalExecutor(Resources(jobs=1))
    failed = execute([maze_job("pretrain/run")], root, executor, silent)
    assert "run is a link" in failed["pretrain/run"]
    (mine / "thesis.tex").write_text("years of work")
    maze_job("other").log(root).symlink_to(mine / "thesis.tex")
    assert last_line(maze_job("other").log(root)) == ""
    with pytest.raises(InputError, match="is a link"):
        execute([maze_job("other")], root, executor, silent)
    assert (mine / "thesis.tex").read_text() == "years of work"
    assert [path.name for path in mine.iterdir()] == ["thesis.tex"]


def test_bad_resources_are_one_sentence() -> None:
    cores = available_cores()
    with pytest.raises(InputError, match=f"cpus is 9999; this machine has {cores}"):
        LocalExecutor(Resources(cpus=9999))
    with pytest.raises(InputError, match="gpus is 2; it must be between 0 and 1"):
        Resources(gpus=2)
    with pytest.raises(InputError, match="jobs is -1; it must be at least 0"):
        Resources(jobs=-1)


def test_gpus_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"gpus is 0.25; torch finds none"):
        LocalExecutor(Resources(gpus=0.25))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("comsd.jobs.local.available_cores", lambda: 64)
    executor = LocalExecutor(Resources(gpus=0.25))
    assert executor.slots == 8
    assert Resources(gpus=0.25).arguments(["pretrain"]) == ["pretrain", "--device", "cuda"]
    assert Resources(gpus=0.25).arguments(["resume", "x"]) == ["resume", "x"]


def test_time_left() -> None:
    assert Status("host", 100, 500, 50.0).seconds_left == 8
    assert Status("host").seconds_left is None
    assert read_status(Path("nowhere.log"), "host") == Status("host")


# --- where, in one sentence -----------------------------------------------------------------------


def test_bad_places_are_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    with pytest.raises(InputError, match="on is 'moon'; allowed: local, ray, slurm"):
        make_executor("moon")
    with pytest.raises(InputError, match="address and carry are for --on ray, not for local"):
        make_executor("local", address="head:6379")
    with pytest.raises(InputError, match="carry is 'pigeon'; allowed: auto, objects, or a URL"):
        make_executor("ray", carry="pigeon")
    with pytest.raises(InputError, match="carry is 'moon://x', which cannot be used"):
        make_executor("ray", carry="moon://x")
    monkeypatch.setattr("comsd.jobs.ray_cluster.find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"needs the extra: pip install 'comsd\[ray\]'"):
        make_executor("ray")
    monkeypatch.setattr("comsd.jobs.ray_cluster.find_spec", lambda _: object())
    for address in ("head", "head:port", ":1"):
        with pytest.raises(InputError, match="it must be HOST:PORT of the cluster's head"):
            make_executor("ray", address=address)
    with pytest.raises(InputError, match=r"which does not answer: .*refused"):
        make_executor("ray", address="127.0.0.1:9")
    monkeypatch.setenv("HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(InputError, match="the cluster's token is missing: set RAY_AUTH_TOKEN"):
            make_executor("ray", address=f"127.0.0.1:{port}")


# --- Ray, without Ray -----------------------------------------------------------------------------


def ray_executor(root: Path) -> tuple[Any, Board]:
    """One whose cluster has lost the node of its only job, and whose store does not answer."""

    def pull(*_: object) -> None:
        raise ConnectionError("slow down")

    def get(reference: Any) -> Any:
        if reference == "job":
            raise TimeoutError
        return reference

    board = Board(str(root))
    names = ("forget", "statuses", "stop")
    remote = {n: SimpleNamespace(remote=getattr(board, n)) for n in names}
    executor: Any = RayExecutor.__new__(RayExecutor)
    errors = SimpleNamespace(
        OutOfMemoryError=KeyError, RayTaskError=KeyError, RayError=TimeoutError
    )
    done = SimpleNamespace(cancel=lambda _: None, shutdown=lambda: None, wait=lambda *_, **__: None)
    executor.ray = SimpleNamespace(exceptions=errors, get=get, **vars(done))
    executor.board, executor.store = SimpleNamespace(**remote), SimpleNamespace(pull=pull)
    executor.root, executor.running = root, {"job": maze_job("run")}
    return executor, board


def test_a_store_that_does_not_answer_ends_no_plan(tmp_path: Path) -> None:
    executor, board = ray_executor(tmp_path)
    board.beat("run", Status("node1", 5))
    ended = executor.ended("job")
    assert (ended.code, ended.note) == (None, "could not be fetched from its store: slow down")
    executor.running = {"job": maze_job("run")}  # waits for another node
    assert executor.status()["run"].host == "waiting"
    executor.stop()
    assert not executor.running


def test_a_node_keeps_nothing_of_a_job_that_cannot_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ConnectionError("slow down")

    monkeypatch.setattr("comsd.jobs.ray_worker.import_module", lambda _: SimpleNamespace(get=fail))
    monkeypatch.setenv("COMSD_NODE_DIR", str(tmp_path))
    board = SimpleNamespace(hand_out=SimpleNamespace(remote=fail))
    with pytest.raises(ConnectionError):
        run_job(Order(maze_job("run"), "nowhere", "", "objects", [], [], {}), board)
    assert not list(tmp_path.iterdir())
