"""Commands that look at a finished or unfinished run."""

from __future__ import annotations

import json
import sys
import webbrowser
from pathlib import Path

import comsd
from comsd.analysis import Analysis
from comsd.cli.console import called, echo, new_table, read_arguments, say, show
from comsd.evaluation import make_evaluator
from comsd.evaluation.robots import MEAN_NEIGHBOURS, SWEEPS
from comsd.options import Option
from comsd.registry import METHODS
from comsd.resolve import resolve
from comsd.runs.run import EXPLORER

RUN = "RUN is the directory of the run."

EVALUATE = [
    Option("--json", bool, "print JSON instead of a table"),
    Option("--greedy", bool, "mazes: mean actions instead of sampled ones"),
    Option("--random-start", bool, "mazes: start anywhere in the start cell"),
    Option("--out", Path, "directory of the figures and the picture", "the picture: RUN"),
]


def evaluate(argv: list[str]) -> None:
    place, given = read_arguments(argv, "comsd evaluate RUN", EVALUATE, RUN)
    run = comsd.load(place)
    greedy, random_start = "--greedy" in given, "--random-start" in given
    out = given.get("--out")
    result = comsd.evaluate(run, greedy=greedy, random_start=random_start, out=out)
    if "--json" in given:
        print(json.dumps(result.to_json(), indent=1))
        return
    evaluator, settings = make_evaluator(run), run.config.run
    claim = evaluator.bounds
    columns = ["metric", settings.method, "random"] + ["paper's claim*"] * bool(claim)
    table = new_table(*columns, "meaning")
    for name, value in result.metrics.items():
        row = [name.replace("_", " "), f"{value:.3g}", f"{result.random[name]:.3g}"]
        if claim:
            row.append(f"at least {claim[name]:g}" if name in claim else "")
        table.add_row(*row, evaluator.meanings[name])
    show(table)
    if claim:
        met = sum(result.metrics[name] >= bound for name, bound in claim.items())
        print(f"* the paper shows a picture; {met} of our {len(claim)} bounds for it are reached")
    if result.step < result.steps:
        print(f"unfinished: step {result.step:,} of {result.steps:,}")
    echo(f"picture: {result.picture}")
    if not run.pretrains:
        return
    other = next(name for name in METHODS if name != settings.method)
    again = f"--env {settings.env} --preset {settings.preset}"
    if resolve(other, settings.env, settings.preset).run.space == settings.space:
        again += f" --skills {settings.skills}"  # elsewhere the number means something else
    echo(f"next:    {called()} pretrain {other} {again}  # another method")
    echo(f"         {called()} config {settings.method} --env {settings.env}  # all settings")


ANALYSE = [
    Option("--json", bool, "print JSON instead of tables"),
    Option("--video", bool, "film the skills of the sweep"),
    Option("--sweep", str, f"what to draw and film: {', '.join(SWEEPS)}", "constant"),
    Option("--out", Path, "directory of the results", "RUN/analysis"),
]


def analyse(argv: list[str]) -> None:
    place, given = read_arguments(argv, "comsd analyse RUN", ANALYSE, RUN)
    sweep, out = given.get("--sweep", "constant"), given.get("--out")
    result = comsd.analyse(place, sweep=sweep, video="--video" in given, out=out, report=say)
    if "--json" in given:
        print(json.dumps(result.to_json(), indent=1))
    else:
        show_analysis(result)


def show_analysis(result: Analysis) -> None:
    names = list(dict.fromkeys(row.sweep for row in result.skills))
    table = new_table("metric", *(f"{name} sweep" for name in names))
    for metric in ("akd_max", "akd_range", "akd_variance", f"ms_coverage{MEAN_NEIGHBOURS[0]}"):
        keys = [f"{metric}_{name}" for name in names]
        if keys[0] in result.metrics:  # not with fewer skills than neighbours
            table.add_row(metric.replace("_", " "), *(f"{result.metrics[key]:.3g}" for key in keys))
    show(table)
    columns = ("sweep", "skill", "AKD", "torso height, m", "forward speed, m/s")
    table = new_table(*columns, f"spin, {result.spin_unit}")
    for name in names:
        table.add_section()
        for s in (row for row in result.skills if row.sweep == name):
            values = (s.akd, s.height, s.speed, s.spin)
            figures = [f"{round(x, 2) + 0.0:.2f}" for x in values]  # no -0.00
            table.add_row(s.sweep, s.skill, *figures)
    show(table)
    for path in result.files.values():
        echo(f"written: {path}")


EXPLORE = [
    Option("--out", Path, "the file", f"RUN/{EXPLORER}"),
    Option("--skills", int, "skills on the map", 64),
    Option("--starts", int, "starts that each is measured from", 5),
    Option("--no-open", bool, "only write the file, do not open it in a browser"),
]


def explore(argv: list[str]) -> None:
    place, given = read_arguments(argv, "comsd explore RUN", EXPLORE, RUN)
    skills, starts = given.get("--skills", 64), given.get("--starts", 5)
    path = comsd.explore(place, given.get("--out"), skills, starts=starts, report=say)
    echo(f"written: {path} ({path.stat().st_size / 1e6:.1f} MB), opens in any browser, offline")
    if "--no-open" not in given and sys.stdout.isatty():
        webbrowser.open(path.resolve().as_uri())
