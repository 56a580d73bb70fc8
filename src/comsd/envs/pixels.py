"""Observations that are images: a stack of the last frames, and action repeat, as in DrQ-v2."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comsd.config import Settings
from comsd.encoders import PixelSettings
from comsd.envs.base import Env, Step
from comsd.errors import InputError
from comsd.types import Array, Mask, ObsSpec, PolicyFn

if TYPE_CHECKING:
    from comsd.envs.gym import GymEnv
    from comsd.envs.mujoco import RobotEnv

Images = NDArray[np.uint8]  # (N, C, H, W)
Camera = Callable[[NDArray[Any]], Images]  # from observations of all environments to a frame each
Frame = tuple[int, ...]  # the shape of one image, (C, H, W)
SUMMARY = 8  # rows and columns of the small image by which images are compared


class FrameStack:
    """The last frames of every environment, oldest first; an episode starts with copies."""

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self.obs: Images = np.zeros((0, 0, 0, 0), np.uint8)  # (N, frames * C, H, W)

    def start(self, image: Images, where: Mask | None = None) -> Images:
        fresh = np.tile(image, (1, self.frames, 1, 1))
        if where is not None:
            fresh = np.where(where[:, None, None, None], fresh, self.obs)
        self.obs = fresh
        return fresh

    def push(self, image: Images, where: Mask | None = None) -> Images:
        pushed = np.concatenate([self.obs[:, image.shape[1] :], image], 1)
        if where is not None:
            pushed = np.where(where[:, None, None, None], pushed, self.obs)
        self.obs = pushed
        return pushed


class PixelEnv:
    """An environment seen through a camera; an action acts for some steps.

    The reward is the sum of theirs. When an episode ends or begins in any environment, the step
    ends for all.
    """

    def __init__(self, env: Env, camera: Camera, frame: Frame, settings: PixelSettings) -> None:
        self.env, self.camera, self.action_repeat = env, camera, settings.repeat
        self.stack = FrameStack(settings.stack)
        self.num_envs, self.action_dim = env.num_envs, env.action_dim
        self.repeat = settings.repeat * env.repeat
        self.horizon = -(-env.horizon // settings.repeat)
        shape = settings.stack * frame[0], *frame[1:]
        self.obs_spec = ObsSpec(shape, "uint8", np.zeros(()), np.ones(()), frames=settings.stack)

    def reset(self, where: Mask | None = None) -> Images:
        return self.stack.start(self.camera(self.env.reset(where)), where)

    def step(self, action: Array) -> Step:
        step = self.env.step(action)
        total = step.reward.astype(np.float64)
        for _ in range(self.action_repeat - 1):
            if step.ended.any() or step.began is not None:
                break
            step = self.env.step(action)
            total += step.reward
        image = self.camera(step.obs)
        obs = self.stack.push(image)
        if step.began is not None:
            obs = self.stack.start(image, step.began)
        return step._replace(obs=obs, reward=total)

    def positions(self) -> NDArray[np.floating] | None:
        return self.env.positions()

    def state_dict(self) -> dict[str, Any]:
        return {"env": self.env.state_dict(), "frames": self.stack.obs}

    def load_state_dict(self, state: dict[str, Any]) -> Images | None:
        fresh = self.env.load_state_dict(state["env"])
        if fresh is not None:
            return self.stack.start(self.camera(fresh))
        self.stack.obs = state["frames"]
        return None


# --- cameras --------------------------------------------------------------------------------------


def robot_camera(env: RobotEnv, settings: PixelSettings) -> tuple[Camera, Frame]:
    """Images of the simulations as they are now."""
    from comsd.envs.rendering import make_renderer  # imports MuJoCo

    renderer = make_renderer(env.robot.name, settings.size, settings.render)
    return lambda _: renderer.render(env.simulations.state()), renderer.frame


def robot_pixels(env: RobotEnv, settings: PixelSettings) -> PixelEnv:
    return PixelEnv(env, *robot_camera(env, settings), settings)


def image_camera(obs: ObsSpec) -> tuple[Camera, Frame]:
    """Images that an environment itself observes, uint8, channels first or last, of any size."""
    shape, dtype = obs.shape, obs.dtype
    if dtype != "uint8" or len(shape) not in (2, 3):
        raise InputError(
            f"pixels is True, but observations are {dtype} of shape {tuple(shape)}; they must be "
            "uint8 images of shape (H, W), (C, H, W) or (H, W, C)"
        )
    if len(shape) == 2:  # grey
        return lambda obs: obs[:, None], (1, *shape)
    if shape[0] <= shape[2]:  # channels are fewer than rows and columns
        return lambda obs: obs, shape
    return lambda obs: obs.transpose(0, 3, 1, 2), (shape[2], *shape[:2])


def image_pixels(env: Env, settings: PixelSettings) -> PixelEnv:
    """Stacks of the images that an environment itself observes."""
    return PixelEnv(env, *image_camera(env.obs_spec), settings)


def gym_camera(env: GymEnv, settings: PixelSettings) -> tuple[Camera, Frame]:
    """What the environment observes, if these are images; else MuJoCo's images of it."""
    if env.obs_spec.dtype == "uint8":
        return image_camera(env.obs_spec)
    first = env.mujoco_pairs()
    if first is None:
        raise InputError(
            f"pixels is True, but env {env.title} observes numbers and is none of MuJoCo's, which "
            "can be drawn; allowed: observations that are uint8 images (H, W), (C, H, W) or "
            "(H, W, C)"
        )
    from comsd.envs.rendering import model_renderer  # imports MuJoCo

    renderer = model_renderer(first[0][0], settings.size, settings.render)
    return lambda _: renderer.render_pairs(env.mujoco_pairs() or []), renderer.frame


