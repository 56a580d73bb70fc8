"""From layers of values to a config: agents, old names, what is dropped and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import comsd
from comsd import api
from comsd.envs.mujoco import HORIZON
from comsd.envs.robots import ROBOTS, load_robot
from comsd.envs.specs import ROBOT_TASKS
from comsd.errors import InputError, RunError
from comsd.registry import AGENTS, ENVS, TASKS
from comsd.resolve import from_json, resolve
from comsd.runs.run import Run
from comsd.training.checks import cpu_bf16_flags
from processes import call


def train(config: Any) -> dict[str, Any]:
    return config.train.__dict__


@pytest.mark.parametrize("env", [*ENVS, *TASKS])
def test_every_agent_of_an_environment_has_every_preset(env: str) -> None:
    spec = (ENVS | TASKS)[env]
    for agent, presets in spec.agents.items():
        assert set(presets) == set(spec.presets)
        known = {f"agent.{n}" for n in AGENTS[agent].config_class.__dataclass_fields__}
        known |= {f"train.{n}" for n in AGENTS[agent].train_settings.__dataclass_fields__}
        assert all(set(layer) <= known for layer in presets.values())


def test_what_the_registry_says_of_robots_is_true() -> None:
    assert {name: tuple(load_robot(name).tasks) for name in ROBOTS} == ROBOT_TASKS
    assert {spec.horizon for name, spec in ENVS.items() if name in ROBOTS} == {HORIZON}


def test_the_first_agent_is_the_usual_one_and_another_can_be_named() -> None:
    assert resolve("comsd", "maze-tree").run.agent == "ppo"
    assert resolve("comsd", "walker").run.agent == "ddpg"
    config = resolve("aps", "walker", "smoke", agent={"name": "ppo", "lr": 1e-3})
    assert (config.run.agent, config.sources["run.agent"]) == ("ppo", "you")
    assert (config.agent.__dict__["lr"], train(config)) == (1e-3, {"envs": 1})  # no `hold` of APS's
    assert isinstance(resolve("comsd", "walker", agent="ppo").agent, AGENTS["ppo"].config_class)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agent": "td3"}, "agent is 'td3'; allowed: ddpg, ppo, sac"),
        ({"agent": {"name": 3}}, "agent is 3; allowed: ddpg, ppo, sac"),
        ({"agent": 3}, "agent settings are 3; they must be a dict"),
        ({"agent": {"name": "ppo", "hold": 5}}, "setting of agent is 'hold'"),
        ({"agent": "ppo", "train": {"hold": 5}}, "setting of train is 'hold'; allowed: envs"),
        ({"agent": {"batch_size": 1}}, "train.batch_size is 1; it must be between 2 and 1000000"),
        ({"precision": "fp8"}, "precision is 'fp8'; allowed: float32, bf16"),
        ({"stage": "finetune"}, "stage cannot be chosen"),
    ],
)
def test_what_the_user_cannot_mean_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve("comsd", "walker", **settings)


def test_old_names_of_training_settings(capsys: pytest.CaptureFixture[str]) -> None:
    config = resolve("comsd", "walker", agent={"batch_size": 32, "lr": 1e-3})
    assert (train(config)["batch_size"], config.sources["train.batch_size"]) == (32, "you")
    said = call("config comsd --env walker --agent.batch-size 32 --agent.one-skill", capsys)
    assert call("config comsd --env walker --train.batch-size 32 --train.one-skill", capsys) == said
    _, out, _ = said
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert (lines["train.batch_size"][1:3], lines["train.one_skill"][1]) == (["32", "you"], "True")
    assert call("pretrain comsd --env walker --agent.hold 5 --train.hold 5", capsys)[0] == 2
    _, out, _ = call("pretrain comsd --env walker --help", capsys)
    assert "--train.hold" in out
    assert "--agent.hold" not in out


def test_a_config_from_before_training_had_settings_of_its_own() -> None:
    now = resolve("comsd", "walker", "lite", seed=3)
    old = now.to_json()
    old["agent"] |= old.pop("train")
    del old["run"]["agent"], old["run"]["precision"]
    assert from_json(old, now.sources) == now
    assert from_json(now.to_json(), now.sources).sources == now.sources
    old["agent"]["horizon"] = 5
    with pytest.raises(InputError, match="setting of agent is 'horizon'"):
        from_json(old, now.sources)


def test_a_run_resolves_once_and_builds_one_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def counted(name: str, function: Any) -> Any:
        def wrapped(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return function(*args, **options)

        return wrapped

    spec = ENVS["maze-tree"]
    monkeypatch.setattr(api, "resolve", counted("resolve", api.resolve))
    counting = dataclasses.replace(spec, make=counted("env", spec.make))
    monkeypatch.setitem(ENVS, "maze-tree", counting)
    comsd.pretrain("comsd", env="maze-tree", preset="smoke", run=tmp_path / "run")
    assert (calls.count("resolve"), calls.count("env")) == (1, 1)


def test_bf16_needs_a_processor_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    for text, flags in (
        ("flags\t\t: fpu avx512_bf16 amx_tile", {"avx512_bf16"}),
        ("processor\t: 0\nFeatures\t: fp asimd bf16 i8mm\n", {"bf16"}),
        ("flags : fpu sse2", set[str]()),
    ):
        cpuinfo.write_text(text)
        assert cpu_bf16_flags(cpuinfo) == flags
    assert cpu_bf16_flags(tmp_path / "none") == set()
    monkeypatch.setattr("comsd.training.checks.has_bf16", lambda _: False)
    asked = f"pretrain comsd --env maze-tree --precision bf16 --run {tmp_path / 'run'}"
    code, _, err = call(asked, capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert "precision is 'bf16', but this cpu has no instructions for it" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("env", "agent"), [("maze-tree", "ddpg"), ("maze-tree", "sac"), ("hopper", "ppo")]
)
def test_another_agent_than_the_usual_one_trains(
    env: str, agent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    asked = f"pretrain comsd --env {env} --agent {agent} --preset smoke --skills 3 --run {run}"
    assert call(asked, capsys)[0] == 0
    opened = Run(run)
    assert (opened.finished, opened.config.run.agent) == (True, agent)
    assert any(name.startswith(f"{agent}/") for name in opened.metrics.rows()[-1])
    assert call(f"evaluate {run} --json", capsys)[0] == 0
    steps = opened.reached + 400
    assert comsd.resume(run, steps=steps).finished


def test_skills_of_ppo_are_combined_but_not_fine_tuned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short: dict[str, Any] = {"preset": "smoke", "skills": 3, "evaluate_every": 10**6}
    source = comsd.pretrain("comsd", env="hopper", agent="ppo", run=tmp_path / "ppo", **short)
    asked = f"finetune {source.path} --task hopper_hop --run {tmp_path / 'tuned'}"
    code, _, err = call(asked, capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert "was trained by ppo, which cannot be fine-tuned; allowed: ddpg" in err
    combined = comsd.combine(source, task="hopper_hop", run=tmp_path / "combined", steps=300)
    assert (combined.finished, combined.config.run.agent) == (True, "ddpg")


def test_a_recorded_config_that_is_none_is_said(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", resolve("comsd", "maze-tree", "smoke"))
    record = json.loads((run.path / "config.json").read_text())
    record["config"]["agent"]["lr"] = -1
    record.pop("seal", None)
    (run.path / "config.json").write_text(json.dumps(record))
    with pytest.raises(RunError, match=r"agent\.lr is -1\.0|agent\.lr is -1"):
        Run(run.path)


def test_the_literal_preset_is_the_papers_equations_at_the_papers_size() -> None:
    paper, literal = resolve("comsd", "walker"), resolve("comsd", "walker", "literal")
    differing = {
        name: value
        for name, value in literal.method.__dict__.items()
        if value != paper.method.__dict__[name]
    }
    eq_10 = {"knn": "trajectory", "knn_form": "log", "knn_floor": 1e-30}
    assert differing == {**eq_10, "tau": "adjacent", "reward_after": True}
    assert (literal.agent, literal.train) == (paper.agent, paper.train)
    assert literal.run == dataclasses.replace(paper.run, preset="literal")
    assert literal.sources["method.knn"] == "paper, Eq. 10"
    maze = resolve("comsd", "maze-tree", "literal").method.__dict__
    assert {name: maze[name] for name in (*eq_10, "query", "alpha", "w_low", "w_high")} == {
        **eq_10,
        "query": "learned",
        "alpha": 1.0,
        "w_low": 0.5,
        "w_high": 1.0,
    }
    assert resolve("cic", "walker", "literal").method == resolve("cic", "walker").method


TABLE = {  # of the paper, as it is printed: what pre-training has
    "run.space": "box",
    "run.skills": 64,
    "run.agent": "ddpg",
    "run.steps": 2_000_000,
    "method.w_low": 0,
    "method.w_high": 2,
    "method.temperature": 0.5,
    "method.lr": 1e-4,
    "agent.lr": 1e-4,
    "agent.discount": 0.99,
    "agent.target_ema": 0.01,
    "agent.noise": 0.2,
    "agent.noise_clip": 0.3,
    "train.hold": 50,
    "train.replay": 1_000_000,
    "train.random_steps": 4000,
    "train.n_step": 3,
    "train.batch_size": 1024,
    "train.update_every": 2,
}
BY_ROBOT = {  # alpha, f_low, f_high
    "walker": (0.25, 0, 1),
    "quadruped": (1e-3, 0, 1),
    "hopper": (1.25, 1 / 3, 2 / 3),
    "cheetah": (1.0, 1 / 3, 2 / 3),
}


@pytest.mark.parametrize("robot", BY_ROBOT)
def test_the_literal_preset_has_every_value_of_the_papers_table(robot: str) -> None:
    config = resolve("comsd", robot, "literal")
    found = {
        name: getattr(getattr(config, name.split(".")[0]), name.split(".")[1]) for name in TABLE
    }
    assert found == TABLE
    method = config.method
    assert (method.alpha, method.f_low, method.f_high) == BY_ROBOT[robot]  # type: ignore[attr-defined]
    images = resolve("comsd", robot, "literal", pixels=True).method
    assert images.alpha == BY_ROBOT[robot][0]  # type: ignore[attr-defined]
    assert images.neighbour_weight == 1  # type: ignore[attr-defined]
