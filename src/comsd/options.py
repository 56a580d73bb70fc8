"""From argv to overrides: every setting is an option."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from comsd.config import Stage, choose, whole_number
from comsd.errors import InputError
from comsd.registry import NOTHING, env_spec
from comsd.resolve import FIXED, setting_classes

MANY = 12  # options that no message lists


@dataclass(frozen=True)
class Option:
    name: str  # such as --method.alpha
    type: Any  # of its value: int, float, str, Path or a Literal; bool: a switch
    help: str
    default: Any = None
    several: bool = False  # takes any number of values
    setting: str = ""  # the setting it stands for, by dotted name

    @property
    def off(self) -> str | None:
        """The switch that turns a setting off."""
        group, dot, last = self.name.removeprefix("--").rpartition(".")
        return f"--{group}{dot}no-{last}" if self.type is bool and self.setting else None


def setting_options(
    method: str,
    env: str,
    agent: str | None = None,
    stage: Stage = "pretrain",
    pixels: bool = False,
    settings: Mapping[str, Any] = NOTHING,
) -> list[Option]:
    """The options of a run: every setting that the user can choose.

    settings: those of the environment on which the options depend.
    """
    classes = setting_classes(method, env_spec(env, stage, settings), agent, stage, pixels)
    options = [Option("--run", Path, "directory of the run", "runs/...")]
    groups = ("run", "method" if stage == "pretrain" else "adapt", "agent", "train")
    for group in (*groups, "pixels", "env"):
        prefix = "" if group in ("run", "adapt") else f"{group}."
        hints = get_type_hints(classes[group])
        for f in dataclasses.fields(classes[group]):
            flag, setting = f"--{prefix}{f.name.replace('_', '-')}", f"{group}.{f.name}"
            if setting not in FIXED[stage]:
                options.append(Option(flag, hints[f.name], f.metadata["help"], setting=setting))
    return options


def parse(
    argv: Sequence[str], options: Sequence[Option], positional: Sequence[str] = ()
) -> tuple[list[str], dict[str, Any]]:
    """The positional arguments, and the values of the options that are given, by option.

    Raises InputError, one sentence about the first option or value that is wrong.
    """
    current = {option.name: (option, True) for option in options}
    current |= {option.off: (option, False) for option in options if option.off}
    old = {name.replace("--train.", "--agent."): option for name, option in current.items()}
    known = old | current  # `--agent.batch-size` still stands for `--train.batch-size`
    rest, places, last = list(argv), list[str](), ""
    given: dict[str, Any] = {}
    while rest:
        argument = rest.pop(0)
        if len(places) < len(positional) and not argument.startswith("-"):
            places.append(argument)
            continue
        name, equals, value = argument.partition("=")
        name = name.replace("_", "-")
        if name not in known:
            raise unknown(name, current, last)
        (option, switched), last = known[name], name
        if option.name in given:
            raise InputError(f"{name} is given twice")
        if option.type is bool:
            if equals:
                raise InputError(f"{name} is a switch and takes no value like {value!r}")
            given[option.name] = switched
            continue
        if not equals:
            if not rest:
                raise InputError(f"{name} needs a value")
            value = rest.pop(0)
        given[option.name] = converted(name, value, option.type)
        if option.several:
            given[option.name] = [value]
            while rest and not rest[0].startswith("-"):
                given[option.name].append(rest.pop(0))
    if len(places) < len(positional):
        raise InputError(f"{positional[len(places)]} is missing")
    return places, given


def converted(name: str, value: str, kind: Any) -> Any:
    if choices := get_args(kind):
        choose(name, value, dict.fromkeys(choices))
        return value
    try:
        return whole_number(value) if kind is int else kind(value)
    except ValueError:
        number = "a whole number" if kind is int else "a number"
        raise InputError(f"{name} is {value!r}; it must be {number}") from None


def unknown(name: str, known: Mapping[str, tuple[Option, bool]], last: str) -> InputError:
    """What to say of an argument that is no option; last: the option before it."""
    if not name.startswith("-"):
        option = known[last][0] if last in known else None
        if option is not None and option.type is bool:
            hint = f"; {option.off} turns it off" if option.off else ""
            return InputError(f"{last} is a switch and takes no value like {name!r}{hint}")
        return InputError(f"{name!r} is one word too many: options begin with --")
    near = [other for other in known if other.endswith(f".{name.removeprefix('--')}")]
    near += difflib.get_close_matches(name, known, 1, cutoff=0.75)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    listing = ", ".join(known) or "none"
    allowed = "--help lists all" if len(known) > MANY else f"allowed: {listing}"
    return InputError(f"there is no option {name!r}{hint}; {allowed}")


def overrides_of(options: Sequence[Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """What `comsd.pretrain` and other verbs take: run settings by name, others by dotted name."""
    chosen = [option for option in options if option.setting and option.name in given]
    return {option.setting.removeprefix("run."): given[option.name] for option in chosen}


def wants_help(argv: Sequence[str]) -> bool:
    return "-h" in argv or "--help" in argv


def peek_option(argv: Sequence[str], option: str) -> str | None:
    """The value of an option on which the other options depend."""
    value, rest = pop_option(argv, option)
    if any(argument.partition("=")[0] == option for argument in rest):
        raise InputError(f"{option} is given twice")
    return value


def pop_option(argv: Sequence[str], option: str) -> tuple[str | None, list[str]]:
    """The first value of an option, and argv without it."""
    rest = list(argv)
    for i, argument in enumerate(argv):
        name, equals, value = argument.partition("=")
        if name == option:
            del rest[i]
            if not equals and i == len(rest):
                raise InputError(f"{option} needs a value")
            return value if equals else rest.pop(i), rest
    return None, rest
