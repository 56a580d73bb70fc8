"""One page about one run, on whichever environment: its settings, curves, figures and pictures.

report.html    everything, in one file
curves.png     what was logged and evaluated during training
"""

from __future__ import annotations

import html
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from comsd.envs.specs import ROBOT_TASKS
from comsd.errors import RunError, printable
from comsd.evaluation import make_evaluator
from comsd.evaluation.pictures import png_of
from comsd.evaluation.skills import SkillEvaluator
from comsd.files import Folder, output_folder
from comsd.jobs.job import read_analysis
from comsd.reproduction.collect import commit_of
from comsd.reproduction.figures import draw_steps, panels
from comsd.reproduction.page import DPI, inline, picture, write_page
from comsd.runs.record import CONFIG, read_record
from comsd.runs.run import EVALUATION, EXPLORER, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = {  # of `comsd evaluate` and `comsd analyse`, by directory
    (): ("skills.png", "curve.png"),
    ("analysis",): ("trajectories.png", "analysis.png", "episodes.png", "strips.png"),
}
LARGEST = 20_000_000  # bytes of a picture
BESIDE = ("intervals", "untrained", "random")  # what an analysis has for its figures
STAGES = {"pretrain": "skills of", "finetune": "fine-tuning of", "combine": "combination of"}


def is_run(directory: Path) -> bool:
    return CONFIG in Folder(directory).names()


def write_run_report(run: Run, out: Path | None = None) -> Path:
    """Write RUN/report, or `out`; returns the path of the page."""
    folder = output_folder(out, run.folder / "report")
    s = run.config.run
    who = run.source.config.run.method if run.source else s.method
    title = text(f"{STAGES.get(s.stage, 'training of')} {who} on {s.env}, seed {s.seed}")
    parts = [f"<h1>{title}</h1>", overview(run)]
    if EXPLORER in run.folder.names():
        place = quote(os.path.relpath(run.path / EXPLORER, folder.path))
        parts.append(f'<p><a href="{place}">The skills, live in the browser</a>.')
    analysis = read_analysis(run.path)
    parts.append(figures(run, analysis, read_evaluation(run)))
    parts += pictures(run)
    if missing := missing_commands(run, analysis):
        parts.append(f"<p>To see more here: {missing}, then this report again.")
    if (drawn := curves(run)) is not None:
        drawing = picture(folder, "curves", png_of(drawn, DPI), "curves")
        parts += ["<h2>During training</h2>", drawing]
    return write_page(folder, title, parts)


def text(value: object) -> str:
    return html.escape(printable(str(value)))


