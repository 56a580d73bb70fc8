"""Run directories from strangers: no link is followed, no file of the user's is touched."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
import torch

import comsd
from comsd import checkpoint
from comsd.errors import InputError, RunError
from comsd.files import Folder
from comsd.resolve import resolve
from comsd.runs.run import Run
from processes import call

SMOKE: dict[str, Any] = {"env": "maze-tree", "preset": "smoke", "skills": 3}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    comsd.pretrain("comsd", run=path, **SMOKE)
    return path


@pytest.fixture
def run_copy(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# --- links ------------------------------------------------------------------------------------

LINKED_FILES = (
    "lock",
    "metrics.csv",
    "evaluations.csv",
    "config.json",
    "config.json.tmp",
    "skills.png",
    "skills.png.tmp",
    "checkpoints/000000002000/state.json",
    "checkpoints/000000002000/agent.safetensors",
)
LINKED_FOLDERS = ("checkpoints", "checkpoints/000000002000", "checkpoints/chunks", "tensorboard")


@pytest.mark.parametrize("name", [*LINKED_FILES, *LINKED_FOLDERS])
def test_no_link_of_a_run_directory_is_followed(
    name: str, run_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim, link = tmp_path / "victim", run_copy / name
    victim.mkdir()
    (victim / "thesis.tex").write_text("years of work")
    shutil.copytree(run_copy / "checkpoints", victim / "checkpoints")
    target = victim / "thesis.tex" if name in LINKED_FILES else victim / "checkpoints"
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    if name == "tensorboard":
        record = json.loads((run_copy / "config.json").read_text())
        record["config"]["run"]["tensorboard"] = True
        record.pop("seal")
        (run_copy / "config.json").write_text(json.dumps(record))
    before = content(victim)
    said = [call(f"{verb} {run_copy}", capsys) for verb in ("evaluate", "resume --steps 2500")]
    assert content(victim) == before
    assert any(f"{link} is a link" in err for _, _, err in said) or name == "checkpoints/chunks"
    assert all(code in (0, 1, 2) and "Traceback" not in err for code, _, err in said)


def test_a_file_with_a_second_name_is_not_written_to(run_copy: Path, tmp_path: Path) -> None:
    shutil.move(run_copy / "metrics.csv", tmp_path / "elsewhere.csv")
    os.link(tmp_path / "elsewhere.csv", run_copy / "metrics.csv")
    before = (tmp_path / "elsewhere.csv").read_bytes()
    with pytest.raises(InputError, match=r"metrics\.csv is a link"):
        comsd.resume(run_copy, steps=2500)
    assert (tmp_path / "elsewhere.csv").read_bytes() == before


@pytest.mark.parametrize("name", ["config.json", "metrics.csv", "lock"])
def test_a_pipe_is_no_file_and_nothing_waits_for_it(name: str, run_copy: Path) -> None:
    (run_copy / name).unlink()
    os.mkfifo(run_copy / name)
    with pytest.raises((InputError, RunError), match=rf"{name} is not a file|checksum|shorter"):
        comsd.resume(run_copy, steps=2500)
    assert stat.S_ISFIFO((run_copy / name).stat().st_mode)


def test_the_source_of_an_adaptation_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "source").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="source is a link"):
        Run(Folder(tmp_path) / "source")


# --- what is removed and replaced -------------------------------------------------------------


@pytest.mark.parametrize(
    "mine",
    [
        "source/thesis.tex",
        "thesis.tex",
        "config.json.tmp",
        "source/config.json",
        "lock",
        ".creating/x",
    ],
)
def test_a_directory_with_something_of_the_users_is_never_taken(mine: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / mine).parent.mkdir(parents=True)
    work = b"years of work \xff"  # which is no UTF-8
    (place / mine).write_bytes(work)
    with pytest.raises(InputError, match=r"another --run|not a lock of comsd|cannot be created"):
        comsd.pretrain("comsd", run=place, **SMOKE)
    assert (place / mine).read_bytes() == work
    assert [p for p in place.rglob("*") if p.is_file()] == [place / mine]


def test_a_creation_cut_short_leaves_the_users_files(finished: Path, tmp_path: Path) -> None:
    """There is a mark, but also something that no creation makes."""
    (tmp_path / ".creating").touch()
    Run(finished).copy_policy(Folder(tmp_path) / "source")
    (tmp_path / "source" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="another --run"):
        Run.create(tmp_path, resolve("comsd", "maze-tree", "smoke"))
    assert (tmp_path / "source" / "thesis.tex").read_text() == "years of work"
    (tmp_path / "source" / "thesis.tex").unlink()
    Run.create(tmp_path, resolve("comsd", "maze-tree", "smoke"))
    assert {p.name for p in tmp_path.iterdir()} == {"config.json", "lock"}


def test_what_users_put_into_checkpoints_survives_their_removal(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    checkpoint.save(folder, 1, {"agent": {"w": torch.ones(1)}})
    (folder / f"{1:012d}" / "notes.txt").write_text("mine")
    (folder / "chunks").mkdir()
    (folder / "chunks" / "mine.safetensors").write_text("mine")
    (folder / ".tmp-mine").mkdir()
    (folder / ".tmp-mine" / "x").write_text("mine")
    for step in (2, 3, 4):
        checkpoint.save(folder, step, {"agent": {"w": torch.ones(1)}})
    kept = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert {f"{1:012d}/notes.txt", "chunks/mine.safetensors", ".tmp-mine/x"} <= kept
    assert f"{1:012d}/agent.safetensors" not in kept
    assert checkpoint.latest(folder) == ({"agent": {"w": torch.ones(1)}}, [])


def test_a_failed_start_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from comsd.methods.diayn import DIAYN

    def broken(*_: object) -> None:
        raise MemoryError

    for where in ("__init__", "reward"):
        with monkeypatch.context() as patch:
            patch.setattr(DIAYN, where, broken)
            with pytest.raises(RunError, match=r"too little memory.*nothing is left of it"):
                comsd.pretrain("diayn", run=tmp_path / "a" / "b", **SMOKE)
        assert not (tmp_path / "a" / "b").exists()
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write_sealed", broken)
        with pytest.raises(MemoryError):
            Run.create(tmp_path / "c" / "d", resolve("diayn", "maze-tree", "smoke"))
    assert not (tmp_path / "c").exists()
    comsd.pretrain("diayn", run=tmp_path / "a" / "b", **SMOKE)


# --- code -------------------------------------------------------------------------------------


def test_a_run_never_has_code_executed(run_copy: Path, tmp_path: Path) -> None:
    """Whatever its config names, and whatever Python files lie in it."""
    canary = tmp_path / "canary"
    code = f"open({str(canary)!r}, 'w').write('executed')\n"
    for name in ("method.py", "conftest.py", "comsd.py", "torch.py", "checkpoints/x.py"):
        (run_copy / name).write_text(code)
    method = str(run_copy / "method.py")
    original = json.loads((run_copy / "config.json").read_text())
    original.pop("seal")
    for group, field in (("run", "method"), ("run", "env"), ("run", "agent"), ("run", "device")):
        for value in (method, f"file:{method}", f"gym:{run_copy}/method:X", "comsd.api:main"):
            record = json.loads(json.dumps(original))
            record["config"][group][field] = value
            record["versions"] |= {"method.py": "x", "method_file": method}
            (run_copy / "config.json").write_text(json.dumps(record))
            for verb in (comsd.load, comsd.evaluate, comsd.resume):
                with pytest.raises((InputError, RunError)):
                    verb(run_copy)
    assert not canary.exists()


# --- results elsewhere ------------------------------------------------------------------------


def test_results_can_go_elsewhere(run_copy: Path, tmp_path: Path) -> None:
    before = content(run_copy)
    out = tmp_path / "new" / "out"
    result = comsd.evaluate(run_copy, out=out)
    assert result.picture == out / "skills.png"
    assert content(run_copy) == before
    record = json.loads((out / "evaluation.json").read_text())
    assert record["metrics"] == result.metrics
    comsd.evaluate(run_copy, out=out)  # its own results may be replaced
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "skills.png").write_text("mine")
    with pytest.raises(InputError, match="holds other files; it must be new, empty or have"):
        comsd.evaluate(run_copy, out=mine)
    assert content(mine) == {"skills.png": b"mine"}


def test_a_run_that_cannot_be_written_says_where_results_can_go(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(InputError, match=r"cannot be written: .*--out DIR"):
        comsd.evaluate(run_copy)
