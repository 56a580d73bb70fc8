"""One page about a directory of reproduced runs: our numbers beside the paper's.

report.html      everything, in one file
<exhibit>.csv    one line per task (or figure) and arm
<exhibit>.md     the same as a table
<exhibit>-runs.csv, .md   what skills do: every run with the interval of its measurement
<exhibit>.png    its figure
Presets are never mixed: each has a section of its own.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import os
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from comsd.config import SCALES
from comsd.errors import InputError, printable
from comsd.evaluation.pictures import png_of
from comsd.files import Folder, output_folder
from comsd.reproduction.behaviour import Measurement
from comsd.reproduction.collect import (
    FinishedRun,
    commit_of,
    find_runs,
    of_one_quality,
    requested_exhibits,
)
from comsd.reproduction.exhibits import EXHIBITS, Shown
from comsd.reproduction.sections import Section, make_sections
from comsd.reproduction.statistics import Cell
from comsd.runs.run import EXPLORER

PRESETS = tuple(SCALES)
WRITTEN = (".csv", ".md", ".png", "-runs.csv", "-runs.md")
DPI = 110
STATISTICS = (
    "mean ± standard deviation [95 % percentile bootstrap interval of the mean] over seeds; "
    "with three seeds that interval is their range and covers the mean about 3 times in 4"
)
INTERVALS = (
    "Run by run, with 95 % intervals over skills and starts: how well each was measured, not how "
    "much another seed would differ"
)
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
       color: #1c2430; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #d8dde4; text-align: right;
         vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
small { color: #66707d; display: block; }
img { max-width: 100%; }
h2 { margin-top: 2.5rem; border-bottom: 2px solid #1c2430; }
"""


def write_report(directory: Path | str, out: Path | str | None = None) -> Path:
    """Write DIR/report, or `out`; returns the path of the page."""
    directory = Path(directory)
    presets = {p: find_runs(directory / p) for p in PRESETS if (directory / p).is_dir()}
    presets = {p: parts for p, parts in presets.items() if any(parts)}
    if not presets:
        raise InputError(
            f"directory {directory} is no run and holds none of `comsd reproduce` or `comsd sweep`"
        )
    folder = output_folder(None if out is None else Path(out), Folder(directory) / "report")
    exhibits = [
        f"{p}-{e}{shown}" for p in PRESETS for e in EXHIBITS for shown in suffixes(e).values()
    ]
    for old in {f"{name}{kind}" for name in exhibits for kind in WRITTEN}:
        folder.remove(old)
    page = ["<h1>comsd report</h1>"]
    for preset, (finished, excluded) in presets.items():
        runs, others = of_one_quality(finished)
        page.append(f"<h2>Preset {preset}</h2>")
        page.append(overview(runs, excluded + others, folder.path))
        for section in make_sections(runs, requested_exhibits(directory / preset)):
            name = f"{preset}-{section.exhibit}{suffixes(section.exhibit)[section.shown]}"
            folder.replace(f"{name}.csv", csv_of([Cell._fields, *section.cells]))
            folder.replace(f"{name}.md", markdown_table(section).encode())
            if section.measured:
                table = csv_of([Measurement._fields, *section.measured])
                folder.replace(f"{name}-runs.csv", table)
                folder.replace(f"{name}-runs.md", measured_markdown(section).encode())
            page.append(section_html(section))
            page.append(picture(folder, name, png_of(section.figure, DPI), section.title))
    return write_page(folder, "comsd report", page)


def write_page(folder: Folder, title: str, parts: list[str]) -> Path:
    """report.html, of HTML; returns its path."""
    head = f"<meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
    text = "\n".join([f"<!doctype html><html lang=en>{head}", *parts, "</html>\n"])
    folder.replace("report.html", text.encode())
    return folder.path / "report.html"


def picture(folder: Folder, name: str, png: bytes, alt: str) -> str:
    """Written beside the page, and in it."""
    folder.replace(f"{name}.png", png)
    return inline(png, alt)


def inline(png: bytes, alt: str) -> str:
    data = base64.b64encode(png).decode()
    return f'<p><img alt="{html.escape(alt)}" src="data:image/png;base64,{data}">'


def csv_of(rows: Iterable[Iterable[object]]) -> bytes:
    file = io.StringIO()
    csv.writer(file).writerows(rows)
    return file.getvalue().encode()


