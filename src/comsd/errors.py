"""The ways in which a command can end early, each with something the user can do."""

from __future__ import annotations

import errno
import shlex
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST = 300  # characters of what others' code says
PACKAGE = Path(__file__).parent


class InputError(ValueError):
    """The user asked for something that cannot be; says which field and what is allowed."""


class RunError(RuntimeError):
    """A run failed on its way: damaged files, no space, numbers that are not numbers."""


class TrainingError(RunError):
    """Training failed on its way: what is left of the run is still to be said."""


class Interrupted(KeyboardInterrupt):
    """A signal stopped the run after it had been saved."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


class UnknownMethodError(InputError):
    """A run of a method that is not built in and whose file has not been given."""


class UnknownEnvError(InputError):
    """An environment or reward that is not installed here or whose file has not been given."""


def printable(text: str) -> str:
    """Names of files may hold anything; no terminal or page is to obey it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(error: BaseException) -> str:
    """What it says, and where others' code raised it, or called what did."""
    said, kind = " ".join(str(error).split())[:LONGEST], type(error).__name__
    message = f"{kind}: {said}" if said else kind
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if PACKAGE not in Path(frame.filename).parents]
    written = [f for f in theirs if "-packages" not in f.filename and f.filename[0] != "<"]
    if not theirs:
        return message
    last = (written or theirs)[-1]  # the user's own line tells more than one of a library
    return f"{message} ({Path(last.filename).name}, line {last.lineno})"


@contextmanager
def readable_failures(run: Path) -> Iterator[None]:
    """Failures of a run on its way, with what is left and what to do."""
    try:
        yield
    except TrainingError as error:
        raise RunError(f"{error}; {what_is_left(run)}") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(f"no space left for {run}: free some; {what_is_left(run)}") from error
        where = error.filename or run
        raise RunError(f"{where}: {error.strerror}; {what_is_left(run)}") from error
    except (RuntimeError, ValueError, MemoryError) as error:
        if not is_memory_error(error):
            raise
        needs = "smaller networks, batches, skill spaces or fewer environments need less"
        raise RunError(f"too little memory for {run}: {needs}; {what_is_left(run)}") from error


def is_memory_error(error: Exception) -> bool:
    """Python's own, torch's, or MuJoCo's."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error)


def quoted(path: Path) -> str:
    """For a command that is to be pasted."""
    return shlex.quote(str(path))


def what_is_left(run: Path) -> str:
    """To be said after a failure."""
    if any((run / "checkpoints").glob("[0-9]" * 12)):
        return f"the last good checkpoint is kept, `comsd resume {quoted(run)}` continues from it"
    if (run / "config.json").exists():
        return f"nothing had been saved yet, `comsd resume {quoted(run)}` starts from step 0"
    return "nothing is left of it"
