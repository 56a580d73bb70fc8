"""Environments in the Gymnasium API: the adapter, exact states, what is refused and what fails."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit

from comsd.envs.base import action_rng
from comsd.envs.foreign import find_source, foreign_spec
from comsd.envs.gym import GymEnv, action_bounds, estimate_observations, observation_form
from comsd.envs.gym_vector import VectorGymEnv
from comsd.errors import InputError, RunError
from comsd.registry import env_spec
from conftest import needs_dmc

F = np.float32


class Rail(gymnasium.Env):
    """A point on a rail with dict observations and lopsided actions; leaving [-1, 1] terminates."""

    def __init__(self, broken: str = "") -> None:
        place = spaces.Box(-1, 1, (1,), np.float64)
        self.observation_space = spaces.Dict({"place": place, "mode": spaces.Discrete(2)})
        self.action_space = spaces.Box(np.array([0, -3], F), np.array([2, np.inf], F))
        if broken != "half":
            self.action_space = spaces.Box(np.array([0, -np.inf], F), np.array([2, np.inf], F))
        self.broken, self.x = broken, 0.0
        self.seen: list[Any] = []

    def observe(self) -> dict[str, Any]:
        return {"place": np.array([self.x]), "mode": 1}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = float(self.np_random.uniform(-0.1, 0.1))
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.seen.append(action)
        self.x += 0.3 * (action[0] - 1)
        if self.broken == "raise" and self.x > 0.5:
            raise ZeroDivisionError("a wheel came off")
        if self.broken == "assert":
            raise AssertionError  # as `assert` does, which pytest rewrites
        if self.broken == "exit":
            raise SystemExit("no more")
        if self.broken == "nan":
            self.x = np.nan
        if self.broken == "four":
            return self.observe(), 7.0, False, {}  # type: ignore[return-value]
        return self.observe(), 7.0, abs(self.x) > 1, False, {"x_position": self.x, "y_position": 0}


def rails(n: int = 2, horizon: int = 6, broken: str = "") -> GymEnv:
    return GymEnv(lambda: Rail(broken), range(n), horizon, "'rail'")


def test_observations_are_flattened_and_actions_rescaled() -> None:
    env = rails()
    assert (env.obs_spec.shape, env.action_dim) == ((3,), 2)  # the mode becomes two entries
    step = env.step(np.array([[-1, 0.5], [1, -0.25]], np.float32))
    assert [e.unwrapped.seen[-1].tolist() for e in env.envs] == [[0, 0.5], [2, -0.25]]  # type: ignore[attr-defined]
    assert step.obs.dtype == np.float32
    np.testing.assert_array_equal(step.obs[:, :2], [[0, 1], [0, 1]])
    positions = env.positions()
    assert positions is not None
    np.testing.assert_allclose(positions[:, 0], [e.unwrapped.x for e in env.envs])  # type: ignore[attr-defined]


def test_terminated_ends_for_good_and_the_time_limit_only_truncates() -> None:
    env = rails()
    outwards = np.array([[1, 0], [0, 0]], np.float32)
    steps = [env.step(outwards) for _ in range(4)]
    assert [bool(s.terminated[0]) for s in steps] == [False, False, False, True]
    assert float(np.abs(steps[-1].obs[0]).max()) > 1  # the true last observation
    before = env.obs[1].copy()
    fresh = env.reset(steps[-1].ended)
    assert abs(fresh[0]).min() <= 0.1
    np.testing.assert_array_equal(fresh[1], before)  # the other one goes on
    more = [env.step(np.zeros((2, 2), np.float32)) for _ in range(2)]
    assert [s.truncated.tolist() for s in more] == [[False, False], [False, True]]
    assert not more[-1].terminated.any()


def test_seeds_make_episodes_and_each_copy_has_its_own() -> None:
    a, b = rails(3), rails(3)
    np.testing.assert_array_equal(a.obs, b.obs)
    assert len(np.unique(a.obs[:, -1] + a.obs[:, 0])) > 1
    np.testing.assert_array_equal(a.reset(), b.reset())  # and the next episodes too


IDS = ["Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "Reacher-v5"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", IDS)
def test_a_restored_mujoco_environment_continues_to_the_bit(name: str) -> None:
    make = env_spec(f"gym:{name}").make
    env, copy, rng = make(2, 3), make(2, 8), np.random.default_rng(0)

    def act(both: bool) -> None:
        action = rng.uniform(-1, 1, (2, env.action_dim)).astype(np.float32)
        steps = [e.step(action) for e in ((env, copy) if both else (env,))]
        for one, other in pairwise(steps):
            np.testing.assert_array_equal(one.obs, other.obs)
            np.testing.assert_array_equal(one.reward, other.reward)
        if steps[0].ended.any():
            fresh = [e.reset(steps[0].ended) for e in ((env, copy) if both else (env,))]
            np.testing.assert_array_equal(fresh[0], fresh[-1])

    for _ in range(31):
        act(both=False)
    assert copy.load_state_dict(env.state_dict()) is None
    for _ in range(40):
        act(both=True)


def test_where_the_state_is_unknown_new_episodes_begin_and_never_the_same_ones() -> None:
    env, seen = rails(), []
    state = env.state_dict()
    for _ in range(3):
        other = rails()
        fresh = other.load_state_dict(state)
        assert fresh is not None
        seen.append(fresh.tolist())
        state = other.state_dict()
    assert seen[0] != seen[1] != seen[2]


class Counting(gymnasium.Wrapper):
    """A wrapper with a state of its own beside that of the environment."""

    count = 0

    def step(self, action: Any) -> Any:
        self.count += 1
        return self.env.step(action)

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def test_the_state_of_a_wrapper_is_saved_by_the_wrapper() -> None:
    def made() -> GymEnv:
        return GymEnv(lambda: Counting(Rail()), [0], 50, "'counted'")

    env, copy = made(), made()
    for _ in range(3):
        env.step(np.zeros((1, env.action_dim), F))
    assert copy.load_state_dict(env.state_dict()) is None  # exactly
    assert [getattr(e.envs[0], "count", None) for e in (env, copy)] == [3, 3]


def test_statistics_are_those_of_random_steps_and_always_the_same() -> None:
    spec, again = estimate_observations(rails(1)), estimate_observations(rails(1))
    np.testing.assert_array_equal(spec.mean, again.mean)
    place = int(np.argmax(spec.std != 1))
    assert 0.1 < spec.std[place] < 1
    assert sorted(spec.std)[1:] == [1, 1]  # constants are only centred


# --- vectors --------------------------------------------------------------------------------------


def vector(mode: AutoresetMode, n: int = 3, horizon: int = 6) -> VectorGymEnv:
    def make(num_envs: int) -> SyncVectorEnv:
        limited = [lambda: TimeLimit(Rail(), 6)] * num_envs
        return SyncVectorEnv(limited, autoreset_mode=mode)

    return VectorGymEnv(make, range(n), horizon, "'rails'")


class Delegate(VectorEnv):
    """A vector of the user's own, which knows nothing of masks."""

    def __init__(self, inner: VectorEnv, mode: AutoresetMode) -> None:
        self.inner, self.metadata = inner, {"autoreset_mode": mode}
        self.num_envs = inner.num_envs
        self.single_observation_space = inner.single_observation_space
        self.single_action_space = inner.single_action_space
        self.observation_space, self.action_space = inner.observation_space, inner.action_space

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        assert options is None
        assert seed is None or isinstance(seed, int)  # as Gymnasium's signature says
        return self.inner.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        return self.inner.step(actions)


