"""Options of the command line: every setting is one, with its meaning and its source."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import tyro

from comsd.config import FIXED, Config, Settings, choose
from comsd.errors import InputError

Arg = tyro.conf.arg
MANY = 12  # options that no message lists
Resolver = Callable[..., tuple[Config, dict[str, str]]]  # explicit settings -> config, sources


def shown(config: Config) -> Iterator[tuple[str, str, Settings, dataclasses.Field[Any]]]:
    """Every setting that can be chosen: its group, its name as an option, where it is."""
    for group in config.groups:
        settings = getattr(config, group)
        prefix = f"{group}." if group in ("method", "agent") else ""
        for f in dataclasses.fields(settings):
            if f"{group}.{f.name}" not in FIXED[config.run.stage]:
                yield group, prefix + f.name, settings, f


def as_options(group: str, config: Config, sources: dict[str, str]) -> type[Any]:
    """A twin of a settings class that shows tyro the meaning and the source of each value."""
    fields: list[tuple[str, Any, Any]] = []
    for owner, _, settings, f in shown(config):
        if owner == group:
            note = f"{f.metadata['help']} [{sources[f'{group}.{f.name}']}]"
            hint = get_type_hints(type(settings))[f.name]
            fields.append((f.name, Annotated[hint, Arg(help=note)], getattr(settings, f.name)))
    return dataclasses.make_dataclass(group, fields, frozen=True)


def option_types(config: Config) -> dict[str, Any]:
    """Every option of a config with the type of its value; None for switches."""
    types: dict[str, Any] = {"--run": Path}
    for _, name, settings, f in shown(config):
        hint = get_type_hints(type(settings))[f.name]
        group, dot, last = name.replace("_", "-").rpartition(".")
        if hint is bool:
            types |= {f"--{group}{dot}{last}": None, f"--{group}{dot}no-{last}": None}
        else:
            types[f"--{group}{dot}{last}"] = hint
    return types


def check_words(
    words: list[str],
    types: dict[str, Any],
    places: Sequence[str] = (),
    several: Sequence[str] = (),
) -> None:
    """Say in one sentence which option or value is wrong, before tyro says it in a box.

    places: what stands without an option; several: options that take any number of values.
    """
    missing, rest, given = list(places), list(words), list[str]()
    if "-h" in words or "--help" in words:
        return
    while rest:
        option, equals, value = rest.pop(0).partition("=")
        if missing and not option.startswith("-"):
            missing.pop(0)
            continue
        option = option.replace("_", "-")
        check_option(option, types, given[-1] if given else "")
        if option in given:
            raise InputError(f"{option} is given twice")
        given.append(option)
        expected = types[option]
        if expected is None:
            if equals:
                raise InputError(f"{option} is a switch and takes no value like {value!r}")
            continue
        if not equals:
            if not rest:
                raise InputError(f"{option} needs a value")
            value = rest.pop(0)
        while option in several and rest and not rest[0].startswith("-"):
            rest.pop(0)
        if choices := get_args(expected):
            choose(option, value, dict.fromkeys(choices))
        elif expected in (int, float):
            try:
                expected(value)
            except ValueError:
                kind = "a whole number" if expected is int else "a number"
                raise InputError(f"{option} is {value!r}; it must be {kind}") from None
    if missing:
        raise InputError(f"{missing[0]} is missing")


def check_option(option: str, types: dict[str, Any], before: str) -> None:
    if option in types:
        return
    if not option.startswith("-") and before and types[before] is None:
        group, dot, last = before.removeprefix("--").rpartition(".")
        off = f"--{group}{dot}no-{last}"
        hint = f"; {off} turns it off" if off in types else ""
        raise InputError(f"{before} is a switch and takes no value like {option!r}{hint}")
    if not option.startswith("-"):
        raise InputError(f"{option!r} is one word too many: options begin with --")
    near = [name for name in types if name.endswith(f".{option.removeprefix('--')}")]
    near += difflib.get_close_matches(option, types, 1, cutoff=0.75)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    listing = ", ".join(types) or "none"
    allowed = "--help lists all" if len(types) > MANY else f"allowed: {listing}"
    raise InputError(f"there is no option {option!r}{hint}; {allowed}")


def options_of(
    prog: str, words: list[str], resolver: Resolver, about: str = ""
) -> tuple[Config, dict[str, str], Path | None]:
    """The config that the words ask for, and the directory if they name one."""
    base, sources = resolver()
    check_words(words, option_types(base))
    twins = {group: as_options(group, base, sources) for group in base.groups}
    place = Annotated[Path | None, Arg(help="directory of the run [runs/...]")]
    flat = [group for group in twins if group in ("run", "adapt")]  # without a prefix
    fields = [
        (f"{g}_settings" if g in flat else g, Annotated[t, Arg(name="" if g in flat else g)], t())
        for g, t in twins.items()
    ]
    options = dataclasses.make_dataclass("options", [*fields, ("run", place, None)])
    parsed = tyro.cli(options, prog=prog, args=words, description=about)
    given: dict[str, dict[str, Any]] = {group: {} for group in twins}
    for group, option, _, f in shown(base):
        if mentioned(words, option):
            values = getattr(parsed, f"{group}_settings" if group in flat else group)
            given[group][f.name] = getattr(values, f.name)
    return *resolver(**given), parsed.run


def mentioned(words: list[str], option: str) -> bool:
    """Is the option, or its negation, among the words?"""
    group, dot, last = option.replace("_", "-").rpartition(".")
    names = {f"--{group}{dot}{last}", f"--{group}{dot}no-{last}"}
    return any(word.partition("=")[0].replace("_", "-") in names for word in words)


def peek(words: list[str], option: str) -> str | None:
    """The value of an option whose choice decides about the others."""
    if sum(word.partition("=")[0] == option for word in words) > 1:
        raise InputError(f"{option} is given twice")
    return first(words, option)


def first(words: list[str], option: str) -> str | None:
    for i, word in enumerate(words):
        if word == option and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(f"{option}="):
            return word.split("=", 1)[1]
    return None


def taken(words: list[str], option: str) -> tuple[str | None, list[str]]:
    """The value of an option, and the words without it."""
    value = first(words, option)
    if value is None:
        if option in words:
            raise InputError(f"{option} needs a value")
        return None, words
    at = next(i for i, w in enumerate(words) if w == option or w.startswith(f"{option}="))
    return value, words[:at] + words[at + (2 if words[at] == option else 1) :]
