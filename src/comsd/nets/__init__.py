"""Networks, what goes into them, and the optimiser that moves them."""

from comsd.nets.adam import Adam
from comsd.nets.autograd import with_gradient, without_gradient
from comsd.nets.inputs import Standardise, Units
from comsd.nets.lipschitz import Lipschitz
from comsd.nets.mlp import (
    MLP,
    Init,
    Scratch,
    add_relu,
    layer_grad,
    relu_backward,
    run_back_through,
    run_through,
)
from comsd.nets.pair import PairEncoder

__all__ = [
    "MLP",
    "Adam",
    "Init",
    "Lipschitz",
    "PairEncoder",
    "Scratch",
    "Standardise",
    "Units",
    "add_relu",
    "layer_grad",
    "relu_backward",
    "run_back_through",
    "run_through",
    "with_gradient",
    "without_gradient",
]
