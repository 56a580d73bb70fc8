"""The encoder of transitions that contrastive methods share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from comsd.nets.inputs import Standardise
from comsd.nets.mlp import MLP, Init, Scratch
from comsd.types import ObsInfo


class PairEncoder(nn.Module):
    """Embeds s and s' by one network and the pair of embeddings by another.

    The trajectory encoder of CIC and what builds on it.
    """

    def __init__(self, obs: ObsInfo, hidden: int, dim: int, *, init: Init = "orthogonal") -> None:
        super().__init__()
        self.inputs = Standardise(obs.mean, obs.std)
        self.state = MLP(obs.dim, hidden, hidden, dim, init=init)
        self.pair = MLP(2 * dim, hidden, hidden, dim, init=init)

    def states(self, obs: Tensor, next_obs: Tensor) -> Tensor:
        """Embeddings of s and of s' side by side, (B, 2 dim). Observations get no gradient."""
        return self.state(self.interleave(obs, next_obs)).view(len(obs), -1)

    def interleave(self, obs: Tensor, next_obs: Tensor) -> Tensor:
        """s, s', s, s', ... so that the embeddings of a pair lie side by side."""
        return self.inputs(torch.cat([obs, next_obs], 1).view(2 * len(obs), -1))

    def run(self, both: Tensor) -> tuple[Tensor, Tensor, Scratch, Scratch]:
        states, state_pass = self.state.run(both)
        states = states.view(len(both) // 2, -1)  # (B, 2 dim)
        pair, pair_pass = self.pair.run(states)
        return states, pair, state_pass, pair_pass

    def run_back(self, grad: Tensor, state: Scratch, pair: Scratch) -> None:
        """Fills the weights' gradients of both passes, given the one at the pair's embedding."""
        net = self.pair
        to_states = net.run_back(grad, pair) @ net.layers[0][0]
        self.state.run_back(to_states.view(len(state.x), -1), state)

    def give_back(self, state_pass: Scratch, pair_pass: Scratch) -> None:
        self.state.give_back(state_pass)
        self.pair.give_back(pair_pass)
