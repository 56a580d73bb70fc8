"""Commands that look at a finished or unfinished run."""

from __future__ import annotations

import json
import re
import shlex
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import comsd
from comsd.analysis import Analysis, EpisodeAnalysis
from comsd.cli.console import again, called, echo, read_arguments, say
from comsd.cli.tables import READABLE, Table, show
from comsd.errors import InputError
from comsd.evaluation import make_evaluator
from comsd.evaluation.metrics import MEAN_NEIGHBOURS
from comsd.options import Option
from comsd.registry import METHODS
from comsd.resolve import resolve
from comsd.runs.run import EXPLORER
from comsd.skill_sets import SWEEPS

RUN = "RUN is the directory of the run."

AT = Option("--at", int, "the step of a snapshot or of the newest checkpoint", "the newest")
MEASURED = [
    AT,
    Option("--json", bool, "print JSON instead of tables"),
    Option("--starts", int, "starts per skill (default: the run's setting, 12)"),
    Option("--skills", int, "random skills (default: 12); not for mazes"),
    Option("--steps", int, "steps of a roll-out (default: the run's setting, 500); not for mazes"),
    Option(
        "--xy", str, "what to draw as a trajectory: entries of the observation, 0,1, or their name"
    ),
]
EVALUATE = [
    *MEASURED,
    Option("--greedy", bool, "mazes: mean actions instead of sampled ones"),
    Option("--random-start", bool, "mazes: start anywhere in the start cell"),
    Option("--out", Path, "directory of picture and figures", "RUN"),
    Option("--threads", int, "CPU threads", "the run's"),
    Option("--meanings", bool, "only say what each metric means"),
]


def chosen(given: dict[str, Any]) -> dict[str, Any]:
    """The options of an evaluation that were given, as `comsd.evaluate` takes them."""
    names = "starts", "skills", "steps", "xy"
    values: dict[str, Any] = {name: given.get(f"--{name}") for name in names}
    if (xy := values["xy"]) is not None:
        words = xy.split(",")
        if not re.fullmatch(r"\d+,\d+|[^,\d][^,]*(,[^,\d][^,]*)?", xy):
            raise InputError(f"--xy is {xy!r}; it must be two numbers such as 0,1, or a name")
        values["xy"] = tuple(int(word) if word.isdecimal() else word for word in words)
    return values


def evaluate(argv: list[str]) -> None:
    place, given = read_arguments(argv, "comsd evaluate RUN", EVALUATE, RUN)
    run = comsd.load(place, given.get("--at"))
    if "--meanings" in given:
        show_meanings(make_evaluator(run).meanings)
        return
    result = comsd.evaluate(
        run,
        **chosen(given),
        greedy="--greedy" in given,
        random_start="--random-start" in given,
        out=given.get("--out"),
        threads=given.get("--threads"),
        report=say,
    )
    if "--json" in given:
        print(json.dumps(result.to_json(), indent=1))
        return
    evaluator, settings = make_evaluator(run), run.config.run
    claim, intervals = evaluator.bounds, result.intervals
    columns = ["metric", settings.method, "95 %"] if intervals else ["metric", settings.method]
    columns += ["untrained", "random"] + ["paper's claim*"] * bool(claim)
    elsewhere = f"meanings: {called()} evaluate {shlex.quote(place)}{again()} --meanings"
    table = Table(*columns, "meaning", prose={"meaning": READABLE}, elsewhere=elsewhere)
    for name, value in result.metrics.items():
        row = [name.replace("_", " "), f"{value:.3g}"]
        if intervals:
            row.append("{:.3g} to {:.3g}".format(*intervals[name]) if name in intervals else "")
        for baseline in (result.untrained, result.random):
            row.append(f"{baseline[name]:.3g}" if name in baseline else "")
        if claim:
            row.append(f"at least {claim[name]:g}" if name in claim else "")
        table.add_row(*row, evaluator.meanings[name])
    show(table)
    if claim:
        met = sum(result.metrics[name] >= bound for name, bound in claim.items())
        print(f"* the paper shows a picture; {met} of our {len(claim)} bounds for it are reached")
    if run.at is not None:
        print(f"measured at step {result.step:,} of {result.steps:,}")
    elif result.step < result.steps:
        print(f"unfinished: step {result.step:,} of {result.steps:,}")
    echo(f"picture: {result.picture}")
    if not run.pretrains:
        return
    other = next(name for name in METHODS if name != settings.method)
    seen = " --pixels" if settings.pixels else ""
    same = f"--env {settings.env}{seen} --preset {settings.preset}"
    usual = resolve(other, settings.env, settings.preset, pixels=settings.pixels)
    if usual.run.space == settings.space:
        same += f" --skills {settings.skills}"  # elsewhere the number means something else
    echo(f"next:    {called()} pretrain {other} {same}{again()}  # another method")
    shown = f"{settings.method} --env {settings.env}{seen}{again()}"
    echo(f"         {called()} config {shown}  # all settings")


