"""Replay of images: stacks, shifts, episode starts, files and resume."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from comsd import checkpoint
from comsd.encoders import PixelSettings
from comsd.envs.pixels import PixelEnv
from comsd.errors import InputError, RunError
from comsd.files import Folder
from comsd.frame_replay import FrameLayout, FrameReplay, shift
from comsd.replay import Layout
from comsd.training.checks import check_disk
from comsd.types import Batch
from fake_env import FakeEnv, NextStepEnv

SIZE, STACK, ENVS = 4, 3, 2
CPU = torch.device("cpu")


def number_of(env: FakeEnv) -> NDArray[np.uint8]:
    """A frame whose three channels are the environment, its episode and its clock."""
    numbers = np.stack([np.arange(env.num_envs), env.episode, env.clock], 1).astype(np.uint8)
    return np.tile(numbers[:, :, None, None], (1, 1, SIZE, SIZE))


def make_env(ends: Any = None, repeat: int = 1, kind: type[FakeEnv] = FakeEnv) -> PixelEnv:
    env = kind(ENVS, horizon=6, ends=ends)
    settings = PixelSettings(stack=STACK, repeat=repeat, size=8)
    return PixelEnv(env, lambda _: number_of(env), (3, SIZE, SIZE), settings)


def make_replay(env: PixelEnv, capacity: int, memory: float = 1e9, pad: int = 0) -> FrameReplay:
    layout = Layout(capacity, ENVS, env.obs_spec, 2, 1, horizon=env.horizon, hold=3)
    return FrameReplay(FrameLayout(layout, memory, open_steps=4), CPU, pad)


def fill(env: PixelEnv, replay: FrameReplay, steps: int, save: Path | None = None) -> None:
    """save: seal a chunk every fourth step, as checkpoints do."""
    rng = np.random.default_rng(0)
    replay.begin(env.reset(), np.ones(ENVS, bool))
    replay.select(torch.zeros(ENVS, 1), np.ones(ENVS, bool))
    for t in range(steps):
        action = rng.uniform(-1, 1, (ENVS, 2)).astype(np.float32)
        step = env.step(action)
        replay.add(action, step.reward, step.obs, step.terminated, step.ended, step.began)
        if step.began is not None:
            replay.begin(step.obs, step.began)
        if step.ended.any():
            replay.begin(env.reset(step.ended), step.ended)
        if save is not None and t % 4 == 3:
            for chunk in checkpoint.chunks_of(replay.state_dict()):
                chunk.write(Folder(save))


def check_stacks(batch: Batch, n: int) -> None:
    """Stacks are consecutive clocks of one episode, the first frame repeated at its start."""
    for obs, gap in ((batch.obs, 0), (batch.one_step_obs, 1), (batch.next_obs, n)):
        stacks = obs[:, :, 0, 0].unflatten(1, (STACK, 3)).int()  # (B, stack, channel)
        assert (stacks[:, :, :2] == stacks[:, -1:, :2]).all()  # one environment, one episode
        clock = stacks[:, -1, 2]
        expected = (clock[:, None] + torch.arange(1 - STACK, 1)).clamp_min(0)
        assert torch.equal(stacks[:, :, 2], expected)
        assert torch.equal(clock, batch.obs[:, -1, 0, 0].int() + gap)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("capacity", [200, 30])
def test_episodes_that_begin_in_the_next_step_have_stacks_of_their_own(
    n: int, capacity: int
) -> None:
    env = make_env(kind=NextStepEnv, ends=lambda i, _: 6 - i)
    replay = make_replay(env, capacity)
    fill(env, replay, 64)
    batch = replay.sample(500, n, 0.9, np.random.default_rng(0))
    whole = batch.discount > 0  # others are cut by a termination
    check_stacks(Batch(*(column[whole] for column in batch)), n)
    assert (batch.obs[:, -1, 0, 0] == 0).any()  # first steps of episodes


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("capacity", [200, 30])  # never full, overwritten several times
def test_stacks_are_contiguous_and_never_cross_the_start_of_an_episode(
    n: int, capacity: int
) -> None:
    env = make_env()
    replay = make_replay(env, capacity)
    fill(env, replay, 64)
    batch = replay.sample(512, n, 0.9, np.random.default_rng(0))
    check_stacks(batch, n)
    starts = batch.obs[:, -1, 0, 0]
    assert set(starts.tolist()) == set(range(6 - n + 1))  # every step that has a whole window
    episodes = batch.obs[:, -2, 0, 0]
    assert episodes.max() - episodes.min() >= (9 if capacity == 200 else 1)


def test_episodes_that_terminate() -> None:
    env = make_env(ends=lambda i, episode: 2 + i + episode % 2)
    replay = make_replay(env, 100)
    fill(env, replay, 40)
    batch = replay.sample(256, 1, 0.9, np.random.default_rng(0))
    check_stacks(batch, 1)
    assert 0 < (batch.discount == 0).float().mean() < 1


def test_shift_by_hand() -> None:
    source = np.arange(9, dtype=np.uint8).reshape(1, 3, 3)
    target = np.zeros_like(source)
    shift(source, target, 1, 0)  # one row up; the last is repeated
    assert target.tolist() == [[[3, 4, 5], [6, 7, 8], [6, 7, 8]]]
    shift(source, target, -1, -1)
    assert target.tolist() == [[[0, 0, 1], [0, 0, 1], [3, 3, 4]]]
    shift(source, target, 0, 2)
    assert target.tolist() == [[[2, 2, 2], [5, 5, 5], [8, 8, 8]]]


@pytest.mark.parametrize("by", [(0, 0), (2, -1), (-2, 2), (1, 2)])
def test_shift_is_a_crop_of_the_image_with_its_border_repeated(by: tuple[int, int]) -> None:
    """That is what DrQ-v2's bilinear sampling at whole pixels gives."""
    rng = np.random.default_rng(0)
    source = rng.integers(0, 256, (9, 7, 7), dtype=np.uint8)
    padded = np.pad(source, ((0, 0), (2, 2), (2, 2)), mode="edge")
    target = np.zeros_like(source)
    shift(source, target, *by)
    down, right = by[0] + 2, by[1] + 2
    assert np.array_equal(target, padded[:, down : down + 7, right : right + 7])


