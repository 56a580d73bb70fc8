"""Runs on robots: exact resume whatever happens, and how they look from outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import comsd
from comsd.errors import InputError, Interrupted
from comsd.evaluation.base import untrained_policy
from comsd.evaluation.skills import RobotEvaluator
from comsd.runs.run import Run
from comsd.training.off_policy import OffPolicyTrainer
from processes import (
    SMALL,
    call,
    fingerprint,
    newest,
    resume,
    start,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    comsd.pretrain("comsd", run=path, **SMALL)
    return path


@pytest.fixture(scope="module")
def wanted(whole: Path) -> str:
    return fingerprint(whole)


def test_a_signal_saves_in_time_and_the_rest_is_the_same(wanted: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run)
    while not newest(run):
        time.sleep(0.01)
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 128 + signal.SIGTERM
    assert time.monotonic() - asked < 10
    assert resume(run).wait(60) == 0
    assert fingerprint(run) == wanted


def test_a_signal_in_an_evaluation_puts_it_off(
    wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop inside the evaluation of the last step: resume makes up for it."""
    run, original = tmp_path / "run", RobotEvaluator.roll_out

    def roll_out(self: RobotEvaluator, *args: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *args, **options)

    monkeypatch.setattr(RobotEvaluator, "roll_out", roll_out)
    with pytest.raises(Interrupted):
        comsd.pretrain("comsd", run=run, **SMALL)
    monkeypatch.undo()
    manifest = json.loads((run / "checkpoints" / newest(run) / "state.json").read_text())
    assert (manifest["step"], manifest["state"]["run"]["evaluation_due"]) == (1600, True)
    assert not Run(run).evaluations.size
    assert not Run(run).finished
    assert resume(run).wait(60) == 0
    assert Run(run).finished
    assert fingerprint(run) == wanted


def test_a_damaged_checkpoint_is_not_counted_among_the_two(whole: Path, tmp_path: Path) -> None:
    """Fall back, go on, save once: the good one it started from must still be there."""
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    record = json.loads((run / "config.json").read_text())
    del record["seal"]
    record["config"]["run"] |= {"steps": 1700, "checkpoint_every": 10**6}
    (run / "config.json").write_text(json.dumps(record))
    before, damaged = sorted((run / "checkpoints").glob("[0-9]*"))
    (damaged / "agent.safetensors").write_bytes(b"")
    comsd.resume(run)
    left = sorted(p.name for p in (run / "checkpoints").glob("[0-9]*"))
    assert left == [before.name, "000000001700"]


def test_several_environments_resume_exactly_too(tmp_path: Path) -> None:
    settings = {**SMALL, "steps": 1600, "agent": {"envs": 4}}
    comsd.pretrain("cic", run=tmp_path / "whole", **settings)
    comsd.pretrain("cic", run=tmp_path / "parts", **{**settings, "steps": 800})
    record = json.loads((tmp_path / "parts" / "config.json").read_text())
    del record["seal"]
    record["config"]["run"]["steps"] = 1600
    (tmp_path / "parts" / "config.json").write_text(json.dumps(record))
    # The last line of the tables belongs to the end of the shorter run: step 800 in both.
    comsd.resume(tmp_path / "parts")
    runs = [Run(tmp_path / name) for name in ("whole", "parts")]
    states = []
    for run in runs:
        learner = run.trainer()
        run.restore(learner)
        states.append(learner.policy(torch.ones(1, 15), torch.ones(1, 8)))
    assert torch.equal(*states)


@pytest.mark.parametrize("method", ["aps", "cesd"])
def test_other_critics_resume_exactly_too(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SMALL, "steps": 500}
    comsd.pretrain(method, run=tmp_path / "whole", **settings)
    original = OffPolicyTrainer.train_step

    def cycle(self: OffPolicyTrainer) -> Any:
        if self.steps >= 350:
            raise ArithmeticError
        return original(self)

    with monkeypatch.context() as patch:
        patch.setattr(OffPolicyTrainer, "train_step", cycle)
        with pytest.raises(ArithmeticError):
            comsd.pretrain(method, run=tmp_path / "broken", **settings)
    comsd.resume(tmp_path / "broken")
    assert fingerprint(tmp_path / "broken") == fingerprint(tmp_path / "whole")


def test_the_policy_is_loaded_without_optimisers_and_replay(whole: Path) -> None:
    for place in (whole / "checkpoints").glob("[0-9]*"):
        assert (place / "agent.safetensors").stat().st_size < 100_000
    action = comsd.load(whole).policy(torch.zeros(3, 15), torch.rand(3, 8))
    assert action.shape == (3, 4)
    assert action.abs().max() <= 1


def test_the_log_has_the_health_figures(whole: Path) -> None:
    rows = Run(whole).metrics.rows()
    assert rows[0]["step"] == "200"  # nothing to say before learning begins
    columns = set(rows[0])
    for name in ("r_exp", "r_div", "r_div_weighted"):
        assert {f"comsd/{name}"} | {f"comsd/{name}_{t}" for t in ("low", "mid", "high")} <= columns
    assert {"health/retrieval", "comsd/nce", "comsd/variance", "ddpg/q"} <= columns
    looks = Run(whole).evaluations.rows()[-1]
    assert {"held_out_retrieval", "held_out_auc", "held_out_nats"} <= set(looks)
    assert {"akd_range_flag", "akd_max_flag", "akd_sd_flag"} <= set(looks)
    assert float(looks["held_out_chance"]) == pytest.approx(1 / 200)


