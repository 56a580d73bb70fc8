"""One page about a sweep.

report.html    ranking, best configuration, response, curves
ranking.csv    one line per trial
response.png   the metric over each swept setting
curves.png     the metric during training
"""

from __future__ import annotations

import html
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from comsd.errors import printable
from comsd.evaluation.pictures import png_of
from comsd.files import Folder, output_folder
from comsd.reproduction.figures import draw_steps, panels, seed_curves
from comsd.reproduction.page import DPI, STATISTICS, csv_of, picture, write_page
from comsd.sweeps.course import seed_rows
from comsd.sweeps.ranking import Ranked, best_commands, rank_trials, unreadable
from comsd.sweeps.settings import Range
from comsd.sweeps.sweep import Sweep, rank_metrics, read_sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 100  # trials on the page; all are in ranking.csv
CURVES = 10  # trials in the figure, the best


def write_sweep_report(directory: Path, out: Path | None = None) -> tuple[Path, list[Ranked]]:
    """Write DIR/report, or `out`; returns the path of the page and the ranking."""
    sweep, trials = read_sweep(directory)
    ranked = rank_trials(sweep, directory, trials)
    folder = output_folder(out, Folder(directory) / "report")
    parts = [f"<h1>Sweep of {about(sweep)}</h1>"]
    parts.append(f"<p>{len(ranked)} of {sweep.trials_wanted} trials have results.")
    if damaged := unreadable(sweep, directory, trials):
        listed = ", ".join(f"{place} ({reason})" for place, reason in damaged.items())
        parts.append(f"<p>Not counted: {html.escape(printable(listed))}.")
    if ranked:
        folder.replace("ranking.csv", csv_table(sweep, ranked))
        parts += [best(sweep, ranked[0]), table(sweep, ranked)]
        if figure := response(sweep, ranked):
            line = "" if sweep.halve else ", the line the mean"  # of runs as long as each other
            parts.append(f"<h2>Response</h2><p>Each point is a seed{line}.")
            parts.append(picture(folder, "response", png_of(figure, DPI), "response"))
        if figure := curves(sweep, directory, ranked):
            parts.append("<h2>Curves</h2><p>Means over the seeds, and each seed.")
            parts.append(picture(folder, "curves", png_of(figure, DPI), "curves"))
    return write_page(folder, "comsd sweep", parts), ranked


def about(sweep: Sweep) -> str:
    task = f", {sweep.adapt} on {sweep.task}" if sweep.task else ""
    return html.escape(f"{', '.join(sweep.methods)} on {sweep.env}{task}, preset {sweep.preset}")


def best(sweep: Sweep, first: Ranked) -> str:
    commands = "\n".join(map(html.escape, best_commands(sweep, first.trial)))
    return f"<h2>Best</h2><p>{html.escape(first.cell.ours)}<pre>{commands}</pre>"


def table(sweep: Sweep, ranked: list[Ranked]) -> str:
    names, escape = [s.name for s in sweep.settings], html.escape
    order = "lowest" if sweep.lowest else "highest"
    longest = "what trained longest, then " if sweep.halve else ""
    meaning = rank_metrics(sweep)[sweep.rank]
    parts = ["<h2>Ranking</h2>", f"<p>By {escape(sweep.rank)}: {escape(meaning)}."]
    parts.append(f"<p>First {longest}what has most seeds, then the {order} mean.")
    parts.append(f"<p>{escape(STATISTICS)}; each value is an evaluation of several starts.")
    parts.append("<table><tr><th>" + "".join(f"<th>{escape(n)}" for n in names))
    parts.append(f"<th>steps<th>{escape(sweep.rank)}")
    for place, r in enumerate(ranked[:SHOWN], 1):
        values = dict(r.trial)
        parts.append(f"<tr><td>{place}" + "".join(f"<td>{escape(str(values[n]))}" for n in names))
        parts.append(f"<td>{'' if r.steps is None else f'{r.steps:,}'}<td>{escape(r.cell.ours)}")
    return "\n".join([*parts, "</table>"])


def csv_table(sweep: Sweep, ranked: list[Ranked]) -> bytes:
    names = [s.name for s in sweep.settings]
    figures = ["steps", "n", "mean", "sd", "low", "high", "values"]
    rows: list[list[object]] = [["place", *names, *figures]]
    for place, r in enumerate(ranked, 1):
        c, values = r.cell, dict(r.trial)
        settings = [values[name] for name in names]
        of_seeds = " ".join(f"{x:g}" for x in r.values)
        found = [r.steps, c.n, c.mean, c.sd, c.low, c.high, of_seeds]
        rows.append([place, *settings, *found])
    return csv_of(rows)


def response(sweep: Sweep, ranked: list[Ranked]) -> Figure | None:
    """A panel per setting that has several values."""
    swept = [s for s in sweep.settings if len(s.ends) > 1]
    if not swept:
        return None
    figure, grid = panels(len(swept), 3, 4.2, 3.2)
    top = max(r.rung for r in ranked)
    for axes, setting in zip(grid, swept, strict=True):
        number = isinstance(setting.ends[0], (int, float)) and not isinstance(setting.ends[0], bool)
        places = {value: i for i, value in enumerate(setting.ends)}
        points: list[tuple[Any, float, int]] = []
        for r in ranked:
            value = dict(r.trial)[setting.name]
            x = value if number else places[value]
            points += [(x, y, r.rung) for y in r.values]
        for x, y, rung in points:
            axes.plot(x, y, "o", color="C0", markersize=4, alpha=0.6 if rung == top else 0.2)
        if not isinstance(setting, Range) and not sweep.halve:
            points.sort(key=lambda p: p[0])
            means = [
                (x, np.mean([p[1] for p in group])) for x, group in groupby(points, lambda p: p[0])
            ]
            axes.plot(*zip(*means, strict=True), "-", color="C1")
        if not number:
            axes.set_xticks(range(len(places)), [str(value) for value in places])
        elif isinstance(setting, Range) and setting.log:
            axes.set_xscale("log")
        axes.set(xlabel=setting.name, ylabel=sweep.rank)
    return figure


def curves(sweep: Sweep, root: Path, ranked: list[Ranked]) -> Figure | None:
    """The metric during training, of the best trials; None if it was evaluated only once."""
    (figure, (axes,)), longest = panels(1, 1, 6, 3.6), 0
    for i, r in enumerate(ranked[:CURVES]):
        runs = seed_rows(sweep, root, r.trial, r.rung)[0]
        steps, seeds = seed_curves([rows for _, rows in runs], sweep.rank)
        if len(seeds) > 1:
            axes.plot(steps, seeds.T, color=f"C{i}", alpha=0.3, linewidth=0.8)
        label = f"{r.cell.row or 'base'} (n={len(seeds)})"
        axes.plot(steps, seeds.mean(0), color=f"C{i}", label=label)
        longest = max(longest, len(steps))
    draw_steps(axes)
    axes.set_ylabel(sweep.rank)
    axes.legend(frameon=False, fontsize=7)
    return figure if longest > 1 else None
