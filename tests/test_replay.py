"""The replay by hand: observation t is the number t, so every window can be checked by eye."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from comsd import checkpoint, replay
from comsd.errors import InputError
from comsd.replay import Layout, Replay

HORIZON, HOLD, ENVS = 10, 4, 2
WALKER = Layout(10**6, 1, 24, 6, 64, horizon=1000, hold=50)


def make(capacity: int = 36, num_envs: int = ENVS) -> Replay:
    return Replay(Layout(capacity, num_envs, 1, 1, 1, HORIZON, HOLD), torch.device("cpu"))


def play(memory: Replay, episodes: int, steps: int = HORIZON) -> None:
    """Episode e starts at 100 e; environment i adds i / 2. Skill: 10 e + number of the segment."""
    offset = np.arange(memory.num_envs)[:, None] / 2
    for _ in range(episodes):
        e = memory.episodes
        memory.begin((100 * e + offset).astype(np.float32))
        for t in range(steps):
            if t % HOLD == 0:
                memory.hold(torch.from_numpy(10 * e + t // HOLD + offset).float())
            now = (100 * e + t + offset).astype(np.float32)
            memory.add(now, now[:, 0].astype(float), now + 1, t == HORIZON - 1)


@pytest.mark.parametrize("episodes", [1, 2, 3, 8])  # the ring holds less than two
@pytest.mark.parametrize("n", [1, 3])
def test_windows_stay_in_their_episode_and_environment(episodes: int, n: int) -> None:
    memory = make()
    play(memory, episodes)
    batch = memory.sample(500, n, 0.5, np.random.default_rng(0))
    s, z = batch.obs[:, 0], batch.skill[:, 0]
    episode, env = (s // 100), (s % 1)
    t = s - 100 * episode - env
    assert torch.equal(batch.next_obs[:, 0], s + n)  # no jump into another episode
    assert torch.equal(batch.near[:, 0], s + 1)
    assert torch.equal(batch.action[:, 0], s)
    assert bool((t <= HORIZON - n).all())
    # The skill is the one that produced the action, not the one before it.
    assert torch.equal(z, 10 * episode + t // HOLD + env)
    wanted = sum(0.5**k * (s + k) for k in range(n))
    torch.testing.assert_close(batch.reward, wanted)
    assert torch.equal(batch.discount, torch.full((500,), 0.5**n))
    assert set(env.tolist()) == {0.0, 0.5}
    kept = 36 // ENVS + 2  # rows of the ring: two of them without an action
    oldest = max(0, memory.head + 1 - kept)
    assert set(t[episode == episodes - 1].tolist()) == set(range(HORIZON - n + 1))
    assert s.min() >= (oldest // 11) * 100  # nothing older than the ring


def test_every_whole_window_is_equally_likely() -> None:
    memory = make()
    play(memory, 5)
    drawn = memory.sample(40_000, 3, 0.9, np.random.default_rng(0)).obs[:, 0]
    _, counts = drawn.unique(return_counts=True)
    assert len(counts) == ENVS * (8 + 5)  # a whole episode and what is left of the one before
    assert counts.max() / counts.min() < 1.25


def test_a_transition_can_be_drawn_as_soon_as_its_last_observation_is_there() -> None:
    memory = make()
    play(memory, 1, steps=3)
    assert memory.starts(3) == 1
    batch = memory.sample(4, 3, 1.0, np.random.default_rng(0))
    assert set(batch.obs[:, 0].tolist()) <= {0.0, 0.5}
    assert set(batch.next_obs[:, 0].tolist()) <= {3.0, 3.5}


def test_windows_of_one_skill_do_not_straddle_a_change() -> None:
    memory = make()
    play(memory, 4)
    drawn = memory.sample(300, 3, 1.0, np.random.default_rng(0), one_skill=True).obs[:, 0]
    step = (drawn % 100).floor() % HOLD
    assert set(step.tolist()) == {0.0, 1.0}  # 2 and 3 would reach into the next segment
    free = memory.sample(300, 3, 1.0, np.random.default_rng(0)).obs[:, 0]
    assert {2.0, 3.0} <= set(((free % 100).floor() % HOLD).tolist())


def test_walker_at_a_million_takes_at_most_150_megabytes() -> None:
    memory = Replay(WALKER, torch.device("cpu"))
    held = sum(column.nbytes for column in (*memory._columns().values(), memory.skill))
    assert held == WALKER.bytes <= 150e6
    assert memory.rows == 1_001_000  # a million transitions and an end for every episode


def test_too_little_memory_is_said_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "free_memory", lambda: 50_000_000)
    with pytest.raises(InputError, match=r"agent.replay is 1000000.*at most 36\d\d\d\d"):
        WALKER.check_memory()


def contents(memory: Replay) -> list[np.ndarray]:
    batch = memory.sample(200, 3, 0.9, np.random.default_rng(1))
    return [column.numpy() for column in batch]


def test_rows_are_written_once_and_restored_exactly(tmp_path: Path) -> None:
    memory = make(capacity=80)
    written: dict[str, int] = {}
    for step in range(1, 12):
        play(memory, 1, steps=HORIZON)
        checkpoint.save(tmp_path, step, {"replay": memory.state_dict()})
        files = {f.name: f.stat().st_mtime_ns for f in (tmp_path / "chunks").iterdir()}
        assert all(files[name] == time for name, time in written.items() if name in files)
        written = files
    spans = sorted(name.removesuffix(".safetensors").split("-")[1:] for name in written)
    assert len(spans) <= 6  # old pieces leave with the rows they hold
    twin = make(capacity=80)
    twin.load_state_dict(checkpoint.latest(tmp_path)[0]["replay"])
    for ours, theirs in zip(contents(memory), contents(twin), strict=True):
        assert np.array_equal(ours, theirs)
    play(memory, 2)
    play(twin, 2)
    for ours, theirs in zip(contents(memory), contents(twin), strict=True):
        assert np.array_equal(ours, theirs)


def test_a_damaged_piece_is_named_and_the_checkpoint_before_it_used(tmp_path: Path) -> None:
    memory = make(capacity=80)
    for step in (1, 2, 3):
        play(memory, 1)
        checkpoint.save(tmp_path, step, {"replay": memory.state_dict()})
    newest = max((tmp_path / "chunks").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    state, problems = checkpoint.latest(tmp_path)
    assert newest.name in problems[0]
    assert state["replay"]["episodes"] == 2
