"""What is printed fits the terminal, and what one must type or wait for is whole at every width."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

import comsd
from comsd.cli import MODULES, main
from comsd.cli.tables import Table
from comsd.cli.watch import job_table
from comsd.jobs.executor import Status
from comsd.options import setting_options
from comsd.registry import ENVS, METHODS
from comsd.training.bar import make_bar
from processes import call

SMOKE: dict[str, Any] = {"env": "maze-tree", "preset": "smoke", "skills": 3}
FIGURES = ["r_exp 0.26", "r_div 1.06", "V 10.73", "retrieval 0.25", "fresh AUC 0.50", "max 12.86"]

At = Callable[[int], None]


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> At:
    return lambda width: monkeypatch.setenv("COLUMNS", str(width))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose path must be quoted in a shell."""
    return comsd.pretrain("comsd", run=tmp_path_factory.mktemp("a run") / "of mine", **SMOKE).path


def rendered(content: Any, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(content)
    return cast(io.StringIO, console.file).getvalue()


@pytest.mark.parametrize(("width", "fit"), [(60, 0), (80, 2), (120, 4), (200, 6)])
def test_progress_keeps_how_far_how_fast_and_how_long(width: int, fit: int) -> None:
    """Figures go, whole ones from the end."""
    bar = make_bar(Console(file=io.StringIO(), width=width))
    task = bar.add_task("", total=2_000_000, speed="", figures=())
    for step in (1, 411_000, 1_234_000):
        bar.update(task, completed=step, speed="1,412 steps/s", figures=FIGURES)
    (line,) = rendered(bar.get_renderable(), width).splitlines()
    assert len(line) <= width
    known = re.fullmatch(r" 62% [━╸╺ ]+(\S+ \S+ steps/s) \d:\d\d:\d\d ?(.*)", line)
    assert known, line
    assert known[1] == "1,234,000/2,000,000 1,412 steps/s"
    assert known[2].rstrip() == "  ".join(FIGURES[:fit])


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("command", ["envs", "methods", "config comsd --env walker"])
def test_names_are_whole_and_lines_fit(
    command: str, width: int, columns: At, capsys: pytest.CaptureFixture[str]
) -> None:
    columns(width)
    _, out, _ = call(command, capsys)
    names = {
        "envs": [*ENVS, *(task for spec in ENVS.values() for task in spec.tasks)],
        "methods": [*METHODS, "representation_steps"],
    }.get(
        command,
        [option.setting.removeprefix("run.") for option in setting_options("comsd", "walker")],
    )
    assert set(filter(None, names)) <= {*re.split(r"[\s,]+", out)}
    assert max(map(len, out.splitlines())) <= width


def test_a_pipe_has_a_line_per_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    _, out, _ = call("config comsd --env walker", capsys)
    options = [option for option in setting_options("comsd", "walker") if option.setting]
    assert [line for line in out.splitlines() if "\x1b" in line or line != line.rstrip()] == []
    for option, line in zip(options, out.splitlines()[3:], strict=False):
        assert line.split()[0] == option.setting.removeprefix("run.")
        assert line.endswith(option.help)


def test_meanings_have_room_or_are_elsewhere(
    finished: Path, columns: At, capsys: pytest.CaptureFixture[str]
) -> None:
    name, shown = "occupancy entropy ", "over all visited states"
    for width in (80, 200):
        columns(width)
        main(["evaluate", str(finished)])
        lines = capsys.readouterr().out.splitlines()
        (row,) = (line for line in lines if name in line)
        hints = [line for line in lines if line.startswith("meanings: ")]
        assert hints == (
            [] if width == 200 else [f"meanings: comsd evaluate '{finished}' --meanings"]
        )
        assert (shown in row) == (width == 200)
    columns(80)
    main(["evaluate", str(finished), "--meanings"])
    assert shown in capsys.readouterr().out


def test_the_command_at_the_end_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "with space"
    options = ["--env", "maze-tree", "--preset", "smoke", "--skills", "3", "--run"]
    main(["pretrain", "comsd", *options, str(run)])
    assert f"`comsd evaluate '{run}'`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        (["--agent.candidates", "4"], "--agent.candidates needs --controller discrete"),
        (["--agent.candidates=4"], "--agent.candidates needs --controller discrete"),
        (
            ["--controller", "discrete", "--agent.noise", "0.1"],
            "--agent.noise needs --controller continuous",
        ),
        (["--agent.nonsense", "4"], "there is no option '--agent.nonsense'"),
    ],
)
def test_options_of_the_other_controller(
    options: list[str], needed: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["combine", str(finished), "--task", "walker_run", *options])
    assert needed in capsys.readouterr().err


@pytest.mark.parametrize("command", ["", *(name for names in MODULES.values() for name in names)])
def test_help_fits_80_columns(
    command: str, columns: At, capsys: pytest.CaptureFixture[str]
) -> None:
    columns(80)
    _, out, _ = call(f"{command} --help", capsys)
    assert max(map(len, out.splitlines())) <= 80


def test_prose_makes_room() -> None:
    table = Table("name", "meaning", "source", prose={"meaning": 20, "source": 10})
    table.add_row("a_long_name_to_type", "some words about what it is", "the paper")
    table.add_section()
    table.add_row("b", "", "")
    assert table.lines(100)[1].split() == ["name", "meaning", "source"]
    assert table.lines(50)[1].split() == ["name", "meaning"]
    assert table.lines(30) == [
        "",
        "  name",
        "  ───────────────────",
        "  a_long_name_to_type",
        "    meaning: some words about",
        "    what it is",
        "    source: the paper",
        "",
        "  b",
        "",
    ]
    assert "  a_long_name_to_type" in table.lines(5)


def test_jobs_keep_their_names_and_times() -> None:
    place = "exhibits/lite/finetune/quadruped_stand/comsd-without-exploration-1"
    running = {place: Status("node-17", 411_000, 2_000_000, 412.0)}
    executor = SimpleNamespace(status=lambda: running)
    scheduler = SimpleNamespace(finished={}, failed={}, jobs={place: None}, executor=executor)
    text = rendered(job_table(cast(Any, scheduler)), 80)
    assert "…" not in text
    assert "64 min" in text
    assert "".join(line[:40].split(" node")[0].strip() for line in text.splitlines()[4:]) == place
