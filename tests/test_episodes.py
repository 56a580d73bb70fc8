"""What `comsd analyse` shows of adaptations: episodes, and which skill acts when."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import comsd
from comsd.adaptation import CombineSettings
from comsd.agents.dqn import GreedyPolicy
from comsd.analysis.episodes_figure import SMOOTHED, smoothed
from comsd.cli import main
from comsd.envs.skills import ControlledSkills
from comsd.errors import InputError
from comsd.evaluation import Options
from comsd.evaluation.base import untrained_policy
from comsd.evaluation.episodes import episodes, plain_env
from comsd.evaluation.tasks import Returns, TaskEvaluator
from comsd.runs import Run
from comsd.skills import Box
from comsd.types import Array, PolicyFn

SHORT: dict[str, Any] = {"steps": 300, "evaluate_every": 10**6}
EPISODES = 2


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Adaptations by kind, all of the same skills."""
    at = tmp_path_factory.mktemp("episodes")
    source = comsd.pretrain(
        "comsd", env="hopper", preset="smoke", skills=8, run=at / "skills", **SHORT
    )
    on: dict[str, Any] = {"task": "hopper_hop", **SHORT}
    held, discrete = {"hold": 3}, {"controller": "discrete"}
    return {
        "skills": source,
        "tuned": comsd.finetune(source, run=at / "tuned", **on),
        "scratch": comsd.finetune(None, preset="smoke", run=at / "scratch", **on),
        "continuous": comsd.combine(source, run=at / "continuous", adapt=held, **on),
        "discrete": comsd.combine(source, run=at / "discrete", adapt=discrete, **on),
    }


def scored(run: Run) -> tuple[TaskEvaluator, Returns]:
    """Returns of the same episodes in the environment that the agent has learned in."""
    evaluator = TaskEvaluator(run, Options(starts=EPISODES))
    return evaluator, evaluator.returns(run.policy, run.selected_skill)


@pytest.mark.parametrize("kind", ["tuned", "scratch", "continuous", "discrete"])
def test_an_actor_gets_the_returns_that_are_evaluated(kind: str, runs: dict[str, Run]) -> None:
    run = runs[kind]
    evaluator, returns = scored(run)
    seen = episodes(run, run.actor(EPISODES), EPISODES, evaluator.seed)
    assert seen.reward is not None
    np.testing.assert_allclose(seen.reward.sum(2)[0], returns, rtol=1e-12)


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
def test_a_choice_lasts_as_long_as_in_training(kind: str, runs: dict[str, Run]) -> None:
    run = runs[kind]
    how = run.config.adapt
    assert isinstance(how, CombineSettings)
    skill = episodes(run, run.actor(EPISODES), EPISODES, 5).watched["skill"][0]
    changes = np.flatnonzero((np.diff(skill, axis=1) != 0).any((0, 2))) + 1
    assert len(changes) > 1
    assert (changes % how.hold == 0).all()
    if isinstance(run.policy, GreedyPolicy):
        candidates = run.policy.candidates.numpy()
        assert (skill[:, :, None] == candidates).all(-1).any(-1).all()
    else:
        assert ((skill >= 0) & (skill <= 1)).all()  # the controller's action is in [-1, 1]


def test_the_controller_is_asked_when_the_last_choice_has_ended() -> None:
    chosen: list[float] = []

    def controller(obs: Array) -> Array:
        chosen.append(float(obs[0, 0]))
        return obs[:, :1]

    def policy_fn_of(skill: Tensor, rng: np.random.Generator | None) -> PolicyFn:
        assert rng is None  # mean actions
        return lambda obs: np.concatenate([obs, skill.numpy()], 1)

    act = ControlledSkills(controller, policy_fn_of, Box(1), hold=2, decode=True)
    actions = [act(np.array([[x]], np.float32)).tolist() for x in (-1, 0, 1, 0, 1)]
    assert chosen == [-1, 1, 1]
    assert actions == [[[-1, 0]], [[0, 0]], [[1, 1]], [[0, 1]], [[1, 1]]]
    act.reset()
    assert act.skill is None
    act(np.zeros((1, 1), np.float32))
    assert chosen[-1] == 0