def gym_pixels(env: GymEnv, settings: PixelSettings) -> PixelEnv:
    return PixelEnv(env, *gym_camera(env, settings), settings)


def camera_of(env: Any, settings: PixelSettings) -> Camera:
    """Through which a run on images sees an environment of states."""
    find = robot_camera if hasattr(env, "robot") else gym_camera
    return find(env, settings)[0]


# --- looking at runs on images --------------------------------------------------------------------


def act_on_states(env: Any, settings: Settings, policy_fn: PolicyFn) -> PolicyFn:
    """The policy of a run in the environment of states, step by step; settings: its `pixels`.

    A policy of images sees them by a camera, and its actions are repeated. So every state on the
    way can be measured as those of a run on states are.
    """
    if not isinstance(settings, PixelSettings):
        return policy_fn
    camera, stack = camera_of(env, settings), FrameStack(settings.stack)
    action: Array = np.zeros((env.num_envs, env.action_dim), np.float32)

    def act(obs: NDArray[Any]) -> Array:
        nonlocal action
        clock = env.clock  # of each episode
        due = clock % settings.repeat == 0
        if due.any():
            image, begins = camera(obs), clock == 0
            if (due & ~begins).any():
                stack.push(image, due & ~begins)
            if begins.any():
                stack.start(image, None if begins.all() else begins)
            action = np.where(due[:, None], policy_fn(stack.obs), action)
        return action

    return act


def summarise(obs: NDArray[Any], spec: ObsSpec) -> NDArray[np.float32]:
    """Observations (N, ...) as vectors that can be compared: images are made small, in [0, 1]."""
    if spec.dtype != "uint8":
        return obs.reshape(len(obs), -1)
    images = image_camera(spec)[0](obs).astype(np.float32) / 255
    for axis in (2, 3):
        size = images.shape[axis]
        starts = np.arange(min(size, SUMMARY)) * size // min(size, SUMMARY)
        widths = np.diff(starts, append=size)
        shape = [-1 if i == axis else 1 for i in range(4)]
        images = np.add.reduceat(images, starts, axis) / widths.reshape(shape)
    return images.reshape(len(obs), -1).astype(np.float32, copy=False)
