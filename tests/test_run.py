"""Runs: exact resume, faults, files."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import comsd
from comsd import checkpoint
from comsd.errors import InputError, Interrupted, RunError, readable_failures
from comsd.files import Folder
from comsd.registry import METHODS
from comsd.resolve import resolve
from comsd.runs.creation import creating, take_lock
from comsd.runs.provenance import commit
from comsd.runs.run import Run
from comsd.training.logger import Table
from comsd.training.on_policy import OnPolicyTrainer
from comsd.training.signals import graceful_stop

SMOKE: dict[str, Any] = {"env": "maze-tree", "preset": "smoke", "skills": 3}


def fingerprint(path: Path) -> str:
    """Hash of the last state and of the tables without their time columns."""
    total = hashlib.sha256()
    last = max(checkpoint.found(path / "checkpoints"))
    for file in sorted(last.glob("*.safetensors")):
        for name, tensor in sorted(load_file(file).items()):
            total.update(name.encode() + tensor.numpy().tobytes())
    state = json.loads((last / "state.json").read_text())["state"]
    state.pop("run")  # positions in the tables, and seconds
    total.update(json.dumps(state, sort_keys=True).encode())
    for table in ("metrics.csv", "evaluations.csv"):
        for row in csv.DictReader((path / table).open()):
            kept = {k: v for k, v in row.items() if k != "seconds"}
            total.update(json.dumps(kept).encode())
    return total.hexdigest()


def stop_after(monkeypatch: pytest.MonkeyPatch, cycles: int, how: BaseException) -> None:
    """Make the learner fail after a number of cycles."""
    original, done = OnPolicyTrainer.train_step, 0

    def cycle(self: OnPolicyTrainer) -> Any:
        nonlocal done
        if done == cycles:
            raise how
        done += 1
        return original(self)

    monkeypatch.setattr(OnPolicyTrainer, "train_step", cycle)


@pytest.mark.parametrize("method", METHODS)
def test_resume_equals_the_uninterrupted_run_bit_for_bit(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smoke runs save after cycles 2 and 4; a crash in cycle 4 loses cycle 3, which is redone."""
    comsd.pretrain(method, run=tmp_path / "whole", **SMOKE)
    with monkeypatch.context() as patch:
        stop_after(patch, 3, ArithmeticError())
        with pytest.raises(ArithmeticError):
            comsd.pretrain(method, run=tmp_path / "broken", **SMOKE)
    comsd.resume(tmp_path / "broken")
    assert fingerprint(tmp_path / "broken") == fingerprint(tmp_path / "whole")


def test_a_crash_before_the_first_checkpoint_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comsd.pretrain("comsd", run=tmp_path / "whole", **SMOKE)
    with monkeypatch.context() as patch:
        stop_after(patch, 1, ArithmeticError())
        with pytest.raises(ArithmeticError):
            comsd.pretrain("comsd", run=tmp_path / "broken", **SMOKE)
    comsd.resume(tmp_path / "broken")
    assert fingerprint(tmp_path / "broken") == fingerprint(tmp_path / "whole")


def test_a_run_that_has_lost_its_checkpoints_is_not_begun_anew(tmp_path: Path) -> None:
    comsd.pretrain("comsd", run=tmp_path / "run", **SMOKE)
    shutil.rmtree(tmp_path / "run/checkpoints")
    metrics = (tmp_path / "run/metrics.csv").read_bytes()
    with pytest.raises(InputError, match="run has lost its checkpoints; another --run starts anew"):
        comsd.resume(tmp_path / "run")
    assert (tmp_path / "run/metrics.csv").read_bytes() == metrics


