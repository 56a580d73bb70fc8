"""Snapshots on the way of a training: what they hold, exact resume, using a run at one of them."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import comsd
from comsd import checkpoint
from comsd.adaptation import CombineSettings, FinetuneSettings
from comsd.errors import InputError, RunError
from comsd.evaluation.base import untrained_policy
from comsd.explorer import page
from comsd.files import Folder
from comsd.reproduction.collect import FinishedRun
from comsd.reproduction.keep import keep_run
from comsd.reproduction.run_page import write_run_report
from comsd.resolve import resolve
from comsd.runs.run import Run
from processes import call, start

SETTINGS: dict[str, Any] = {  # an update every four steps: that after 777 ends at 780
    "env": "hopper",
    "preset": "smoke",
    "skills": 8,
    "steps": 800,
    "checkpoint_every": 400,
    "log_every": 400,
    "evaluate_every": 10**6,
    "snapshots": "300,452,777",
}
QUICK: dict[str, Any] = {"starts": 2, "skills": 3, "steps": 10}  # of an evaluation


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run"
    return comsd.pretrain("comsd", run=path, **SETTINGS).path


@pytest.fixture
def run_copy(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def unfinished(run_copy: Path) -> Path:
    """As if it had been killed at step 799."""
    shutil.rmtree(run_copy / "checkpoints" / f"{800:012d}")
    return run_copy


def snapshots(run: Path) -> dict[str, bytes]:
    """Every file, by its path."""
    files = (file for file in (run / "snapshots").rglob("*") if file.is_file())
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


# --- what they are --------------------------------------------------------------------------------


def test_a_snapshot_is_what_training_had_learned_at_its_step(whole: Path, tmp_path: Path) -> None:
    other: dict[str, Any] = {**SETTINGS, "steps": 452, "checkpoint_every": 300, "snapshots": ""}
    comsd.pretrain("comsd", run=tmp_path / "run", **other)
    for step in (300, 452):
        ours, theirs = (
            path / f"{step:012d}" for path in (whole / "snapshots", tmp_path / "run/checkpoints")
        )
        for name in ("agent", "method", "rule"):
            file = f"{name}.safetensors"
            assert (ours / file).read_bytes() == (theirs / file).read_bytes()
    assert not (tmp_path / "run/snapshots").exists()


def test_they_stay_and_hold_nothing_of_the_training(whole: Path) -> None:
    kept = sorted(place.name for place in (whole / "snapshots").iterdir())
    assert kept == [f"{step:012d}" for step in (300, 452, 777)]
    for place in kept:
        state = checkpoint.read(whole / "snapshots" / place)
        assert set(state) == {"agent", "method", "rule", "run"}
        assert not [name for name in state["agent"] if "optim" in name]


def test_a_cycle_that_passes_several_steps_is_saved_for_each(tmp_path: Path) -> None:
    """On-policy: 600 and 900 are passed by the cycle that ends at 1000."""
    settings: dict[str, Any] = {"env": "maze-tree", "preset": "smoke", "skills": 3}
    run = comsd.pretrain("diayn", run=tmp_path / "run", snapshots="600,900,2000", **settings)
    first, second, last = (comsd.load(run, at=at) for at in (600, 900, 2000))
    assert (first.used_step, second.used_step, last.used_step) == (1000, 1000, 2000)
    weights = [each.load_agent().state_dict() for each in (first, second, last, run)]
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name])
        assert torch.equal(weights[2][name], weights[3][name])
    assert any(not torch.equal(value, weights[2][name]) for name, value in weights[0].items())


@pytest.mark.parametrize(
    "value", ["452,300", "300,300", "0,300", "300,801", "x", "300,", ",", "1.5", "-5", "1e999"]
)
def test_other_than_increasing_steps_are_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"snapshots is .* increasing whole numbers between 1 and"):
        comsd.pretrain("comsd", run=tmp_path / "run", **{**SETTINGS, "snapshots": value})
    assert not (tmp_path / "run").exists()


def test_steps_are_noted_as_plain_numbers() -> None:
    config = resolve("comsd", "hopper", snapshots="1e5, 500_000,2000000")
    assert config.run.snapshots == "100000,500000,2000000"
    assert config.run.snapshot_steps == [100_000, 500_000, 2_000_000]
    assert resolve("comsd", "hopper").run.snapshot_steps == []


# --- exact resume ---------------------------------------------------------------------------------


def test_a_killed_run_has_the_snapshots_of_the_uninterrupted_one(
    whole: Path, tmp_path: Path
) -> None:
    """kill -9 once there is a snapshot that the checkpoint in use does not know of."""
    run = tmp_path / "run"
    process = start(run, SETTINGS)
    while not (run / "snapshots" / f"{452:012d}").exists():
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    comsd.resume(run)
    assert snapshots(run) == snapshots(whole)


@pytest.mark.parametrize("failing", ["write", "rename", "sync"])
def test_dying_while_a_snapshot_is_saved_loses_nothing(
    failing: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the second; when it goes on, the first checkpoint comes before both."""
    original, run = getattr(Folder, failing), tmp_path / "run"

    def broken(self: Folder, *args: Any) -> Any:
        if "snapshots" in self.below and (run / "snapshots" / f"{300:012d}").exists():
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(Folder, failing, broken)
    with pytest.raises(KeyboardInterrupt):
        comsd.pretrain("comsd", run=run, **SETTINGS)
    monkeypatch.undo()
    comsd.resume(run)
    assert snapshots(run) == snapshots(whole)


