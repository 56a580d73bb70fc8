"""A reward of your own: how fast it moves to the left."""


def reward(obs, action, next_obs, info):  # noqa: ARG001
    return float(obs[0] - next_obs[0])
