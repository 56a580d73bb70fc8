"""Runs on images: rendering, the encoder and its heads, every method, exact resume."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import comsd
from comsd import checkpoint
from comsd.agents.critics import CRITICS
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.config import Settings
from comsd.encoders import ConvEncoder, EncoderFrom, PixelSettings, plain_spec
from comsd.envs import rendering
from comsd.envs.mujoco import RobotEnv
from comsd.envs.pixels import PixelEnv, act_on_states, image_pixels
from comsd.envs.rendering import Quality
from comsd.envs.specs import ROBOT_TASKS, make_robot
from comsd.errors import InputError
from comsd.evaluation.episodes import episodes
from comsd.evaluation.tasks import TaskEvaluator
from comsd.frame_replay import FrameLayout, FrameReplay
from comsd.jobs.cost import job_seconds
from comsd.jobs.size import job_size
from comsd.methods.base import Method
from comsd.methods.task import TaskReward
from comsd.nn import use_bf16
from comsd.registry import METHODS
from comsd.reproduction.collect import FinishedRun, of_one_quality
from comsd.reproduction.plan import make_plan
from comsd.resolve import resolve, resolve_scratch
from comsd.runs import factory
from comsd.skills import OneHot
from comsd.training.checks import check_shift
from comsd.training.off_policy import OffPolicySettings, OffPolicyTrainer, layout
from comsd.types import Batch, ObsSpec
from fake_env import FakeEnv

TINY = PixelSettings(size=16, render="fast", channels=4, strides="2,1", features=6, pad=1)
IMAGES = ObsSpec((9, 16, 16), "uint8", np.zeros(()), np.ones(()), frames=3)
SMALL: dict[str, Any] = {
    "pixels": {"size": 16, "channels": 4, "features": 6},
    "train": {"random_steps": 40, "batch_size": 16},
    "steps": 2000,
}


@pytest.fixture(scope="module")
def opengl() -> None:
    if rendering.first_working() is None:
        pytest.skip("`comsd doctor` finds no OpenGL here")


def pixel_env(robot: str, seeds: list[int], task: str | None = None) -> PixelEnv:
    from comsd.envs.pixels import robot_pixels

    return robot_pixels(make_robot(robot, seeds, task), TINY)


# --- rendering and environments -------------------------------------------------------------------


def test_runs_on_states_load_no_opengl() -> None:
    code = (
        "import sys, comsd.api; from comsd.envs.specs import ENVS; env = ENVS['hopper'].make(2, 0);"
        "env.reset(); print([m for m in sys.modules if m.startswith(('OpenGL', 'mujoco.egl'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.usefixtures("opengl")
def test_triton_is_loaded_before_opengl(tmp_path: Path) -> None:
    """Of torch's builds for CUDA; the other way round the process crashes with Mesa's drivers."""
    said = "import sys; print('egl' if 'mujoco.egl' in sys.modules else 'first')"
    (tmp_path / "triton.py").write_text(said)
    code = "from comsd.envs.rendering import make_renderer; make_renderer('cheetah', 8, 'fast')"
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    asked = [sys.executable, "-c", code]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, env=variables)
    assert done.stdout.split() == ["first"]


def test_without_a_backend_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rendering, "problem", lambda _: "none here")
    rendering.make_renderer.cache_clear()
    with pytest.raises(InputError, match="apt install libegl1 libgl1-mesa-dri"):
        comsd.pretrain("comsd", env="cheetah", pixels=True, preset="smoke", run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("robot", ROBOT_TASKS)
def test_images_of_robots(robot: str) -> None:
    """The same for a simulation alone and among others; they show that the robot moved."""
    many, alone = pixel_env(robot, [3, 4]), pixel_env(robot, [4])
    first = many.reset()
    assert first.dtype == np.uint8
    assert first.shape == (2, *many.obs_spec.shape) == (2, 9, 16, 16)
    assert first.std() > 5
    assert np.array_equal(first[:, :3], first[:, 6:])
    assert np.array_equal(alone.reset()[0], first[1])
    action = np.full((2, many.action_dim), 0.7, np.float32)
    for _ in range(2):
        many.step(action)
        alone.step(action[:1])
    step, other = many.step(action), alone.step(action[:1])
    assert np.array_equal(step.obs[1], other.obs[0])
    assert not np.array_equal(step.obs[1, 3:6], step.obs[1, 6:])


@pytest.mark.usefixtures("opengl")
def test_an_action_is_repeated_and_its_rewards_are_summed() -> None:
    pixels, states = pixel_env("cheetah", [0], "run"), make_robot("cheetah", [0], "run")
    pixels.reset()
    states.reset()
    assert (pixels.horizon, pixels.repeat) == (500, 2)
    rng = np.random.default_rng(0)
    for _ in range(4):
        action = rng.uniform(-1, 1, (1, 6)).astype(np.float32)
        reward = pixels.step(action).reward
        assert reward == sum(states.step(action).reward for _ in range(2))
    assert isinstance(pixels.env, RobotEnv)
    assert np.array_equal(pixels.env.obs, states.obs)  # its state can be read


@pytest.mark.usefixtures("opengl")
def test_a_policy_of_images_acts_on_states_as_on_images() -> None:
    """So every state on the way is measured, at the rate of a run on states."""
    pixels, states = pixel_env("cheetah", [0, 0]), make_robot("cheetah", [0, 0])
    seen: list[np.ndarray] = []

    def policy_fn(obs: np.ndarray) -> np.ndarray:
        seen.append(obs)
        means = obs.reshape(2, -1)[:, :600].reshape(2, 6, -1).mean(-1)
        return (means / 255).astype(np.float32)

    act, obs, images = act_on_states(states, TINY, policy_fn), states.reset(), pixels.reset()
    for _ in range(6):
        obs = states.step(act(obs)).obs
    on_states, seen = seen, []
    for _ in range(3):
        images = pixels.step(policy_fn(images)).obs
    assert len(on_states) == len(seen) == 3
    assert all(map(np.array_equal, on_states, seen))
    assert isinstance(pixels.env, RobotEnv)
    assert np.array_equal(pixels.env.obs, states.obs)


@pytest.mark.usefixtures("opengl")
def test_the_state_of_an_environment_of_images() -> None:
    env, twin = pixel_env("hopper", [0, 1]), pixel_env("hopper", [5, 6])
    env.reset()
    action = np.full((2, 4), 0.3, np.float32)
    env.step(action)
    twin.load_state_dict(env.state_dict())
    assert np.array_equal(env.step(action).obs, twin.step(action).obs)


@pytest.mark.parametrize(
    ("shape", "frame"),
    [((12, 10, 3), (3, 12, 10)), ((3, 12, 10), (3, 12, 10)), ((12, 10), (1, 12, 10))],
)
def test_images_of_the_users_environment(shape: tuple[int, ...], frame: tuple[int, ...]) -> None:
    """Channels first or last, or grey."""

    class ImageEnv(FakeEnv):
        @property
        def obs(self) -> Any:
            image = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
            return np.stack([image] * self.num_envs)

    env = ImageEnv()
    env.obs_spec = ObsSpec(shape, "uint8", np.zeros(()), np.ones(()))
    pixels = image_pixels(env, TINY)
    assert pixels.obs_spec.shape == (3 * frame[0], *frame[1:])
    stack = pixels.reset()
    assert stack.shape == (2, *pixels.obs_spec.shape)
    channel = env.obs[0][..., 1] if shape[-1] == 3 else env.obs[0][1] if len(shape) == 3 else None
    if channel is not None:
        assert np.array_equal(stack[0, 4], channel)
    assert pixels.step(np.zeros((2, 2), np.float32)).obs.shape == stack.shape


def test_observations_that_are_no_images_are_refused() -> None:
    with pytest.raises(InputError, match=r"observations are float32 of shape \(4,\)"):
        image_pixels(FakeEnv(), TINY)


# --- encoder and heads ----------------------------------------------------------------------------


def test_the_encoder_of_the_paper() -> None:
    """DrQ-v2: four convolutions of 32 channels give 32 x 35 x 35 features."""
    obs = IMAGES._replace(shape=(9, 84, 84))
    encoder = ConvEncoder(obs, PixelSettings())
    assert encoder.spec.dim == 39_200
    image = torch.randint(0, 256, (2, 9, 84, 84), dtype=torch.uint8)
    features = encoder(image)
    assert features.shape == (2, 39_200)
    torch.testing.assert_close(encoder(image[0]), features[0])
    reference = encoder.layers(image.float() / 255 - 0.5)
    torch.testing.assert_close(features.sort(-1).values, reference.flatten(1).sort(-1).values)


def test_images_too_small_for_the_convolutions_are_said() -> None:
    with pytest.raises(InputError, match="too small"):
        ConvEncoder(IMAGES, PixelSettings(strides="2,2,2,2"))
    with pytest.raises(InputError, match="strides is '2,x'"):
        PixelSettings(strides="2,x")


def test_actions_join_the_critic_after_its_bottleneck() -> None:
    for name, form in CRITICS.items():
        critic = form(40, 3, 2, 8, 6)
        assert critic.trunk.hidden[0].out_features == 6, name  # pyright: ignore
        values = critic(torch.randn(5, 40), torch.eye(3)[[0, 1, 2, 0, 1]], torch.randn(5, 2))
        assert values.shape == (5, 2)


def image_batch(rows: int = 16) -> Batch:
    g = torch.Generator().manual_seed(0)
    obs, one, after = torch.randint(0, 256, (3, rows, 9, 16, 16), dtype=torch.uint8, generator=g)
    action, skill = torch.rand(rows, 2, generator=g), torch.eye(3)[torch.arange(rows) % 3]
    return Batch(obs, action, after, one, skill, torch.ones(rows), torch.ones(rows))


def make_agent(trained_by: EncoderFrom = "both") -> DDPG:
    torch.manual_seed(0)
    config = DDPGConfig(hidden=8, encoder_from=trained_by)
    return DDPG(config, OneHot(3), IMAGES, 2, encoder=ConvEncoder(IMAGES, TINY))


@pytest.mark.parametrize("name", ["diayn", "comsd", "metra", "lsd", "task"])
@pytest.mark.parametrize("trained_by", ["critic", "method", "both", "none"])
def test_who_trains_the_convolutions(name: str, trained_by: EncoderFrom) -> None:
    """The method's bottleneck learns from the method alone, whoever trains the encoder.

    LSD's loss trains neither: Eq. 1 would bound nothing.
    """
    agent = make_agent(trained_by)
    kind: type[Method] = METHODS.get(name, TaskReward)
    settings = {"k": 4, "neighbour_weight": 1.0} if name == "comsd" else {}
    method = kind(kind.config_class(hidden=8, **settings), OneHot(3), agent.method_spec)  # pyright: ignore
    before = {n: p.clone() for n, p in agent.named_parameters()}
    encoded = agent.encode(image_batch(), method.reads)
    output = method.update(encoded.for_method, method.optimizer())
    agent.update(encoded.for_critic, output.reward, torch.Generator().manual_seed(0))
    encoded.step()
    moved = {n for n, p in agent.named_parameters() if not torch.equal(p, before[n])}
    teaches = name not in ("lsd", "task")
    trains = {"critic", "both"} | ({"method"} if teaches else set())
    assert ("encoder.layers.0.weight" in moved) == (trained_by in trains)
    assert ("method_bottleneck.hidden.0.weight" in moved) == teaches
    assert {"actor.hidden.0.weight", "critic.trunk.hidden.0.weight"} <= moved


def test_an_observation_that_stands_for_another_goes_through_the_bottleneck() -> None:
    """Transitions of one step, read by a method that asks for one_step_obs alone."""
    agent, batch = make_agent("both"), image_batch()
    batch = batch._replace(one_step_obs=batch.next_obs)
    encoded = agent.encode(batch, {"obs", "one_step_obs"})
    wanted = agent.method_bottleneck(agent.encoder(batch.next_obs))
    torch.testing.assert_close(encoded.for_method.one_step_obs, wanted)
    assert encoded.leaves["next_obs"].requires_grad


def test_the_gradient_of_the_convolutions_is_the_sum_of_both_losses() -> None:
    """End to end by autograd, for the critic and DIAYN."""
    agent, batch = make_agent(), image_batch()
    kind = METHODS["diayn"]
    method = kind(kind.config_class(hidden=8), OneHot(3), agent.method_spec)
    encoder, generator = agent.encoder, torch.Generator().manual_seed(0)
    features, later = encoder(batch.obs), encoder(batch.next_obs)
    frozen = batch._replace(obs=features.detach(), next_obs=later.detach())
    seen = batch._replace(next_obs=agent.method_bottleneck(later))
    loss, _ = method.loss(seen, method.embed(seen))
    with torch.no_grad():
        reward = method.intrinsic_reward(seen).reward
    noise = agent.clipped_noise(2, batch.action, generator)[1]
    y = agent.td_target(frozen, reward, batch.skill, noise)
    loss = loss + agent.critic_loss(batch._replace(obs=features), batch.skill, y)[0]
    parameters = list(encoder.parameters())
    wanted = torch.autograd.grad(loss, parameters)
    encoded = agent.encode(batch, method.reads)
    output = method.update(encoded.for_method, method.optimizer())
    agent.update(encoded.for_critic, output.reward, torch.Generator().manual_seed(0))
    encoded.step()
    torch.testing.assert_close([p.grad for p in parameters], list(wanted), atol=1e-6, rtol=1e-4)


def test_bf16_is_for_learning_alone() -> None:
    """Features stay in it up to the bottlenecks; what these give, values and losses do not."""
    agent, batch = make_agent(), image_batch()
    before = agent.policy(batch.obs, torch.eye(3)[0])
    exact = agent.encode(batch).for_critic.obs
    use_bf16(agent)
    encoded = agent.encode(batch)
    rough = encoded.for_critic.obs
    assert rough.dtype == torch.bfloat16
    assert encoded.for_method.obs.dtype == torch.float32
    loss, q = agent.critic_loss(encoded.for_critic, batch.skill, torch.zeros(len(rough)))
    assert q.dtype == loss.dtype == torch.float32
    torch.testing.assert_close(rough.float(), exact, atol=0.05, rtol=0.05)
    assert torch.equal(agent.policy(batch.obs, torch.eye(3)[0]), before)


def test_the_gradient_of_the_convolutions_in_bf16() -> None:
    """Points where that of float32 does."""
    found: list[torch.Tensor] = []
    for bf16 in (False, True):
        agent, batch = make_agent(), image_batch(64)
        if bf16:
            use_bf16(agent)
        encoded = agent.encode(batch)
        agent.update(encoded.for_critic, torch.ones(64), torch.Generator().manual_seed(0))
        encoded.step()
        gradients = [p.grad.flatten() for p in agent.encoder.parameters() if p.grad is not None]
        found.append(torch.cat(gradients))
    assert found[1].dtype == torch.float32
    assert torch.cosine_similarity(*found, dim=0) > 0.98


def test_images_are_rounded_once() -> None:
    """x / 255 - 0.5, whatever the precision; the images themselves stay as they are."""
    encoder = ConvEncoder(IMAGES, TINY)
    seen: list[torch.Tensor] = []
    encoder.layers.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    image = torch.arange(9 * 256).reshape(9, 16, 16).to(torch.uint8)
    exact = image.double() / 255 - 0.5
    for bf16, dtype in ((False, torch.float32), (True, torch.bfloat16)):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            encoder(image)
        assert torch.equal(seen[-1][0], exact.to(dtype))
    assert torch.equal(image.flatten(), torch.arange(9 * 256).to(torch.uint8))


def test_the_policy_can_be_exported() -> None:
    policy = make_agent().policy
    rows, skill = image_batch(2).obs, torch.eye(3)[:2]
    exported = torch.export.export(policy, (rows, skill)).module()
    torch.testing.assert_close(exported(rows, skill), policy(rows, skill))


def test_noise_falls_linearly() -> None:
    config = DDPGConfig(hidden=8, noise=0.1, noise_start=1.0, noise_steps=1000)
    agent = DDPG(config, OneHot(3), plain_spec(4), 2)
    policy, found = agent.policy, []
    for step in (0, 500, 1000, 5000):
        agent.set_step(step)
        found.append(policy.noise.std)
    assert found == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert agent.clipped_noise(1, torch.zeros(9, 2), torch.Generator()).abs().max() < 0.31


# --- runs -----------------------------------------------------------------------------------------


def make_trainer(method: str, **settings: Any) -> OffPolicyTrainer:
    config = resolve(method, "cheetah", "smoke", **{**SMALL, **settings})
    trainer = factory.make_trainer(config, None, factory.make_training_env(config, None))
    assert isinstance(trainer, OffPolicyTrainer)
    return trainer


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_from_images(method: str) -> None:
    trainer = make_trainer(method, **({"train": SMALL["train"] | {"hold": 10}}))
    before = {n: p.clone() for n, p in trainer.agent.named_parameters()}
    metrics: dict[str, torch.Tensor] = {}
    while trainer.updates < 3:
        metrics = trainer.train_step() or {}
    assert all(bool(torch.isfinite(x).all()) for x in metrics.values())
    assert trainer.diagnostics() is not None
    moved = {n for n, p in trainer.agent.named_parameters() if not torch.equal(p, before[n])}
    assert {"encoder.layers.0.weight", "actor.out.weight"} <= moved
    assert ("method_bottleneck.hidden.0.weight" in moved) == (method != "lsd")
    if method == "comsd":
        assert {"comsd/nce", "comsd/nce_neighbours"} <= set(metrics)


@pytest.mark.usefixtures("opengl")
def test_an_actor_of_images_gets_the_returns_that_are_evaluated(tmp_path: Path) -> None:
    """Though it acts where every state can be measured: an image for every second of them."""
    short: dict[str, Any] = {"steps": 240, "evaluate_every": 10**6, "rollouts": 1}
    run = comsd.finetune(
        None, task="cheetah_run", preset="smoke", pixels=True, run=tmp_path / "run", **short
    )
    evaluator = TaskEvaluator(run)
    seen = episodes(run, run.actor(1), 1, evaluator.seed)
    assert seen.reward is not None
    assert seen.obs.shape == (1, 1, 1000, 17)
    returns = evaluator.returns(run.policy, run.selected_skill)
    assert seen.reward.sum() == pytest.approx(returns[0], rel=1e-9)


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("memory", [0.0, 8.0])
def test_a_restored_run_goes_on_bit_for_bit(memory: float, tmp_path: Path) -> None:
    """Across chunks, with frames in memory and in files."""
    pixels = SMALL["pixels"] | {"memory": memory}

    def trainer() -> OffPolicyTrainer:
        return make_trainer("comsd", pixels=pixels, checkpoint_every=40)

    def advance(of: OffPolicyTrainer, steps: int) -> None:
        while of.steps < steps:
            of.train_step()

    original = trainer()
    for steps in (40, 80, 120):
        advance(original, steps)
        checkpoint.save(tmp_path, steps, original.state_dict())
    restored = trainer()
    restored.load_state_dict(checkpoint.latest(tmp_path)[0])
    for each in (original, restored):
        advance(each, 160)
    states = [each.agent.state_dict() | each.method.state_dict() for each in (original, restored)]
    assert all(map(torch.equal, states[0].values(), states[1].values()))
    assert np.array_equal(original.obs, restored.obs)


def test_presets_of_images() -> None:
    paper, lite = (resolve("comsd", "cheetah", preset, pixels=True) for preset in ("paper", "lite"))
    images, small = paper.pixels, lite.pixels
    assert isinstance(images, PixelSettings)
    assert isinstance(small, PixelSettings)
    assert (images.size, images.render, images.stack, images.repeat) == (84, "full", 3, 2)
    assert (images.channels, images.strides, images.features) == (32, "2,1,1,1", 50)
    assert (small.size, small.render, small.pad) == (48, "fast", 2)
    assert paper.method.alpha == 5e-3  # pyright: ignore
    assert paper.method.neighbour_weight == 1  # pyright: ignore
    assert paper.method.f_low == pytest.approx(1 / 3)  # pyright: ignore
    assert (paper.run.steps, lite.run.steps) == (2_000_000, 200_000)
    assert (paper.agent.saturation_penalty, lite.agent.saturation_penalty) == (0, 0.01)  # pyright: ignore
    for preset in ("paper", "lite"):
        scratch = resolve_scratch("cheetah_run", preset, pixels=True)
        train = scratch.train
        assert (scratch.run.steps - train.random_steps) / train.update_every == 24_000  # pyright: ignore
        assert scratch.agent.encoder_from == "critic"  # pyright: ignore
    assert not resolve("comsd", "cheetah", "paper").run.pixels


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"env": "maze-tree", "pixels": True}, "maze-tree has no images; environments with: walk"),
        ({"env": "cheetah", "pixels": {"siz": 3}}, "did you mean 'size'"),
        ({"env": "cheetah", "pixels": {"size": 4}}, "pixels.size is 4; it must be between 8"),
        (
            {"env": "cheetah", "pixels": True, "method": {"knn": "observation"}},
            "method.knn is 'observation', which is for states",
        ),
    ],
)
def test_what_images_cannot_have_is_said(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        resolve("comsd", settings.pop("env"), "smoke", **settings)


def test_a_shift_beyond_the_image_is_said() -> None:
    check_shift(PixelSettings(pad=15), IMAGES)
    with pytest.raises(InputError, match=r"pixels.pad is 16; it must be at most 15"):
        check_shift(PixelSettings(pad=16), IMAGES)


def test_table_iii_is_planned() -> None:
    plan = make_plan("pixels", "lite", seeds=2)
    places = {job.place: job for job in plan.jobs}
    assert len(plan.jobs) == 2 * (8 + 8 * 4 + 4)
    root = Path("/somewhere")
    asked = places["pretrain/cheetah/cic-pixels-published-1"].start_command(root)
    assert {"--pixels", "--agent.encoder-from", "none"} <= set(asked)
    asked = places["finetune/cheetah_flip/cic-pixels-published-1"].start_command(root)
    assert asked[-2:] == ["--agent.encoder-from", "none"]
    asked = places["scratch/cheetah_run/drqv2-2"].start_command(root)
    assert asked[:4] == ["finetune", "--scratch", "--task", "cheetah_run"]
    assert "--pixels" in asked
    hours = job_seconds(places["pretrain/cheetah/comsd-pixels-1"], 1e11) / 3600
    assert 0.2 < hours < 3  # the pilot: .8 to 1
    size = job_size(places["pretrain/cheetah/comsd-pixels-1"])
    assert 6.9e3 * 1e5 < size.disk < 2 * 6.9e3 * 2e5  # 100,000 frames of 48 x 48, and weights
    chosen = make_plan("pixels", "lite", seeds=1, methods=["metra", "comsd"], tasks=["cheetah_run"])
    assert {job.arm for job in chosen.jobs} == {"metra-pixels", "comsd-pixels", "drqv2"}


def test_a_report_shows_images_of_one_quality() -> None:
    def finished(render: Quality | None, seed: int) -> FinishedRun:
        pixels = Settings() if render is None else PixelSettings(render=render)
        run: Any = SimpleNamespace(config=SimpleNamespace(pixels=pixels))
        return FinishedRun("scratch", "cheetah_run", "drqv2", seed, run)

    qualities: list[Quality | None] = ["fast", "full", None, "fast"]
    runs = [finished(render, seed) for seed, render in enumerate(qualities)]
    counted, others = of_one_quality(runs)
    assert [r.seed for r in counted] == [0, 2, 3]
    assert others == ["scratch/cheetah_run/drqv2-1 (pixels.render is full, that of most runs fast)"]
    assert of_one_quality(runs[2:3]) == (runs[2:3], [])


def test_updates_are_counted_in_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of 100,000 frames, 4,000 of them random; the first update is at their end."""
    monkeypatch.setattr(OffPolicyTrainer, "update", lambda *_: {})
    black = np.zeros((1, 3, 16, 16), np.uint8)
    env = PixelEnv(FakeEnv(1, horizon=200), lambda _: black, black.shape[1:], TINY)
    agent, seed = make_agent(), np.random.SeedSequence(0)
    method = TaskReward(TaskReward.config_class(), OneHot(3), agent.method_spec)
    settings = OffPolicySettings(batch_size=2, replay=500, random_steps=40, update_every=4)
    sizes = FrameLayout(layout(settings, OneHot(3), env), 1e9, 500)
    replay = FrameReplay(sizes, torch.device("cpu"), 1)
    trainer = OffPolicyTrainer(env, agent, method, settings, seed, replay=replay)
    while trainer.steps < 1000:
        trainer.train_step()
    assert (trainer.steps, trainer.updates) == (1000, 240 + 1)
