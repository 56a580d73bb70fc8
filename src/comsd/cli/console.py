"""What all commands print and how."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from comsd.errors import InputError, Interrupted

if TYPE_CHECKING:
    from comsd.config import Config
    from comsd.options import Option

WIDEST = 100  # columns of a help text
HELP_COLUMN = 30  # at which meanings begin
FILE_OPTIONS = ("--method-file", "--env-file", "--reward-file", "--env-package")


class Given:
    """The user's code that the command names, and what was found in it."""

    words: list[str] = []  # as they are to be said again
    methods: list[str] = []
    envs: list[str] = []
    rewards: list[str] = []


def run_user_code(argv: list[str]) -> list[str]:
    """Run the files of the user that a command names; returns argv without them."""
    Given.words, Given.methods, Given.envs, Given.rewards = [], [], [], []
    named = {argument.partition("=")[0] for argument in argv}.intersection(FILE_OPTIONS)
    for option in (o for o in FILE_OPTIONS if o in named):
        from comsd import user_files
        from comsd.options import pop_option

        value, argv = pop_option(argv, option)
        while value is not None:
            if option == "--method-file":
                Given.methods += user_files.register_file(value)
            elif option == "--env-file":
                Given.envs += user_files.register_env_file(value)
            elif option == "--reward-file":
                Given.rewards.append(user_files.register_reward_file(value))
            else:
                user_files.import_package(f"gym:{value}:")
            said = value if option == "--env-package" else str(Path(value).resolve())
            Given.words += [option, said]
            value, argv = pop_option(argv, option)
    return argv


def env_of_file() -> str | None:
    """The environment of the file that the command names, if it is the only one."""
    if len(Given.envs) > 1:
        raise InputError(f"--env is missing; allowed: {', '.join(Given.envs)} of your file")
    return Given.envs[0] if Given.envs else None


def called() -> str:
    """How the user can call this command: by name if it is on the path, else as now."""
    now = Path(sys.argv[0])
    named = now.name == "comsd" and not shutil.which("comsd")
    return shlex.quote(str(now)) if named else "comsd"


def pasteable(message: str) -> str:
    """The commands in a message as the user can call them."""
    return re.sub("`comsd ([^`]+)`", lambda said: f"`{called()} {said[1]}{again()}`", message)


def again() -> str:
    """The user's files, for a command that is to be pasted."""
    return "".join(f" {shlex.quote(word)}" for word in Given.words)


def printable(text: str) -> str:
    """One line in which names cannot move the cursor, ring a bell or turn the text around."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def echo(line: str) -> None:
    """A line of a command's output."""
    print(printable(line), flush=True)


def fail(message: str, code: int) -> NoReturn:
    print(f"comsd: {printable(pasteable(message))}", file=sys.stderr)
    sys.exit(code)


def exit_process(stop: Interrupted) -> NoReturn:
    """End the process at once, from whichever thread; the main one does not come back."""
    cursor = "\x1b[?25h\n" if sys.stderr.isatty() else ""  # a bar of progress had hidden it
    with contextlib.suppress(OSError):
        os.write(2, f"{cursor}comsd: {printable(pasteable(str(stop)))}\n".encode())
    os._exit(128 + stop.signal)


def say(message: str) -> None:
    with contextlib.suppress(OSError):  # the terminal is gone: training goes on
        print(printable(pasteable(message)), file=sys.stderr, flush=True)


def wrapped(text: str, width: int) -> list[str]:
    """Lines of whole words, at least one."""
    columns = max(1, width)
    return textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False) or [""]


def show_help(
    usage: str, options: Sequence[Option], about: str = "", config: Config | None = None
) -> NoReturn:
    """Every option with the values it takes, its meaning and its default, or that of a config."""
    width, group = min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST), ""
    lines = [line for text in about.splitlines() for line in wrapped(text, width)]
    print("\n".join([f"usage: {usage} [OPTIONS]", "", *lines, *([""] if lines else [])]))
    for option in options:
        if (prefix := option.name.rpartition(".")[0]) != group:
            group = prefix
            print()
        print("\n".join(help_lines(option, config, width)))
    print("\nCode of yours (--env-file and others): see comsd --help.")
    sys.exit(0)


def help_lines(option: Option, config: Config | None, width: int) -> list[str]:
    """The option and its values in the left column, or above if they are too long for it."""
    kind = "|".join(map(str, get_args(option.type))) or option.type.__name__.upper()
    name = f"{option.name}, {option.off}" if option.off else option.name
    left = f"  {name}" if option.type is bool else f"  {name} {kind}"
    default, source = option.default, ""
    if config and option.setting:
        default, source = attrgetter(option.setting)(config), config.sources[option.setting]
    text = option.help
    if default not in (None, ""):
        origin = "" if source in ("", "default", "you") else f"; {source}"
        text += f" (default: {default}{origin})"
    indent = " " * HELP_COLUMN
    right = wrapped(text, max(20, width - HELP_COLUMN))
    if len(left) + 2 <= HELP_COLUMN:
        return [f"{left:{HELP_COLUMN}}{right[0]}", *(indent + line for line in right[1:])]
    return [left, *(indent + line for line in right)]


def read_arguments(
    argv: Sequence[str], usage: str, options: Sequence[Option], about: str = ""
) -> tuple[str, dict[str, Any]]:
    """The one argument that the usage ends with, and the options; or the help."""
    from comsd.options import parse, wants_help

    if wants_help(argv):
        show_help(usage, options, about)
    (place,), given = parse(argv, options, usage.split()[-1:])
    return place, given