def suffixes(exhibit: str) -> dict[Shown, str]:
    """The endings of the names of an exhibit's files, by what they show."""
    shows = EXHIBITS[exhibit].shows
    return {shown: f"-{shown}" if len(shows) > 1 else "" for shown in shows}


def overview(runs: list[FinishedRun], excluded: list[str], folder: Path) -> str:
    rows = []
    for (stage, env), group in groupby(runs, lambda r: (r.stage, r.env)):
        arms = ", ".join(f"{arm} {n}" for arm, n in Counter(r.arm for r in group).items())
        rows.append(f"<tr><td>{stage}<td>{html.escape(env)}<td>{html.escape(arms)}")
    commits = sorted({commit_of(r.run) for r in runs})
    parts = ["<table><tr><th>stage<th>environment<th>finished runs by arm", *rows, "</table>"]
    precisions = Counter(r.run.config.run.precision for r in runs)
    counts = ", ".join(f"{name} {n}" for name, n in precisions.items())
    parts.append(f"<p>Code: {html.escape(printable(', '.join(commits)))}. Precision: {counts}.")
    if links := explorer_links(runs, folder):
        parts.append(f"<p>Skills to look at: {links}.")
    if excluded:
        parts.append(f"<p>Not counted: {html.escape(printable(', '.join(excluded)))}.")
    return "\n".join(parts)


def explorer_links(runs: list[FinishedRun], folder: Path) -> str:
    """To the pages of `comsd explore` in the directories of runs."""
    found = [r for r in runs if EXPLORER in r.run.folder.names()]
    names = [f"{r.env} {r.arm}, seed {r.seed}" for r in found]
    places = [quote(os.path.relpath(r.run.path / EXPLORER, folder)) for r in found]
    pairs = zip(places, names, strict=True)
    return "; ".join(f'<a href="{place}">{html.escape(name)}</a>' for place, name in pairs)


def wide_table(section: Section) -> tuple[list[str], dict[str, list[tuple[str, str]]]]:
    """The arms, and by row our numbers and the paper's for each arm."""
    arms = list(dict.fromkeys(c.arm for c in section.cells))
    texts = {(c.row, c.arm): (c.ours, c.paper) for c in section.cells}
    return arms, {c.row: [texts.get((c.row, arm), ("", "")) for arm in arms] for c in section.cells}


def markdown_table(section: Section) -> str:
    arms, table = wide_table(section)
    lines = [f"| | {' | '.join(arms)} |", "|---" * (len(arms) + 1) + "|"]
    for row, cells in table.items():
        texts = ("; ".join(filter(None, cell)) for cell in cells)
        lines.append(f"| {row} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def measured_table(section: Section) -> tuple[list[str], list[list[str]]]:
    """A line per run, a column per figure."""
    figures = list(dict.fromkeys(m.figure for m in section.measured))
    rows: list[list[str]] = []
    for (env, arm, seed), group in groupby(section.measured, lambda m: (m.env, m.arm, m.seed)):
        texts = {m.figure: m.text for m in group}
        rows.append([f"{env}, {arm}, seed {seed}", *(texts.get(f, "") for f in figures)])
    return ["run", *figures], rows


def measured_markdown(section: Section) -> str:
    head, rows = measured_table(section)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def measured_html(section: Section) -> str:
    head, rows = measured_table(section)
    parts = ["<table><tr>", *(f"<th>{html.escape(text)}" for text in head)]
    for row in rows:
        parts += ["<tr>", *(f"<td>{html.escape(text)}" for text in row)]
    return "".join(parts) + f"</table>\n<p>{INTERVALS}."


def section_html(section: Section) -> str:
    arms, table = wide_table(section)
    exhibit, escape = EXHIBITS[section.exhibit], html.escape
    parts = [f"<h3>{escape(section.title)} ({exhibit.where})</h3><table><tr><th>"]
    parts += [f"<th>{escape(arm)}" for arm in arms]
    for row, cells in table.items():
        parts.append(f"<tr><td>{escape(row)}")
        parts += [f"<td>{escape(ours)}<small>{escape(paper)}</small>" for ours, paper in cells]
    parts.append(f"</table>\n<p>{escape('; '.join([STATISTICS, *section.notes]))}.")
    parts += ["<p>" + "<br>".join(map(escape, section.meanings))] if section.meanings else []
    if section.measured:
        parts.append(measured_html(section))
    return "\n".join(parts)
