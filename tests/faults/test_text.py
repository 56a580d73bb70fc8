"""Names that spreadsheets, pages and terminals would act on reach them as plain text."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from faults.attack import LONG, ask, check, copy
from faults.conftest import Count

NAMES = [
    "=HYPERLINK('x')",
    "+1+1",
    "-1",
    "@SUM(1)",
    "<script>alert(1)<|script>".replace("|", "\u2215"),
    "<img src=x onerror=alert(1)>",
    "a|b|c",
    "[x](javascript:alert(1))",
    "`touch x`",
    "$(touch x)",
    "\x1b[2J\x1b[31mred",
    "\x07bell",
    "line\nbreak",
    "\u202egpj.exe",
    "\x9b31m",
    "a,b;c\td",
    '"quoted"',
    "[bold red]x[/]",
]
FORMULA = re.compile(r"^[=+@\t\r]|^-(?!\d)")


def test_hostile_names_of_runs(runs: dict[str, Path], tmp_path: Path, count: Count) -> None:
    for name in NAMES if LONG else NAMES[10:14]:
        run = copy(runs["ppo"], tmp_path / name)
        for words in (["evaluate", run], ["evaluate", run, "--json"], ["resume", run]):
            count("hostile name of a run", check(ask(*words), repr(name)))
        (run / "config.json").write_text("damaged")
        count("hostile name of a run", check(ask("evaluate", run), repr(name)))
        missing = tmp_path / f"missing {name}"
        count("hostile name of a run", check(ask("resume", missing), repr(name)))


def test_hostile_names_in_a_report(runs: dict[str, Path], tmp_path: Path, count: Count) -> None:
    """Arms are named by their directories, which may come from anyone."""
    place = tmp_path / "smoke" / "pretrain" / "maze-tree-10"
    place.mkdir(parents=True)
    (tmp_path / "smoke" / "exhibits.json").write_text('["maze"]')
    for name in NAMES:
        copy(runs["ppo"], place / f"{name}-0")
    answer = ask("report", tmp_path)
    count("hostile names in a report", check(answer))
    for file in (tmp_path / "report").rglob("*"):
        if file.suffix in (".html", ".md", ".csv"):
            text = file.read_text()
            if file.suffix == ".csv":
                cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
                assert not [cell for cell in cells if FORMULA.search(cell)], file
            else:
                assert "<script>alert" not in text, file
                assert "<img src=x" not in text, file
            if file.suffix == ".md":
                widths = {
                    line.replace("\\|", "").count("|") for line in text.splitlines() if "|" in line
                }
                assert len(widths) <= 2, file
