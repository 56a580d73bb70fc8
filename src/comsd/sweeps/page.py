"""One page about a sweep.

report.html    ranking, best configuration, response
ranking.csv    one line per trial and seed
response.png   the metric over each swept setting
"""

from __future__ import annotations

import base64
import csv
import html
import io
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from comsd.files import Folder, output_folder
from comsd.reproduction.figures import panels
from comsd.reproduction.page import DPI, STATISTICS, STYLE
from comsd.sweeps.ranking import Ranked, best_commands, rank_trials
from comsd.sweeps.settings import Range
from comsd.sweeps.sweep import Sweep, rank_metrics, read_sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 100  # trials on the page; all are in ranking.csv


def write_sweep_report(directory: Path, out: Path | None = None) -> tuple[Path, list[Ranked]]:
    """Write DIR/report, or `out`; returns the path of the page and the ranking."""
    sweep, trials = read_sweep(directory)
    ranked = rank_trials(sweep, directory, trials)
    folder = output_folder(out, Folder(directory) / "report")
    parts = [f"<title>comsd sweep</title><style>{STYLE}</style><h1>Sweep of {about(sweep)}</h1>"]
    parts.append(f"<p>{len(ranked)} of {sweep.trials_wanted} trials have results.")
    if ranked:
        png = io.BytesIO()
        figure = response(sweep, ranked)
        if figure is not None:
            figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
            folder.replace("response.png", png.getvalue())
        folder.replace("ranking.csv", csv_table(sweep, ranked).encode())
        parts += [best(sweep, ranked[0]), table(sweep, ranked)]
        if figure is not None:
            data = base64.b64encode(png.getvalue()).decode()
            parts.append("<h2>Response</h2><p>Each point is a seed, the line the mean.")
            parts.append(f'<p><img alt="response" src="data:image/png;base64,{data}">')
    page = "<!doctype html><html lang=en><meta charset=utf-8>" + "\n".join(parts) + "</html>\n"
    folder.replace("report.html", page.encode())
    return folder.path / "report.html", ranked


def about(sweep: Sweep) -> str:
    task = f", {sweep.adapt} on {sweep.task}" if sweep.task else ""
    return html.escape(f"{sweep.method} on {sweep.env}{task}, preset {sweep.preset}")


def best(sweep: Sweep, first: Ranked) -> str:
    commands = "\n".join(map(html.escape, best_commands(sweep, first.trial)))
    return f"<h2>Best</h2><p>{html.escape(first.cell.ours)}<pre>{commands}</pre>"


def table(sweep: Sweep, ranked: list[Ranked]) -> str:
    names, escape = [s.name for s in sweep.settings], html.escape
    order = "lowest" if sweep.lowest else "highest"
    meaning = rank_metrics(sweep.method, sweep.env, sweep.task, sweep.settings)[sweep.rank]
    parts = ["<h2>Ranking</h2>", f"<p>By {escape(sweep.rank)}, {order} first: {escape(meaning)}."]
    parts.append(f"<p>{escape(STATISTICS)}; each value is an evaluation of several starts.")
    parts.append("<table><tr><th>" + "".join(f"<th>{escape(n)}" for n in names))
    parts.append(f"<th>steps<th>{escape(sweep.rank)}")
    for place, r in enumerate(ranked[:SHOWN], 1):
        values = dict(r.trial)
        parts.append(f"<tr><td>{place}" + "".join(f"<td>{escape(str(values[n]))}" for n in names))
        parts.append(f"<td>{'' if r.steps is None else f'{r.steps:,}'}<td>{escape(r.cell.ours)}")
    return "\n".join([*parts, "</table>"])


def csv_table(sweep: Sweep, ranked: list[Ranked]) -> str:
    file, names = io.StringIO(), [s.name for s in sweep.settings]
    writer = csv.writer(file)
    writer.writerow(["place", *names, "steps", "n", "mean", "sd", "low", "high", "values"])
    for place, r in enumerate(ranked, 1):
        c, values = r.cell, dict(r.trial)
        settings = [values[name] for name in names]
        figures = [c.n, c.mean, c.sd, c.low, c.high, " ".join(f"{x:g}" for x in r.values)]
        writer.writerow([place, *settings, r.steps, *figures])
    return file.getvalue()


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
        if not isinstance(setting, Range):
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
