"""A method from a plain file outside the package: trained, adapted, held to the contract."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torch import Tensor

import comsd
from comsd.cli import main
from comsd.cli.lists import extension_points
from comsd.errors import InputError, RunError
from comsd.registry import METHODS
from comsd.skills import SkillSpace

PAGE = Path(__file__).parent.parent / "docs" / "add-a-method.md"


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """The example of docs/add-a-method.md as a file."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "rnd.py"
    file.write_text(next(block for block in blocks if "class RND(" in block))
    return file


@pytest.mark.parametrize("env", ["maze-tree", "hopper"])
def test_it_is_trained_resumed_and_looked_at(env: str, toy: Path, tmp_path: Path) -> None:
    argv = f"pretrain rnd --env {env} --preset smoke --run {tmp_path / 'run'} --method.features 8"
    main([*argv.split(), "--method-file", str(toy)])
    run = comsd.load(tmp_path / "run")
    assert run.finished
    assert "rnd/error" in run.metrics.rows()[-1]
    METHODS.pop("rnd")
    with pytest.raises(SystemExit):  # it is code: nobody runs it unasked
        main(["resume", str(run.path)])
    main(["resume", str(run.path), f"--method-file={toy}"])
    main(["evaluate", str(run.path), "--json"])


def test_it_is_fine_tuned(toy: Path, tmp_path: Path) -> None:
    assert comsd.register_file(toy) == ["rnd"]
    source = comsd.pretrain("rnd", env="hopper", preset="smoke", run=tmp_path / "a", steps=300)
    assert comsd.finetune(source, task="hopper_hop", run=tmp_path / "b", steps=300).finished


def test_it_keeps_the_contract(toy: Path) -> None:
    comsd.register_file(toy)
    assert {verdict.cases for verdict in comsd.check_method("rnd")} == {12, 1}


def test_the_extension_points_are_those_that_differ() -> None:
    points = {name: set(extension_points(kind)) for name, kind in METHODS.items()}
    assert points["comsd"] == {"flag_orders_skills", "skill_scores", "diagnostics"}
    assert points["becl"] == {"representation_steps"}  # held for 50 steps as usual
    assert points["aps"] == {"regress_skill", "skill_scores", "hold"}

    class Chosen(METHODS["diayn"]):
        @classmethod
        def candidates(cls, space: SkillSpace, k: int) -> Tensor:
            return space.flags(k)

    assert extension_points(Chosen) == ["candidates", "skill_scores"]


CONFIG = """from dataclasses import dataclass
from comsd.methods.base import MethodConfig
@dataclass(frozen=True)
class C(MethodConfig):
    width: int = 3
"""
METHOD = "import comsd\nclass A(comsd.Method):\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("x = 1", "defines no subclass of comsd.Method"),
        ("import nothing_like_it", "ModuleNotFoundError"),
        (f"{METHOD}    name = paper = 'cic'", "the name 'cic' is taken"),
        (f"{METHOD}    paper = 'mine'", "A has no name, a text"),
        (f"{METHOD}    name = paper = critic = 'a'", "A.critic is 'a'; allowed: plain, successor"),
        (
            f"{CONFIG}{METHOD}    name = paper = 'a'; config_class = C",
            r"C.width is no setting\(default, help, source\)",
        ),
        (
            f"{METHOD}    name = paper = 'a'; critic = 'per-skill'",
            "'per-skill', which cannot take box, sphere skills; allowed in A.spaces: one-hot",
        ),
    ],
)
def test_a_bad_file_is_one_sentence(content: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InputError, match=message):
        comsd.register_file(file)


def test_a_run_of_a_method_that_is_not_loaded_says_what_is_missing(
    toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = f"pretrain rnd --env maze-tree --preset smoke --run {tmp_path / 'run'}"
    main([*argv.split(), "--method-file", str(toy)])
    assert f"evaluate {tmp_path / 'run'} --method-file {toy}`" in capsys.readouterr().err
    del METHODS["rnd"]
    with pytest.raises(InputError, match="'rnd', which is not built in: give its file with"):
        comsd.load(tmp_path / "run")


@pytest.mark.parametrize("env", ["maze-tree", "hopper"])
@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("features / scale,", "(features / scale).mean(),", "the reward of rnd has shape"),
        ("features / scale,", "(features / scale)[:, None],", "the reward of rnd has shape"),
        ("def loss(", "def lost(", "rnd has parameters but no loss"),
        ("features / scale,", "(features / scale).double(),", "is of torch.float64, not torch.fl"),
        ("        return loss,", "        return loss  #", "the loss of rnd returns no pair"),
        (
            "        return loss,",
            "        return loss.detach(),",
            "the loss of rnd has no gradient",
        ),
    ],
)
def test_a_wrong_shape_is_one_sentence(
    env: str, right: str, wrong: str, message: str, toy: Path, tmp_path: Path
) -> None:
    assert right in toy.read_text()
    toy.write_text(toy.read_text().replace(right, wrong))
    comsd.register_file(toy)
    with pytest.raises(RunError, match=message):
        comsd.pretrain("rnd", env=env, preset="smoke", run=tmp_path / "run")