def test_no_checkpoint_comes_before_the_snapshot_of_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who goes on from it would never save the snapshot."""
    run, settings = tmp_path / "run", SETTINGS | {"snapshots": "400", "steps": 404}

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "save_snapshot", killed)
    with pytest.raises(KeyboardInterrupt):
        comsd.pretrain("comsd", run=run, **settings)
    monkeypatch.undo()
    comsd.resume(run)
    assert comsd.load(run, at=400).used_step == 400


def test_a_snapshot_that_is_there_is_saved_again(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, original = tmp_path / "run", Run.save

    def save(self: Run, *args: Any) -> Any:
        if checkpoint.found(self.path / "checkpoints"):  # before the second, at the end
            raise ArithmeticError
        return original(self, *args)

    monkeypatch.setattr(Run, "save", save)
    with pytest.raises(ArithmeticError):
        comsd.pretrain("comsd", run=run, **SETTINGS)
    monkeypatch.undo()
    assert snapshots(run) == snapshots(whole)
    flip(run / "snapshots" / f"{452:012d}" / "agent.safetensors")  # after the checkpoint at 400
    comsd.resume(run)
    assert snapshots(run) == snapshots(whole)


def test_a_training_that_fails_keeps_its_snapshots_or_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = checkpoint.save
    settings: dict[str, Any] = SETTINGS | {"checkpoint_every": 800, "log_every": 800}

    def fail_at(step: int) -> None:
        def save(folder: Folder, at: int, *args: Any, **options: Any) -> Path:
            folder.make()
            if at == step:
                raise RunError("not saved")
            return original(folder, at, *args, **options)

        monkeypatch.setattr(checkpoint, "save", save)
        with pytest.raises(RunError, match=f"stopped at step {step}: not saved"):
            comsd.pretrain("comsd", run=tmp_path / str(step), **settings)

    fail_at(300)
    assert not (tmp_path / "300").exists()
    fail_at(452)
    assert comsd.load(tmp_path / "452", at=300).used_step == 300


# --- using a run at one of them -------------------------------------------------------------------


def test_a_run_is_used_as_it_was(whole: Path) -> None:
    run, then = comsd.load(whole), comsd.load(whole, at=777)
    obs, skill = torch.randn(5, 15), run.space.grid(5)
    assert (then.used_step, run.used_step) == (780, 800)
    assert not torch.equal(then.policy(obs, skill), run.policy(obs, skill))
    method, weights = then.load_method(), checkpoint.read(whole / "snapshots" / f"{777:012d}")
    assert all(torch.equal(v, weights["method"][k]) for k, v in method.state_dict().items())
    steps: Any = np.int64(777)
    assert comsd.load(run, at=steps).used_step == 780
    assert comsd.load(then) is then
    assert comsd.load(whole, at=800).used_step == 800  # the newest checkpoint
    with pytest.raises(InputError, match="at is 777; a run goes on from its newest checkpoint"):
        comsd.resume(then)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (400, r"at is 400; allowed: 300, 452, 777, 800 \(the snapshots and the newest checkpoint"),
        (0, "at is 0; it must be between 1 and"),
        ("300", "at is '300'; it must be a whole number"),
        (300.0, "at is 300.0; it must be a whole number"),
    ],
)
def test_a_step_that_is_not_there_is_one_sentence(at: Any, message: str, whole: Path) -> None:
    with pytest.raises(InputError, match=message):
        comsd.load(whole, at=at)


def test_a_run_without_any_says_so(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", resolve("comsd", "hopper", "smoke"))
    with pytest.raises(InputError, match="at is 5; allowed: none yet"):
        comsd.load(run, at=5)


def test_what_is_found_of_a_snapshot_goes_to_a_directory_of_its_own(
    run_copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name for path in run_copy.iterdir()}
    quick = " ".join(f"--{name} {value}" for name, value in QUICK.items())
    code, out, _ = call(f"evaluate {run_copy} --at 777 {quick}", capsys)
    assert code == 0
    assert "measured at step 780 of 800" in out
    code, out, _ = call(f"evaluate {run_copy} --at 3e2 {quick} --json", capsys)
    assert (code, json.loads(out)["step"]) == (0, 300)
    code, out, _ = call(f"analyse {run_copy} --at 300 {quick}", capsys)
    assert (code, out.splitlines()[0]) == (0, "step 300: 2 starts per skill, 10 steps each")
    analysis = json.loads((run_copy / "at-300/analysis/analysis.json").read_text())
    assert analysis["step"] == 300
    (run_copy.parent / "page.html").write_text(page.HOLE)
    monkeypatch.setattr(page, "files", lambda _: run_copy.parent)
    code, out, _ = call(f"explore {run_copy} --at 300 --starts 2 --steps 10 --skills 3", capsys)
    assert f"written: {run_copy / 'at-300/explore.html'}" in out
    assert '"step":300' in (run_copy / "at-300/explore.html").read_text()
    assert {path.name for path in run_copy.iterdir()} - before == {"at-777", "at-300"}
    found = {path.name for path in (run_copy / "at-777").iterdir()}
    assert found == {"skills.png", "evaluation.json"}
    for verb in ("evaluate", "analyse", "explore"):
        code, _, err = call(f"{verb} {run_copy} --at 400", capsys)
        assert (code, err.count("\n")) == (2, 1)
        assert "at is 400; allowed: 300, 452, 777, 800" in err
        assert call(f"{verb} {run_copy} --at 452 --starts 0", capsys)[0] == 2
    assert not (run_copy / "at-452").exists()


def test_a_snapshot_is_adapted(
    unfinished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that is not finished, which is refused without saying at which step."""
    monkeypatch.chdir(unfinished.parent)
    asked = "finetune run --task hopper_hop --steps 300"
    code, _, err = call(asked, capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert "step 400 of 800; `comsd resume run` finishes it, --at STEP takes it as it was" in err
    assert call(f"{asked} --at 777", capsys)[0] == 0
    assert call(f"{asked} --at=400", capsys)[0] == 0  # its newest checkpoint
    then = comsd.load(unfinished, at=777)
    tuned, other = (Run(f"runs/hopper_hop/finetune-run-at-{at}-0") for at in (777, 400))
    shutil.rmtree(unfinished / "checkpoints")
    obs, skill = torch.randn(5, 15), then.space.grid(5)
    for run in (tuned, other):
        assert isinstance(run.config.adapt, FinetuneSettings)
        assert run.config.sources["adapt.at"] == "the command"
        assert run.source is not None
    assert (tuned.config.adapt.at, other.config.adapt.at) == (777, 400)  # type: ignore[attr-defined]
    wanted = then.policy(obs, skill)
    assert torch.equal(untrained_policy(tuned)(obs, skill), wanted)
    assert not torch.equal(untrained_policy(other)(obs, skill), wanted)
    assert tuned.source is not None
    assert tuned.source.used_step == 780
    assert "comsd on hopper, seed 0, step 777" in write_run_report(tuned).read_text()


def test_skills_of_a_snapshot_are_combined_and_what_results_has_snapshots_too(
    whole: Path, tmp_path: Path
) -> None:
    then, place = comsd.load(whole, at=300), tmp_path / "run"
    run = comsd.combine(then, task="hopper_hop", run=place, steps=300, snapshots="250")
    assert isinstance(run.config.adapt, CombineSettings)
    assert run.config.adapt.at == 300
    assert run.source is not None
    obs, skill = torch.randn(5, 15), then.space.grid(5)
    assert torch.equal(run.source.policy(obs, skill), then.policy(obs, skill))
    scored = comsd.evaluate(comsd.load(place, at=250))
    assert (scored.step, scored.picture) == (252, place / "at-250/curve.png")
    watched = comsd.analyse_episodes(comsd.load(place, at=250), starts=2)
    assert (watched.step, watched.files["episodes.csv"].parent) == (252, place / "at-250/analysis")
    again = comsd.combine(whole, task="hopper_hop", run=tmp_path / "last", steps=300)
    assert again.config.adapt.at == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("finetune RUN --task hopper_hop --at 5", "at is 5; allowed: 300, 452, 777, 800"),
        ("combine RUN --task hopper_hop --at 5", "at is 5; allowed: 300, 452, 777, 800"),
        ("finetune RUN --task hopper_hop --at x", "--at is 'x'; it must be a whole number"),
        ("finetune RUN --task hopper_hop --at=", "--at is ''; it must be a whole number"),
        ("finetune RUN --task hopper_hop --at 300 --at 452", "--at is given twice"),
        ("finetune --scratch --at 300 --task hopper_hop", "so --at is too much"),
        ("evaluate RUN --at x", "--at is 'x'; it must be a whole number"),
    ],
)
def test_wrong_steps_are_one_sentence_and_leave_nothing(
    argv: str, message: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = argv.replace("RUN", str(whole))
    code, _, err = call(
        asked if "evaluate" in argv else f"{asked} --run {tmp_path / 'run'}", capsys
    )
    assert (code, err.count("\n")) == (2, 1)
    assert message in err
    assert not (tmp_path / "run").exists()


def test_the_step_cannot_be_set_apart_from_the_run(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"adapt\.at cannot be chosen"):
        comsd.finetune(whole, task="hopper_hop", run=tmp_path / "run", adapt={"at": 300})


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["agent.safetensors", "method.safetensors", "state.json"])
@pytest.mark.parametrize("damage", [flip, Path.unlink], ids=["flip", "delete"])
def test_a_damaged_snapshot_is_refused_and_the_run_stays_usable(
    name: str, damage: Any, run_copy: Path, tmp_path: Path
) -> None:
    damage(run_copy / "snapshots" / f"{452:012d}" / name)
    then = comsd.load(run_copy, at=452)
    with pytest.raises(RunError, match=rf"{name.partition('.')[0]}.*(is damaged|cannot be read)"):
        comsd.evaluate(then, **QUICK)
    with pytest.raises(RunError, match=r"is damaged|cannot be read"):
        comsd.finetune(then, task="hopper_hop", run=tmp_path / "tuned")
    assert not (tmp_path / "tuned").exists()
    assert comsd.load(run_copy, at=300).policy is not None
    assert comsd.resume(run_copy).finished


