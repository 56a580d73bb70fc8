"""How attacks are made, in this process or in one that may die, and how answers are judged.

An attack ends well if the command did what was asked, or said in one sentence why not (exit code 1
or 2). A traceback, a hang, a lost file and a wrong figure that looks right are failures.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from comsd import checkpoint
from comsd.cli import main
from comsd.cli.console import printable
from comsd.errors import InputError, Interrupted, RunError
from comsd.registry import LOADED, METHODS
from comsd.replay import COLUMNS
from comsd.runs import Run
from comsd.training.off_policy import OffPolicyTrainer

LONG = os.environ.get("COMSD_FAULTS") == "long"  # as in `make test-faults`
SEED = int(os.environ.get("COMSD_FAULTS_SEED", "0"))
HANGS = 20.0  # seconds of CPU after which a command is asked to stop, and as many again
BLOCKED = 300.0  # seconds after which a command that waits for something counts as hanging

FORKS = multiprocessing.get_context("forkserver")  # importing torch once, not in every process
FORKS.set_forkserver_preload(
    ["comsd.api", "comsd.cli.train", "comsd.cli.results", "comsd.cli.reproduce", "scipy.stats"]
)


def times(short: int, long: int) -> int:
    """How often an attack is made: in `make test`, and in `make test-faults`."""
    return long if LONG else short


@dataclass(frozen=True)
class Answer:
    """What a command left behind in exit code, output and errors."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Its last word."""
        return (self.err.strip().splitlines() or [""])[-1]


class Hang(BaseException):
    """A command neither ended nor listened."""


def check(answer: Answer, asked: object = "") -> str:
    """How an attack ended: done, refused, failed or stopped; AssertionError if not well."""
    told = f"{asked}\nexit code {answer.code}\n{answer.out[-1500:]}\n{answer.err[-3000:]}"
    assert "Traceback" not in answer.err + answer.out, told
    assert answer.code in (0, 1, 2, 128 + signal.SIGTERM, 130), told
    odd = re.search(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\ud800-\udfff]", answer.out + answer.err)
    assert odd is None, f"{odd!r} in {told!r}"
    if answer.code == 0:
        return "done"
    sentences = [line for line in answer.err.splitlines() if line.startswith("comsd: ")]
    assert len(sentences) == 1, told
    assert answer.err.strip().splitlines()[-1] == sentences[0], told
    assert len(sentences[0]) < 2000, told
    return {1: "failed", 2: "refused"}.get(answer.code, "stopped")


@contextlib.contextmanager
def limited(stop_after: float) -> Iterator[list[int]]:
    """Ask for a stop by SIGTERM after some CPU time; `Hang` if that does not help."""
    asked: list[int] = []

    def remind(number: int, _: FrameType | None) -> None:
        asked.append(number)
        if len(asked) > 1:
            raise Hang
        os.kill(os.getpid(), signal.SIGTERM)

    def hang(*_: object) -> None:
        raise Hang

    handlers = {signal.SIGPROF: remind, signal.SIGTERM: hang, signal.SIGALRM: hang}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    signal.setitimer(signal.ITIMER_PROF, stop_after, HANGS)
    signal.setitimer(signal.ITIMER_REAL, BLOCKED)
    try:
        yield asked
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def ask(*argv: object, stop_after: float = HANGS) -> Answer:
    """The answer of a command in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    tables: list[dict[Any, Any]] = [METHODS, LOADED]  # that `--method-file` adds to
    kept = [dict(table) for table in tables]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), limited(stop_after):
            main([str(word) for word in argv])
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except (Exception, Hang):
        code = 99
        err.write(traceback.format_exc())
    finally:
        restore_torch()
        for table, before in zip(tables, kept, strict=True):
            table.clear()
            table.update(before)
    return Answer(code, out.getvalue(), err.getvalue())


def restore_torch() -> None:
    """What a run of training sets for its whole process."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(False)  # hypothesis needs them


def call(function: Callable[..., Any], *args: Any, **options: Any) -> str:
    """How a call of the Python API ended, judged as a command would be."""
    try:
        with limited(HANGS):
            function(*args, **options)
    except Interrupted:
        return "stopped"
    except (InputError, RunError) as error:
        code, said = 2 if isinstance(error, InputError) else 1, printable(str(error))
    else:
        return "done"
    finally:
        restore_torch()
    return check(Answer(code, "", f"comsd: {said}\n"))


