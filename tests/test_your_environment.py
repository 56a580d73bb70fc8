"""Runs on environments of the user's: a maze of thirty lines in a file, packages, rewards."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist

import comsd
from comsd.agents.base import make_policy_fn
from comsd.envs.foreign import REGISTERED
from comsd.envs.reward import REWARDS
from comsd.errors import InputError, RunError
from comsd.explorer import page
from comsd.registry import LOADED
from comsd.runs.run import Run
from comsd.training.rollout import rollout
from conftest import needs_dmc
from processes import call, fingerprint

EXAMPLES = Path(__file__).parent.parent / "examples"
FILE = f"--env-file {EXAMPLES / 'point_maze.py'}"
SMALL: dict[str, Any] = {
    "preset": "smoke",
    "log_every": 300,
    "evaluate_every": 300,
    "checkpoint_every": 300,
}


@pytest.mark.parametrize("agent", ["ddpg", "sac", "ppo"])
@pytest.mark.parametrize("method", ["comsd", "metra"])
def test_a_maze_in_a_file(
    method: str, agent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    asked = f"pretrain {method} {FILE} --agent {agent} --preset smoke --steps 600 --run {run}"
    assert call(asked, capsys)[0] == 0
    record = json.loads((run / "config.json").read_text())
    assert record["versions"]["point_maze.py"] == LOADED[EXAMPLES / "point_maze.py"].checksum
    assert record["environment"]["horizon"] == 50
    assert record["environment"]["exact_resume"]
    assert len(record["environment"]["observations"]["mean"]) == 2
    REGISTERED.clear()
    code, _, said = call(f"evaluate {run}", capsys)  # its code is not run because the run says so
    assert (code, "give its file with --env-file" in said) == (2, True)
    code, out, _ = call(f"evaluate {run} {FILE}", capsys)
    assert code == 0
    assert f"config {method} --env PointMaze {FILE}" in out  # what can be called next


def test_a_stopped_run_on_it_equals_one_that_was_not(tmp_path: Path) -> None:
    comsd.register_env_file(EXAMPLES / "point_maze.py")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    comsd.pretrain("comsd", env="PointMaze", agent="ddpg", steps=600, run=whole, **SMALL)
    comsd.pretrain("comsd", env="PointMaze", agent="ddpg", steps=300, run=parts, **SMALL)
    comsd.resume(parts, steps=600)
    assert fingerprint(whole) == fingerprint(parts)


def test_skills_are_used_for_its_reward_and_for_one_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comsd.register_env_file(EXAMPLES / "point_maze.py")
    run = tmp_path / "run"
    comsd.pretrain("comsd", env="PointMaze", agent="ddpg", steps=600, run=run, **SMALL)
    assert call(f"finetune {run} {FILE} --steps 300 --run {tmp_path / 'own'}", capsys)[0] == 0
    left = f"--reward-file {EXAMPLES / 'left.py'}"
    assert call(f"combine {run} {FILE} {left} --steps 300 --run {tmp_path / 'l'}", capsys)[0] == 0
    REWARDS.clear()
    with pytest.raises(InputError, match="reward is 'left', a file's: give it with --reward-file"):
        Run(tmp_path / "l")
    comsd.register_reward("pair", lambda *_: [1.0, 2.0])  # pyright: ignore[reportArgumentType]
    with pytest.raises(RunError, match=r"reward pair has shape \(2,\); it must be one finite num"):
        comsd.finetune(run, reward="pair", run=tmp_path / "pair", steps=300)
    with pytest.raises(InputError, match=r"is a function of \(\); it must be a function of \(obs"):
        comsd.register_reward("none", lambda: 0)  # pyright: ignore[reportArgumentType]


def test_skills_of_a_maze_of_ours_are_used_for_the_reward_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    comsd.pretrain("diayn", env="maze-tree", agent="ddpg", steps=600, run=run, **SMALL)
    corner, few = f"--reward-file {EXAMPLES / 'corner.py'}", "--steps 300 --rollouts 2"
    for how in ("finetune", "combine", "combine --controller discrete"):
        command, *rest = how.split()
        place = tmp_path / "-".join(how.split())
        asked = " ".join([command, str(run), corner, few, *rest, f"--run {place}"])
        assert call(asked, capsys)[0] == 0
        assert Run(place).spec.horizon == 50
    scratch = f"--scratch --task maze-tree {corner} {few} --preset smoke --run {tmp_path / 's'}"
    assert call(f"finetune {scratch}", capsys)[0] == 0
    code, _, said = call(f"finetune {run} --run {tmp_path / 'none'}", capsys)
    assert (code, "which has no reward: give it one (--reward-file)" in said) == (2, True)
    reward = REWARDS["corner"]
    here, there = np.array([0, 0]), np.array([-6, -6.4])
    assert (reward(there, here, here, {}), reward(here, here, there, {})) == (0, 1)


def test_a_page_about_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    few = "--preset smoke --steps 600 --log-every 200 --evaluate-every 200"
    assert call(f"pretrain comsd {FILE} --agent ddpg {few} --run {run}", capsys)[0] == 0
    code, out, _ = call(f"report {run} {FILE}", capsys)
    assert (code, out.strip()) == (0, f"report: {run / 'report' / 'report.html'}")
    page = (run / "report" / "report.html").read_text()
    assert "skills of comsd on PointMaze, seed 0" in page
    assert "The last evaluation during training, at step 600." in page
    assert "largest of the skills&#x27; AKDs; constant sweep" in page
    assert page.count("data:image/png") == 1  # the curves
    assert "comsd analyse" in page
    short = "--starts 2 --skills 3 --steps 10"
    assert call(f"evaluate {run} {FILE} {short}", capsys)[0] == 0
    page = comsd.report(run).read_text()
    assert "By <code>comsd evaluate</code>, at step 600." in page
    assert "<th>untrained<th>random" in page
    found = json.loads((run / "evaluation.json").read_text())
    (run / "evaluation.json").write_text(json.dumps({**found, "step": 500}))  # no longer its seal
    assert "The last evaluation during training, at step 600." in comsd.report(run).read_text()
    assert call(f"analyse {run} {FILE} {short}", capsys)[0] == 0
    (run / "explore.html").touch()
    page = comsd.report(run).read_text()
    assert "By <code>comsd analyse</code>, at step 600." in page
    assert page.count("data:image/png") == 4
    assert 'href="../explore.html"' in page
    assert call(f"finetune {run} {FILE} --steps 300 --run {tmp_path / 'own'}", capsys)[0] == 0
    elsewhere = comsd.report(tmp_path / "own", out=tmp_path / "page")
    assert elsewhere == tmp_path / "page" / "report.html"
    assert "fine-tuning of" in elsewhere.read_text()


BREAKS = """
from point_maze import PointMaze
class Breaks(PointMaze):
    left = 450
    def step(self, action):
        Breaks.left -= 1
        if not Breaks.left:
            raise OSError("unplugged")
        return super().step(action)