def test_sampled_images_are_shifted_independently_and_as_a_whole() -> None:
    """All frames of a stack by the same shift, s and s' by their own."""
    env, rng = make_env(), np.random.default_rng(0)
    replay = make_replay(env, 100, pad=1)
    picture = rng.integers(0, 256, (3, SIZE, SIZE), dtype=np.uint8)
    env.camera = lambda _: np.tile(picture, (ENVS, 1, 1, 1))
    fill(env, replay, 6)
    batch = replay.sample(200, 1, 0.9, rng)
    padded = np.pad(picture, ((0, 0), (1, 1), (1, 1)), mode="edge")
    crops = [
        np.tile(padded[:, y : y + SIZE, x : x + SIZE], (STACK, 1, 1)).tobytes()
        for y in range(3)
        for x in range(3)
    ]
    now, then = ([crops.index(s.numpy().tobytes()) for s in x] for x in (batch.obs, batch.next_obs))
    assert set(now) == set(then) == set(range(9))
    assert len(set(zip(now, then, strict=True))) > 40
    kept = replay.transitions()  # of what is stored, as it is
    assert {crops.index(s.numpy().tobytes()) for s in kept.obs} == {4}


@pytest.mark.parametrize("capacity", [200, 30])
def test_frames_in_files_give_the_same_batches(capacity: int, tmp_path: Path) -> None:
    whole, filed = make_replay(make_env(), capacity, pad=1), make_replay(make_env(), capacity, 0, 1)
    assert filed.obs.nbytes < whole.obs.nbytes
    fill(make_env(), whole, 62)
    fill(make_env(), filed, 62, tmp_path)
    for seed in range(5):
        batches = [r.sample(64, 3, 0.9, np.random.default_rng(seed)) for r in (whole, filed)]
        assert all(map(torch.equal, *batches))
    assert filed.files  # some came from there
    dropped = set(filed.files) - {chunk.name for chunk in filed.chunks}
    assert not dropped


def test_what_is_in_no_file_yet_stays_in_memory() -> None:
    """Without a checkpoint for long, memory grows rather than that frames are lost."""
    env = make_env()
    replay = make_replay(env, 200, memory=0)
    before = replay.in_memory
    fill(env, replay, 60)
    assert replay.in_memory > before
    check_stacks(replay.sample(256, 3, 0.9, np.random.default_rng(0)), 3)


@pytest.mark.parametrize("memory", [0, 1e9])
@pytest.mark.parametrize("steps", [25, 62])  # in the middle of an episode; after its last row
def test_a_restored_replay_goes_on_in_the_same_way(
    memory: float, steps: int, tmp_path: Path
) -> None:
    def save(replay: FrameReplay, folder: Path) -> FrameReplay:
        checkpoint.save(folder, 1, {"replay": replay.state_dict()})
        fresh = make_replay(make_env(), 40, memory, pad=1)
        fresh.load_state_dict(checkpoint.read(folder / f"{1:012d}")["replay"])
        return fresh

    env = make_env()
    original = make_replay(env, 40, memory, pad=1)
    fill(env, original, steps)
    restored = save(original, tmp_path / "a")
    rng = np.random.default_rng(1)
    for _ in range(5):
        action = rng.uniform(-1, 1, (ENVS, 2)).astype(np.float32)
        step = env.step(action)
        for replay in (original, restored):
            replay.add(action, step.reward, step.obs, step.terminated, step.ended)
        if step.ended.any():
            obs = env.reset(step.ended)
            for replay in (original, restored):
                replay.begin(obs, step.ended)
    batches = [r.sample(64, 3, 0.9, np.random.default_rng(0)) for r in (original, restored)]
    assert all(map(torch.equal, *batches))


