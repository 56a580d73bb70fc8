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
    from comsd.envs.mujoco import RobotEnv

Images = NDArray[np.uint8]  # (N, C, H, W)
Camera = Callable[[NDArray[Any]], Images]  # from observations of all environments to a frame each


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

    def push(self, image: Images) -> Images:
        self.obs = np.concatenate([self.obs[:, image.shape[1] :], image], 1)
        return self.obs


class PixelEnv:
    """An environment seen through a camera; an action acts for some steps.

    The reward is the sum of theirs. When an episode ends in any environment, the step ends for all.
    """

    def __init__(
        self, env: Env, camera: Camera, frame: tuple[int, ...], settings: PixelSettings
    ) -> None:
        """frame: the shape of one image, (C, H, W)."""
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
            if step.ended.any():
                break
            step = self.env.step(action)
            total += step.reward
        return step._replace(obs=self.stack.push(self.camera(step.obs)), reward=total)

    def positions(self) -> NDArray[np.floating] | None:
        return self.env.positions()

    def state_dict(self) -> dict[str, Any]:
        return {"env": self.env.state_dict(), "frames": self.stack.obs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])
        self.stack.obs = state["frames"]


# --- robots ---------------------------------------------------------------------------------------


def robot_camera(env: RobotEnv, settings: PixelSettings) -> Camera:
    """Images of the simulations as they are now."""
    from comsd.envs.rendering import make_renderer  # loads OpenGL

    renderer = make_renderer(env.robot.name, settings.size, settings.render)
    return lambda _: renderer.render(env.simulations.state())


def robot_pixels(env: RobotEnv, settings: PixelSettings) -> PixelEnv:
    frame = 3, settings.size, settings.size
    return PixelEnv(env, robot_camera(env, settings), frame, settings)


def act_on_states(env: RobotEnv, settings: Settings, policy_fn: PolicyFn) -> PolicyFn:
    """The policy of a run in the environment of states, step by step; settings: its `pixels`.

    A policy of images sees them by a camera, and its actions are repeated. So every state on the
    way can be measured as those of a run on states are.
    """
    if not isinstance(settings, PixelSettings):
        return policy_fn
    camera, stack = robot_camera(env, settings), FrameStack(settings.stack)
    action: Array = np.zeros((env.num_envs, env.action_dim), np.float32)

    def act(obs: NDArray[Any]) -> Array:
        nonlocal action
        clock = int(env.clock[0])  # of all: a robot's episodes are equally long
        if clock % settings.repeat == 0:
            image = camera(obs)
            action = policy_fn(stack.push(image) if clock else stack.start(image))
        return action

    return act


# --- environments whose observations are images ---------------------------------------------------


def image_pixels(env: Env, settings: PixelSettings) -> PixelEnv:
    """Stacks of the images that an environment itself observes, uint8, channels first or last."""
    shape, dtype = env.obs_spec.shape, env.obs_spec.dtype
    if dtype != "uint8" or len(shape) not in (2, 3):
        raise InputError(
            f"pixels is True, but observations are {dtype} of shape {tuple(shape)}; they must be "
            "uint8 images of shape (H, W), (C, H, W) or (H, W, C)"
        )
    if len(shape) == 2:  # grey
        return PixelEnv(env, lambda obs: obs[:, None], (1, *shape), settings)
    if shape[0] <= shape[2]:  # channels are fewer than rows and columns
        return PixelEnv(env, lambda obs: obs, shape, settings)
    frame = shape[2], *shape[:2]
    return PixelEnv(env, lambda obs: obs.transpose(0, 3, 1, 2), frame, settings)