"""


def test_a_file_may_import_what_is_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    shutil.copy(EXAMPLES / "point_maze.py", tmp_path / "beside_it.py")
    (tmp_path / "mine.py").write_text("import beside_it\nclass Mine(beside_it.PointMaze): pass\n")
    assert comsd.register_env_file(tmp_path / "mine.py") == ["Mine"]


def test_an_environment_that_raises_stops_a_run_that_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    (tmp_path / "breaks.py").write_text(BREAKS)
    assert comsd.register_env_file(tmp_path / "breaks.py") == ["Breaks"]
    comsd.register_env_file(tmp_path / "breaks.py")
    made = REGISTERED["Breaks"].make
    made.left = 10**6  # pyright: ignore[reportFunctionMemberAccess]
    settings: dict[str, Any] = SMALL | {"train": {"envs": 1}}
    comsd.pretrain("comsd", env="Breaks", agent="ddpg", steps=300, run=tmp_path / "run", **settings)
    made.left = 100  # pyright: ignore[reportFunctionMemberAccess]
    left = "the last good checkpoint is kept, `comsd resume .*/run` continues from it"
    place = r"\(breaks.py, line 8\)"
    with pytest.raises(RunError, match=rf"stopped at step .*: OSError: unplugged {place}; {left}"):
        comsd.resume(tmp_path / "run", steps=600)
    assert comsd.resume(tmp_path / "run").finished


MANY = """
import gymnasium, numpy as np
class Many(gymnasium.vector.VectorEnv):
    '''Points on a line, all moved by one sum.'''
    max_episode_steps, family = 20, "maze"
    single_observation_space = gymnasium.spaces.Box(-9, 9, (1,))
    single_action_space = gymnasium.spaces.Box(-1, 1, (1,))
    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED}
    def __init__(self, num_envs):
        self.num_envs, self.x = num_envs, np.zeros((num_envs, 1), np.float32)
        batch = gymnasium.vector.utils.batch_space
        self.observation_space = batch(self.single_observation_space, num_envs)
        self.action_space = batch(self.single_action_space, num_envs)
    def reset(self, *, seed=None, options=None):
        self.x[(options or {}).get("reset_mask", slice(None))] = 0
        return self.x.copy(), {}
    def step(self, actions):
        self.x = self.x + actions
        far = np.abs(self.x[:, 0]) > 8
        return self.x.copy(), -np.abs(self.x[:, 0]), far, np.zeros_like(far), {}
    def state_dict(self):
        return {"x": self.x}
    def load_state_dict(self, state):
        self.x = state["x"].copy()
