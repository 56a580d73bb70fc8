"""The update from images beside the bare convolutions and products of the same layers.

    python benchmarks/pixels.py [rounds]

DrQ-v2 from scratch at the paper's shape: 9 x 84 x 84, 32 channels, strides 2,1,1,1, bottleneck 50,
hidden 1024, batch 256; in float32 and, where the processor has such products, in bfloat16. An
update is a draw of 256 transitions with random shifts, encoder, critic, actor and target. The bare
work has the same layers, shapes and precision: convolutions of s forward and backward and of s'
forward, and the products of the linear layers; no activation, loss, optimiser or data. Both in
turn, on one thread, by CPU time, which other programs disturb less.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.encoders import ConvEncoder, PixelSettings
from comsd.frame_replay import FrameLayout, FrameReplay
from comsd.methods.task import TaskReward
from comsd.nn import use_bf16
from comsd.replay import Layout
from comsd.skills import SPACES
from comsd.training.checks import has_bf16
from comsd.types import Batch, ObsSpec

ROWS, ACTIONS, STEPS = 256, 6, 1500
OBS = ObsSpec((9, 84, 84), "uint8", np.zeros(()), np.ones(()), frames=3)
CPU = torch.device("cpu")


def filled_replay() -> FrameReplay:
    space = SPACES["none"](0)
    layout = Layout(STEPS, 1, OBS, ACTIONS, space.dim, horizon=500, hold=500)
    replay, rng = (
        FrameReplay(FrameLayout(layout, 1e10, STEPS), CPU, pad=4),
        np.random.default_rng(0),
    )
    always, never = np.ones(1, bool), np.zeros(1, bool)
    replay.begin(rng.integers(0, 256, (1, *OBS.shape), dtype=np.uint8), always)
    replay.select(torch.zeros(1, space.dim), always)
    for _ in range(STEPS // 2):
        action = rng.uniform(-1, 1, (1, ACTIONS)).astype(np.float32)
        obs = rng.integers(0, 256, (1, *OBS.shape), dtype=np.uint8)
        replay.add(action, np.ones(1), obs, never, never)
    return replay


class Update:
    """One update of DrQ-v2 as a run makes it."""

    def __init__(self, bf16: bool) -> None:
        torch.manual_seed(0)
        space = SPACES["none"](0)
        config = DDPGConfig(hidden=1024, encoder_from="critic")
        encoder = ConvEncoder(OBS, PixelSettings())
        self.agent = DDPG(config, space, OBS, ACTIONS, encoder=encoder)
        self.method = TaskReward(TaskReward.config_class(), space, self.agent.method_spec)
        self.replay, self.rng = filled_replay(), np.random.default_rng(0)
        self.noise = torch.Generator().manual_seed(0)
        if bf16:
            use_bf16(self.agent)

    def sample(self) -> Batch:
        return self.replay.sample(ROWS, 3, 0.99, self.rng, one_step=False)

    def __call__(self) -> None:
        encoded = self.agent.encode(self.sample(), self.method.reads)
        reward = self.method.update(encoded.for_method, None).reward
        self.agent.update(encoded.for_critic, reward, self.noise)
        encoded.step()


class Bare:
    """Convolutions and products of the same layers, and nothing else."""

    def __init__(self, bf16: bool) -> None:
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        layers = ConvEncoder(OBS, PixelSettings()).layers
        convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
        self.convolutions = nn.Sequential(*convolutions).to(self.dtype)
        x = torch.randn(ROWS, *OBS.shape).to(self.dtype)
        self.images = x.contiguous(memory_format=torch.channels_last)
        features = 32 * 35 * 35
        # (inputs, outputs, products): forward, gradient of weights, gradient of inputs.
        self.products = [
            (features, 50, 3 + 1),  # actor: at s' and s, and its gradient; the critic's target
            (features, 50, 1 + 2),  # critic at s, with the gradient that trains the encoder
            (features, 50, 1),  # critic in the actor's loss
            (50, 1024, 4),
            (1024, 1024, 4),
            *[(56, 1024, 6), (1024, 1024, 6)] * 2,
        ]
        self.inputs = {n: torch.randn(ROWS, n).to(self.dtype) for n, _, _ in self.products}
        shapes = {(n, m) for n, m, _ in self.products}
        self.weights = {shape: torch.randn(*shape).to(self.dtype) for shape in shapes}

    def __call__(self) -> None:
        with torch.no_grad():
            self.convolutions(self.images)
        out: Tensor = self.convolutions(self.images)
        out.backward(torch.ones_like(out))
        for n, m, times in self.products:
            for _ in range(times):
                torch.mm(self.inputs[n], self.weights[n, m])


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def interleaved(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of CPU time of each, in turn."""
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(seconds(work))
    return {name: statistics.median(values) for name, values in times.items()}


def main(rounds: int = 3) -> None:
    torch.set_num_threads(1)
    kinds = [False, True] if has_bf16(CPU) else [False]
    works: dict[str, Callable[[], object]] = {}
    for bf16 in kinds:
        name, update = "bf16" if bf16 else "float32", Update(bf16)
        works |= {name: update, f"bare {name}": Bare(bf16), f"draw {name}": update.sample}
    found = interleaved(works, rounds)
    for bf16 in kinds:
        name = "bf16" if bf16 else "float32"
        update, bare, draw = (found[key] for key in (name, f"bare {name}", f"draw {name}"))
        print(f"{name}: update {1e3 * update:.0f} ms, bare work {1e3 * bare:.0f} ms, ", end="")
        print(f"ratio {bare / update:.2f}; draw {1e3 * draw:.0f} ms, {draw / update:.1%}")
    if len(kinds) == 2:
        print(f"bf16 is {found['float32'] / found['bf16']:.2f} times as fast")
    layout = Layout(10**6, 1, OBS, ACTIONS, 64, horizon=500, hold=50)
    print(f"a million actions: {FrameLayout(layout, 1e12, 5000).bytes / 1e9:.1f} GB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
