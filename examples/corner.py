"""A reward of your own for `maze-tree`: to be where the lower left arm ends."""

import numpy as np

GOAL = np.array([-6, -6])


def reward(obs, action, next_obs, info):  # noqa: ARG001
    return float(np.abs(next_obs - GOAL).max() < 0.5)