def hand_written(mode: AutoresetMode, n: int = 3, horizon: int = 6) -> VectorGymEnv:
    def make(num_envs: int) -> Delegate:
        inner = mode if isinstance(mode, AutoresetMode) else AutoresetMode.DISABLED
        limited = [lambda: TimeLimit(Rail(), 6)] * num_envs
        return Delegate(SyncVectorEnv(limited, autoreset_mode=inner), mode)

    return VectorGymEnv(make, range(n), horizon, "'rails'")


def test_a_step_that_begins_an_episode_is_no_transition() -> None:
    env, rng = hand_written(AutoresetMode.NEXT_STEP), np.random.default_rng(0)
    singles = [GymEnv(Rail, [i], 6, "'rail'") for i in range(3)]
    waiting, begun = np.zeros(3, bool), 0
    for _ in range(40):
        action = rng.uniform(-1, 1, (3, 2)).astype(np.float32)
        action[0] = 1  # outwards: its episodes are shorter
        step = env.step(action)
        began = np.zeros(3, bool) if step.began is None else step.began
        np.testing.assert_array_equal(began, waiting)
        for i, single in enumerate(singles):
            if began[i]:
                np.testing.assert_array_equal(step.obs[i : i + 1], single.reset())
                assert (step.reward[i], step.ended[i]) == (0, False)
            else:
                other = single.step(action[i : i + 1])
                for ours, theirs in zip(step[:4], other[:4], strict=True):
                    np.testing.assert_array_equal(ours[i : i + 1], theirs)
        waiting, begun = step.ended, begun + began.sum()
        if waiting.all():  # nobody would lose a step: begun anew at once
            np.testing.assert_array_equal(env.reset(waiting), [s.reset()[0] for s in singles])
            waiting = np.zeros(3, bool)
        elif waiting.any():
            np.testing.assert_array_equal(env.reset(waiting), step.obs)
    assert begun > 8


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_is_what_single_environments_are(mode: AutoresetMode) -> None:
    env, singles, rng = vector(mode), rails(3), np.random.default_rng(0)
    np.testing.assert_array_equal(env.obs, singles.obs)
    ends = np.zeros(2, int)
    for _ in range(30):
        action = rng.uniform(-1, 1, (3, 2)).astype(np.float32)
        action[0] = 1  # outwards
        step, other = env.step(action), singles.step(action)
        for ours, theirs in zip(step[:4], other[:4], strict=True):
            np.testing.assert_array_equal(ours, theirs)  # the true last observations, too
        np.testing.assert_array_equal(env.positions(), singles.positions())  # of the last info
        ends += [step.terminated.sum(), step.truncated.sum()]
        if step.ended.any():
            np.testing.assert_array_equal(env.reset(step.ended), singles.reset(step.ended))
    assert (ends > 2).all()
    state = env.state_dict()
    assert vector(mode).load_state_dict(state) is not None  # fresh episodes


