"""Environments of the user's that observe images, or that MuJoCo can draw: runs with --pixels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import comsd
from comsd.encoders import PixelSettings
from comsd.envs import rendering
from comsd.envs.gym import GymEnv
from comsd.envs.pixels import PixelEnv, act_on_states, gym_pixels, summarise
from comsd.errors import InputError
from comsd.registry import env_spec
from comsd.runs.run import Run
from conftest import needs_dmc
from processes import call, fingerprint

FILE = '''
"""A dot in a room, seen from above."""
import gymnasium as gym
import numpy as np

class Dot(gym.Env):
    """A dot in a room, seen from above."""
    max_episode_steps, family, edge = 20, "maze", 0.9
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, first=False):
        self.first = first
        shape = (3, 20, 24) if first else (20, 24, 3)
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-0.2, 0.2, 2)
        return self.see(), self.info()

    def step(self, action):
        self.place = np.clip(self.place + 0.2 * action, -1, 1)
        return self.see(), float(self.place[0]), bool(self.place[1] > self.edge), False, self.info()

    def see(self):
        image = np.zeros((20, 24, 3), np.uint8)
        row, column = ((self.place + 1) / 2 * (17, 21)).astype(int)
        image[row : row + 3, column : column + 3] = (255, 200, 90)
        return image.transpose(2, 0, 1) if self.first else image

    def info(self):
        return {"x_position": self.place[0], "y_position": self.place[1]}


class Saved(Dot):
    """The same without an edge, whose state can be saved."""
    edge = 2

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]
'''
SMALL: dict[str, Any] = {
    "preset": "smoke",
    "skills": 4,
    "pixels": {"stack": 2, "channels": 4, "features": 6},
    "train": {"random_steps": 100, "envs": 2},
    "log_every": 100,
    "evaluate_every": 10**6,
    "checkpoint_every": 100,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dot.py"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def opengl() -> None:
    if rendering.first_working() is None:
        pytest.skip("`comsd doctor` finds no OpenGL here")


def test_every_command_takes_images(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, given = tmp_path / "run", f"--env-file {file}"
    few = "--evaluate-every 100000 --train.random-steps 100 --steps 200"
    code, _, said = call(f"pretrain comsd {given} --env Dot --preset smoke --run {run}", capsys)
    assert (code, "env 'Dot' observes images; pixels must be True (--pixels)" in said) == (2, True)
    asked = f"pretrain comsd {given} --env Dot --pixels --preset smoke {few} --run {run}"
    assert call(asked, capsys)[0] == 0
    record = json.loads((run / "config.json").read_text())
    assert record["environment"]["observations"]["statistics"] == "none, images"
    assert (Run(run).config.run.agent, Run(run).config.pixels.repeat) == ("ddpg", 1)  # pyright: ignore
    short = "--starts 2 --skills 3 --steps 10"
    code, out, _ = call(f"evaluate {run} {given} {short} --json", capsys)
    measured = json.loads(out)["metrics"]
    assert code == 0
    assert {"identification", "state_coverage", "xy_coverage"} <= measured.keys()
    assert all(np.isfinite(x) for x in measured.values())
    assert call(f"analyse {run} {given} {short}", capsys)[0] == 0
    code, _, said = call(f"evaluate {run} {given} --xy 0,1", capsys)
    assert (code, "observations are images" in said) == (2, True)
    tuned, task = tmp_path / "tuned", "--rollouts 2"
    assert call(f"finetune {run} {given} {few} {task} --run {tuned}", capsys)[0] == 0
    assert Run(tuned).config.agent.encoder_from == "critic"  # pyright: ignore
    code, _, said = call(f"finetune {run} {given} --pixels --run {tmp_path / 'x'}", capsys)
    assert (code, "--pixels cannot be chosen" in said) == (2, True)
    hold = "--controller discrete --agent.candidates 2"
    asked = f"combine {run} {given} {hold} {few} {task} --run {tmp_path / 'combined'}"
    assert call(asked, capsys)[0] == 0
    code, _, said = call(f"resume {run} {given} --steps 300", capsys)
    assert (code, "Dot cannot save its state: fresh episodes from step" in said) == (0, True)


def test_a_stopped_run_equals_one_that_was_not_and_channels_may_be_first(
    file: Path, tmp_path: Path
) -> None:
    comsd.register_env_file(file)
    whole, parts, first = (tmp_path / name for name in ("whole", "parts", "first"))
    comsd.pretrain("cic", env="Saved", agent="sac", steps=300, run=whole, **SMALL)
    shutil.copytree(whole, parts)
    shutil.rmtree(parts / "checkpoints" / f"{300:012d}")
    assert Run(parts).reached == 200
    comsd.resume(parts)
    assert fingerprint(whole) == fingerprint(parts)
    channels_first = {"name": "Saved", "kwargs": {"first": True}}
    comsd.pretrain("cic", env=channels_first, agent="sac", steps=300, run=first, **SMALL)
    weights = [Run(path).load_agent().state_dict() for path in (whole, first)]
    assert all(map(torch.equal, weights[0].values(), weights[1].values()))


def test_without_its_state_new_episodes_begin_with_stacks_of_their_own(file: Path) -> None:
    comsd.register_env_file(file)
    env = env_spec("Dot").make_pixels(2, 0, PixelSettings(stack=3))  # pyright: ignore
    env.reset()
    env.step(np.ones((2, 2), np.float32))
    fresh = env.load_state_dict(env.state_dict())
    assert fresh is not None
    assert fresh.shape == (2, 9, 20, 24)
    assert np.array_equal(fresh[:, :3], fresh[:, 6:])


def test_a_policy_sees_the_same_step_by_step_when_episodes_end_apart(file: Path) -> None:
    """As evaluations see it, and as training does."""
    comsd.register_env_file(file)
    settings, spec = PixelSettings(stack=2, repeat=1), env_spec("Dot")
    pixels, states = spec.make_pixels(3, 0, settings), spec.make(3, 0)  # pyright: ignore
    seen: list[np.ndarray] = []

    def policy_fn(obs: np.ndarray) -> np.ndarray:
        seen.append(obs)
        return np.array([[1, 0], [0, 1], [0.3, 0.5]], np.float32)

    act, obs, images = act_on_states(states, settings, policy_fn), states.reset(), pixels.reset()
    for _ in range(12):
        step, other = states.step(act(obs)), pixels.step(policy_fn(images))
        obs, images = step.obs, other.obs
        if step.ended.any():
            obs, images = states.reset(step.ended), pixels.reset(other.ended)
    assert all(map(np.array_equal, seen[::2], seen[1::2]))


def test_images_are_compared_by_small_ones(file: Path) -> None:
    comsd.register_env_file(file)
    env = env_spec("Dot").make(2, 0)
    small = summarise(env.reset(), env.obs_spec)
    assert small.shape == (2, 3 * 8 * 8)
    means = env.reset().mean((1, 2)) / 255
    np.testing.assert_allclose(small.reshape(2, 3, -1).mean(-1), means, atol=0.02)
    assert small.max() <= 1


DRAWN = ["gym:Reacher-v5", "gym:Ant-v5", pytest.param("dmc:reacher-easy", marks=needs_dmc)]


@pytest.mark.usefixtures("opengl")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DRAWN)
def test_environments_of_mujoco_are_drawn(name: str) -> None:
    """Each as it is: dm_control places the target in the model of every copy."""
    size = 84 if name == "gym:Reacher-v5" else 24  # it has no camera, and is far from one outside
    settings = PixelSettings(size=size, render="fast", stack=2)
    env = env_spec(name).make_pixels(2, 0, settings)  # pyright: ignore
    first = env.reset()
    assert first.shape == (2, 6, size, size)
    assert first.std() > 5
    assert not np.array_equal(first[0], first[1])
    later = [env.step(np.ones((2, env.action_dim), np.float32)).obs for _ in range(3)]
    assert not np.array_equal(later[-1][:, 3:], first[:, 3:])
    assert isinstance(env, PixelEnv)
    if name == "gym:Ant-v5":
        twin = env_spec(name).make_pixels(2, 7, settings)  # pyright: ignore
        assert twin.load_state_dict(env.state_dict()) is None
        action = np.full((2, 8), 0.5, np.float32)
        assert np.array_equal(env.step(action).obs, twin.step(action).obs)


@pytest.mark.usefixtures("opengl")
@pytest.mark.filterwarnings("ignore")
def test_a_run_on_images_of_mujoco(tmp_path: Path) -> None:
    settings: dict[str, Any] = SMALL | {"pixels": SMALL["pixels"] | {"size": 16}}
    env = {"name": "gym:Reacher-v5", "horizon": 20}
    run = comsd.pretrain("metra", env=env, steps=200, run=tmp_path / "run", **settings)
    result = comsd.evaluate(run, starts=2, skills=3, steps=10)
    assert np.isfinite(result.metrics["state_coverage"])  # of the states, as of a run on states


def test_what_cannot_be_drawn_is_said() -> None:
    class Point(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Box(-1, 1, (2,))

        def reset(self, **_: Any) -> Any:
            return np.zeros(2, np.float32), {}

    with pytest.raises(InputError, match="'p' observes numbers and is none of MuJoCo's"):
        gym_pixels(GymEnv(Point, [0], 5, "'p'"), PixelSettings())
