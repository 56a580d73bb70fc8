"""What all commands print and how."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

if TYPE_CHECKING:
    from rich.table import Table

    from comsd.config import Config
    from comsd.options import Option

METHOD_FILES: list[Path] = []  # that the command names


def register_method_files(argv: list[str]) -> list[str]:
    """Run the files of the user's methods; returns argv without them."""
    METHOD_FILES.clear()
    while any(argument.partition("=")[0] == "--method-file" for argument in argv):
        from comsd.options import pop_option
        from comsd.registry import register_file

        file, argv = pop_option(argv, "--method-file")
        assert file is not None
        register_file(file)
        METHOD_FILES.append(Path(file).resolve())
    return argv


def called() -> str:
    """How the user can call this command: by name if it is on the path, else as now."""
    now = Path(sys.argv[0])
    return str(now) if now.name == "comsd" and not shutil.which("comsd") else "comsd"


def pasteable(message: str) -> str:
    """The commands in a message as the user can call them."""
    files = "".join(f" --method-file {path}" for path in METHOD_FILES)
    return re.sub("`comsd ([^`]+)`", lambda said: f"`{called()} {said[1]}{files}`", message)


def printable(text: str) -> str:
    """One line in which names cannot move the cursor, ring a bell or turn the text around."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def echo(line: str) -> None:
    """A line of a command's output."""
    print(printable(line), flush=True)


def fail(message: str, code: int) -> NoReturn:
    print(f"comsd: {printable(pasteable(message))}", file=sys.stderr)
    sys.exit(code)


def say(message: str) -> None:
    with contextlib.suppress(OSError):  # the terminal is gone: training goes on
        print(printable(pasteable(message)), file=sys.stderr, flush=True)


def new_table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(*columns, box=box.SIMPLE)


def show(table: Table) -> None:
    """Full width without a terminal, so that output can be searched and piped."""
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(table)


def show_help(
    usage: str, options: Sequence[Option], about: str = "", config: Config | None = None
) -> NoReturn:
    """Every option with the values it takes, its meaning and its default, or that of a config."""
    from rich.markup import escape

    print(f"usage: {usage} [OPTIONS]\n" + (f"\n{about}\n" if about else ""))
    table = new_table("option", "value", "meaning")
    for option in options:
        kind = "|".join(map(str, get_args(option.type))) or option.type.__name__.upper()
        name = f"{option.name}, {option.off}" if option.off else option.name
        text, default = option.help, option.default
        if config and option.setting:
            text += f" [{config.sources[option.setting]}]"
            default = attrgetter(option.setting)(config)
        text += f" (default: {default})" if default is not None else ""
        table.add_row(name, "" if option.type is bool else kind, escape(text))
    show(table)
    sys.exit(0)


def read_arguments(
    argv: Sequence[str], usage: str, options: Sequence[Option], about: str = ""
) -> tuple[str, dict[str, Any]]:
    """The one argument that the usage ends with, and the options; or the help."""
    from comsd.options import parse, wants_help

    if wants_help(argv):
        show_help(usage, options, about)
    (place,), given = parse(argv, options, usage.split()[-1:])
    return place, given
