"""A new run directory, the lock of the one process that writes there, and how both are undone.

A directory is only taken if it is empty or if all it holds is the rest of a creation of ours: that
has a mark from its first moment to its last. What is removed is what a creation makes, by name.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from comsd import checkpoint
from comsd.errors import InputError, RunError
from comsd.files import ASIDE, Folder
from comsd.runs.saved import CHECKPOINTS, SNAPSHOTS
from comsd.training.logger import Table

LOCK = "lock"
LOCK_ATTEMPTS = 5
MARK = ".creating"
CONFIG_FILES = ("config.json", "config.json" + ASIDE)
EVENTS = re.compile(r"events\.out\.tfevents\..*")  # of TensorBoard


def try_lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def take_lock(folder: Folder | Path) -> IO[bytes]:
    """One writer per directory; the lock ends with the file that is returned, or its process."""
    folder = folder if isinstance(folder, Folder) else Folder(folder)
    file = folder.open(LOCK, "rb+", os.O_RDWR | os.O_CREAT)
    said = file.read(100).strip()
    if said and not said.isdigit():
        raise InputError(f"{folder.path / LOCK} is not a lock of comsd")
    for _ in range(LOCK_ATTEMPTS):
        if try_lock(file) and is_same(file, folder):
            file.seek(0)
            file.truncate()
            file.write(str(os.getpid()).encode())
            file.flush()
            return file
        time.sleep(0.05)  # `is_locked` takes it for a moment
    raise InputError(f"run {folder.path} is in use by process {said.decode() or '?'}")


def is_same(file: IO[bytes], folder: Folder) -> bool:
    """Is it still the lock of the directory, or was that removed with a creation that failed?"""
    found = folder.status(LOCK)
    return found is not None and os.path.samestat(found, os.fstat(file.fileno()))


def is_locked(folder: Folder) -> bool:
    if not folder.has(LOCK):
        return False
    with folder.open(LOCK, "rb", os.O_RDONLY) as file:
        return not try_lock(file)


def is_unused(folder: Folder) -> bool:
    names = {*folder.names()} - {LOCK}
    return not names or (MARK in names and names <= {MARK, "source", *CONFIG_FILES[1:]})


@contextmanager
def creating(folder: Folder, refusal: Callable[[], InputError]) -> Iterator[None]:
    """Hold the lock of a new directory while it is filled; nothing is left after a failure.

    refusal: what is raised if it is not unused.
    """
    path = folder.path
    if path.exists() and not is_unused(folder):
        raise refusal()
    made = [p for p in (path, *path.parents) if not p.exists()]  # from the innermost
    path.mkdir(parents=True, exist_ok=True)
    try:
        with take_lock(folder):
            if not is_unused(folder):  # another process was faster
                raise refusal()
            try:
                folder.write(MARK, b"")
                if not clear(folder):
                    raise refusal()
                yield
                folder.remove(MARK)
            except BaseException:
                if clear(folder) and not folder.has_folder(MARK):
                    folder.remove(MARK)
                folder.remove(LOCK)
                raise
    except BaseException:
        remove_empty(made)
        raise


def clear(folder: Folder) -> bool:
    """Remove what a creation and a start make, but for the mark and the lock; is all of it gone?"""
    for name in CONFIG_FILES:
        folder.remove(name)
    kinds = (folder, SNAPSHOTS), (folder, CHECKPOINTS), (folder / "source", CHECKPOINTS)
    for parent, kind in kinds:
        checkpoints = parent / kind
        for name in checkpoints.names():
            if checkpoint.PLACE.fullmatch(name) or checkpoint.LEFTOVER.fullmatch(name):
                checkpoint.remove(checkpoints, name)
        if checkpoints.has_folder(checkpoint.CHUNKS):
            chunks = (checkpoints / checkpoint.CHUNKS).names()
            checkpoints.remove_folder(checkpoint.CHUNKS, filter(checkpoint.CHUNK.fullmatch, chunks))
        parent.remove_folder(kind, ())
    board = (folder / "tensorboard").names()
    folder.remove_folder("tensorboard", filter(EVENTS.fullmatch, board))
    return folder.remove_folder("source", CONFIG_FILES)


def discard(folder: Folder) -> None:
    """Undo a creation; the directory stays if the user has put something there."""
    with take_lock(folder):
        folder.write(MARK, b"")
        clear(folder)
        for table in ("metrics.csv", "evaluations.csv"):
            if not folder.size(table):
                folder.remove(table)
        folder.remove(MARK)
        folder.remove(LOCK)
    remove_empty([folder.path])


def remove_empty(paths: list[Path]) -> None:
    with suppress(OSError):
        for path in paths:
            path.rmdir()


def refuse_lost(run: Path, metrics: Table, checkpoint_every: int) -> None:
    """Raise InputError rather than train anew over the tables of a run that had a checkpoint.

    The first is saved at the first step from `checkpoint_every` on, after that step's line of
    metrics, so a second such line proves that there was one.
    """
    steps: list[float] = []
    with suppress(RunError):  # a line torn by a crash: as if there were none
        steps = [float(row["step"] or 0) for row in metrics.rows()]
    if sum(step >= checkpoint_every for step in steps) > 1:
        raise InputError(f"run {run} has lost its checkpoints; another --run starts anew")
