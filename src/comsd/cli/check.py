"""Does a method keep the contract?"""

from __future__ import annotations

import dataclasses
import json

from comsd.check import Verdict, verdicts
from comsd.cli.console import Given, echo, show_help, wrapped
from comsd.cli.tables import terminal_width
from comsd.config import choose
from comsd.errors import InputError, RunError
from comsd.methods.base import Method
from comsd.methods.synthetic import cases
from comsd.options import Option, parse, wants_help
from comsd.registry import METHODS

USAGE = "comsd check METHOD"
OPTIONS = [Option("--json", bool, "print JSON instead of lines")]


def check(argv: list[str]) -> None:
    listing = ", ".join(METHODS)
    if wants_help(argv):
        about = f"METHOD is one of {listing}; without it, all of --method-file FILE."
        show_help(USAGE, OPTIONS, f"{about}\ndocs/add-a-method.md explains the clauses.")
    named = any(not word.startswith("-") for word in argv)
    if not (named or Given.methods):
        raise InputError(f"method is missing: {USAGE}, or --method-file FILE; allowed: {listing}")
    places, given = parse(argv, OPTIONS, ["METHOD"] * named)
    as_json, found = "--json" in given, dict[str, list[Verdict]]()
    for name in places or Given.methods:
        kind = choose("method", name, METHODS)
        if not as_json:
            show_cases(kind)
        found[name] = []
        for verdict in verdicts(kind):
            found[name].append(verdict)
            if not as_json:
                show(verdict)
    if as_json:
        shown = {name: [dataclasses.asdict(v) for v in each] for name, each in found.items()}
        print(json.dumps(shown, indent=1))
    if broken := [name for name, each in found.items() if not all(v.kept for v in each)]:
        raise RunError(f"the contract is broken by {', '.join(broken)}")


def show_cases(kind: type[Method]) -> None:
    tried = cases(kind)
    spaces, values = {c.space.kind: None for c in tried}, {c.family: None for c in tried}
    which = f"skills {', '.join(spaces)}; values for {', '.join(values)}"
    echo(f"{kind.name}: {len(tried)} cases ({which})")


def show(verdict: Verdict) -> None:
    label, said = "passed", verdict.clause
    if not verdict.kept:
        share = f" (in {len(verdict.problems)} of {verdict.cases} cases)" * (verdict.cases > 1)
        label, said = "FAILED", f"{said}{share}: {verdict.problems[0]}"
    first, *rest = wrapped(said, terminal_width() - len(label) - 2)
    echo(f"{label}  {first}")
    for line in rest:
        echo(f"{' ' * len(label)}  {line}")
