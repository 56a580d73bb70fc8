"""One page about a directory of reproduced runs: our numbers beside the paper's.

report.html      everything, in one file
<exhibit>.csv    one line per task (or figure) and arm
<exhibit>.md     the same as a table
<exhibit>.png    its figure
Presets are never mixed: each has a section of its own.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

from comsd import checkpoint
from comsd.errors import InputError
from comsd.reproduce.plan import asked_exhibits
from comsd.reproduce.sections import Found, Section, find, paper_values, sections
from comsd.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRESETS = ("paper", "lite", "smoke")
DPI = 110
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


def write_report(directory: Path | str) -> Path:
    """Write DIR/report; returns the path of the page."""
    directory = Path(directory)
    presets = {p: find(directory / p) for p in PRESETS if (directory / p).is_dir()}
    presets = {p: parts for p, parts in presets.items() if parts[0] or parts[1]}
    if not presets:
        raise InputError(f"directory {directory} holds no runs of `comsd reproduce`")
    place = directory / "report"
    place.mkdir(exist_ok=True)
    for old in (p for preset in PRESETS for p in place.glob(f"{preset}-*")):
        old.unlink()
    page = [f"<title>comsd report</title><style>{STYLE}</style><h1>comsd report</h1>"]
    for preset, (found, unfinished) in presets.items():
        page.append(f"<h2>Preset {preset}</h2>")
        page.append(overview(found, unfinished))
        for section in sections(found, asked_exhibits(directory / preset)):
            suffix = "" if len(section.exhibit.shows) == 1 else f"-{section.shown}"
            name = f"{preset}-{section.exhibit.name}{suffix}"
            write_tables(place, name, section)
            for figure in section.figures:
                figure.savefig(place / f"{name}.png", dpi=DPI)
            page.append(section_html(section))
    text = "<!doctype html><html lang=en><meta charset=utf-8>" + "\n".join(page) + "</html>\n"
    path = place / "report.html"
    checkpoint.write_file(path, text.encode())
    return path


def overview(found: list[Found], unfinished: list[str]) -> str:
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for f in found:
        arms = counts.setdefault((f.stage, f.env), {})
        arms[f.arm] = arms.get(f.arm, 0) + 1
    rows = [
        f"<tr><td>{stage}<td>{html.escape(env)}"
        f"<td>{html.escape(', '.join(f'{a} {n}' for a, n in arms.items()))}"
        for (stage, env), arms in counts.items()
    ]
    commits = sorted({commit_of(f.run) for f in found})
    parts = ["<table><tr><th>stage<th>environment<th>finished runs by arm", *rows, "</table>"]
    parts.append(f"<p>Code: {html.escape(', '.join(commits))}.")
    if unfinished:
        parts.append(f"<p>Not counted: {html.escape(', '.join(unfinished))}.")
    return "\n".join(parts)


def commit_of(run: Run) -> str:
    record = json.loads((run.path / "config.json").read_text())
    return record.get("versions", {}).get("commit", "unknown")


def write_tables(place: Path, name: str, section: Section) -> None:
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["row", "arm", "n", "mean", "sd", "low", "high", "paper_mean", "paper_sd"])
    for cell in section.cells:
        o = cell.ours
        figures = [o.n, o.mean, o.sd, o.low, o.high, *(cell.paper or (None, None))]
        writer.writerow([cell.row, cell.arm, *figures])
    checkpoint.write_file(place / f"{name}.csv", file.getvalue().encode())
    rows, arms, cells = wide(section)
    lines = [f"| | {' | '.join(arms)} |", "|---" * (len(arms) + 1) + "|"]
    for row in rows:
        texts = [cells.get((row, arm), "").replace("\n", "; ") for arm in arms]
        lines.append(f"| {row} | {' | '.join(texts)} |")
    checkpoint.write_file(place / f"{name}.md", ("\n".join(lines) + "\n").encode())


def wide(section: Section) -> tuple[list[str], list[str], dict[tuple[str, str], str]]:
    rows = list(dict.fromkeys(c.row for c in section.cells))
    arms = list(dict.fromkeys(c.arm for c in section.cells))
    return rows, arms, {(c.row, c.arm): c.text() for c in section.cells}


def section_html(section: Section) -> str:
    rows, arms, cells = wide(section)
    e = section.exhibit
    source = paper_values("behaviour" if section.shown == "analyse" else e.name)["source"]
    parts = [f"<h3>{html.escape(e.title)} ({e.where})</h3><table><tr><th>"]
    parts += [f"<th>{html.escape(arm)}" for arm in arms]
    for row in rows:
        parts.append(f"<tr><td>{html.escape(row)}")
        for arm in arms:
            ours, _, theirs = cells.get((row, arm), "").partition("\n")
            parts.append(f"<td>{html.escape(ours)}<small>{html.escape(theirs)}</small>")
    parts.append("</table>")
    notes = [
        "mean ± standard deviation [95 % percentile bootstrap interval of the mean] over seeds; "
        "with three seeds that interval is their range and covers the mean about 3 times in 4"
    ]
    notes += section.notes + ([f"paper's numbers: {source}"] if source else [])
    parts.append(f"<p>{html.escape('; '.join(notes))}.")
    parts += [f'<p><img alt="{html.escape(e.title)}" src="{embedded(f)}">' for f in section.figures]
    return "\n".join(parts)


def embedded(figure: Figure) -> str:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=DPI, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
