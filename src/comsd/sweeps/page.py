"""One page about a sweep.

report.html    ranking, best configuration, response, curves
ranking.csv    one line per trial
response.png   the metric over each swept setting
curves.png     the metric during training
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
from comsd.reproduction.figures import draw_steps, panels, seed_curves
from comsd.reproduction.page import DPI, STATISTICS, STYLE
from comsd.runs.run import Run
from comsd.sweeps.ranking import Ranked, best_commands, rank_trials
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
    parts = [f"<title>comsd sweep</title><style>{STYLE}</style><h1>Sweep of {about(sweep)}</h1>"]
    parts.append(f"<p>{len(ranked)} of {sweep.trials_wanted} trials have results.")
    if ranked:
        folder.replace("ranking.csv", csv_table(sweep, ranked).encode())
        parts += [best(sweep, ranked[0]), table(sweep, ranked)]
        if figure := response(sweep, ranked):
            parts.append("<h2>Response</h2><p>Each point is a seed, the line the mean.")
            parts.append(picture(figure, folder, "response"))
        if figure := curves(sweep, directory, ranked):
            parts.append("<h2>Curves</h2><p>Means over the seeds, and each seed.")
            parts.append(picture(figure, folder, "curves"))
    page = "<!doctype html><html lang=en><meta charset=utf-8>" + "\n".join(parts) + "</html>\n"
    folder.replace("report.html", page.encode())
    return folder.path / "report.html", ranked


def picture(figure: Figure, folder: Folder, name: str) -> str:
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
    folder.replace(f"{name}.png", png.getvalue())
    data = base64.b64encode(png.getvalue()).decode()
    return f'<p><img alt="{name}" src="data:image/png;base64,{data}">'


def about(sweep: Sweep) -> str:
    task = f", {sweep.adapt} on {sweep.task}" if sweep.task else ""
    return html.escape(f"{', '.join(sweep.methods)} on {sweep.env}{task}, preset {sweep.preset}")


def best(sweep: Sweep, first: Ranked) -> str:
    commands = "\n".join(map(html.escape, best_commands(sweep, first.trial)))
    return f"<h2>Best</h2><p>{html.escape(first.cell.ours)}<pre>{commands}</pre>"


def table(sweep: Sweep, ranked: list[Ranked]) -> str:
    names, escape = [s.name for s in sweep.settings], html.escape
    order = "lowest" if sweep.lowest else "highest"
    meaning = rank_metrics(sweep.methods, sweep.env, sweep.task, sweep.settings)[sweep.rank]
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


def curves(sweep: Sweep, root: Path, ranked: list[Ranked]) -> Figure | None:
    """The metric during training, of the best trials; None if it was evaluated only once."""
    (figure, (axes,)), longest = panels(1, 1, 6, 3.6), 0
    for i, r in enumerate(ranked[:CURVES]):
        jobs = [sweep.chain(r.trial, seed, r.rung)[-1] for seed in sweep.all_seeds]
        runs = [Run(root / job.place).evaluations.rows() for job in jobs if job.finished(root)]
        steps, seeds = seed_curves(runs, sweep.rank)
        if len(seeds) > 1:
            axes.plot(steps, seeds.T, color=f"C{i}", alpha=0.3, linewidth=0.8)
        label = f"{r.cell.row or 'base'} (n={len(seeds)})"
        axes.plot(steps, seeds.mean(0), color=f"C{i}", label=label)
        longest = max(longest, len(steps))
    draw_steps(axes)
    axes.set_ylabel(sweep.rank)
    axes.legend(frameon=False, fontsize=7)
    return figure if longest > 1 else None
