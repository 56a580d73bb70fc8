"""Examples and commands of the pages, taken from them, do what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from comsd.check import ENVIRONMENTS, training_clause
from comsd.cli import main
from comsd.methods.contract import CLAUSES
from comsd.runs.run import Run
from conftest import needs_dmc

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).exists(), link


def test_the_page_on_methods_lists_the_clauses_of_the_contract() -> None:
    table = (DOCS / "add-a-method.md").read_text().partition("| clause |")[2]
    listed = re.findall(r"^\| ([^|]+) \|", table.partition("|---|---|")[2], re.MULTILINE)
    assert listed == [*CLAUSES, *map(training_clause, ENVIRONMENTS)]


SCALING = (DOCS / "scaling.md").read_text()


@pytest.mark.parametrize(
    "command", re.findall(r"^comsd (?:sweep|reproduce) .*$", SCALING, re.MULTILINE)
)
def test_the_commands_of_the_page_on_scaling_make_a_plan(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    argv = [w if w not in ("lite", "paper") else "smoke" for w in shlex.split(command)[1:]]
    argv += ["--preset", "smoke"] * ("--preset" not in argv)
    main(argv if "--plan" in argv else [*argv, "--plan"])
    assert not list(tmp_path.iterdir())


def test_the_commands_of_the_second_backbone_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    section = (DOCS / "robots.md").read_text().partition("### SAC")[2]
    (block,) = re.findall(r"```\n(.*?)```", section, re.DOTALL)
    for line in block.splitlines():
        argv = line.partition("#")[0].replace("lite", "smoke").split()[1:]
        main([*argv, "--steps", "400", "--evaluate-every", "1000"])
    assert Run("runs/sac-tuned").config.run.agent == "sac"
    assert Run("runs/sac-combined").config.run.agent == "sac"


YOURS = (DOCS / "your-environment.md").read_text()


def shortened(argv: list[str]) -> list[str]:
    """A command of a page with less training and fewer roll-outs."""
    argv = [w if w != "lite" else "smoke" for w in argv]
    if argv[0] in ("pretrain", "finetune", "combine"):
        ppo = "ppo" in argv or "maze" in argv[-1]
        argv += [] if ppo else ["--train.random-steps", "100", "--steps", "200"]
        argv += ["--evaluate-every", "1000000"]
        argv += ["--rollouts", "1"] if argv[0] != "pretrain" else []
    if argv[0] in ("evaluate", "analyse"):
        argv += ["--starts", "2", "--skills", "3", "--steps", "10"]
    return argv


@needs_dmc
@pytest.mark.filterwarnings("ignore")
def test_the_commands_of_the_page_on_your_environment_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(DOCS.parent / "examples")
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^comsd .*$", YOURS, re.MULTILINE)
    assert len(lines) >= 15
    for line in lines:
        main(shortened(shlex.split(line)[1:]))
    assert Run("runs/ant-forward").config.run.stage == "finetune"
    assert Run("runs/cheetah").config.run.agent == "ppo"


@pytest.mark.filterwarnings("ignore")
def test_the_loop_over_snapshots_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "adaptation.md").read_text()
    section = page.partition("## At steps of")[2].partition("\n## ")[0]
    shorter = {100_000: "52", 500_000: "100", 1_000_000: "152", 2_000_000: "200"}
    section = re.sub(r"\b\d[\d_]*000\b", lambda found: shorter[int(found[0])], section)
    commands, example = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)
    (steps,) = re.findall(r"^for at in (.*); do$", commands, re.MULTILINE)
    for line in re.findall(r"comsd .*$", commands, re.MULTILINE):
        for at in steps.split() if "$at" in line else [""]:
            argv = shortened(shlex.split(line.replace("$at", at))[1:])
            main([*argv, "--preset", "smoke"] if argv[0] == "pretrain" else argv)
    assert {Run(f"runs/cic-{at}").config.adapt.__dict__["at"] for at in (52, 200)} == {52, 200}
    example = "import comsd\n" + example.replace('"walker_run"', '"walker_run", steps=240')
    exec(compile(example, "adaptation.md", "exec"), {})
    assert Run("runs/tuned-500k").config.adapt.__dict__["at"] == 100


def test_the_commands_of_the_page_on_mazes_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(DOCS.parent / "examples")
    monkeypatch.chdir(tmp_path)
    pretrain, *adapt = re.findall(r"^comsd .*$", (DOCS / "maze.md").read_text(), re.MULTILINE)
    main(shlex.split(pretrain.replace("lite", "smoke"))[1:])
    for line in adapt:
        main(shortened(shlex.split(line)[1:]))
    assert Run("runs/corner").config.run.stage == "combine"
    assert Run("runs/scratch").finished


@pytest.mark.filterwarnings("ignore")
def test_the_example_of_the_page_on_your_environment_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", YOURS, re.DOTALL)
    example = example.replace('preset="lite"', 'preset="smoke", evaluate_every=10**6')
    exec(compile(example, "your-environment.md", "exec"), {"__name__": "example"})
    assert Run("runs/line-left").finished
    assert Run("runs/short-ant").spec.horizon == 200