def test_noise_in_actions_is_not_the_environments_own() -> None:
    """Gymnasium's environments draw from default_rng(seed)."""
    env, noise = rails(1), action_rng(7)
    env.envs[0].reset(seed=7)
    theirs = env.envs[0].unwrapped.np_random.standard_normal(500)
    assert abs(np.corrcoef(theirs, noise.standard_normal(500))[0, 1]) < 0.2


def test_modes_of_vectors_that_cannot_be() -> None:
    with pytest.raises(InputError, match=r"is 'soon'; allowed: AutoresetMode.NEXT_STEP, Auto"):
        hand_written("soon")  # pyright: ignore[reportArgumentType]
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
        env = hand_written(mode, horizon=2)
        step = [env.step(np.zeros((3, 2), np.float32)) for _ in range(2)][-1]
        assert step.truncated.all()
        with pytest.raises(RunError, match=f"{mode.value} ends episodes by itself; give its own"):
            env.reset(np.array([True, False, True]))
        env.reset()  # all of them can be begun anew
        assert not env.step(np.zeros((3, 2), np.float32)).ended.any()


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Discrete(3), r"'e' has the actions Discrete\(3\); allowed: continuous ones"),
        (spaces.MultiDiscrete([2, 2]), "allowed: continuous"),
        (spaces.Dict(a=spaces.Box(-1, 1), b=spaces.Discrete(2)), "allowed: continuous"),
        (spaces.Box(0, 5, (2,), np.int64), "allowed: continuous"),
        (spaces.Box(0, np.inf, (2,)), "bounded on one side only"),
    ],
    ids=str,
)
def test_actions_that_are_refused(space: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        action_bounds(space, "'e'")


def test_images_stay_images_and_texts_are_refused() -> None:
    shape, dtype, _ = observation_form(spaces.Box(0, 255, (8, 9, 3), np.uint8), "'e'")
    assert (shape, dtype) == ((8, 9, 3), "uint8")
    assert observation_form(spaces.Box(-1, 1, (4, 5)), "'e'")[0] == (20,)
    with pytest.raises(InputError, match="has the observations"):
        observation_form(spaces.Sequence(spaces.Box(-1, 1)), "'e'")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("nan", "env 'rail' failed at step 1 of an episode .*: its observation holds NaN"),
        ("raise", r"failed at step 2 .*: ZeroDivisionError: a wheel came off \(test_gym.py, line"),
        ("exit", "env 'rail' failed at step 1 .*: SystemExit: no more"),
        ("assert", r"env 'rail' failed .*: AssertionError \(test_gym.py, line \d+\)"),
        ("four", r"ValueError: its step returns 4 values, not \(obs, reward, terminated, trunc"),
    ],
)
def test_what_fails_on_the_way_is_one_sentence(broken: str, message: str) -> None:
    env = rails(broken=broken)
    with pytest.raises(RunError, match=message):  # noqa: PT012 (the second step fails)
        for _ in range(2):
            env.step(np.ones((2, 2), np.float32))
    with pytest.raises(InputError, match="bounded on one side"):
        rails(broken="half")


