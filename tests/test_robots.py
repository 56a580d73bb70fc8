"""The robots against dm_control, bit for bit, and the tasks against their formulas."""

from __future__ import annotations

import os

os.environ.setdefault("MUJOCO_GL", "disable")  # dm_control searches for a display otherwise

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

import comsd
from comsd.envs.mujoco import HORIZON, RobotEnv
from comsd.envs.robots import ROBOTS, load_robot
from comsd.envs.simulation import SingleSimulation
from comsd.envs.specs import ENVS, ROBOT_TASKS, TASKS, make_robot, make_task
from comsd.errors import InputError, RunError
from comsd.registry import env_spec

STOCK = ["walker_stand", "walker_walk", "walker_run", "quadruped_walk", "quadruped_run"]
STOCK += ["hopper_hop", "cheetah_run"]
DIMS = {"walker": (24, 6), "quadruped": (78, 12), "hopper": (15, 4), "cheetah": (17, 6)}


def flat(step: Any) -> np.ndarray:
    return np.concatenate([np.ravel(v) for v in step.observation.values()]).astype(np.float32)


def actions(steps: int, num_envs: int, dim: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (steps, num_envs, dim)).astype(np.float32)


def as_control(robot_name: str, action: np.ndarray) -> np.ndarray:
    """What an action means to the suite: itself, but for Quadruped's uneven ranges."""
    if robot_name != "quadruped":
        return action
    low = np.tile(np.array([-1, -1, -0.8], np.float32), 4)
    high = np.tile(np.array([1, 1.1, 0.8], np.float32), 4)
    return low + (high - low) / np.float32(2) * (action + 1)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", STOCK)
def test_a_whole_episode_equals_dm_control_to_the_bit(name: str, seed: int) -> None:
    suite = pytest.importorskip("dm_control.suite")  # has no release for Python 3.13
    domain, _, task = name.partition("_")
    env = make_task(name, seed=seed)
    reference = suite.load(domain, task, task_kwargs={"random": seed})
    assert (env.obs_spec.shape, env.action_dim) == ((DIMS[domain][0],), DIMS[domain][1])
    for episode in range(1 if seed else 2):  # the second shows that resets draw alike too
        theirs = reference.reset()
        assert np.array_equal(env.reset()[0], flat(theirs))
        for t, action in enumerate(actions(1000, 1, env.action_dim, seed)):
            ours = env.step(action)
            theirs = reference.step(as_control(domain, action[0]))
            assert np.array_equal(ours.obs[0], flat(theirs)), (episode, t)
            assert ours.reward[0] == theirs.reward, (episode, t)
            assert ours.truncated[0] == theirs.last() == (t == 999)
            assert not ours.terminated[0]


def states_of(name: str, count: int = 300) -> list[tuple[mujoco.MjData, dict[str, np.ndarray]]]:
    """Random states, thrown about, as mjData and as what rewards are given to read."""
    body = load_robot(name)
    rng = np.random.default_rng(0)
    result = []
    for _ in range(count):
        data = mujoco.MjData(body.model)
        data.qpos[:] += rng.normal(0, 0.3, body.model.nq)
        data.qpos[2 if name == "quadruped" else 1] += rng.uniform(0, 1.5)
        data.qvel[:] = rng.normal(0, 5, body.model.nv)
        mujoco.mj_forward(body.model, data)
        result.append((data, {f: getattr(data, f) for f in body.fields}))
    return result


def clip01(x: float) -> float:
    return min(1.0, max(0.0, x))


FORMULAS: dict[str, Callable[[mujoco.MjData], float]] = {
    "walker_flip": lambda d: posture("walker", d) * (1 + 5 * clip01(spin(d) / 5)) / 6,
    "quadruped_stand": lambda d: posture("quadruped", d),
    "quadruped_jump": lambda d: posture("quadruped", d) * clip01((1 + centre(d)) / 2),
    "hopper_flip": lambda d: posture("hopper", d) * clip01(spin(d) / 5),
    "hopper_flip_backward": lambda d: posture("hopper", d) * clip01(-spin(d) / 5),
    "hopper_hop_backward": lambda d: posture("hopper", d) * clip01(-speed(d) / 2),
    "cheetah_flip": lambda d: clip01(spin(d) / 5),
    "cheetah_flip_backward": lambda d: clip01(-spin(d) / 5),
    "cheetah_run_backward": lambda d: clip01(-speed(d) / 10),
}


def spin(data: mujoco.MjData) -> float:
    return data.body("torso").subtree_angmom[1]


def centre(data: mujoco.MjData) -> float:
    return data.sensor("center_of_mass").data[2]


def speed(data: mujoco.MjData) -> float:
    return data.sensor("torso_subtreelinvel").data[0]


