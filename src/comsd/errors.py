"""The two kinds of failure a user can do something about."""


class InputError(ValueError):
    """The user asked for something that cannot be; says which field and what is allowed."""


class RunError(RuntimeError):
    """A run failed on its way: damaged files, no space, numbers that are not numbers."""
