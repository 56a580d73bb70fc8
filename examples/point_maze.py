"""A point in a square room with two walls: an environment of your own in the Gymnasium API."""

import gymnasium as gym
import numpy as np

WALLS = (0.4, -0.4)  # at these heights, from one side to beyond the middle
GOAL = np.array([0.8, 0.8])


class PointMaze(gym.Env):
    """A point in a square room with two walls."""

    max_episode_steps = 50  # the time limit; without it, 1000
    family = "maze"  # small: presets and tuned values of the mazes; without it, the robots'
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-0.05, 0.05, 2)
        return self.place.astype(np.float32), self.info()

    def step(self, action):
        x, y = np.clip(self.place + 0.1 * action, -1, 1)
        for side, wall in zip((1, -1), WALLS, strict=True):
            if side * x > -0.3 and (y > wall) != (self.place[1] > wall):
                y = self.place[1]  # stopped by the wall
        self.place = np.array([x, y])
        reward = 1 - np.linalg.norm(self.place - GOAL) / 2
        return self.place.astype(np.float32), float(reward), False, False, self.info()

    def info(self):  # where the body is, for pictures of trajectories
        return {"x_position": self.place[0], "y_position": self.place[1]}

    def state_dict(self):  # with the next one: a resumed run is exact to the bit
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]