def test_same_seed_same_run_other_seed_other_run(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        comsd.pretrain("comsd", run=tmp_path / name, seed=seed, **SMOKE)
    a, b, c = (fingerprint(tmp_path / name) for name in "abc")
    assert a == b
    assert a != c


def test_observing_does_not_disturb(tmp_path: Path) -> None:
    """Evaluations, logging and checkpoints leave training as it is."""
    comsd.pretrain("comsd", run=tmp_path / "much", **SMOKE)
    rarely: dict[str, Any] = {
        "log_every": 10**9,
        "evaluate_every": 10**9,
        "checkpoint_every": 10**9,
    }
    comsd.pretrain("comsd", run=tmp_path / "little", **SMOKE, **rarely)
    much, little = (
        checkpoint.latest(tmp_path / name / "checkpoints")[0] for name in ("much", "little")
    )
    for state in (much, little):
        state.pop("run")
    packed: list[dict[str, torch.Tensor]] = [{}, {}]
    trees = [checkpoint.pack(s, "", t) for s, t in zip((much, little), packed, strict=True)]
    assert trees[0] == trees[1]
    for name, tensor in packed[0].items():
        assert torch.equal(tensor, packed[1][name])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(number: signal.Signals, tmp_path: Path) -> None:
    run = tmp_path / "run"
    argv = "pretrain comsd --env maze-tree --preset smoke --skills 3 --steps 100000000 --run"
    process = subprocess.Popen(
        [sys.executable, "-m", "comsd", *argv.split(), str(run)],
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(run.glob("checkpoints/0*")):
        assert process.poll() is None
        time.sleep(0.05)
    sent = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert time.monotonic() - sent < 10
    assert process.returncode == 128 + number
    assert f"comsd resume {run}" in errors
    assert "Traceback" not in errors
    step = int(errors.split("stopped at step ")[1].split(" ")[0].replace(",", ""))
    assert max(checkpoint.found(run / "checkpoints")).name == f"{step:012d}"


@pytest.mark.parametrize("nohup", [False, True])
def test_a_closed_terminal_stops_a_run_unless_it_is_to_be_ignored(nohup: bool) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
    try:
        with graceful_stop() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.signal == (None if nohup else signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == (signal.SIG_IGN if nohup else signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_in_a_script_is_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = OnPolicyTrainer.train_step

    def cycle(self: OnPolicyTrainer) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return original(self)

    monkeypatch.setattr(OnPolicyTrainer, "train_step", cycle)
    with pytest.raises(Interrupted):
        comsd.pretrain("comsd", run=tmp_path / "run", **SMOKE)
    monkeypatch.undo()
    comsd.resume(tmp_path / "run")


# --- damage -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    comsd.pretrain("comsd", run=path, **SMOKE)
    return path


@pytest.fixture
def run_copy(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("damage", [flip, halve, Path.unlink], ids=["flip", "halve", "delete"])
@pytest.mark.parametrize(
    "name", ["agent.safetensors", "method.safetensors", "training.safetensors", "state.json"]
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    run_copy: Path, finished: Path, name: str, damage: Any
) -> None:
    last = max(checkpoint.found(run_copy / "checkpoints"))
    damage(last / name)
    said: list[str] = []
    comsd.resume(run_copy, said.append)
    assert last.name in said[0]
    assert name in said[0] or name == "state.json"
    assert fingerprint(run_copy) == fingerprint(finished)  # cycles 3 and 4 redone, exactly


def test_a_run_whose_last_manifest_is_damaged_is_not_finished(run_copy: Path) -> None:
    assert Run(run_copy).finished
    halve(max(checkpoint.found(run_copy / "checkpoints")) / "state.json")
    assert not Run(run_copy).finished
    comsd.resume(run_copy)
    assert Run(run_copy).finished


def test_dying_while_the_same_step_is_saved_again_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between moving the old one away and moving the new one in."""
    folder = tmp_path / "checkpoints"
    checkpoint.save(folder, 5, {"agent": {"x": torch.ones(2)}})
    original = Folder.rename

    def rename(self: Folder, name: str, to: str) -> None:
        if to == f"{5:012d}":
            raise KeyboardInterrupt
        original(self, name, to)

    monkeypatch.setattr(Folder, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(folder, 5, {"agent": {"x": torch.zeros(2)}})
    monkeypatch.undo()
    assert checkpoint.found(folder) == []
    checkpoint.recover(folder)
    assert checkpoint.latest(folder)[0]["agent"]["x"].tolist() == [1, 1]
    checkpoint.save(folder, 5, {"agent": {"x": torch.zeros(2)}})
    assert checkpoint.latest(folder)[0]["agent"]["x"].tolist() == [0, 0]


def test_what_was_saved_before_the_same_step_again_never_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for step in (1, 3, 3):
        checkpoint.save(folder, step, {"agent": {"x": torch.full((2,), float(step))}})
    assert sorted(place.name for place in folder.iterdir()) == [f"{1:012d}", f"{3:012d}"]
    flip(folder / f"{3:012d}" / "agent.safetensors")
    assert checkpoint.latest(folder, set_aside=True)[0]["agent"]["x"].tolist() == [1, 1]
    checkpoint.save(folder, 2, {"agent": {"x": torch.full((2,), 2.0)}})
    assert sorted(place.name for place in checkpoint.found(folder)) == [f"{1:012d}", f"{2:012d}"]


def test_an_evaluation_names_the_checkpoint_it_could_read(run_copy: Path) -> None:
    older, last = sorted(checkpoint.found(run_copy / "checkpoints"))
    assert comsd.evaluate(run_copy).step == int(last.name)
    flip(last / "agent.safetensors")
    with pytest.warns(UserWarning, match="using the checkpoint before it"):
        assert comsd.evaluate(run_copy).step == int(older.name)


def test_a_run_that_trains_on_can_be_evaluated_meanwhile(run_copy: Path) -> None:
    run = Run(run_copy)
    assert run.policy is not None
    for place in checkpoint.found(run_copy / "checkpoints"):  # replaced by newer ones
        shutil.rmtree(place)
    assert run.evaluations.rows()


def test_more_steps_are_noted_only_if_the_run_can_go_on(run_copy: Path) -> None:
    for place in checkpoint.found(run_copy / "checkpoints"):
        flip(place / "agent.safetensors")
    before = (run_copy / "config.json").read_text()
    with pytest.raises(RunError, match="no checkpoint can be read"):
        comsd.resume(run_copy, steps=10**6)
    assert (run_copy / "config.json").read_text() == before


def test_a_run_that_never_began_notes_what_it_begins_with(tmp_path: Path) -> None:
    place = tmp_path / "run"
    Run.create(place, resolve("comsd", "maze-tree", "smoke"))
    record = json.loads((place / "config.json").read_text())
    known, record["versions"] = record["versions"], {"own.py": "an earlier one"}
    del record["seal"]  # as of old runs
    (place / "config.json").write_text(json.dumps(record))
    comsd.resume(place)
    assert json.loads((place / "config.json").read_text())["versions"] == known


def test_numbers_out_of_arrays_are_settings() -> None:
    config = resolve("comsd", "maze-tree", "smoke", seed=np.int64(3))
    assert type(config.run.seed) is int
    with pytest.raises(InputError, match=r"steps is 2.5; it must be a whole number"):
        resolve("comsd", "maze-tree", "smoke", steps=np.float64(2.5))


def test_a_maze_run_has_no_skill_of_its_own(finished: Path) -> None:
    with pytest.raises(InputError, match="has not settled on a skill"):
        _ = Run(finished).selected_skill


def test_no_whole_checkpoint_is_an_error_that_names_the_files(run_copy: Path) -> None:
    for place in checkpoint.found(run_copy / "checkpoints"):
        flip(place / "agent.safetensors")
    with pytest.raises(RunError, match=r"no checkpoint can be read: .*agent.safetensors"):
        comsd.resume(run_copy)
    assert len(list(checkpoint.found(run_copy / "checkpoints"))) == 2  # nothing deleted


def test_a_changed_number_in_the_manifest_is_seen(run_copy: Path) -> None:
    """Still valid JSON, but another counter: the random stream would silently differ."""
    last = max(checkpoint.found(run_copy / "checkpoints"))
    text = (last / "state.json").read_text()
    (last / "state.json").write_text(text.replace('"steps": 2000', '"steps": 2001'))
    with pytest.raises(RunError, match=r"state\.json is damaged"):
        checkpoint.read(last)


def test_what_users_put_beside_checkpoints_is_left_alone(run_copy: Path) -> None:
    folder = run_copy / "checkpoints"
    shutil.copytree(folder / f"{1000:012d}", folder / "1-backup")
    assert checkpoint.latest(folder)[0]["training"]["steps"] == 2000
    checkpoint.save(folder, 3000, {"agent": {"w": torch.ones(1)}})
    names = sorted(p.name for p in folder.iterdir())
    assert names == [f"{2000:012d}", f"{3000:012d}", "1-backup"]


def test_a_table_cut_short_is_seen(run_copy: Path) -> None:
    halve(run_copy / "metrics.csv")
    with pytest.raises(RunError, match=r"metrics\.csv is damaged"):
        comsd.resume(run_copy)


def test_checkpoints_of_another_config_are_refused(run_copy: Path) -> None:
    file = run_copy / "config.json"
    record = json.loads(file.read_text().replace('"skills": 3', '"skills": 4'))
    del record["seal"]
    file.write_text(json.dumps(record))
    for verb in (comsd.resume, comsd.evaluate):
        with pytest.raises(InputError, match="do not fit"):
            verb(run_copy)


def test_another_version_is_reported(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("comsd.runs.run.provenance", lambda: {"torch": "1.0"})
    said: list[str] = []
    comsd.resume(run_copy, said.append)
    assert said == ["other versions than before (torch): not exact to the bit"]


def test_the_newest_two_checkpoints_are_kept(finished: Path) -> None:
    names = sorted(p.name for p in (finished / "checkpoints").iterdir())
    assert names == [f"{1000:012d}", f"{2000:012d}"]


def full_disk(_: Folder, name: str, content: bytes) -> None:
    """As `Folder.write`, onto a device that is always full."""
    with Path("/dev/full").open("wb", buffering=0) as file:
        file.write(content or name.encode())


@pytest.mark.parametrize("failing", ["rename", "sync", "write"])
def test_a_failing_save_leaves_the_last_checkpoint(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoints"
    checkpoint.save(folder, 1, {"agent": {"w": torch.ones(3)}})

    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Folder, failing, full_disk if failing == "write" else broken)
    with pytest.raises(OSError, match=r"No space|Input/output"):
        checkpoint.save(folder, 2, {"agent": {"w": torch.zeros(3)}})
    monkeypatch.undo()
    assert checkpoint.latest(folder)[0]["agent"]["w"].tolist() == [1, 1, 1]
    assert [p.name for p in folder.iterdir()] == [f"{1:012d}"]


def test_no_space_left_is_said_clearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, short = tmp_path / "whole", tmp_path / "short"
    comsd.pretrain("comsd", run=whole, **SMOKE)
    original, saves = checkpoint.save, 0

    def save(*args: Any) -> Path:
        nonlocal saves
        saves += 1
        if saves == 2:
            monkeypatch.setattr(Folder, "write", full_disk)
        return original(*args)

    monkeypatch.setattr(checkpoint, "save", save)
    with pytest.raises(RunError, match=r"no space left for .*comsd resume"):
        comsd.pretrain("comsd", run=short, **SMOKE)
    monkeypatch.undo()
    comsd.resume(short)  # with space again: as if nothing had happened
    assert fingerprint(short) == fingerprint(whole)


def test_nan_in_the_reward_stops_the_run_and_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from comsd.methods.diayn import DIAYN

    def reward(*_: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return torch.full((500,), float("nan")), {}

    monkeypatch.setattr(DIAYN, "reward", reward)
    with pytest.raises(RunError, match="stopped at step 0: NaN or infinity in the reward of diayn"):
        comsd.pretrain("diayn", run=tmp_path / "run", **SMOKE)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_nan_in_the_representation_stops_the_run(tmp_path: Path) -> None:
    wild = {"knn": "embedding", "lr": 1e12}
    with pytest.raises(RunError, match="NaN or infinity in encoder"):
        comsd.pretrain("comsd", run=tmp_path / "run", method=wild, **SMOKE)


def test_nan_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="agent/w holds NaN"):
        checkpoint.save(tmp_path / "c", 1, {"agent": {"w": torch.tensor([float("nan")])}})
    assert list((tmp_path / "c").iterdir()) == []


# --- files ------------------------------------------------------------------------------------


def test_states_survive_the_round_trip(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    state = {
        "agent": {"w": torch.randn(3, 4), "half": torch.ones(2, dtype=torch.float64)},
        "training": {
            "rng": rng.bit_generator.state,
            "list": [torch.arange(3), {"deep": np.array([1.5, 2.5])}],
            "none": None,
            "counter": np.int64(3),
        },
    }
    checkpoint.save(tmp_path / "c", 7, state)
    back, problems = checkpoint.latest(tmp_path / "c")
    assert problems == []
    assert torch.equal(back["agent"]["w"], state["agent"]["w"])
    assert back["agent"]["half"].dtype == torch.float64
    assert back["training"]["counter"] == 3
    assert back["training"]["list"][1]["deep"].tolist() == [1.5, 2.5]
    other = np.random.default_rng(6)
    other.bit_generator.state = back["training"]["rng"]
    assert other.random() == rng.random()


def test_the_policy_can_be_used_alone(finished: Path) -> None:
    run = comsd.load(finished)
    action = run.policy(torch.zeros(3, 2), run.space.grid(3))
    assert action.shape == (3, 2)
    for file in ("method.safetensors", "training.safetensors"):
        assert (max(checkpoint.found(finished / "checkpoints")) / file).exists()


def test_the_run_directory_explains_itself(finished: Path) -> None:
    record = json.loads((finished / "config.json").read_text())
    assert record["config"]["run"]["method"] == "comsd"
    assert record["config"]["method"]["alpha"] == 0.1
    assert record["sources"]["run.skills"] == "you"
    assert set(record["versions"]) >= {"comsd", "torch", "numpy", "python", "commit"}
    text = (finished / "config.json").read_text()
    assert str(Path.home()) not in text


def test_a_creation_cut_short_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / ".creating").touch()
    (tmp_path / "config.json.tmp").write_text("{")
    comsd.pretrain("comsd", run=tmp_path, **SMOKE)
    assert not list(tmp_path.glob("*.tmp")) + list(tmp_path.glob(".creating"))


def test_a_finished_run_that_lost_its_table_stays_finished(run_copy: Path) -> None:
    before = (run_copy / "config.json").read_text()
    (run_copy / "metrics.csv").unlink()
    with pytest.raises(RunError, match="shorter than the checkpoint saw it"):
        comsd.resume(run_copy, steps=10**6)
    assert (run_copy / "config.json").read_text() == before


def test_too_little_memory_is_one_sentence(tmp_path: Path) -> None:
    config = resolve("comsd", "maze-tree", "smoke", skills=3)
    run = Run.create(tmp_path / "run", config)
    with pytest.raises(RunError, match="too little memory"), readable_failures(run.path):
        torch.empty(2**60)


def test_a_finished_run_can_be_trained_on(finished: Path, tmp_path: Path) -> None:
    """To the same numbers as one that was to be so long from the beginning."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    shutil.copytree(finished, run)
    assert comsd.resume(run, steps=3000).finished
    longer: dict[str, Any] = {**SMOKE, "steps": 3000}
    comsd.pretrain("comsd", run=whole, **longer)
    for branch in ("agent", "method", "training"):
        ours, theirs = (
            load_file(max(checkpoint.found(path / "checkpoints")) / f"{branch}.safetensors")
            for path in (run, whole)
        )
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert json.loads((run / "config.json").read_text())["sources"]["run.steps"] == "you"
    with pytest.raises(InputError, match="is at 3000 already"):
        comsd.resume(run, steps=2500)


def test_two_processes_cannot_create_the_same_run(tmp_path: Path) -> None:
    config = resolve("comsd", "maze-tree", "smoke", skills=3)
    run = tmp_path / "run"
    run.mkdir()
    with take_lock(run), pytest.raises(InputError, match=f"in use by process {os.getpid()}"):
        Run.create(run, config)
    assert not (run / "config.json").exists()
    Run.create(run, config)


def test_a_policy_is_copied_over_nothing(finished: Path, tmp_path: Path) -> None:
    """What another source left, further trained, must not be taken for this one's."""
    last = max(checkpoint.found(finished / "checkpoints"))
    left = tmp_path / "source" / "checkpoints"
    shutil.copytree(finished / "checkpoints", left)
    (left / last.name).rename(left / "999999999999")
    (tmp_path / ".creating").touch()
    with creating(Folder(tmp_path), InputError):
        Run(finished).copy_policy(Folder(tmp_path) / "source")
    assert [place.name for place in checkpoint.found(left)] == [last.name]


def test_a_table_keeps_the_columns_of_its_first_line(tmp_path: Path) -> None:
    table = Table(Folder(tmp_path), "table.csv")
    assert table.rows() == []
    table.append({"step": 1, "a": 2})
    with pytest.warns(UserWarning, match="has no column b"):
        table.append({"step": 2, "b": 3})
    assert table.rows() == [{"step": "1", "a": "2"}, {"step": "2", "a": ""}]


def test_the_commit_is_ours_or_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed below somebody's project, its commit is not that of this code."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    said = ["commit", "-q", "--allow-empty", "-m", "theirs"]
    subprocess.run(["git", *who, *said], cwd=tmp_path, check=True)
    (tmp_path / "provenance.py").touch()
    monkeypatch.setattr("comsd.runs.provenance.__file__", str(tmp_path / "provenance.py"))
    assert commit.__wrapped__() == "unknown"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"skills": "10"}, "skills is '10'; it must be a whole number"),
        ({"seed": True}, "seed is True; it must be a whole number"),
        ({"steps": 1e9}, "steps is 1000000000.0; it must be a whole number"),
        ({"method": {"alpha": None}}, "method.alpha is None; it must be a finite number"),
        ({"method": {"smw": "no"}}, "method.smw is 'no'; it must be True or False"),
        ({"method": ["alpha"]}, "they must be a dict"),
        ({"method": {"alpa": 1}}, r"did you mean 'alpha'"),
        ({"agent": {"lr": float("inf")}}, "agent.lr is inf; it must be a finite number"),
        ({"nothing": 3}, "setting of run is 'nothing'"),
    ],
)
def test_wrong_settings_from_python(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        comsd.pretrain("comsd", run=tmp_path / "run", **(SMOKE | settings))
    assert not (tmp_path / "run").exists()


def test_an_existing_directory_is_never_overwritten(finished: Path) -> None:
    before = fingerprint(finished)
    with pytest.raises(InputError, match="comsd resume"):
        comsd.pretrain("comsd", run=finished, **SMOKE)
    with pytest.raises(InputError, match=r"a run with other settings \(run.seed, method.alpha\)"):
        comsd.pretrain("comsd", run=finished, **SMOKE, seed=5, method={"alpha": 1.0})
    with pytest.raises(InputError, match=r"a run with other settings \(run.method\)"):
        comsd.pretrain("diayn", run=finished, **SMOKE)
    with pytest.raises(InputError, match="is no run directory"):
        comsd.pretrain("comsd", run=finished / "checkpoints", **SMOKE)
    assert fingerprint(finished) == before


def test_a_second_process_is_refused_with_the_holders_pid(finished: Path) -> None:
    with take_lock(finished):
        assert Run(finished).in_use
        with pytest.raises(InputError, match=f"in use by process {os.getpid()}"):
            comsd.resume(finished)
    assert not Run(finished).in_use
    comsd.resume(finished)


def test_no_pickle_and_no_unsafe_loading_in_the_package() -> None:
    package = Path(comsd.__file__).parent
    for file in package.rglob("*.py"):
        text = file.read_text()
        for word in ("pickle", "torch.load(", "torch.save(", " eval(", "exec(", "shell=True"):
            assert word not in text, f"{word} in {file}"
