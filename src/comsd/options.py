"""From argv to overrides: every setting is an option."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from comsd.config import Config, Settings, Stage, choose
from comsd.errors import InputError
from comsd.resolve import FIXED

MANY = 12  # options that no message lists
PREFIXED = ("method", "agent", "train")  # groups whose options begin with their name


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


def choosable(
    classes: Mapping[str, type[Settings]], stage: Stage
) -> Iterator[tuple[str, str, dataclasses.Field[Any]]]:
    """Every setting that the user can choose: its dotted name, its name as an option, the field."""
    for group in ("run", "method" if stage == "pretrain" else "adapt", "agent", "train"):
        for f in dataclasses.fields(classes[group]):
            name = f"{group}.{f.name}"
            if name not in FIXED[stage]:
                yield name, name if group in PREFIXED else f.name, f


def setting_options(
    classes: Mapping[str, type[Settings]], stage: Stage, config: Config | None = None
) -> list[Option]:
    """The options of a run; a config shows its values and their sources in the help."""
    options = [Option("--run", Path, "directory of the run", "runs/...")]
    for name, option, f in choosable(classes, stage):
        group = name.partition(".")[0]
        text, default = f.metadata["help"], None
        if config is not None:
            text += f" [{config.sources[name]}]"
            default = getattr(getattr(config, group), f.name)
        kind = get_type_hints(classes[group])[f.name]
        flag = f"--{option.replace('_', '-')}"
        options.append(Option(flag, kind, text, default, setting=name))
    return options


def switches(options: Sequence[Option]) -> dict[str, tuple[Option, bool]]:
    """Every name by which an option can be given, and the value it gives a switch."""
    on = {option.name: (option, True) for option in options}
    return on | {option.off: (option, False) for option in options if option.off}


def parse(
    argv: Sequence[str], options: Sequence[Option], positional: Sequence[str] = ()
) -> tuple[list[str], dict[str, Any]]:
    """The positional arguments, and the values of the options that are given, by option.

    Raises InputError, one sentence about the first option or value that is wrong.
    """
    current = switches(options)
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
        return kind(value)
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
    """What `comsd.pretrain` and the other verbs take: run settings by name, groups as dicts."""
    overrides: dict[str, Any] = {}
    for option in options:
        group, _, name = option.setting.partition(".")
        if option.name not in given or not option.setting:
            continue
        if option.setting == "run.agent":
            overrides.setdefault("agent", {})["name"] = given[option.name]
        elif group == "run":
            overrides[name] = given[option.name]
        else:
            overrides.setdefault(group, {})[name] = given[option.name]
    return overrides


def wants_help(argv: Sequence[str]) -> bool:
    return "-h" in argv or "--help" in argv


def peek_option(argv: Sequence[str], option: str) -> str | None:
    """The value of an option on which the other options depend."""
    if sum(argument.partition("=")[0] == option for argument in argv) > 1:
        raise InputError(f"{option} is given twice")
    return _first(argv, option)


def _first(argv: Sequence[str], option: str) -> str | None:
    for i, argument in enumerate(argv):
        if argument == option and i + 1 < len(argv):
            return argv[i + 1]
        if argument.startswith(f"{option}="):
            return argument.split("=", 1)[1]
    return None


def pop_option(argv: list[str], option: str) -> tuple[str | None, list[str]]:
    """The value of an option, and argv without it."""
    value = _first(argv, option)
    if value is None:
        if option in argv:
            raise InputError(f"{option} needs a value")
        return None, argv
    at = next(i for i, a in enumerate(argv) if a == option or a.startswith(f"{option}="))
    return value, argv[:at] + argv[at + (2 if argv[at] == option else 1) :]