def show_meanings(meanings: Mapping[str, str]) -> None:
    table = Table("metric", "meaning", prose={"meaning": READABLE})
    for name, meaning in meanings.items():
        table.add_row(name.replace("_", " "), meaning)
    show(table)


ANALYSE = [
    *MEASURED,
    Option("--video", bool, "robots: film the skills of the sweep, or the adapted agent"),
    Option("--sweep", str, f"what to draw and film: {', '.join(SWEEPS)}", "constant"),
    Option("--out", Path, "directory of the results", "RUN/analysis"),
]


def analyse(argv: list[str]) -> None:
    place, given = read_arguments(argv, "comsd analyse RUN", ANALYSE, RUN)
    run, video, out = comsd.load(place, given.get("--at")), "--video" in given, given.get("--out")
    if run.pretrains:
        options, sweep = chosen(given), given.get("--sweep", "constant")
        result = comsd.analyse(run, video=video, sweep=sweep, **options, out=out, report=say)
    else:
        if extra := {"--skills", "--steps", "--xy", "--sweep"} & given.keys():
            raise InputError(f"{min(extra)} is for skills, and {place} is a run on a task")
        starts = given.get("--starts")
        result = comsd.analyse_episodes(run, video=video, starts=starts, out=out, report=say)
    if "--json" in given:
        print(json.dumps(result.to_json(), indent=1))
        return
    if isinstance(result, Analysis):
        show_analysis(result)
    else:
        show_episodes(result)
    for path in result.files.values():
        echo(f"written: {path}")


def show_analysis(result: Analysis) -> None:
    names = list(dict.fromkeys(row.sweep for row in result.skills))
    print(f"step {result.step:,}: {result.starts} starts per skill, {result.steps} steps each")
    table = Table("metric", *(f"{name} sweep" for name in names))
    shown = *(f"akd_{what}" for what in ("max", "range", "variance", "sd")), "ms_coverage"
    for metric in shown:
        key = f"ms_coverage{MEAN_NEIGHBOURS[0]}" if metric == "ms_coverage" else metric
        keys = [f"{key}_{name}" for name in names]
        values = [result.metrics.get(key) for key in keys]  # None: fewer skills than neighbours
        if any(values):
            cells = ("" if value is None else f"{value:.3g}" for value in values)
            table.add_row(key.replace("_", " "), *cells)
    show(table)
    columns = {
        "akd": "AKD",
        "akd_sd": "SD over starts",
        "travel": "travel",
        "height": "torso height, m",
        "speed": "forward speed, m/s",
        "spin": f"spin, {result.spin_unit}",
    }
    known = [name for name in columns if getattr(result.skills[0], name) is not None]
    table = Table("sweep", "skill", *(columns[name] for name in known))
    for name in names:
        table.add_section()
        for s in (row for row in result.skills if row.sweep == name):
            values = [getattr(s, name) for name in known]
            figures = [f"{round(x, 2) + 0.0:.2f}" for x in values]  # no -0.00
            table.add_row(s.sweep, s.skill, *figures)
    show(table)


def show_episodes(result: EpisodeAnalysis) -> None:
    print(f"step {result.step:,}: {result.starts} episodes of each, from the same starts")
    columns = {
        "mean_return": "return",
        "return_sd": "SD over episodes",
        "akd": "AKD",
        "height": "torso height, m",
        "speed": "forward speed, m/s",
        "spin": f"spin, {result.spin_unit}",
    }
    known = [name for name in columns if getattr(result.behaviours[0], name) is not None]
    table = Table("behaviour", *(columns[name] for name in known))
    for row in result.behaviours:
        table.add_row(row.behaviour, *(f"{getattr(row, name) + 0.0:.3g}" for name in known))
    show(table)


EXPLORE = [
    AT,
    Option("--out", Path, "the file", f"RUN/{EXPLORER}"),
    Option("--skills", int, "skills on the map; a discrete controller's are its candidates", 64),
    Option("--starts", int, "starts that each is measured from (default: the run's setting, 12)"),
    Option("--steps", int, "steps of a roll-out (default: the run's setting, 500)"),
    Option("--no-open", bool, "only write the file, do not open it in a browser"),
]


def explore(argv: list[str]) -> None:
    place, given = read_arguments(argv, "comsd explore RUN", EXPLORE, RUN)
    path = comsd.explore(
        comsd.load(place, given.get("--at")),
        given.get("--out"),
        given.get("--skills", 64),
        starts=given.get("--starts"),
        steps=given.get("--steps"),
        report=say,
    )
    echo(f"written: {path} ({path.stat().st_size / 1e6:.1f} MB), opens in any browser, offline")
    if "--no-open" not in given and sys.stdout.isatty():
        webbrowser.open(path.resolve().as_uri())
