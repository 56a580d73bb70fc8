"""The ways in which a command can end early, each with something the user can do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class InputError(ValueError):
    """The user asked for something that cannot be; says which field and what is allowed."""


class RunError(RuntimeError):
    """A run failed on its way: damaged files, no space, numbers that are not numbers."""


class Interrupted(KeyboardInterrupt):
    """A signal stopped the run after it had been saved."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


class UnknownMethodError(InputError):
    """A run of a method that is not built in and whose file has not been given."""


@contextmanager
def readable_failures(run: Path) -> Iterator[None]:
    """Failures of a run on its way, with what is left and what to do."""
    again = f"the last good checkpoint is kept, `comsd resume {run}` continues from it"
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(f"no space left for {run}: free some; {again}") from error
        raise RunError(f"{error.filename or run}: {error.strerror}; {again}") from error
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        raise RunError(
            f"too little memory for {run}: smaller networks, batches or skill spaces need less"
        ) from error
