"""`comsd check` and `comsd.check_method`: what they say of sound and of broken methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import comsd
from broken import Counting, FromNumPy, Sound, SoundConfig, Unused
from comsd.check import ENVIRONMENTS, resumed_training_is_exact
from comsd.cli import main
from comsd.errors import InputError, RunError
from comsd.methods.contract import CLAUSES
from comsd.registry import METHODS
from comsd.skills import Sphere


def call(argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code: Any = 0
    try:
        main(argv.split())
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    return code, out, err


def test_a_class_is_checked_and_leaves_nothing_behind() -> None:
    methods, drawn = dict(METHODS), torch.get_rng_state()
    found = comsd.check_method(Sound)
    assert [verdict.clause for verdict in found][: len(CLAUSES)] == [*CLAUSES]
    assert [verdict.cases for verdict in found] == [12] * len(CLAUSES) + [1] * len(ENVIRONMENTS)
    assert all(verdict.kept for verdict in found)
    assert methods == METHODS
    assert torch.equal(torch.get_rng_state(), drawn)


def test_the_first_broken_clause_is_an_error() -> None:
    said = r"^sound breaks the clause `all that .* none for extra.hidden.0.weight, .* and 1 more"
    with pytest.raises(RunError, match=said):
        comsd.check_method(Unused)


class Neighbours(SoundConfig):
    def rows_needed(self) -> dict[str, int]:
        return {"k": 50}


class OneSpace(Sound):
    """More rows than a batch of the shortest preset, and only one skill space."""

    config_class = Neighbours
    spaces = (Sphere,)


def test_the_training_fits_the_method() -> None:
    found = comsd.check_method(OneSpace)
    assert {verdict.cases for verdict in found} == {4, 1}


class CreditedConfig(METHODS["cesd"].config_class):
    tuned = {}


class Credited(METHODS["cesd"]):
    """Without values for mazes, where PPO needs another choice than the default."""

    config_class = CreditedConfig


def test_ppo_trains_with_what_on_policy_names() -> None:
    METHODS["cesd"] = Credited
    resumed_training_is_exact(Credited, "maze-tree")


@pytest.mark.parametrize("env", ENVIRONMENTS)
@pytest.mark.parametrize("kind", [Counting, FromNumPy])
def test_a_training_that_cannot_be_resumed_is_found(kind: type[Sound], env: str) -> None:
    METHODS["sound"] = kind
    with pytest.raises(RunError, match=r"others in \w+/.* outside parameters and buffers"):
        resumed_training_is_exact(kind, env)


# --- bad input ------------------------------------------------------------------------------------


class Nowhere(Sound):
    spaces = ()


class Taken(Sound):
    name = "comsd"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("nothing", "method is 'nothing'; allowed: comsd, cic"),
        (3, "method is 3; it must be a name or a subclass of comsd.Method"),
        (int, "method is <class 'int'>; it must be a name"),
        (comsd.Method, "Method has no name, a text"),
        (Taken, "the name 'comsd' is taken"),
        (Nowhere, "Nowhere accepts no skill space"),
    ],
)
def test_bad_input_is_one_sentence(method: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        comsd.check_method(method)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("check", "method is missing: comsd check METHOD, or --method-file FILE; allowed: comsd,"),
        ("check nothing", "method is 'nothing'; allowed: comsd, cic"),
        ("check comsd cic", "'cic' is one word too many"),
        ("check comsd --jsn", "(did you mean '--json'?)"),
    ],
)
def test_bad_commands(argv: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(argv, capsys)
    assert (code, out) == (2, "")
    assert message in err


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(
        "import broken\n"
        "class Good(broken.Sound):\n    name = 'good'\n"
        "class Bad(broken.Unused):\n    name = 'bad'\n"
    )
    return path


def test_all_methods_of_a_file_are_checked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(f"check --method-file {file}", capsys)
    assert code == 1
    assert err == "comsd: the contract is broken by bad\n"
    good, bad = out.split("bad: ")
    title, *lines = good.splitlines()
    assert title.startswith("good: 12 cases (skills one-hot, box, sphere; values for mazes, robots")
    assert len(lines) == len(CLAUSES) + len(ENVIRONMENTS)
    assert all(line.startswith("passed  ") for line in lines)
    assert bad.count("FAILED  ") == 1
    assert "(in 12 of 12 cases): expected a gradient" in bad
    assert "(one-hot skills, values for mazes)" in bad


def test_one_method_of_a_file_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(f"check bad --json --method-file {file}", capsys)
    assert code == 1
    found = json.loads(out)
    assert [*found] == ["bad"]
    assert [len(verdict["problems"]) for verdict in found["bad"]] == [12] + [0] * 13


def test_a_method_of_the_package_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    code, out, err = call("check diayn", capsys)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines()[1:])) <= 50
