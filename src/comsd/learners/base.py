"""Names of the old house, for the trainers of the new one."""
from typing import Any
import numpy as np
from comsd.envs.base import Step as OldStep
from comsd.types import ObsSpec
Learner = Any
Policy = Any


class Adapter:
    """The old environments behind the new interface."""

    def __init__(self, env):
        self.env = env
        self.num_envs, self.action_dim = env.num_envs, env.action_dim
        self.horizon, self.repeat = env.horizon, env.repeat
        self.obs_spec = ObsSpec((env.obs_dim,), "float32", env.obs_mean, env.obs_std)
        self.no = np.zeros(env.num_envs, bool)

    def reset(self, where=None):
        return self.env.reset()

    def step(self, action):
        from types import SimpleNamespace
        obs, reward, last = self.env.step(action)
        return SimpleNamespace(obs=obs, reward=reward, terminated=self.no, truncated=self.no | last)

    def state_dict(self):
        return self.env.state_dict()

    def load_state_dict(self, state):
        self.env.load_state_dict(state)
