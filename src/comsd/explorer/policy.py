"""A policy as a list of operations that the page carries out, whatever the agent.

torch.export traces the mean action of one observation and one skill; every operation that it finds
must be one that `viewer/src/policy.ts` knows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind

from comsd.agents.base import Policy
from comsd.errors import InputError
from comsd.explorer.arrays import Arrays

# torch's name: the page's name and how many of its arguments matter.
OPERATIONS: dict[str, tuple[str, int]] = {
    "linear": ("linear", 3),
    "layer_norm": ("layer_norm", 5),
    "cat": ("cat", 1),
    "tanh": ("tanh", 1),
    "relu": ("relu", 1),
    "sigmoid": ("sigmoid", 1),
    "silu": ("silu", 1),
    "elu": ("elu", 1),
    "softplus": ("softplus", 1),
    "exp": ("exp", 1),
    "neg": ("neg", 1),
    "clamp": ("clamp", 3),
    "add": ("add", 2),
    "sub": ("sub", 2),
    "mul": ("mul", 2),
    "div": ("div", 2),
    "rsub": ("rsub", 2),
    "clamp_min": ("clamp", 2),
    "linalg_vector_norm": ("norm", 1),
    "argmax": ("argmax", 1),
    "one_hot": ("one_hot", 2),
    "select": ("select", 3),
    "chunk": ("chunk", 2),
    "split": ("split", 2),
    "slice": ("slice", 4),
    "getitem": ("getitem", 2),
    "expand_as": ("same", 1),  # the page stretches vectors of one number by itself
    "item": ("same", 1),
    "to": ("same", 1),
    "_to_copy": ("same", 1),
    "clone": ("same", 1),
    "detach": ("same", 1),
    "alias": ("same", 1),
    "contiguous": ("same", 1),
}


Meaning = Callable[[Tensor], Tensor]


class MeanAction(nn.Module):
    def __init__(self, policy: Policy, meaning: Meaning) -> None:
        super().__init__()
        self.policy, self.meaning = policy, meaning

    def forward(self, obs: Tensor, skill: Tensor) -> Tensor:
        return self.meaning(self.policy.mean_action(obs, skill))


def policy_graph(
    policy: Policy, arrays: Arrays, meaning: Meaning = lambda action: action
) -> dict[str, Any]:
    """Nodes 0 and 1 are observation and skill, each operation adds one; weights go to `arrays`.

    meaning: what becomes of the action, such as the skill it stands for.
    """
    if len(policy.obs_shape) != 1:
        raise InputError(
            f"explore shows policies that see states; this one sees {policy.obs_shape}"
        )
    module = MeanAction(policy, meaning).eval()
    example = torch.zeros(policy.obs_shape), torch.zeros(policy.skill_dim)
    exported = torch.export.export(module, example)
    tensors = {**exported.state_dict, **exported.constants}
    inputs = iter(exported.graph_signature.input_specs)
    nodes: list[dict[str, Any]] = []
    values: dict[fx.Node, dict[str, int]] = {}
    seen = 0

    def argument(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return values[value]
        if isinstance(value, (list, tuple)):
            return [argument(part) for part in value]
        if value is None or isinstance(value, (bool, int, float)):
            return value
        raise InputError(f"explore cannot show this policy: an operation takes {value!r}")

    for node in exported.graph.nodes:
        if node.op == "placeholder":
            spec = next(inputs)
            if spec.kind == InputKind.USER_INPUT:
                values[node], seen = {"node": seen}, seen + 1
            else:
                values[node] = arrays.add(tensors[str(spec.target)].detach().float().numpy())
        elif node.op == "call_function" and node.users:  # without: an assertion
            name = "getitem" if node.target is operator.getitem else str(node.target).split(".")[1]
            if name not in OPERATIONS or node.kwargs:
                raise InputError(
                    f"explore cannot show this policy: it uses {name}; known operations: "
                    + ", ".join(OPERATIONS)
                )
            op, count = OPERATIONS[name]
            nodes.append({"op": op, "args": [argument(a) for a in node.args[:count]]})
            values[node] = {"node": 1 + len(nodes)}
    output = exported.graph.output_node().args[0]
    assert isinstance(output, (list, tuple))
    assert isinstance(output[0], fx.Node)
    return {"nodes": nodes, "output": values[output[0]]["node"]}