def test_the_moving_mean_by_hand() -> None:
    values = np.zeros((1, SMOOTHED + 2))
    values[0, :2] = 3, 1
    means = smoothed(values)[0]
    assert means[:3].tolist() == pytest.approx([3, 2, 4 / 3])
    assert means[SMOOTHED - 1] == pytest.approx(4 / SMOOTHED)
    assert means[SMOOTHED] == pytest.approx(1 / SMOOTHED)  # the first has left the window
    assert means[SMOOTHED + 1] == pytest.approx(0)
    assert smoothed(np.ones((2, 5))).tolist() == np.ones((2, 5)).tolist()


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("tuned", ["before", "fine-tuned"]),
        ("scratch", ["untrained", "trained"]),
        ("continuous", ["untrained", "controller"]),
        ("discrete", ["untrained", "candidate", "controller"]),
    ],
)
def test_what_is_shown_beside_what(
    kind: str, names: list[str], runs: dict[str, Run], tmp_path: Path
) -> None:
    run = runs[kind]
    result = comsd.analyse_episodes(run, starts=EPISODES, out=tmp_path)
    assert [row.behaviour.split()[0] for row in result.behaviours] == names
    evaluator, returns = scored(run)
    assert result.behaviours[-1].mean_return == pytest.approx(returns.mean())
    assert result.behaviours[-1].return_sd == pytest.approx(returns.std())
    if isinstance(run.policy, GreedyPolicy):
        best = result.behaviours[1]
        assert best.behaviour == f"candidate {evaluator.best_candidate(run.policy)}"
        alone = evaluator.alone(run.policy)["return_best_candidate"]
        assert best.mean_return == pytest.approx(alone)
    with (tmp_path / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["mean_return"]) for row in rows] == [
        row.mean_return for row in result.behaviours
    ]
    assert {*result.files} == {"episodes.csv", "episodes.png", "strips.png", "episodes.json"}
    for path in result.files.values():
        assert path.stat().st_size > 0


def test_the_command_and_the_report(
    runs: dict[str, Run], capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(runs["discrete"].path)
    main(["analyse", place, "--starts", "2", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert shown["starts"] == 2
    assert [row["behaviour"] for row in shown["behaviours"]][-1] == "controller"
    main(["analyse", place, "--starts", "2"])
    assert "return" in capsys.readouterr().out
    page = comsd.report(runs["discrete"].path).read_text()
    assert 'alt="episodes"' in page


def test_a_task_of_yours_in_a_maze(tmp_path: Path) -> None:
    """No robot: no poses; an actor serves any environment."""
    comsd.register_reward("to-the-right", lambda *transition: float(transition[2][0]))
    source = comsd.pretrain("comsd", env="maze-tree", preset="smoke", run=tmp_path / "skills")
    chosen = comsd.combine(
        source,
        reward="to-the-right",
        run=tmp_path / "chosen",
        steps=300,
        adapt={"controller": "discrete"},
    )
    result = comsd.analyse_episodes(chosen, starts=3)
    assert result.spin_unit is None
    assert "strips.png" not in result.files
    evaluator = TaskEvaluator(chosen, Options(starts=3))
    returns = evaluator.returns(chosen.policy, chosen.selected_skill)
    assert result.behaviours[-1].mean_return == pytest.approx(returns.mean())
    assert result.behaviours[-1].length == plain_env(chosen, [0])[0].horizon
    with pytest.raises(InputError, match="video is for our robots"):
        comsd.analyse_episodes(chosen, video=True)


def test_bad_input_is_one_sentence(runs: dict[str, Run]) -> None:
    with pytest.raises(InputError, match="is a pre-training, without a task; allowed: analyse"):
        comsd.analyse_episodes(runs["skills"])
    with pytest.raises(InputError, match="allowed: analyse_episodes"):
        comsd.analyse(runs["tuned"])
    with pytest.raises(SystemExit) as failure:
        main(["analyse", str(runs["tuned"].path), "--sweep", "flag"])
    assert failure.value.code == 2
    with pytest.raises(InputError, match="has not settled on a skill"):
        runs["skills"].actor()


def test_an_untrained_actor_differs(runs: dict[str, Run]) -> None:
    run = runs["tuned"]
    obs = torch.randn(4, 15).numpy()
    before = run.actor(4, untrained_policy(run))(obs)
    skill = run.selected_skill
    assert run.source is not None
    np.testing.assert_array_equal(before, run.source.policy(obs, skill.numpy()))
    assert not np.array_equal(before, run.actor(4)(obs))