def test_without_scores_no_fresh_episodes_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SMALL, "steps": 300, "space": "one-hot", "skills": 4}
    run = comsd.pretrain("becl", run=tmp_path / "run", **settings)
    evaluator, row = RobotEvaluator(run), run.evaluations.rows()[-1]
    assert "held_out_retrieval" not in row
    assert {"akd_range_constant", "akd_max_constant"} <= set(evaluator.progress_metrics) & set(row)
    monkeypatch.delattr("comsd.envs.mujoco.RobotEnv.step")
    assert evaluator.held_out(run.policy, run.load_method()).values == {}


def test_evaluate_measures_three_sweeps_and_draws(whole: Path) -> None:
    result = comsd.evaluate(whole, starts=4)  # fewer have no intervals
    assert {f"akd_range_{s}" for s in ("constant", "flag", "random")} <= set(result.metrics)
    assert {"activity_0", "activity_1", "activity_rho", "held_out_auc"} <= set(result.intervals)
    assert result.random["akd_mean_random"] > 1  # random torques shake the robot
    for figures in (result.metrics, result.untrained, result.random):
        assert 0 <= figures["identification"] <= 1
    low, high = result.intervals["activity_rho"]
    assert -1 <= low <= result.metrics["activity_rho"] <= high <= 1
    assert set(result.metrics) <= set(RobotEvaluator.meanings)
    assert result.picture.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"greedy": True}, "greedy is no option of evaluations on hopper; allowed: starts, skills"),
        ({"random_start": True}, "random_start is no option of evaluations on hopper"),
        ({"starts": 1}, "starts is 1; it must be at least 2"),
        ({"xy": (0, 15)}, "xy is 0,15; observations have 15 numbers, counted from 0"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    whole: Path, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        comsd.evaluate(whole, **options)


def test_the_untrained_policy_is_the_one_the_run_began_with(whole: Path) -> None:
    run = Run(whole)
    before = torch.get_rng_state()
    untrained = untrained_policy(run)
    assert torch.equal(torch.get_rng_state(), before)
    obs, skill = torch.ones(3, 15), run.space.grid(3)
    assert torch.equal(untrained(obs, skill), run.trainer().policy(obs, skill))
    assert not torch.equal(untrained(obs, skill), run.policy(obs, skill))


def test_tensorboard_gets_the_same_figures(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = {**SMALL, "steps": 400, "tensorboard": True}
    run = comsd.pretrain("comsd", run=tmp_path / "run", **settings)
    board = EventAccumulator(str(run.path / "tensorboard")).Reload()
    rows = run.metrics.rows()
    shown = board.Scalars("comsd/r_exp")
    assert [event.step for event in shown] == [int(row["step"]) for row in rows]
    assert shown[-1].value == pytest.approx(float(rows[-1]["comsd/r_exp"]), rel=1e-5)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("pretrain comsd --env waker", "env is 'waker' (did you mean 'walker'?)"),
        ("pretrain comsd --env walker --preset tiny", "preset is 'tiny'"),
        (
            "pretrain comsd --env walker --agent.replay 0",
            "train.replay is 0; it must be at least 1",
        ),
        ("pretrain comsd --env walker --agent.replay 999999999999", "it must be at most"),
        ("pretrain comsd --env walker --agent.horizon 9", "no option '--agent.horizon'"),
        ("pretrain diayn --env walker --space box", "allowed for diayn: one-hot"),
        ("pretrain comsd --env walker --agent.replay 5", "train.n_step is 3; it must be at most 2"),
        ("pretrain comsd --env walker --steps 4000", "steps is 4000; it must be more than"),
        ("pretrain comsd --env walker --agent.target-ema 2", "agent.target_ema is 2.0"),
        ("pretrain comsd --env walker --agent.n-step 1001", "it must be at most 1000"),
        ("pretrain comsd --env walker --agent.batch-size 8", "method.k is 16; it must be at most"),
        (
            "pretrain comsd --env walker --agent.batch-size 16 --method.knn-form log",
            "method.k is 16; it must be at most 15",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    argv: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    code, _, err = call(f"{argv} --run {run}", capsys)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not run.exists()


def test_no_compiler_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "a-compiler-that-is-not-there")
    with pytest.raises(InputError, match=r"agent.compile is True but needs a C\+\+ compiler"):
        comsd.pretrain("comsd", run=tmp_path / "run", **SMALL, agent={"compile": True})
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_of_another_version_is_refused(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "copy"
    shutil.copytree(whole, run)
    for place in (run / "checkpoints").glob("[0-9]*"):
        manifest = json.loads((place / "state.json").read_text())
        (place / "state.json").write_text(json.dumps({**manifest, "format": 1}))
    with pytest.raises(InputError, match=r"comsd 0\.1\.0 at commit 4f40b97: format 1"):
        comsd.resume(run)