# --- processes that may die ------------------------------------------------------------------


def serve(argv: list[str], log: Path, prepare: Callable[[Any], None] | None, given: Any) -> None:
    """A command in a process of its own; what it prints goes to a file."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    torch.set_num_threads(1)
    if prepare is not None:
        prepare(given)
    main(argv)


def start(
    *argv: object, log: Path, prepare: Callable[[Any], None] | None = None, given: Any = None
) -> BaseProcess:
    """A process that carries out a command; prepare(given) is called in it first."""
    words = [str(word) for word in argv]
    process = FORKS.Process(target=serve, args=(words, log, prepare, given))
    process.start()
    return process


def finish(process: BaseProcess, log: Path, seconds: float = BLOCKED) -> Answer:
    """Wait for the end of a process; one that does not end is killed and counts as a hang."""
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        return Answer(99, "", f"Traceback: a hang\n{log.read_text(errors='replace')}")
    said = log.read_text(errors="replace") if log.exists() else ""
    return Answer(process.exitcode, "", said)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def die_at(given: tuple[Path, int]) -> None:
    """Make this process kill itself at its n-th change of a file below a directory."""
    place, moment = str(given[0]), given[1]
    changes = 0

    def watch(event: str, args: tuple[Any, ...]) -> None:
        nonlocal changes
        if not is_change(event, args, place):
            return
        if changes == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        changes += 1

    sys.addaudithook(watch)


def count_changes(given: tuple[Path, Path]) -> None:
    """Write down, in a file, how many changes of files below a directory there were."""
    place, counter = str(given[0]), given[1]
    descriptor = os.open(counter, os.O_WRONLY | os.O_CREAT)

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if is_change(event, args, place):
            os.write(descriptor, b".")

    sys.addaudithook(watch)


CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def is_change(event: str, args: tuple[Any, ...], place: str) -> bool:
    if event == "open" and not (isinstance(args[2], int) and args[2] & WRITING):
        return False
    if event != "open" and event not in CHANGES:
        return False
    path = os.fsdecode(args[0]) if isinstance(args[0], (str, bytes)) else str(args[0])
    return path.startswith(place) or not path.startswith("/")  # or relative to a handle in it


# --- what makes two runs equal --------------------------------------------------------------------


def fingerprint(path: Path) -> str:
    """Hash of networks, optimisers, generators, simulator, replay and tables without times."""
    run = Run(path)
    trainer = run.trainer()
    run.restore(trainer)
    state = trainer.state_dict()
    tensors: dict[str, torch.Tensor] = {}
    if isinstance(trainer, OffPolicyTrainer):
        state["replay"].pop("chunks")  # where it is cut depends on when it was saved
        for name in COLUMNS:
            tensors[name] = torch.from_numpy(getattr(trainer.replay, name))
        tensors["stored"] = trainer.replay.transitions().obs  # of images, also what is in files
    tree = checkpoint.pack(state, "", tensors)
    total = hashlib.sha256(json.dumps(tree, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        total.update(name.encode() + tensor.numpy().tobytes())
    for table in ("metrics.csv", "evaluations.csv"):
        with (path / table).open() as file:
            for row in csv.DictReader(file):
                row.pop("seconds", None)
                total.update(json.dumps(row).encode())
    return total.hexdigest()


# --- files ----------------------------------------------------------------------------------------


def snapshot(place: Path) -> dict[str, bytes | str]:
    """Everything below a directory: the content of files, the targets of links."""
    found: dict[str, bytes | str] = {}
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            found[name] = path.read_bytes() if path.is_file() else "directory"
    return found


def copy(run: Path, to: Path) -> Path:
    """A fresh copy of a run, links as they are."""
    if to.exists():
        shutil.rmtree(to)
    shutil.copytree(run, to, symlinks=True)
    return to


def wait_until(condition: Callable[[], bool], process: BaseProcess, seconds: float = 120) -> bool:
    """Wait for a condition; False if the process ended before."""
    limit = time.monotonic() + seconds
    while not condition():
        if not process.is_alive():
            return condition()
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.002)
    return True