"""


NEXT_STEP = [  # the same vector in Gymnasium's usual mode
    ("DISABLED}", "NEXT_STEP}"),
    ("max_episode_steps, family = 20", "max_episode_steps, family = 1000"),  # it has no time limit
    (
        'self.x[(options or {}).get("reset_mask", slice(None))] = 0',
        "self.x[:], self.far = 0, 0 > 1",
    ),
    ("self.x + actions", "np.where(self.far, 0, self.x + actions)"),
    ("far = np.abs(self.x[:, 0]) > 8", "far = np.abs(self.x[:, 0]) > 2; self.far = far[:, None]"),
    ('{"x": self.x}', '{"x": self.x, "far": self.far}'),
    ('self.x = state["x"].copy()', 'self.x, self.far = state["x"].copy(), state["far"].copy()'),
]


@pytest.mark.parametrize("changes", [[], NEXT_STEP], ids=["disabled", "next-step"])
def test_a_vector_in_a_file(
    changes: list[tuple[str, str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "page.html").write_text(page.HOLE)
    monkeypatch.setattr(page, "files", lambda _: tmp_path)  # built or not
    many = MANY
    for old, new in changes:
        assert many.count(old) == 1
        many = many.replace(old, new)
    (tmp_path / "many.py").write_text(many)
    file = f"--env-file {tmp_path / 'many.py'}"
    few = "--agent ddpg --preset smoke --train.envs 3 --train.random-steps 100"
    often = "--log-every 300 --evaluate-every 300 --checkpoint-every 300"
    for run, steps in (("whole", 600), ("parts", 300)):
        asked = f"pretrain comsd {file} {few} {often} --steps {steps} --run {tmp_path / run}"
        assert call(asked, capsys)[0] == 0
    assert call(f"resume {tmp_path / 'parts'} {file} --steps 600", capsys)[0] == 0
    assert fingerprint(tmp_path / "whole") == fingerprint(tmp_path / "parts")
    short = "--starts 2 --skills 3 --steps 10"
    for command in ("evaluate", "analyse"):  # states of one number, and no positions
        assert call(f"{command} {tmp_path / 'whole'} {file} {short}", capsys)[0] == 0
    tuned = f"finetune {tmp_path / 'whole'} {file} --steps 300 --run {tmp_path / 'tuned'}"
    assert call(tuned, capsys)[0] == 0
    code, _, said = call(f"explore {tmp_path / 'whole'} {file}", capsys)
    assert (code, "has no model and data of MuJoCo" in said) == (2, True)


def test_no_package_is_imported_because_a_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    register = "import gymnasium; gymnasium.register('Mine-v0', 'point_maze:PointMaze')"
    (tmp_path / "my_canary.py").write_text(f"print('it sings')\n{register}")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    run, small = tmp_path / "run", "--env.horizon 50 --env.family maze --preset smoke --steps 500"
    code, out, _ = call(f"pretrain comsd --env gym:my_canary:Mine-v0 {small} --run {run}", capsys)
    assert (code, "it sings" in out) == (0, True)
    del sys.modules["my_canary"]
    code, out, said = call(f"resume {run}", capsys)
    assert (code, "it sings" in out, "give --env-package my_canary" in said) == (2, False, True)
    code, out, _ = call(f"resume {run} --env-package my_canary", capsys)
    assert (code, "it sings" in out) == (0, True)


def test_skills_of_comsd_end_apart(tmp_path: Path) -> None:
    comsd.register_env_file(EXAMPLES / "point_maze.py")
    often: dict[str, Any] = {"log_every": 10**6, "evaluate_every": 10**6, "checkpoint_every": 10**6}
    run = comsd.pretrain(
        "comsd", env="PointMaze", preset="lite", skills=4, steps=40_000, run=tmp_path, **often
    )
    assert run.config.run.agent == "ppo"
    result = comsd.evaluate(run, starts=6)
    assert result.metrics["identification"] > 0.8 > 0.5 > result.random["identification"]
    starts = 6
    env, policy, skills = run.make_env(4 * starts, 1), run.load_policy(), torch.eye(4)
    policy_fn = make_policy_fn(policy, skills.repeat_interleave(starts, 0), None)
    *_, last = rollout(env, policy_fn, env.horizon)
    ends = last.next_obs.reshape(4, starts, 2)
    centres = ends.mean(1)
    within = np.linalg.norm(ends - centres[:, None], axis=-1).mean()
    between = pdist(centres).min()  # of the two skills that end closest
    assert between > 3 * within
    assert between > 0.2  # of a room of side 2


@needs_dmc
@pytest.mark.filterwarnings("ignore")  # of dm_control
def test_every_command_on_a_task_of_dm_control(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, short = tmp_path / "run", "--starts 2 --skills 3 --steps 10"
    few = "--train.random-steps 100 --steps 200 --evaluate-every 100000"
    asked = f"pretrain comsd --env dmc:point_mass-easy --preset smoke {few} --run {run}"
    assert call(asked, capsys)[0] == 0
    code, out, _ = call(f"evaluate {run} {short} --json", capsys)
    measured = json.loads(out)["metrics"]
    assert code == 0
    assert {"identification", "state_coverage", "xy_coverage"} <= measured.keys()
    assert call(f"analyse {run} {short} --out {tmp_path / 'analysis'}", capsys)[0] == 0
    assert list((tmp_path / "analysis").iterdir())
    left = f"--reward-file {EXAMPLES / 'left.py'} {few} --rollouts 1"
    for stage in ("finetune", "combine"):
        assert call(f"{stage} {run} {left} --run {tmp_path / stage}", capsys)[0] == 0
        assert Run(tmp_path / stage).finished
    code, out, said = call(f"resume {run} --steps 300", capsys)
    assert (code, Run(run).reached) == (0, 300)
    assert "fresh episodes from step 200 on, not exact to the bit" in said
    assert call(f"evaluate {tmp_path / 'finetune'}", capsys)[0] == 0
    for place in (run, tmp_path / "finetune"):
        assert call(f"report {place}", capsys)[0] == 0
        assert "dmc:point_mass-easy" in (place / "report" / "report.html").read_text()
