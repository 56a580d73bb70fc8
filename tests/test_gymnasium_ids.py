"""Our environments under Gymnasium's own checks, alone and in batches."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from comsd.envs.specs import ENVS, TASKS
from comsd.gymnasium import BatchedEnv, gymnasium_id

NAMES = [*ENVS, *TASKS]
USUAL = (  # unbounded observations, as of Gymnasium's own robots; nothing is drawn
    "minimum value is -infinity",
    "maximum value is infinity",
    "No render modes",
    "render_modes",
)


def test_all_are_registered_under_readable_ids() -> None:
    ids = {spec.id for spec in gymnasium.registry.values() if spec.namespace == "comsd"}
    assert len(ids) == len(NAMES) == 29
    assert {"comsd/walker-run-v0", "comsd/hopper-hop-backward-v0", "comsd/walker-v0"} <= ids
    assert {"comsd/maze-tree-v0", "comsd/maze-corridor-end-v0"} <= ids


@pytest.mark.parametrize("name", NAMES)
def test_gymnasiums_checker_has_nothing_to_say(name: str) -> None:
    env = gymnasium.make(gymnasium_id(name))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_env(env.unwrapped)
    assert [str(w.message) for w in said if not any(u in str(w.message) for u in USUAL)] == []
    assert env.spec is not None
    assert env.spec.max_episode_steps == (ENVS | TASKS)[name].horizon


def actions(env: Any, steps: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (steps, *env.action_space.shape))


@pytest.mark.parametrize("name", ["walker_run", "quadruped", "maze-tree"])
def test_a_seed_gives_the_trajectory_of_our_own_interface(name: str) -> None:
    env, ours = gymnasium.make(gymnasium_id(name)), (ENVS | TASKS)[name].make(1, 5)
    env.reset(seed=5)
    env.step(actions(env, 1)[0])  # a seed starts everything anew
    obs, info = env.reset(seed=5)
    assert info["position"].shape == (2,)
    seen, rewards = [obs], []
    for action in actions(env, 60):
        obs, reward, terminated, truncated, _ = env.step(action.astype(np.float32))
        seen.append(obs)
        rewards.append(reward)
        if terminated or truncated:
            break
    wanted = [ours.reset()[0].copy()]
    for action, reward in zip(actions(env, 60).astype(np.float32), rewards, strict=False):
        step = ours.step(action[None])
        wanted.append(step.obs[0].copy())
        assert step.reward[0] == reward
    assert np.array_equal(seen, wanted)
    assert len(seen) == (51 if name == "maze-tree" else 61)


def test_episodes_differ_without_a_seed() -> None:
    env = gymnasium.make("comsd/maze-tree-v0")
    first, _ = env.reset(seed=1)
    second, _ = env.reset()
    assert not np.array_equal(first, second)
    assert np.array_equal(env.reset(seed=1)[0], first)


@pytest.mark.parametrize("limit", [None, 3, 60])
def test_a_time_limit_can_be_asked_for(limit: int | None) -> None:
    env, steps = gymnasium.make("comsd/maze-tree-v0", max_episode_steps=limit), 0
    env.reset(seed=0)
    ended = False
    while not ended:
        ended, steps = env.step(env.action_space.sample())[3], steps + 1
    assert steps == (limit or 50)


@pytest.mark.parametrize("mode", ["vector_entry_point", "sync"])
@pytest.mark.parametrize("name", ["hopper_hop", "maze-tree"])
def test_batches_by_make_vec(name: str, mode: str) -> None:
    envs = gymnasium.make_vec(gymnasium_id(name), num_envs=3, vectorization_mode=mode)
    assert isinstance(envs, BatchedEnv) == (mode == "vector_entry_point")
    obs, _ = envs.reset(seed=3)
    assert obs.shape == envs.observation_space.shape
    assert len(np.unique(obs, axis=0)) == 3
    obs, reward, terminated, truncated, info = envs.step(envs.action_space.sample())
    assert obs.shape == envs.observation_space.shape
    assert reward.shape == terminated.shape == truncated.shape == (3,)
    assert info["position"].shape == (3, 2)
    envs.close()


def test_a_batch_is_what_single_environments_are() -> None:
    batch: Any = gymnasium.make_vec("comsd/cheetah-run-v0", num_envs=2)
    singles = [gymnasium.make("comsd/cheetah-run-v0") for _ in range(2)]
    apart = [env.reset(seed=4 + i)[0] for i, env in enumerate(singles)]
    assert np.array_equal(batch.reset(seed=4)[0], apart)
    assert np.array_equal(batch.reset(seed=[4, 5])[0], apart)
    for action in actions(batch, 20).astype(np.float32):
        obs, reward, *_ = batch.step(action)
        steps = [env.step(a) for env, a in zip(singles, action, strict=True)]
        assert np.array_equal(obs, [s[0] for s in steps])
        assert reward.tolist() == [s[1] for s in steps]
    with pytest.raises(ValueError, match="a number or 2 in a row"):
        batch.reset(seed=[1, 7])


def test_an_episode_that_ended_begins_anew_in_the_next_step() -> None:
    """Gymnasium's mode NEXT_STEP: the action is ignored and the reward is 0."""
    envs = gymnasium.make_vec("comsd/hopper-hop-v0", num_envs=2, max_episode_steps=3)
    start, _ = envs.reset(seed=0)
    ends = []
    for t, action in enumerate(actions(envs, 8)):
        obs, reward, terminated, truncated, _ = envs.step(action)
        assert not terminated.any()
        ends.append(bool(truncated.all()))
        if t == 3:
            assert reward.tolist() == [0, 0]
            assert not np.array_equal(obs, start)  # another start of the same seeds
    assert ends == [False, False, True, False, False, False, True, False]


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.value)
def test_episodes_begin_anew_as_in_gymnasiums_own_vectors(mode: AutoresetMode) -> None:
    made: dict[str, Any] = {"id": "comsd/hopper-hop-v0", "num_envs": 3, "max_episode_steps": 4}
    ours: Any = gymnasium.make_vec(**made, autoreset_mode=mode)
    theirs = gymnasium.make_vec(
        **made, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
    )
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"] == mode
    np.testing.assert_array_equal(ours.reset(seed=5)[0], theirs.reset(seed=5)[0])
    ends = 0
    for action in actions(ours, 12):
        (obs, *figures, info), (expected, *others, about) = ours.step(action), theirs.step(action)
        np.testing.assert_array_equal(obs, expected)
        np.testing.assert_array_equal(figures, others)
        ended = figures[1] | figures[2]
        ends += ended.sum()
        assert ("final_obs" in info) == (mode is AutoresetMode.SAME_STEP and ended.any())
        if "final_obs" in info:
            assert info["_final_obs"].tolist() == about["_final_obs"].tolist()
            np.testing.assert_array_equal([*info["final_obs"]], [*about["final_obs"]])
            last, known = info["final_info"]["position"], about["final_info"]["position"]
            np.testing.assert_array_equal(last, known)
        if mode is AutoresetMode.DISABLED and ended.any():
            with pytest.raises(ValueError, match="an episode has ended"):
                ours.step(action)
            masks = [{"reset_mask": ended.copy()} for _ in range(2)]
            fresh, whole = ours.reset(options=masks[0])[0], theirs.reset(options=masks[1])[0]
            np.testing.assert_array_equal(fresh, whole)
    assert ends >= 6


def test_gymnasium_finds_an_id_by_the_module() -> None:
    code = """
import gymnasium
env = gymnasium.make("comsd.gymnasium:comsd/maze-tree-v0")
print(env.reset(seed=0)[0].shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(2,)"


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parent.parent / "docs" / "gymnasium.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "gymnasium.md", "exec"), {})
    assert capsys.readouterr().out == "(10, 2)\n"
