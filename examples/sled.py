"""A sled with a jet: a MuJoCo environment of your own that `comsd explore` can show."""

import gymnasium as gym
import mujoco
import numpy as np

import comsd

MODEL = """
<mujoco model="sled">
  <option timestep="0.01"/>
  <asset><mesh name="hull" vertex="0.4 0 0  -0.25 0.2 0  -0.25 -0.2 0  -0.15 0 0.2"/></asset>
  <worldbody>
    <geom type="plane" size="20 20 0.1"/>
    <body name="sled" pos="0 0 0.1">
      <joint type="slide" axis="1 0 0" damping="1"/>
      <joint type="slide" axis="0 1 0" damping="1"/>
      <joint type="hinge" axis="0 0 1" damping="0.1"/>
      <geom type="mesh" mesh="hull" mass="1" contype="0" conaffinity="0"/>
      <site name="jet"/>
    </body>
  </worldbody>
  <actuator>
    <motor site="jet" gear="6 0 0 0 0 0" ctrlrange="-1 1"/>
    <motor site="jet" gear="0 0 0 0 0 0.5" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""


class Sled(gym.Env):
    """A sled with a jet that can turn."""

    max_episode_steps = 200
    observation_space = gym.spaces.Box(-np.inf, np.inf, (7,))
    action_space = gym.spaces.Box(-1, 1, (2,))
    frame_skip = 5  # times mj_step

    # For `comsd explore`: where the model comes from, and what an observation is made of.
    comsd_model = MODEL
    comsd_recipe = [
        comsd.Part("qpos", slice(2)),
        comsd.Part("qpos", slice(2, 3), "sin"),
        comsd.Part("qpos", slice(2, 3), "cos"),
        comsd.Part("qvel", clip=(-10, 10)),
    ]

    def __init__(self):
        self.model = mujoco.MjModel.from_xml_string(MODEL)
        self.data = mujoco.MjData(self.model)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = self.np_random.uniform(-0.2, 0.2, 3)
        mujoco.mj_forward(self.model, self.data)
        return self.observe(), {}

    def step(self, action):
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, self.frame_skip)
        far = np.abs(self.data.qpos[:2]).max() > 15
        return self.observe(), float(self.data.qvel[0]), bool(far), False, {}

    def observe(self):
        x, y, angle = self.data.qpos
        parts = [x, y, np.sin(angle), np.cos(angle), *self.data.qvel.clip(-10, 10)]
        return np.array(parts, np.float32)