def rows(pairs: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Numbers to the right; texts, which are the first column and the last, to the left."""
    lines = ["<table>", "<tr>" + "".join(f"<th>{text(h)}" for h in head) if head else ""]
    for *cells, last in pairs:
        line = "".join(f"<td>{text(cell)}" for cell in cells)
        lines.append(f'<tr>{line}<td style="text-align: left">{text(last)}')
    return "\n".join([*lines, "</table>"])


def overview(run: Run) -> str:
    s = run.config.run
    known: dict[str, object] = {
        "preset, agent": f"{s.preset}, {s.agent}",
        "skills": f"{s.space}, {s.skills}" if run.source is None else whose_skills(run),
        "steps": f"{run.reached:,} of {s.steps:,}",
        "time limit of an episode": f"{run.spec.horizon:,} steps",
    }
    environment = read_record(run.folder).get("environment")
    if isinstance(environment, dict):
        observations = environment.get("observations")
        shape = observations.get("shape") if isinstance(observations, dict) else None
        exact = "exact to the bit" if environment.get("exact_resume") else "with fresh episodes"
        known |= {
            "environment": environment.get("class", ""),
            "observations": f"of shape {shape}",
            "resumes": exact,
        }
    known["code"] = commit_of(run)
    return rows(known.items())


def whose_skills(run: Run) -> str:
    """Of an adaptation: the run they come from, and what chooses among them."""
    assert run.source is not None
    s, adapt = run.source.config.run, run.config.adapt
    chosen = {"rule": "by the rule", "controller": "by the controller"}
    how = [f"{what} {getattr(adapt, key)}" for key, what in chosen.items() if hasattr(adapt, key)]
    when = f", step {at:,}" if (at := getattr(run.config.adapt, "at", 0)) else ""
    return ", ".join([f"{s.method} on {s.env}, seed {s.seed}{when}", *how])


def read_evaluation(run: Run) -> dict[str, Any] | None:
    """What `comsd evaluate` has found of the newest checkpoint."""
    try:
        found = run.folder.read_sealed(EVALUATION, set())
        columns = {key: dict(found[key]) for key in ("metrics", *BESIDE)}
        return {"step": int(found["step"]), **columns} if found["step"] == run.reached else None
    except (OSError, RunError, LookupError, TypeError, ValueError):
        return None  # there is none, or it is damaged: it can be made again


def figures(
    run: Run, analysis: Mapping[str, Any] | None, evaluation: Mapping[str, Any] | None
) -> str:
    """Of `comsd analyse` if there are any, else of `comsd evaluate`, else of the last evaluation
    during training.
    """
    meanings = make_evaluator(run).meanings
    if (found := analysis or evaluation) is not None:
        meanings = SkillEvaluator.meanings | meanings
        command = "analyse" if analysis else "evaluate"
        about = f"By <code>comsd {command}</code>, at step {int(found['step']):,}."
        columns = [found["metrics"], *(found.get(key) for key in BESIDE)]
        head = ["", "value", "95 %", "untrained", "random", "meaning"]
    else:
        evaluated = run.evaluations.rows()
        if not evaluated:
            return "<p>Nothing has been evaluated yet."
        about = f"The last evaluation during training, at step {int(evaluated[-1]['step']):,}."
        columns = [{name: value for name, value in evaluated[-1].items() if name != "step"}]
        head = ["", "value", "meaning"]
    table = []
    for name in columns[0]:
        values = [number(column.get(name) if column else None) for column in columns]
        table.append([name.replace("_", " "), *values, meanings.get(name, "")])
    return f"<h2>Figures</h2><p>{about}\n{rows(table, head)}"


def number(value: object) -> str:
    """A figure, or the two ends of an interval."""
    if isinstance(value, list):
        return " to ".join(map(number, value))
    try:
        return f"{float(value):.3g}"  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return ""


def pictures(run: Run) -> list[str]:
    found = []
    for below, names in PICTURES.items():
        folder = run.folder
        for name in below:
            folder = folder / name
        for name in names:
            with suppress(OSError, RunError):  # not drawn, or none that we would have drawn
                if folder.has(name):
                    found.append(inline(folder.read(name, LARGEST), Path(name).stem))
    return ["<h2>Pictures</h2>", *found] if found else []


def missing_commands(run: Run, analysis: Mapping[str, Any] | None) -> str:
    names = run.folder.names()
    wanted = [] if {"skills.png", "curve.png"}.intersection(names) else ["evaluate"]
    analysed = analysis if run.pretrains else "episodes.png" in (run.folder / "analysis").names()
    wanted += [] if analysed else ["analyse"]
    explored = EXPLORER in names or not (run.pretrains or run.spec.families[-1] in ROBOT_TASKS)
    wanted += [] if explored else ["explore"]
    return ", ".join(f"<code>comsd {command} {text(run.path)}</code>" for command in wanted)


def curves(run: Run) -> Figure | None:
    """A panel for every column of the two tables that changes."""
    found: list[tuple[str, list[float], list[float]]] = []
    for table in (run.evaluations, run.metrics):
        lines = table.rows()
        for name in [column for column in (lines[0] if lines else {}) if column != "step"]:
            pairs = [(float(line["step"]), value_of(line[name])) for line in lines]
            points = [(step, value) for step, value in pairs if math.isfinite(value)]
            if len({value for _, value in points}) > 1:
                steps, values = zip(*points, strict=True)
                found.append((name.replace("_", " "), list(steps), list(values)))
    if not found:
        return None
    figure, grid = panels(len(found), 4, 3.2, 2.2)
    for axes, (name, steps, values) in zip(grid, found, strict=False):
        axes.plot(steps, values, "-" if len(steps) > 2 else "o-", linewidth=1.2)
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=7)
        draw_steps(axes, fontsize=7)
    return figure


def value_of(entry: str) -> float:
    try:
        return float(entry)
    except ValueError:
        return math.nan
