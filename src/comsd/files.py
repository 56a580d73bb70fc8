"""Files of a directory that may come from anyone, such as a run's.

All that comsd opens, writes, lists, renames and removes there goes through a `Folder`. The user
names its top; from there on no link is followed, every directory on the way is opened by its
handle, and what is no regular file is refused. Names come from this library, never from files.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from comsd.errors import InputError, RunError

ASIDE = ".tmp"  # what is written beside its place ends in this
RESULTS = ("evaluation.json", "analysis.json", "report.html")  # one of them is where results are
LARGEST = 64 * 2**20  # bytes of a JSON file or a table that are read


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def seal(record: dict[str, Any]) -> str:
    """The checksum of a JSON record, however it is laid out."""
    return checksum(json.dumps(record, sort_keys=True).encode())


class Folder:
    """A directory at or below one that the user named."""

    def __init__(self, top: Path | str, *below: str) -> None:
        self.top, self.below = Path(top), below

    def __truediv__(self, name: str) -> Folder:
        return Folder(self.top, *self.below, name)

    @property
    def path(self) -> Path:
        return self.top.joinpath(*self.below)

    # --- handles ------------------------------------------------------------------------------

    @contextmanager
    def handle(self) -> Iterator[int]:
        """A descriptor of the directory, reached from the top without following a link."""
        here = os.open(self.top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        place = self.top
        try:
            for name in self.below:
                place = place / name
                below = open_at(here, place, os.O_RDONLY | os.O_DIRECTORY)
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)

    def make(self) -> None:
        """Create what is missing below the top."""
        for depth in range(len(self.below)):
            parent = Folder(self.top, *self.below[:depth])
            with parent.handle() as here, suppress(FileExistsError):
                os.mkdir(self.below[depth], dir_fd=here)
        with self.handle():  # what was there already must be a directory
            pass

    def open(self, name: str, mode: str, flags: int) -> IO[Any]:
        """A regular file; one that is written in place must have no other name."""
        with self.handle() as here:
            descriptor = open_at(here, self.path / name, flags)
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise InputError(f"{self.path / name} is not a file")
            if about.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR):
                raise InputError(f"{self.path / name} is a link: a file with several names")
            os.set_blocking(descriptor, True)
            return os.fdopen(descriptor, mode)
        except BaseException:
            os.close(descriptor)
            raise

    # --- looking ------------------------------------------------------------------------------

    def status(self, name: str) -> os.stat_result | None:
        """Of an entry, or None if there is no such; raises InputError for a link."""
        try:
            with self.handle() as here:
                found = os.stat(name, dir_fd=here, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(found.st_mode):
            raise link_refused(self.path / name)
        return found

    def has(self, name: str) -> bool:
        return self.status(name) is not None

    def has_folder(self, name: str) -> bool:
        try:
            found = self.status(name)
        except NotADirectoryError:
            return False
        return found is not None and stat.S_ISDIR(found.st_mode)

    def size(self, name: str) -> int:
        """Bytes of a file; none if there is no such."""
        found = self.status(name)
        return found.st_size if found else 0

    def names(self) -> list[str]:
        """Of all entries; none if there is no such directory."""
        try:
            with self.handle() as here:
                return sorted(os.listdir(here))  # noqa: PTH208 (of a handle)
        except FileNotFoundError:
            return []

    def read(self, name: str, largest: int | None = None) -> bytes:
        with self.open(name, "rb", os.O_RDONLY) as file:
            if largest is not None and os.fstat(file.fileno()).st_size > largest:
                raise RunError(f"{self.path / name} is damaged: it is far too long")
            return file.read()

    def read_json(self, name: str) -> Any:
        """Raises RunError for what is no JSON."""
        try:
            return json.loads(self.read(name, LARGEST))
        except (ValueError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise RunError(f"{self.path / name} is damaged") from None

    def read_sealed(self, name: str, unsealed: set[str]) -> dict[str, Any]:
        """A JSON record, if it is what was written.

        unsealed: the entries of a record from before they were sealed.
        """
        record, file = self.read_json(name), self.path / name
        if not isinstance(record, dict) or not ("seal" in record or {*record} <= unsealed):
            raise RunError(f"{file} is damaged")
        if record.pop("seal", None) not in (None, seal(record)):
            raise RunError(
                f"{file} is damaged or was edited: its checksum does not match; "
                'if you edited it on purpose, remove its entry "seal"'
            )
        return record

    # --- writing ------------------------------------------------------------------------------

    def append(self, name: str) -> IO[bytes]:
        return self.open(name, "ab", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def truncate(self, name: str, size: int) -> None:
        with self.open(name, "r+b", os.O_RDWR) as file:
            file.truncate(size)

    def write(self, name: str, content: bytes) -> None:
        """Write and flush; a full disk shows here, as an OSError."""
        with self.open(name, "wb", os.O_WRONLY | os.O_CREAT) as file:
            file.truncate(0)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def replace(self, name: str, content: bytes) -> None:
        """Write a file that is there whole or as it was before."""
        found = self.status(name)
        if found and not stat.S_ISREG(found.st_mode):
            raise InputError(f"{self.path / name} is not a file")
        try:
            self.write(name + ASIDE, content)
            self.rename(name + ASIDE, name)
        except OSError:
            with suppress(OSError, InputError):  # a full disk: leave nothing half written
                self.remove(name + ASIDE)
            raise
        self.sync()

    def write_json(self, name: str, value: Any) -> None:
        """Replace a JSON file in one step."""
        self.replace(name, (json.dumps(value, indent=1) + "\n").encode())

    def write_sealed(self, name: str, record: dict[str, Any]) -> None:
        self.write_json(name, {**record, "seal": seal(record)})

    def rename(self, name: str, to: str) -> None:
        with self.handle() as here:
            os.rename(name, to, src_dir_fd=here, dst_dir_fd=here)

    def sync(self, name: str | None = None) -> None:
        """Make the entries of the directory last, or the content of a file."""
        if name is None:
            with self.handle() as here:
                os.fsync(here)
        elif self.has(name):
            with self.open(name, "rb", os.O_RDONLY) as file:
                os.fsync(file.fileno())

    def remove(self, name: str) -> None:
        """A file, if it is there; of a link the link itself."""
        with self.handle() as here, suppress(FileNotFoundError):
            os.unlink(name, dir_fd=here)

    def remove_folder(self, name: str, files: Iterable[str]) -> bool:
        """These files of a directory, and the directory unless somebody else left something there.

        Is it gone?
        """
        inner = self / name
        try:
            for file in {*files}.intersection(inner.names()):
                inner.remove(file)
            with self.handle() as here:
                os.rmdir(name, dir_fd=here)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        return True


def open_at(here: int, place: Path, flags: int) -> int:
    """Open the last part of a path in the directory of a handle, unless it is a link."""
    safe = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe would wait for its other end
    try:
        return os.open(place.name, flags | safe, 0o666, dir_fd=here)
    except OSError as error:
        with suppress(OSError):
            about = os.stat(place.name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISLNK(about.st_mode):
                raise link_refused(place) from None
        if error.errno == errno.ENXIO:  # a pipe or a socket
            raise InputError(f"{place} is not a file") from None
        raise OSError(error.errno, error.strerror, str(place)) from None


def output_folder(out: Path | None, default: Folder) -> Folder:
    """Where results go: to the default, or where the user says, if nothing else is kept there."""
    folder = default if out is None else Folder(out)
    try:
        if out is None:
            default.make()
        else:
            out.mkdir(parents=True, exist_ok=True)
        if not os.access(folder.path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        if out is None:
            said = f"{default.path} cannot be written: {error.strerror}"
            raise InputError(f"{said}; --out DIR puts the results elsewhere") from None
        raise InputError(f"out {out} cannot be created: {error.strerror}") from None
    if out is not None and (names := folder.names()) and not {*RESULTS}.intersection(names):
        raise InputError(f"out {out} holds other files; it must be new, empty or have results")
    return folder


def link_refused(place: Path) -> InputError:
    return InputError(f"{place} is a link; nothing that comsd reads or writes there may be one")