def first_is_short(env: int, _: int) -> int | None:
    return 1 if env == 0 else None


@pytest.mark.parametrize("memory", [0, 1e9])
@pytest.mark.parametrize("ends", [None, lambda i, _: 2 + i, first_is_short])
@pytest.mark.parametrize("named", [True, False])  # older checkpoints do not say what was dropped
def test_a_larger_replay_draws_nothing_that_a_smaller_one_dropped(
    memory: float, ends: Any, named: bool, tmp_path: Path
) -> None:
    """A run that is extended has a larger one; it goes on, is saved and read again."""
    env, rng = make_env(ends), np.random.default_rng(0)
    smaller, files = make_replay(env, 30, memory), tmp_path / checkpoint.CHUNKS
    files.mkdir()
    fill(env, smaller, 64, files)

    def reread(replay: FrameReplay, capacity: int) -> FrameReplay:
        state = replay.state_dict()
        if not named:
            state.pop("oldest", None)
        step = int(replay.head.sum())
        checkpoint.save(tmp_path, step, {"replay": state})
        fresh = make_replay(env, capacity, memory)
        fresh.load_state_dict(checkpoint.read(tmp_path / f"{step:012d}")["replay"])
        return fresh

    larger = reread(smaller, 60)
    if named:
        kept, still = smaller.transitions(), larger.transitions()
        assert all(map(torch.equal, kept, still))
        for n in (1, 3):
            batches = [r.sample(64, n, 0.9, np.random.default_rng(n)) for r in (smaller, larger)]
            assert all(map(torch.equal, *batches))
    for steps in (0, 3, 60):
        for t in range(steps):
            step = env.step(np.zeros((ENVS, 2), np.float32))
            larger.add(np.zeros((ENVS, 2)), step.reward, step.obs, step.terminated, step.ended)
            if step.ended.any():
                larger.begin(env.reset(step.ended), step.ended)
            if t % 4 == 3:
                for chunk in checkpoint.chunks_of(larger.state_dict()):
                    chunk.write(Folder(files))
        for batch in (larger.sample(200, 1, 0.9, rng), larger.transitions()):
            check_stacks(batch, 1)
        larger = reread(larger, 60)
    assert (larger.head > larger.rows).all()


def test_a_damaged_file_of_frames_is_found(tmp_path: Path) -> None:
    env = make_env()
    replay = make_replay(env, 40, memory=0)
    fill(env, replay, 10)
    checkpoint.save(tmp_path, 1, {"replay": replay.state_dict()})
    file = next((tmp_path / "chunks").iterdir())
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunError, match="checksum does not match"):
        checkpoint.read(tmp_path / f"{1:012d}")


def test_a_million_steps_of_the_papers_images() -> None:
    """21.5 GB at most; stacked they would be 63.5."""
    env = make_env()
    spec = env.obs_spec._replace(shape=(9, 84, 84))
    layout = FrameLayout(Layout(10**6, 1, spec, 6, 64, horizon=500, hold=50), 1e12, 5000)
    assert 21e9 < layout.bytes < 21.5e9
    filed = layout._replace(memory=8e9)
    assert filed.bytes < 0.5e9
    assert filed.disk < 21.5e9


def test_a_disk_that_is_too_small_is_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_env().obs_spec._replace(shape=(9, 84, 84))
    layout = FrameLayout(Layout(10**6, 1, spec, 6, 64, horizon=500, hold=50), 8e9, 5000)
    usage = shutil.disk_usage(tmp_path)._replace(free=10**10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(InputError, match=r"need 21.3 GB of disk and 10.0 GB are free .* at most 4"):
        check_disk(layout, tmp_path / "runs" / "new")


def test_repeated_actions_sum_rewards_and_count_steps() -> None:
    env, single = make_env(repeat=2), FakeEnv(ENVS, horizon=6)
    obs, before = env.reset(), single.reset()
    assert env.horizon == 3
    assert env.repeat == 2
    assert obs.shape == (ENVS, STACK * 3, SIZE, SIZE)
    assert before is not None
    action = np.full((ENVS, 2), 0.5, np.float32)
    for t in range(1, 4):
        step = env.step(action)
        rewards = [single.step(action).reward for _ in range(2)]
        np.testing.assert_allclose(step.reward, rewards[0] + rewards[1])
        assert step.obs[0, :, 0, 0].reshape(STACK, 3)[:, 2].tolist() == [
            max(0, 2 * (t + i)) for i in (-2, -1, 0)
        ]
        assert step.truncated.all() == (t == 3)
