"""The ways in which a command can end early, each with something the user can do."""


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