@pytest.mark.parametrize("step", [-1, 0, 10**400, "x", None, {}])
def test_a_crafted_step_is_refused(step: Any, run_copy: Path) -> None:
    file = run_copy / "snapshots" / f"{300:012d}" / "state.json"
    manifest = json.loads(file.read_text())
    del manifest["checksum"]
    manifest["state"]["run"]["step"] = step
    manifest["checksum"] = checkpoint.seal(manifest)
    file.write_text(json.dumps(manifest))
    with pytest.raises(RunError, match=r"state\.json is damaged"):
        _ = comsd.load(run_copy, at=300).used_step


def test_a_link_in_place_of_the_snapshots_is_not_followed(unfinished: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.move(unfinished / "snapshots", mine)
    (unfinished / "snapshots").symlink_to(mine)
    before = sorted(mine.rglob("*"))
    with pytest.raises(InputError, match="snapshots is a link"):
        comsd.resume(unfinished)
    with pytest.raises(InputError, match="snapshots is a link"):
        comsd.load(unfinished, at=300)
    assert sorted(mine.rglob("*")) == before


def test_copies_without_weights_have_none(whole: Path, tmp_path: Path) -> None:
    keep_run(FinishedRun("pretrain", "hopper", "comsd", 0, Run(whole)), Folder(tmp_path) / "kept")
    assert not (tmp_path / "kept/snapshots").exists()
    assert Run(tmp_path / "kept").finished
    with pytest.raises(InputError, match="at is 300; allowed: 800"):
        comsd.load(tmp_path / "kept", at=300)