def posture(name: str, data: mujoco.MjData) -> float:
    """The factor that all tasks of a robot share, from the suite's definitions."""
    upright = (1 + data.body("torso").xmat[8]) / 2
    if name == "walker":
        height = data.body("torso").xpos[2]
        standing = 1.0 if height >= 1.2 else np.exp(np.log(0.1) * ((1.2 - height) / 0.6) ** 2)
        return (3 * standing + upright) / 4
    if name == "hopper":
        gap = data.body("torso").xipos[2] - data.body("foot").xipos[2]
        return float(0.6 <= gap <= 2)
    return upright


@pytest.mark.parametrize("name", FORMULAS)
def test_urlb_rewards_on_random_states_follow_their_formulas(name: str) -> None:
    domain, _, task = name.partition("_")
    ours, wanted = [], []
    for data, readings in states_of(domain):
        ours.append(load_robot(domain).tasks[task](readings))
        wanted.append(FORMULAS[name](data))
    np.testing.assert_allclose(ours, wanted, atol=1e-12)
    assert 0 < np.mean(wanted) < 1
    assert np.std(wanted) > 0


@pytest.mark.parametrize("domain", ROBOTS)
def test_there_are_four_tasks_each_and_they_share_the_observations(domain: str) -> None:
    assert tuple(load_robot(domain).tasks) == ROBOT_TASKS[domain]
    assert ENVS[domain].tasks == tuple(name for name in TASKS if name.startswith(f"{domain}_"))
    path = actions(20, 1, DIMS[domain][1])
    observed = []
    for name in ENVS[domain].tasks:
        env = make_task(name, seed=3)
        env.reset()
        observed.append([env.step(a).obs for a in path])
    assert len(observed) == 4
    assert all(np.array_equal(observed[0], other) for other in observed[1:])


@pytest.mark.parametrize("domain", ROBOTS)
def test_a_batch_equals_single_simulations_and_a_seed_its_trajectory(domain: str) -> None:
    batch = ENVS[domain].make(3, 7)
    singles = [RobotEnv(load_robot(domain), None, [7 + i]) for i in range(3)]
    path = actions(60, 3, DIMS[domain][1])
    together = batch.reset()
    assert np.array_equal(together, np.concatenate([s.reset() for s in singles]))
    for action in path:
        together = batch.step(action).obs
        apart = [s.step(action[i : i + 1]).obs for i, s in enumerate(singles)]
        assert np.array_equal(together, np.concatenate(apart))
    assert len(np.unique(together, axis=0)) == 3


def test_threads_change_no_trajectory() -> None:
    before = torch.get_num_threads()
    steps = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        env = make_task("walker_run", 5)
        env.reset()
        steps.append([env.step(a) for a in actions(60, 5, env.action_dim)])
    torch.set_num_threads(before)
    for one, three in zip(*steps, strict=True):
        assert np.array_equal(one.obs, three.obs)
        assert np.array_equal(one.reward, three.reward)


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("domain", ROBOTS)
def test_the_full_state_is_saved_and_restored_to_the_bit(domain: str, num_envs: int) -> None:
    """qpos and qvel would not do: warm starts, activations and sensors are part of the future."""
    env = ENVS[domain].make(num_envs, 0)
    env.reset()
    path = actions(1100, num_envs, DIMS[domain][1])
    for action in path[:950]:
        env.step(action)
    saved = env.state_dict()
    twin = ENVS[domain].make(num_envs, 99)
    twin.load_state_dict(saved)
    for t, action in enumerate(path[950:]):
        ours, theirs = env.step(action), twin.step(action)
        assert np.array_equal(ours.obs, theirs.obs)
        assert ours.truncated.tolist() == theirs.truncated.tolist() == [t == 49] * num_envs
        if t == 49:  # the generators of the initial states are part of the state too
            assert np.array_equal(env.reset(), twin.reset())


@pytest.mark.parametrize("domain", ROBOTS)
def test_a_reset_of_some_leaves_the_others_to_the_bit(domain: str) -> None:
    """And starts the episode that a full reset would have started."""
    env, undisturbed, other, twin = (ENVS[domain].make(3, 7) for _ in range(4))
    for e in (env, undisturbed, other):
        e.reset()
    second = other.reset()  # the second episode of each seed
    path, where = actions(40, 3, DIMS[domain][1]), np.array([False, True, False])
    for t, action in enumerate(path):
        if t == 20:
            before = env.step(path[t]).obs
            undisturbed.step(path[t])
            obs = env.reset(where)
            assert np.array_equal(obs, np.where(where[:, None], second, before))
            assert np.array_equal(env.reset(np.zeros(3, bool)), obs)
            twin.load_state_dict(env.state_dict())
        ours, theirs = env.step(action).obs, undisturbed.step(action).obs
        assert np.array_equal(ours[~where], theirs[~where])
        if t >= 20:
            assert np.array_equal(ours[where], other.step(action).obs[where])
            assert np.array_equal(ours, twin.step(action).obs)
    first = np.array([True, False, False])  # a restored copy resets alike
    assert np.array_equal(env.reset(first), twin.reset(first))


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("domain", ROBOTS)
def test_positions_are_those_of_the_torso(domain: str, num_envs: int) -> None:
    env = make_robot(domain, range(num_envs), motion=True)
    env.reset()
    begun = env.positions()
    for action in actions(20, num_envs, env.action_dim):
        env.step(action)
    axes = [0, 1] if domain == "quadruped" else [0, 2]
    torso = env.readings["xpos"][:, env.robot.torso][:, axes]
    assert env.positions() == pytest.approx(torso, abs=1e-12)
    assert (begun != env.positions()).all()  # a copy, which later steps leave as it is


