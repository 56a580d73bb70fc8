"""Limits, seals, arguments of the wrong kind, stopping: one sentence each, and nothing lost."""

from __future__ import annotations

import dataclasses
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

import comsd
from comsd import checkpoint
from comsd.cli import main
from comsd.config import RunSettings
from comsd.errors import InputError, Interrupted, RunError, printable
from comsd.files import seal
from comsd.methods.diayn import DIAYN
from comsd.registry import AGENTS, METHODS
from comsd.runs.run import Run
from comsd.training.off_policy import OffPolicyTrainer
from comsd.training.on_policy import OnPolicyTrainer
from processes import call

SMOKE: dict[str, Any] = {"env": "maze-tree", "preset": "smoke", "skills": 3}
DDPG: dict[str, Any] = {**SMOKE, "agent": "ddpg"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    comsd.pretrain("comsd", run=path, **SMOKE)
    return path


@pytest.fixture
def run_copy(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


# --- ranges and sizes -------------------------------------------------------------------------


@pytest.mark.parametrize("value", [10**20, 10**400, 10**5000, -(10**20), 1e300], ids=list("abcde"))
def test_no_number_is_without_an_upper_end(value: float) -> None:
    groups = [RunSettings, *(m.config_class for m in METHODS.values())]
    groups += [kind for a in AGENTS.values() for kind in (a.config_class, a.train_settings)]
    tried = 0
    for group in groups:
        for field in dataclasses.fields(group):
            if field.type in ("int", "float") and (field.type == "float" or isinstance(value, int)):
                tried += 1
                with pytest.raises(InputError, match=f"{field.name} is .*; it must be ") as said:
                    group(**{field.name: value})
                assert len(str(said.value)) < 250
    assert tried > 50


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agent": {"hidden": 60_000}}, r"agent.hidden is 60000: .* GB are free; .* at most \d+"),
        ({"method": {"hidden": 60_000}}, r"method.hidden is 60000: .* GB are free; .* at most \d+"),
        ({"train": {"batch_size": 900_000}}, r"batch_size is 900000: .* it must be at most \d+"),
        ({"train": {"replay": 10**11}}, r"replay is 100000000000: it needs .* at most \d+"),
        ({"train": {"update_every": 5000}, "steps": 3000}, "must be at most steps 3000"),
    ],
)
def test_sizes_are_refused_before_anything_is_allocated(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    given = {**DDPG, **settings, "agent": {"name": "ddpg", **settings.get("agent", {})}}
    with pytest.raises(InputError, match=message):
        comsd.pretrain("comsd", run=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_steps_are_honoured_whatever_the_rhythm_of_updates(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**DDPG, "steps": 1500, "train": {"update_every": 1000}}
    run = comsd.pretrain("comsd", run=tmp_path / "run", **settings)
    assert run.reached == 1500


def test_resources_of_another_machine_can_be_replaced(run_copy: Path) -> None:
    record = json.loads((run_copy / "config.json").read_text())
    record["config"]["run"] |= {"threads": 1000, "device": "cuda:7"}
    del record["seal"]
    (run_copy / "config.json").write_text(json.dumps(record))
    assert comsd.evaluate(run_copy).step == 2000
    with pytest.raises(InputError, match=r"threads is 1000; this machine has \d+ cores"):
        comsd.resume(run_copy)
    with pytest.raises(InputError, match="device is 'cuda:7', but torch finds none"):
        comsd.resume(run_copy, threads=1)
    assert comsd.resume(run_copy, threads=1, device="cpu", steps=2500).reached == 2500


# --- seals ------------------------------------------------------------------------------------


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def test_every_flipped_bit_of_the_config_is_seen(run_copy: Path) -> None:
    file = run_copy / "config.json"
    whole, before = file.read_bytes(), comsd.load(run_copy).config
    for at in range(0, len(whole), 7):
        flip(file, at)
        with pytest.raises((InputError, RunError), match=r"config\.json"):
            comsd.load(run_copy)
        file.write_bytes(whole)
    assert comsd.load(run_copy).config == before


def test_tables_are_sealed_at_every_checkpoint(run_copy: Path, finished: Path) -> None:
    whole = (finished / "evaluations.csv").read_bytes()
    file = run_copy / "evaluations.csv"
    flip(file, len(whole) - 4)  # after the older checkpoint
    with pytest.raises(RunError, match=r"evaluations\.csv is damaged: its checksum"):
        Run(run_copy).evaluations.rows()
    said: list[str] = []
    comsd.resume(run_copy, said.append)  # from the older one, exactly
    assert "evaluations.csv is damaged" in said[0]
    assert file.read_bytes() == whole
    flip(file, 12)
    with pytest.raises(RunError, match=r"evaluations\.csv is damaged: its checksum"):
        comsd.resume(run_copy)


def test_damage_after_the_last_checkpoint_is_cut_off(run_copy: Path, finished: Path) -> None:
    with (run_copy / "metrics.csv").open("ab") as file:
        file.write(b"2100,\xff\xfe broken")
    assert len(Run(run_copy).metrics.rows()) == len(Run(finished).metrics.rows())
    comsd.resume(run_copy)
    assert (run_copy / "metrics.csv").read_bytes() == (finished / "metrics.csv").read_bytes()


def test_runs_of_before_the_seals_still_load(run_copy: Path) -> None:
    record = json.loads((run_copy / "config.json").read_text())
    del record["seal"]
    (run_copy / "config.json").write_text(json.dumps(record))
    for place in checkpoint.found(run_copy / "checkpoints"):
        change_state(place, lambda state: state["run"].pop("checksums"))
    assert comsd.evaluate(run_copy).step == 2000
    assert comsd.resume(run_copy, steps=2500).finished
    (run_copy / "evaluations.csv").write_bytes(b"step,x\n\xff,1\n")
    with pytest.raises(RunError, match=r"evaluations\.csv is damaged"):
        comsd.resume(run_copy, steps=3000)


def change_state(place: Path, change: Any) -> None:
    """Another manifest, with a checksum that fits."""
    manifest = json.loads((place / "state.json").read_text())
    manifest.pop("checksum")
    change(manifest["state"])
    (place / "state.json").write_text(json.dumps({**manifest, "checksum": seal(manifest)}))


def test_all_that_is_read_is_of_one_checkpoint(run_copy: Path) -> None:
    older, last = sorted(checkpoint.found(run_copy / "checkpoints"))
    flip(last / "method.safetensors", 3000)
    run = Run(run_copy)
    with pytest.warns(UserWarning, match="using the checkpoint before it"):
        agent = run.load_agent()
    wanted = checkpoint.read(older, ["agent"])["agent"]
    assert all(torch.equal(t, wanted[name]) for name, t in agent.state_dict().items())
    assert run.used_step == int(older.name)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(agent=[]),
        lambda s: s.update(agent={"$tensor": "nothing"}),
        lambda s: s["training"].update(steps="many"),
        lambda s: s["training"].update(env=None),
        lambda s: s["training"]["random"].update(rng={}),
        lambda s: s.update(run=None),
        lambda s: s["run"].update(metrics=10**30),
        lambda s: s["run"].update(metrics=None),
        lambda s: s["run"].update(seconds="x"),
        lambda s: s["run"].update(versions=7),
        lambda s: s["run"].update(checksums=[1]),
    ],
)
def test_crafted_manifests_are_one_sentence(
    change: Any, run_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in checkpoint.found(run_copy / "checkpoints"):
        change_state(place, change)
    for verb in ("resume", "evaluate"):
        code, _, err = call(f"{verb} {run_copy}", capsys)
        assert code in (0, 1, 2)
        assert "Traceback" not in err
        assert code == 0 or err.startswith("comsd: ")


# --- NaN, signals, text -----------------------------------------------------------------------


def test_nan_in_a_metric_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = DIAYN.reward

    def reward(self: DIAYN, *args: Any) -> Any:
        reward, metrics = original(self, *args)
        return reward, {**metrics, "diayn/odd": torch.tensor(float("nan"))}

    monkeypatch.setattr(DIAYN, "reward", reward)
    for name, settings in (("on", SMOKE), ("off", DDPG)):
        with pytest.raises(RunError, match=r"stopped at step \d+: .*diayn/odd"):
            comsd.pretrain("diayn", run=tmp_path / name, **settings)
        assert not (tmp_path / name).exists()  # nothing was trained


def test_a_signal_cuts_a_long_collection_in_two_and_resume_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {**DDPG, "steps": 2400, "train": {"update_every": 600}}
    settings |= {"log_every": 200, "evaluate_every": 700, "checkpoint_every": 900}
    settings |= {"snapshots": "450,1400"}  # passed before the signals, reached by what is cut
    whole = comsd.pretrain("comsd", run=tmp_path / "whole", **settings)
    original = OffPolicyTrainer.collect_step

    def collect_step(self: OffPolicyTrainer) -> None:
        original(self)
        if self.steps in (500, 1500):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(OffPolicyTrainer, "collect_step", collect_step)
    with pytest.raises(Interrupted, match="stopped at step 500 and saved"):
        comsd.pretrain("comsd", run=tmp_path / "cut", **settings)
    with pytest.raises(Interrupted, match="stopped at step 1,500 and saved"):
        comsd.resume(tmp_path / "cut")
    cut = comsd.resume(tmp_path / "cut")
    for ours, theirs in zip(cut.tables.values(), whole.tables.values(), strict=True):
        drop = [{k: v for k, v in row.items() if k != "seconds"} for row in ours.rows()]
        assert drop == [{k: v for k, v in r.items() if k != "seconds"} for r in theirs.rows()]
    for at in (None, 450, 1400):
        then = [comsd.load(run, at) for run in (cut, whole)]
        a, b = (run.load_agent().state_dict() for run in then)
        assert all(torch.equal(a[name], b[name]) for name in a)
        assert then[0].used_step == then[1].used_step


def test_a_step_that_does_not_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, done = OnPolicyTrainer.train_step, 0

    def train_step(self: OnPolicyTrainer) -> Any:
        nonlocal done
        done += 1
        if done == 4:  # after the checkpoint of cycle 2
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                time.sleep(0.01)
        return original(self)

    monkeypatch.setattr("comsd.api.PATIENCE", 0.3)
    monkeypatch.setattr(OnPolicyTrainer, "train_step", train_step)
    with pytest.raises(Interrupted, match=r"in the middle of a long step; saved is step 1,000"):
        comsd.pretrain("comsd", run=tmp_path / "run", **SMOKE)
    monkeypatch.undo()
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert comsd.resume(tmp_path / "run").finished


def test_control_characters_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = tmp_path / "\x1b]0;owned\x07\u202e\n"
    hostile.mkdir()
    with pytest.raises(SystemExit):
        main(["evaluate", str(hostile)])
    err = capsys.readouterr().err
    assert printable(err.rstrip("\n")) == err.rstrip("\n")
    assert "\\x1b]0;owned\\x07\\u202e\\n" in err


# --- the Python functions ---------------------------------------------------------------------

WRONG_PATHS: list[Any] = [None, 3, 2.5, b"run", [], object(), "", "a\0b", np.int64(3)]


@pytest.mark.parametrize("value", WRONG_PATHS, ids=lambda value: type(value).__name__)
def test_what_is_no_path_is_one_sentence(value: Any, finished: Path) -> None:
    for verb in (comsd.load, comsd.resume, comsd.evaluate, comsd.analyse, comsd.report):
        with pytest.raises(InputError, match="it must be a path"):
            verb(value)
    with pytest.raises(InputError, match="it must be a path"):
        comsd.combine(value, task="walker_run")
    if value is not None:
        with pytest.raises(InputError, match="it must be a path"):
            comsd.pretrain("comsd", run=value, **SMOKE)
        with pytest.raises(InputError, match="it must be a path"):
            comsd.evaluate(finished, out=value)


@pytest.mark.parametrize(
    "value", [3, None, [], np.zeros(2), object()], ids=lambda value: type(value).__name__
)
def test_what_is_no_name_is_one_sentence(value: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(InputError, match="method is"):
        comsd.pretrain(value, env="maze-tree", run=run)
    with pytest.raises(InputError, match="env"):
        comsd.pretrain("comsd", env=value, run=run)
    with pytest.raises(InputError, match="preset is"):
        comsd.pretrain("comsd", env="maze-tree", preset=value, run=run)
    with pytest.raises(InputError, match="task"):
        comsd.finetune(None, task=value, run=run)
    numbers = () if isinstance(value, int) else ("seed", "steps", "log_every")
    for name in ("space", "precision", *numbers):
        with pytest.raises(InputError, match=f"{name} is"):
            comsd.pretrain("comsd", run=run, **{**SMOKE, name: value})
    assert not run.exists()


def test_other_wrong_arguments_are_one_sentence(finished: Path, tmp_path: Path) -> None:
    wrong: Any = "yes"
    for name in ("greedy", "random_start"):
        with pytest.raises(InputError, match=f"{name} is 'yes'; it must be True or False"):
            comsd.evaluate(finished, **{name: wrong})
    for verb in (comsd.resume, comsd.analyse):
        with pytest.raises(InputError, match="report is 'yes'; it must be a function"):
            verb(finished, report=wrong)
    wrong_steps: list[Any] = ["many", 2.5, True, 10**30]
    for steps in wrong_steps:
        with pytest.raises(InputError, match=r"steps is .*; it must be"):
            comsd.resume(finished, steps=steps)
    two: Any = "two"
    with pytest.raises(InputError, match="threads is 'two'; it must be a whole number"):
        comsd.resume(finished, threads=two)
    true: Any = np.True_
    assert comsd.evaluate(finished, greedy=true, out=tmp_path / "out").step == 2000


def test_numbers_of_numpy_and_paths_are_settings(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**SMOKE, "skills": np.int32(3), "seed": np.array(1)}
    run = comsd.pretrain("comsd", run=os.fspath(tmp_path / "run"), **settings)
    steps: Any = np.int64(2500)
    assert comsd.resume(run.path, steps=steps).reached == 2500


def stop_soon(argv: list[str], run: Path) -> tuple[float, str]:
    """Seconds from SIGTERM to the end of a training that is in its first steps; what it said."""
    process = subprocess.Popen([*argv, str(run)], stderr=subprocess.PIPE, text=True)
    while not (run / "config.json").exists():
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(1)
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "`comsd resume" in errors.replace(sys.executable, "")
    assert "Traceback" not in errors
    return time.monotonic() - sent, errors


def test_a_real_process_with_many_environments_stops_soon(tmp_path: Path) -> None:
    """In 10 s: the last two of eight are a thread's that sleeps."""
    argv = "-m comsd pretrain comsd --env maze-tree --preset lite --agent.envs 5000 --run"
    tries = (stop_soon([sys.executable, *argv.split()], tmp_path / name)[0] for name in "ab")
    assert any(seconds < 10 for seconds in tries)  # twice only where the machine is busy


def test_a_step_that_does_not_come_back_to_python_is_given_up(tmp_path: Path) -> None:
    """One product of matrices, say; here a call that holds no lock and hears no signal."""
    script = (
        "import ctypes, sys\n"
        "from comsd.cli import main\n"
        "from comsd.training import signals\n"
        "from comsd.training.on_policy import OnPolicyTrainer\n"
        "import comsd.api\n"
        "comsd.api.PATIENCE, signals.GRACE_SECONDS = 0.5, 0.5\n"
        "def deaf(self):\n"
        "    libc = ctypes.CDLL(None)\n"
        "    lock = ctypes.create_string_buffer(64)\n"
        "    libc.pthread_mutex_init(lock, None)\n"
        "    libc.pthread_mutex_lock(lock)\n"
        "    libc.pthread_mutex_lock(lock)\n"
        "OnPolicyTrainer.train_step = deaf\n"
        "main()\n"
    )
    words = "pretrain comsd --env maze-tree --preset smoke --skills 3 --run"
    seconds, errors = stop_soon([sys.executable, "-c", script, *words.split()], tmp_path / "run")
    assert seconds < 10
    assert "stopped in the middle of a long step; saved is step 0; `comsd resume" in errors


STUDY: dict[str, Any] = {"env": "maze-tree", "settings": {"method.alpha": [0.1, 0.5]}}
WRONG_STUDIES: list[tuple[str, dict[str, Any]]] = [
    ("dir is 3; it must be a path", {"dir": 3}),
    ("report is 'x'; it must be a function", {"report": "x"}),
    ("seeds is 'x'; it must be", {"seeds": "x"}),
    ("seeds is 0; it must be between 1 and", {"seeds": np.int64(0)}),
    ("preset is", {"preset": "paperr"}),
    ("where is 'ray'; it must be a dict", {"where": "ray"}),
    ("where is 'cpu'.* allowed: on, jobs", {"where": {"cpu": 1}}),
    ("jobs is 2.5; it must be", {"where": {"jobs": 2.5}}),
    ("gpus is 2; it must be between 0 and 1", {"where": {"gpus": 2}}),
]


@pytest.mark.parametrize(("said", "wrong"), WRONG_STUDIES, ids=lambda value: str(value)[:20])
def test_wrong_arguments_of_studies_are_one_sentence(
    said: str, wrong: dict[str, Any], tmp_path: Path
) -> None:
    given: dict[str, Any] = {"dir": tmp_path / "study", "preset": "smoke", **wrong}
    with pytest.raises(InputError, match=said):
        comsd.reproduce("maze", **given)
    with pytest.raises(InputError, match=said):
        comsd.sweep("comsd", **{**STUDY, **given})
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("value", [None, 3, b"x", [], object, "x"], ids=str)
def test_wrong_names_of_studies_are_one_sentence(value: Any, tmp_path: Path) -> None:
    given: dict[str, Any] = {"dir": tmp_path / "study", "preset": "smoke"}
    with pytest.raises(InputError, match="exhibit is"):
        comsd.reproduce(value, **given)
    if value != []:
        with pytest.raises(InputError, match="methods is"):
            comsd.reproduce("maze", methods=value, **given)
        with pytest.raises(InputError, match="method is"):
            comsd.sweep(value, env="maze-tree", **given)
    if value:  # None and [] are no settings
        with pytest.raises(InputError, match="settings is"):
            comsd.sweep("comsd", env="maze-tree", settings=value, **given)
    wrong_studies: list[dict[str, Any]] = [{"env": value}, {"settings": {"method.alpha": value}}]
    for wrong in wrong_studies:
        with pytest.raises(InputError):
            comsd.sweep("comsd", **(STUDY | given | wrong))
    assert not (tmp_path / "study").exists()


def test_numbers_of_numpy_are_arguments_of_studies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is accepted up to the first process."""
    asked: list[Any] = []
    monkeypatch.setattr("comsd.studies.carry_out", lambda *given: asked.append(given))
    monkeypatch.setattr("comsd.studies.carry_out_sweep", lambda *given: asked.append(given))
    monkeypatch.setattr("comsd.studies.write_report", lambda place: place)
    monkeypatch.setattr("comsd.studies.write_sweep_report", lambda place: (place, []))
    where = {"jobs": np.int64(1), "gpus": np.float32(0)}
    given: dict[str, Any] = {"seeds": np.int32(2), "methods": np.array(["diayn"])}
    comsd.reproduce("maze", dir=str(tmp_path), preset="smoke", where=where, **given)
    settings = {"method.alpha": np.array([0.5, 1.0]), "agent.epochs": [np.int64(2)]}
    comsd.sweep(
        "comsd", env="maze-tree", settings=settings, preset="smoke", dir=tmp_path,
        seeds=np.int64(2), lowest=np.bool_(True), where=where,
    )  # fmt: skip
    plan, sweep = asked[0][0], asked[1][0]
    assert len(plan.jobs) == 4  # of two numbers of skills
    assert [setting.ends for setting in sweep.settings] == [(0.5, 1.0), (2,)]
    assert sweep.lowest is True


def test_an_edited_config_says_what_to_do_and_that_helps(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    record = json.loads((run / "config.json").read_text())
    record["config"]["run"]["log_every"] += 1
    (run / "config.json").write_text(json.dumps(record))
    with pytest.raises(RunError, match='edited it on purpose, remove its entry "seal"'):
        comsd.load(run)
    del record["seal"]
    (run / "config.json").write_text(json.dumps(record))
    assert comsd.load(run).config.run.log_every == record["config"]["run"]["log_every"]
