"""Carrying run directories between machines that share no disk, in increments.

After each checkpoint only what is new is sent: a checkpoint and a chunk of the replay never change
once they are written. The receiver puts tables first, chunks and snapshots next and checkpoints
last, so that what is there can be resumed at any moment.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from comsd import checkpoint
from comsd.files import Folder
from comsd.runs.saved import CHECKPOINTS, SNAPSHOTS

SKIPPED = ("lock",)
ATTEMPTS = 5  # to read a directory in which checkpoints come and go

Files = dict[str, bytes]  # by path within the run directory


@dataclass(frozen=True)
class Increment:
    files: Files
    present: frozenset[str]  # all that is there: what is not can be deleted


@dataclass
class Sender:
    """Remembers what it has sent of a run directory."""

    path: Path
    sent: dict[str, tuple[int, int]] = field(default_factory=dict)  # path -> size, time

    def newest(self) -> str:
        places = checkpoint.found(self.path / CHECKPOINTS)
        return max((place.name for place in places), default="")

    def increment(self) -> Increment:
        """What is new since the last one."""
        for attempt in range(ATTEMPTS):
            try:
                return self._read()
            except FileNotFoundError:  # a checkpoint was dropped meanwhile
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _read(self) -> Increment:
        files: Files = {}
        seen: dict[str, tuple[int, int]] = {}
        for name in listing(Folder(self.path)):
            folder, last = place_of(self.path, name)
            if (about := folder.status(last)) is None:
                raise FileNotFoundError(name)
            seen[name] = about.st_size, about.st_mtime_ns
            if self.sent.get(name) != seen[name]:
                files[name] = folder.read(last)
        self.sent = seen
        return Increment(files, frozenset(seen))


def place_of(path: Path, name: str) -> tuple[Folder, str]:
    """The directory of a file of a run, reached without following links, and its name there."""
    *parents, last = name.split("/")
    return Folder(path, *parents), last


def listing(folder: Folder) -> list[str]:
    """The files below a directory, without those that are being written; a link is refused."""
    found: list[str] = []
    for name in folder.names():
        if name.startswith(".tmp-") or name.endswith(".tmp") or name in SKIPPED:
            continue
        about = folder.status(name)
        if about is not None and stat.S_ISDIR(about.st_mode):
            found += [f"{name}/{below}" for below in listing(folder / name)]
        elif about is not None and stat.S_ISREG(about.st_mode):
            found.append(name)
    return sorted(found)


def receive(path: Path, increment: Increment) -> None:
    """Bring a run directory to the state of the sender's."""
    path.mkdir(parents=True, exist_ok=True)
    for name in {*increment.files, *increment.present}:
        parts = PurePosixPath(name).parts
        if ".." in parts or PurePosixPath(name).is_absolute():
            raise ValueError(f"{name} is outside the run directory")
    for name, content in increment.files.items():
        if not is_checkpoint(name):
            folder, last = place_of(path, name)
            folder.make()
            folder.replace(last, content)
    for folder in (Folder(path, SNAPSHOTS), Folder(path, CHECKPOINTS)):
        for place in places_in(folder, increment.files):
            receive_checkpoint(folder, place, increment.files)
    for name in listing(Folder(path)):
        if name.startswith(f"{CHECKPOINTS}/") and name not in increment.present:
            folder, last = place_of(path, name)
            folder.remove(last)
    for place in checkpoint.found(path / CHECKPOINTS):
        Folder(path, CHECKPOINTS).remove_folder(place.name, ())  # if it is empty


def receive_checkpoint(folder: Folder, place: str, files: Files) -> None:
    """A checkpoint appears whole or not at all."""
    aside, before = f".tmp-{int(place)}", f".tmp-{place}{checkpoint.BEFORE}"
    for leftover in (aside, before):
        checkpoint.remove(folder, leftover)
    (folder / aside).make()
    prefix = f"{folder.path.name}/{place}/"
    for name, content in files.items():
        if name.startswith(prefix):
            (folder / aside).write(name.removeprefix(prefix), content)
    if folder.has(place):  # the same step again
        folder.rename(place, before)
    folder.rename(aside, place)
    folder.sync()
    checkpoint.remove(folder, before)


def places_in(folder: Folder, files: Files) -> list[str]:
    """The checkpoints of a folder, or its snapshots, that are among the files."""
    own = [name.split("/") for name in files if is_checkpoint(name)]
    return sorted({place for kind, place, _ in own if kind == folder.path.name})


def is_checkpoint(name: str) -> bool:
    parts = name.split("/")
    kept = len(parts) == 3 and parts[0] in (CHECKPOINTS, SNAPSHOTS)
    return kept and parts[1].isdigit()


def whole(path: Path) -> Increment:
    """All of a run directory, to go on with it elsewhere."""
    return Sender(path).increment()


def policy(path: Path) -> Increment:
    """Enough of a finished run to adapt or analyse its skills: no replay."""
    sender = Sender(path)
    newest, files = sender.newest(), {}
    for name in listing(Folder(path)):
        inside = name.startswith((f"{CHECKPOINTS}/", f"{SNAPSHOTS}/"))
        if not inside or (name.startswith(f"{CHECKPOINTS}/{newest}/") and "replay" not in name):
            folder, last = place_of(path, name)
            files[name] = folder.read(last)
    return Increment(files, frozenset(files))


class Store:
    """Run directories below an fsspec URL, such as s3://bucket/sweep; written by one at a time."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self.fs, self.base = url_to_fs(url)

    def push(self, place: str, increment: Increment) -> None:
        """The list of files is written last: until then the state before is the one that counts."""
        for name, content in increment.files.items():
            target = f"{self.base}/{place}/{name}"
            self.fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            self.fs.pipe_file(target, content)
        before = self.present(place)
        content = "\n".join(sorted(increment.present)).encode()
        self.fs.makedirs(f"{self.base}/{place}", exist_ok=True)
        self.fs.pipe_file(f"{self.base}/{place}/FILES", content)
        for name in before - increment.present:
            self.fs.rm_file(f"{self.base}/{place}/{name}")

    def present(self, place: str) -> frozenset[str]:
        try:
            return frozenset(self.fs.cat_file(f"{self.base}/{place}/FILES").decode().split("\n"))
        except FileNotFoundError:
            return frozenset()

    def pull(self, place: str, to: Path) -> None:
        """Bring a directory to the state of the store."""
        present = self.present(place)
        if not present:
            return
        known = {n for n in present if is_fixed(n) and (to / n).exists()}
        files = {n: self.fs.cat_file(f"{self.base}/{place}/{n}") for n in present - known}
        receive(to, Increment(files, present))


def is_fixed(name: str) -> bool:
    """What never changes once it is written."""
    return name.startswith(f"{CHECKPOINTS}/chunks/")
