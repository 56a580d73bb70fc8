"""The replay against a plain list of what happened: observations are numbers that say where."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from comsd import checkpoint
from comsd.errors import InputError, RunError
from comsd.replay import Layout, Replay
from comsd.training import checks as memory_check
from comsd.types import Batch, ObsSpec
from conftest import plain_obs

HORIZON, HOLD = 10, 4
WALKER = Layout(10**6, 1, plain_obs(24), 6, 64, horizon=1000, hold=50)

Ends = Callable[[int, int], tuple[int, bool]]  # (environment, episode) -> steps, terminated?


class Window(NamedTuple):
    """What a sampled transition has to be."""

    next_obs: float
    one_step_obs: float
    skill: float
    reward: float
    discount: float


def make(capacity: int = 36, num_envs: int = 2) -> Replay:
    return Replay(
        Layout(capacity, num_envs, plain_obs(1), 1, 1, HORIZON, HOLD), torch.device("cpu")
    )


def full_episodes(*_: int) -> tuple[int, bool]:
    return HORIZON, False


def uneven(env: int, episode: int) -> tuple[int, bool]:
    """Lengths 1 to 10, other ones in every environment; some end by termination."""
    length = 1 + (7 * env + 3 * episode + episode * episode) % HORIZON
    return length, (env + episode) % 3 != 0 and length < HORIZON


def one_and_two_steps(env: int, _: int) -> tuple[int, bool]:
    return 1 + env, env == 0


class Player:
    """Fills a replay and keeps a list of what it put in.

    Observation t of episode e in environment i is 100000 i + 100 e + t; so are action and reward.
    The skill is 10 times the observation at which it was chosen. Rows before `lost` are in no
    window: a smaller replay had dropped them.
    """

    def __init__(self, memory: Replay, ends: Ends) -> None:
        n = memory.num_envs
        self.memory, self.ends, self.num_envs = memory, ends, n
        self.env, self.episode, self.t = np.arange(n), np.zeros(n, int), np.zeros(n, int)
        self.skill, self.lost = np.zeros(n), np.zeros(n, int)
        self.past: list[list[list[tuple[float, float, bool]]]] = [[[]] for _ in range(n)]
        memory.begin(self.obs, np.ones(n, bool))

    @property
    def obs(self) -> np.ndarray:
        return (100_000 * self.env + 100 * self.episode + self.t)[:, None].astype(np.float32)

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        due, now = self.t % HOLD == 0, self.obs
        if due.any():
            self.skill[due] = 10 * now[due, 0]
            self.memory.select(torch.from_numpy(self.skill[due, None]), due)
        self.t += 1
        limits = [self.ends(i, int(e)) for i, e in enumerate(self.episode)]
        ended = self.t == [length for length, _ in limits]
        terminated = ended & [terminal for _, terminal in limits]
        self.memory.add(now, now[:, 0], self.obs, terminated, ended)
        for i in self.env:
            row = (float(now[i, 0]), float(self.skill[i]), bool(terminated[i]))
            self.past[i][-1].append(row)
            if ended[i]:
                self.past[i].append([])
        if ended.any():
            self.episode += ended
            self.t[ended] = 0
            self.memory.begin(self.obs, ended)

    def windows(self, n: int, discount: float, one_skill: bool = False) -> dict[float, Window]:
        """All windows that can be drawn, by their first observation."""
        found: dict[float, Window] = {}
        for i, episodes in enumerate(self.past):
            row = 0
            oldest = max(self.lost[i], self.memory.head[i] - (self.memory.rows - 1))
            for episode in episodes:
                for t, (s, z, _) in enumerate(episode):
                    part = episode[t : t + n]
                    whole = len(part) == n or part[-1][2]
                    changes = one_skill and part[-1][1] != z
                    if row + t < oldest or not whole or changes:
                        continue
                    reward = sum(discount**k * r for k, (r, _, _) in enumerate(part))
                    value = 0.0 if part[-1][2] else discount**n
                    found[s] = Window(s + len(part), s + 1, z, reward, value)
                row += len(episode) + 1  # the last observation has a row of its own
        return found


def check(batch: Batch, windows: dict[float, Window]) -> None:
    """Every row is one of the windows, and every window is there."""
    assert set(batch.obs[:, 0].tolist()) == windows.keys()
    assert torch.equal(batch.action, batch.obs)
    wanted = [windows[s] for s in batch.obs[:, 0].tolist()]
    found = batch.next_obs, batch.one_step_obs, batch.skill, batch.reward, batch.discount
    for name, column, values in zip(Window._fields, found, zip(*wanted, strict=True), strict=True):
        torch.testing.assert_close(column.flatten(), torch.tensor(values), msg=name)


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [full_episodes, uneven])
@pytest.mark.parametrize("steps", [3, 10, 15, 40, 115])  # the ring holds 18 of each environment
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("one_skill", [False, True])
def test_windows_are_those_of_the_list(ends: Ends, steps: int, n: int, one_skill: bool) -> None:
    player = Player(memory := make(), ends)
    player.play(steps)
    batch = memory.sample(2000, n, 0.5, np.random.default_rng(0), one_skill=one_skill)
    check(batch, player.windows(n, 0.5, one_skill))


@pytest.mark.parametrize("n", [1, 3])
def test_a_replay_may_be_smaller_than_an_episode(n: int) -> None:
    """The row that will be overwritten next is of the same episode as the newest one."""
    player = Player(memory := make(12), full_episodes)
    for _ in range(30):
        player.step()
        if windows := player.windows(n, 0.5):
            check(memory.sample(500, n, 0.5, np.random.default_rng(0)), windows)


def test_a_window_that_meets_a_termination_is_cut_there() -> None:
    """Four steps, rewards 0, 1, 2, 3, gamma 0.5, n = 3: sums 0 + 0.5 + 0.5 = 1, then
    1 + 1 + 0.75 = 2.75, 2 + 1.5 = 3.5 and 3, of which only the first has a value after it."""
    player = Player(memory := make(num_envs=1), lambda *_: (4, True))
    player.play(5)
    batch = memory.sample(200, 3, 0.5, np.random.default_rng(0))
    rows = {
        (s, after, one, reward, discount)
        for s, after, one, reward, discount in zip(
            batch.obs[:, 0].tolist(),
            batch.next_obs[:, 0].tolist(),
            batch.one_step_obs[:, 0].tolist(),
            batch.reward.tolist(),
            batch.discount.tolist(),
            strict=True,
        )
    }
    wanted = {(0, 3, 1, 1, 0.125), (1, 4, 2, 2.75, 0), (2, 4, 3, 3.5, 0), (3, 4, 4, 3, 0)}
    assert rows == wanted  # nothing of the episode after it, whose one step is no whole window


def test_no_window_crosses_a_time_limit() -> None:
    """Four steps: of the windows of three only two fit."""
    player = Player(memory := make(num_envs=1), lambda *_: (4, False))
    player.play(6)
    batch = memory.sample(200, 3, 0.5, np.random.default_rng(0))
    assert set(batch.obs[:, 0].tolist()) == {0, 1}
    assert set(batch.discount.tolist()) == {0.125}


def test_a_transition_can_be_drawn_as_soon_as_its_last_observation_is_there() -> None:
    player = Player(memory := make(), full_episodes)
    player.play(3)
    batch = memory.sample(40, 3, 1.0, np.random.default_rng(0))
    assert set(batch.obs[:, 0].tolist()) == {0, 100_000}
    assert set(batch.next_obs[:, 0].tolist()) == {3, 100_003}


def test_a_replay_without_a_whole_window_says_so() -> None:
    player = Player(memory := make(), lambda *_: (2, False))
    player.play(12)
    with pytest.raises(RunError, match=r"no stored episode lasts train.n_step = 3 steps; lower it"):
        memory.sample(4, 3, 1.0, np.random.default_rng(0))


@pytest.mark.parametrize("ends", [full_episodes, uneven])
def test_every_whole_window_is_equally_likely(ends: Ends) -> None:
    player = Player(memory := make(), ends)
    player.play(57)
    drawn = memory.sample(40_000, 3, 0.9, np.random.default_rng(0)).obs[:, 0]
    _, counts = drawn.unique(return_counts=True)
    assert len(counts) == len(player.windows(3, 0.9))
    assert counts.max() / counts.min() < 1.3


def test_environments_of_different_fill_are_drawn_in_proportion() -> None:
    """Episodes of one step take two rows each: that ring is full when the other is not."""
    player = Player(memory := make(60), lambda env, _: (1, True) if env == 0 else (HORIZON, False))
    player.play(25)
    assert memory.head[0] > memory.rows > memory.head[1]
    drawn = memory.sample(40_000, 1, 0.9, np.random.default_rng(0)).obs[:, 0]
    first = [s for s in player.windows(1, 0.9) if s < 100_000]
    share = (drawn < 100_000).float().mean().item()
    assert len(first) < 25
    assert share == pytest.approx(len(first) / (len(first) + 25), abs=0.01)


def test_all_single_steps() -> None:
    player = Player(memory := make(), uneven)
    player.play(40)
    batch = memory.transitions()
    check(batch, player.windows(1, 1.0))
    assert len(batch.obs) == len(player.windows(1, 1.0))


# --- skills ---------------------------------------------------------------------------------------


def test_the_table_of_skills_grows_with_short_episodes() -> None:
    """It is made for episodes that last; with one step each there is a skill per step."""
    player = Player(memory := make(200), one_and_two_steps)
    size = len(memory.skill)
    player.play(150)
    grown = len(memory.skill)
    assert grown > size
    check(memory.sample(4000, 1, 0.5, np.random.default_rng(0)), player.windows(1, 0.5))
    player.play(500)
    assert len(memory.skill) == grown  # and not without end
    check(memory.sample(4000, 1, 0.5, np.random.default_rng(0)), player.windows(1, 0.5))


def test_episodes_that_last_need_no_more_skills_than_foreseen() -> None:
    player = Player(memory := make(), full_episodes)
    size = len(memory.skill)
    player.play(200)
    assert len(memory.skill) == size


# --- memory ---------------------------------------------------------------------------------------


def test_walker_at_a_million_takes_at_most_150_megabytes() -> None:
    memory = Replay(WALKER, torch.device("cpu"))
    held = sum(getattr(memory, name).nbytes for name in WALKER.arrays)
    assert held == WALKER.bytes <= 150e6
    assert memory.rows == 1_001_000  # a million transitions and an end for every episode


def test_too_little_memory_is_said_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_check, "free_memory", lambda: 50_000_000)
    with pytest.raises(InputError, match=r"train.replay is 1000000.*at most 34\d\d\d\d"):
        memory_check.check_memory(WALKER)


def test_images_stay_bytes() -> None:
    spec = ObsSpec((3, 4, 4), "uint8", np.zeros(()), np.ones(()))
    memory = Replay(Layout(20, 1, spec, 2, 1, HORIZON, HOLD), torch.device("cpu"))
    one, where = np.ones((1, 3, 4, 4), np.uint8), np.ones(1, bool)
    memory.begin(one, where)
    memory.select(torch.ones(1, 1), where)
    memory.add(np.zeros((1, 2)), np.zeros(1), 200 * one, ~where, ~where)
    batch = memory.sample(5, 1, 0.9, np.random.default_rng(0))
    assert batch.obs.dtype == batch.next_obs.dtype == torch.uint8
    assert batch.next_obs.shape == (5, 3, 4, 4)
    assert bool((batch.next_obs == 200).all())
    assert batch.reward.dtype == batch.discount.dtype == batch.action.dtype == torch.float32


# --- saving ---------------------------------------------------------------------------------------


def same(one: Replay, other: Replay, n: int = 2) -> bool:
    batches = (memory.sample(300, n, 0.9, np.random.default_rng(1)) for memory in (one, other))
    columns = zip(*batches, strict=True)
    return all(torch.equal(ours, theirs) for ours, theirs in columns)


def restored(folder: Path, like: Callable[[], Replay]) -> Replay:
    memory = like()
    memory.load_state_dict(checkpoint.latest(folder)[0]["replay"])
    return memory


def chunks(folder: Path) -> dict[str, int]:
    return {f.name: f.stat().st_mtime_ns for f in folder.glob("*/replay-*.safetensors")}


@pytest.mark.parametrize("ends", [full_episodes, uneven])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_rows_are_written_once_and_restored_exactly(
    ends: Ends, num_envs: int, tmp_path: Path
) -> None:
    """Saved every 7 steps, until the ring has been written over several times."""

    def empty() -> Replay:
        return make(30 * num_envs, num_envs)

    player = Player(memory := empty(), ends)
    written: dict[str, int] = {}
    for step in range(1, 20):
        player.play(7)
        checkpoint.save(tmp_path, step, {"replay": memory.state_dict()})
        files = chunks(tmp_path)
        assert all(files[name] == time for name, time in written.items() if name in files)
        assert len(files.keys() - written.keys()) == 1
        written = files
        twin = restored(tmp_path, empty)
        check(twin.sample(2000, 2, 0.9, np.random.default_rng(0)), player.windows(2, 0.9))
        assert same(memory, twin)
    rows = num_envs * memory.rows
    assert len(written) <= 2 + -(-memory.rows // 7) + 1  # of the last two checkpoints
    held = sum(stop - start for chunk in memory.chunks for start, stop in chunk.span)
    assert held <= rows + 2 * num_envs * 14  # old chunks leave with the rows they hold
    assert min(start for chunk in memory.chunks for start, _ in chunk.span) > 0

    other = copy.copy(player)  # both go on from here
    other.t, other.episode, other.skill = (
        player.t.copy(),
        player.episode.copy(),
        player.skill.copy(),
    )
    other.memory, other.past = (twin := restored(tmp_path, empty)), copy.deepcopy(player.past)
    player.play(25)
    other.play(25)
    assert same(memory, twin)
    check(twin.sample(2000, 2, 0.9, np.random.default_rng(0)), other.windows(2, 0.9))


def test_a_replay_in_the_middle_of_an_episode_goes_on(tmp_path: Path) -> None:
    """The open row and the skill that acts are part of the state; so is the grown table."""
    player = Player(memory := make(200), one_and_two_steps)
    player.play(151)
    size = len(memory.skill)
    checkpoint.save(tmp_path, 1, {"replay": memory.state_dict()})
    player.memory = restored(tmp_path, lambda: make(200))
    assert len(player.memory.skill) == size > len(make(200).skill)
    player.play(3)
    check(player.memory.sample(4000, 1, 0.9, np.random.default_rng(0)), player.windows(1, 0.9))


def one_and_all_steps(env: int, _: int) -> tuple[int, bool]:
    return (1, True) if env == 0 else (HORIZON, False)


@pytest.mark.parametrize("ends", [full_episodes, uneven, one_and_two_steps, one_and_all_steps])
@pytest.mark.parametrize("steps", [15, 25, 115])  # of some, one or both environments rows are lost
def test_a_larger_replay_does_not_claim_the_rows_that_a_smaller_one_dropped(
    ends: Ends, steps: int, tmp_path: Path
) -> None:
    """A run that is extended may have a larger one; saved twice, then written over."""
    player = Player(memory := make(), ends)
    for step in range(1, steps // 5 + 1):
        player.play(5)
        checkpoint.save(tmp_path, step, {"replay": memory.state_dict()})
    player.lost = np.maximum(memory.head - (memory.rows - 1), 0)
    player.memory = larger = restored(tmp_path, lambda: make(80))
    assert same(memory, larger, n=1)
    assert len(larger.transitions().obs) == len(memory.transitions().obs)
    for step, more in enumerate((0, 3, 60), steps):
        player.play(more)
        windows = player.windows(1, 0.9)
        check(player.memory.sample(2000, 1, 0.9, np.random.default_rng(0)), windows)
        check(player.memory.transitions(), player.windows(1, 1.0))
        checkpoint.save(tmp_path, step, {"replay": player.memory.state_dict()})
        player.memory = restored(tmp_path, lambda: make(80))
    assert (player.memory.head - player.lost > player.memory.rows).any()


def test_dropped_rows_do_not_make_the_table_of_skills_grow(tmp_path: Path) -> None:
    player = Player(memory := make(), full_episodes)
    player.play(2000)
    checkpoint.save(tmp_path, 1, {"replay": memory.state_dict()})
    player.memory = restored(tmp_path, lambda: make(160))
    player.play(40)
    assert memory.segments > 1000
    assert len(player.memory.skill) <= 3 * len(memory.skill)


@pytest.mark.parametrize("capacity", [36, 160])
def test_a_checkpoint_that_does_not_say_what_was_dropped_is_read(
    capacity: int, tmp_path: Path
) -> None:
    """Older versions wrote none that does. Nothing is drawn that never happened."""
    player = Player(memory := make(), uneven)
    for step in range(1, 24):
        player.play(5)
        state = memory.state_dict()
        state.pop("oldest", None)
        checkpoint.save(tmp_path, step, {"replay": state})
    player.memory = restored(tmp_path, lambda: make(capacity))
    batch = player.memory.sample(2000, 1, 0.9, np.random.default_rng(0))
    if capacity == 36:
        assert same(memory, player.memory)
        check(batch, player.windows(1, 0.9))
    windows = player.windows(1, 0.9)
    for s, after in zip(batch.obs[:, 0].tolist(), batch.next_obs[:, 0].tolist(), strict=True):
        assert windows[s].next_obs == after


def test_terminations_before_the_checkpoint_still_cut_windows(tmp_path: Path) -> None:
    player = Player(memory := make(60, 1), lambda _, e: (4, e == 0))  # only the first
    player.play(9)
    checkpoint.save(tmp_path, 1, {"replay": memory.state_dict()})
    twin = restored(tmp_path, lambda: make(60, 1))
    check(twin.sample(2000, 3, 0.9, np.random.default_rng(0)), player.windows(3, 0.9))


def test_a_damaged_chunk_is_named_and_the_checkpoint_before_it_used(tmp_path: Path) -> None:
    player = Player(memory := make(80), full_episodes)
    for step in (1, 2, 3):
        player.play(HORIZON)
        checkpoint.save(tmp_path, step, {"replay": memory.state_dict()})
    newest = max(tmp_path.glob("*/replay-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    state, problems = checkpoint.latest(tmp_path)
    assert newest.name in problems[0]
    assert state["replay"]["episodes"].tolist() == [3, 3]