def test_what_is_no_environment_of_this_api_is_named() -> None:
    class Wrong(gymnasium.Env):
        action_space = spaces.Box(-1, 1, (1,))
        first: Any = np.zeros(1), {}

        def reset(self, **_: Any) -> Any:
            return self.first

    with pytest.raises(InputError, match="'wrong' has no observation_space; it must be a space"):
        GymEnv(Wrong, [0], 5, "'wrong'")
    Wrong.observation_space = spaces.Box(-1, 1, (3,))
    with pytest.raises(InputError, match=r"shape \(1,\), its space has \(3,\)"):  # not broadcast
        GymEnv(Wrong, [0], 5, "'wrong'")
    Wrong.first = np.zeros(3)
    with pytest.raises(InputError, match=r"its reset returns ndarray, not \(obs, info\)"):
        GymEnv(Wrong, [0], 5, "'wrong'")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gym:Antt-v5", "Did you mean: `Ant`"),
        ("gym:Ant-v9", "version `v9`"),
        ("gym:no_such_package:Ant-v5", "is only imported when you name it: give --env-package"),
        pytest.param("dmc:humanoid-fly", "did you mean 'dmc:humanoid-", marks=needs_dmc),
        ("Maze3D", "allowed: .*gym:ID, gym:PACKAGE:ID, dmc:DOMAIN-TASK"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_sentence(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        env_spec(name)
    assert "\n" not in str(error.value)


@needs_dmc
def test_a_task_of_dm_control() -> None:
    source = find_source("dmc:point_mass-easy")
    assert source is not None
    env = foreign_spec(source, "pretrain", {}).make(2, 0)
    step = env.step(np.ones((2, env.action_dim), np.float32))
    assert (env.obs_spec.shape, env.action_dim, env.horizon) == ((4,), 2, 1000)
    assert step.reward.shape == (2,)
    positions = env.positions()
    assert positions is not None
    assert np.abs(np.diff(positions, axis=0)).max() > 0  # other seeds, other starts