@pytest.mark.parametrize("num_envs", [1, 2])
def test_every_environment_has_its_own_time_limit(num_envs: int) -> None:
    env = ENVS["cheetah"].make(num_envs, 0)
    env.reset()
    zeros, last = np.zeros((num_envs, 6), np.float32), np.arange(num_envs) == num_envs - 1
    ends: list[list[int]] = [[] for _ in range(num_envs)]
    for t in range(1, HORIZON + 31):
        ended = env.step(zeros).ended
        for i in np.flatnonzero(ended):
            ends[i].append(t)
        if t == 20:
            env.reset(last)
        elif ended.any():
            env.reset(ended)
    assert ends == [[HORIZON]] * (num_envs - 1) + [[HORIZON + 20]]


@pytest.mark.parametrize("num_envs", [1, 2])
def test_an_unstable_simulation_is_an_error_with_env_step_and_seed(num_envs: int) -> None:
    env = make_task("walker_run", num_envs=num_envs, seed=5)
    env.reset()
    env.step(actions(1, num_envs, 6)[0])
    state = env.simulations.state()
    state[-1, 3] = 1e20  # a coordinate of the last one flies away
    env.simulations.restore(state)
    where = rf"environment {num_envs - 1}, seed {4 + num_envs}"
    with pytest.raises(RunError, match=rf"walker_run is unstable at step 2.*{where}.*WARN"):
        env.step(actions(1, num_envs, 6)[0])


@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_harmless_warning_of_the_start_is_not_one_of_the_first_step(num_envs: int) -> None:
    env = make_task("walker_run", num_envs=num_envs)

    def init(sim: int, data: mujoco.MjData) -> None:
        env.init_episode(sim, data)
        data.warning.number[mujoco.mjtWarning.mjWARN_CONTACTFULL] = 1

    env.simulations.begin(init, range(num_envs))
    env.step(actions(1, num_envs, 6)[0])


def test_no_clock_runs_inside_a_step() -> None:
    env = make_task("walker_run")
    env.reset()
    env.step(actions(1, 1, 6)[0])
    assert isinstance(env.simulations, SingleSimulation)
    timed = [t.duration for t in env.simulations.data.timer]
    assert len(timed) > 5
    assert not any(timed)


def test_a_clock_of_somebody_else_stays() -> None:
    ticks = iter(range(10**9))
    mujoco.set_mjcb_time(lambda: float(next(ticks)))
    try:
        env = make_task("walker_run")
        env.reset()
        before = next(ticks)
        env.step(actions(1, 1, 6)[0])
        assert next(ticks) > before + 1
    finally:
        mujoco.set_mjcb_time(None)


def test_models_are_what_the_suite_means() -> None:
    assert load_robot("cheetah").model.body_mass.sum() == pytest.approx(14)
    floors = {"hopper": ("floor", 100), "cheetah": ("ground", 200)}
    for name, (geom, size) in floors.items():
        assert load_robot(name).model.geom(geom).size[0] == size


def test_an_unknown_task_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match="walker_stand, walker_walk, walker_run, walker_flip"):
        make_task("walker_dance")
    with pytest.raises(InputError, match="quadruped_"):
        make_task("humanoid_run")


@pytest.mark.parametrize("name", [*ENVS, *TASKS])
def test_specs_describe_the_environments(name: str) -> None:
    spec = env_spec(name)
    env = spec.make(1, 0)
    assert env.horizon == spec.horizon
    assert env.reset().shape == (1, *env.obs_spec.shape)
    assert env.obs_spec.mean.shape == env.obs_spec.std.shape == env.obs_spec.shape
    assert all(set(spec.presets) == set(presets) for presets in spec.agents.values())
    groups = {key.partition(".")[0] for values in spec.presets.values() for key in values}
    assert groups | {key.partition(".")[0] for key in spec.values} <= {"run", "method"}
    chosen = [key for presets in spec.agents.values() for v in presets.values() for key in v]
    assert {key.partition(".")[0] for key in chosen} <= {"agent", "train"}


def test_environments_are_listed_without_mujoco_and_torch() -> None:
    """The package is replaced by an empty one: its own imports are not the question here."""
    folder = next(iter(comsd.__path__))
    code = f"""
import sys, types
package = types.ModuleType("comsd")
package.__path__ = [{folder!r}]
sys.modules["comsd"] = package
from comsd.envs.specs import ENVS, TASKS
assert len(ENVS) == 13 and len(TASKS) == 16
print([name for name in ("mujoco", "torch", "dm_control", "scipy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
