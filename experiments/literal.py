"""What the `literal` preset changes beside `paper`, one thing at a time: results/literal.

    python experiments/literal.py run       # a short Walker run, and six in the tree maze
    python experiments/literal.py measure   # rewards and times of an update, on that run's replay
    python experiments/literal.py collect   # figures of the mazes, configs

Runs go to runs/literal, or to the directory that is named after the command. Times are of the
processor, so that a busy machine hardly matters.
"""

from __future__ import annotations

import copy
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from tables import write_csv
from torch import Tensor
from torch.nn import functional as F

from comsd import Run
from comsd.cli import main
from comsd.methods.cesd import sinkhorn
from comsd.methods.comsd import ComSD
from comsd.methods.contrastive import ContrastiveEncoder, info_nce
from comsd.methods.entropy import ParticleEntropy
from comsd.nn import adam
from comsd.reproduction.collect import commit_of
from comsd.training.off_policy import OffPolicyTrainer
from comsd.types import Batch

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "literal"
SEEDS = (11, 12, 13)
ALPHA = "--method.alpha 1"
EQUATIONS = (
    f"{ALPHA} --method.knn trajectory --method.knn-form log --method.knn-floor 1e-30 "
    "--method.query learned --method.tau adjacent --method.reward-after"
)
MAZES = {"alpha1": ALPHA, "literal": EQUATIONS}
BATCHES = 8
TIMED = 30


def run(runs: Path) -> None:
    words = "pretrain comsd --env walker --preset lite --steps 12000 --seed 11"
    main(f"{words} --run {runs}/walker".split())
    for seed in SEEDS:
        for name, options in MAZES.items():
            words = f"pretrain comsd --env maze-tree --preset lite --skills 10 --seed {seed}"
            main(f"{words} {options} --run {runs}/{name}-{seed}".split())


# --- on the replay of a Walker run ----------------------------------------------------------------


def seconds(action: Callable[[], object]) -> float:
    start = time.thread_time()
    action()
    return time.thread_time() - start


def entropy(features: Tensor, form: Any, floor: float = 1e-3) -> Tensor:
    reward = ParticleEntropy(16, form, floor=floor)
    reward(features)  # the running variance is that of this batch
    return reward(features)


def rank(a: Tensor, b: Tensor) -> float:
    return float(np.corrcoef(rankdata(a.numpy()), rankdata(b.numpy()))[0, 1])


@torch.no_grad()
def of_rewards(method: ComSD, batch: Batch) -> dict[str, float]:
    """Rank correlations of the reward's terms, and the scale of one beside the other."""
    window = method.encoder(batch)
    near = method.encoder(batch._replace(next_obs=batch.one_step_obs))
    ours, eq_10 = entropy(window.next_state, "log1p"), entropy(near.key, "log", 1e-30)
    weighted = method.config.alpha * method.beta(batch.skill)
    r_div = {"window": method.encoder.log_q(window).exp(), "near": method.encoder.log_q(near).exp()}
    return {
        "r_exp, f1(tau) against the embedding of s' (both log1p): rank correlation": rank(
            entropy(window.key, "log1p"), ours
        ),
        "r_exp, mean of logs against log1p (both of s'): rank correlation": rank(
            entropy(window.next_state, "log"), ours
        ),
        "r_exp, adjacent against window (both f1(tau), logs): rank correlation": rank(
            eq_10, entropy(window.key, "log")
        ),
        "r_exp, all of Eq. 10 against the default: rank correlation": rank(eq_10, ours),
        "r_exp, floor 1e-30 against 1e-3 (f1(tau), logs): rank correlation": rank(
            eq_10, entropy(near.key, "log")
        ),
        "r_div, adjacent against window: rank correlation": rank(r_div["near"], r_div["window"]),
        "sd(alpha beta r_div) / sd(r_exp), default": float(
            (weighted * r_div["window"]).std() / ours.std()
        ),
        "sd(alpha beta r_div) / sd(r_exp), literal": float(
            (weighted * r_div["near"]).std() / eq_10.std()
        ),
    }


def of_order(method: ComSD, state: dict[str, Any], batch: Batch) -> dict[str, float]:
    """Rewards before and after one step of the encoders; state: of their optimiser."""
    method = copy.deepcopy(method).train()
    optimizer = adam(list(method.parameters()), method.config.lr)
    optimizer.load_state_dict(copy.deepcopy(state))
    before = method.terms(batch, method.embed(batch))
    method.representation_step(batch, optimizer)
    with torch.no_grad():
        after = method.terms(batch, method.embed(batch))
    return {
        f"{name}, after the encoder's step against before: rank correlation": rank(
            after[name].detach(), before[name].detach()
        )
        for name in ("r_exp", "r_div")
    }


def of_denominator(encoder: ContrastiveEncoder, batch: Batch, when: str) -> dict[str, float]:
    """Loss and gradient with the positive in the denominator, against CIC's constant there."""
    constant = float(torch.tensor(1 / encoder.temperature).exp())
    grads: list[Tensor] = []
    losses: list[float] = []
    for left_out in (None, constant):
        encoder.zero_grad()
        f = encoder(batch)
        key = F.normalize(f.key, dim=-1)
        loss = info_nce(f.query, key, encoder.temperature, f.assignment, left_out)
        loss.backward()
        losses.append(loss.item())
        grads.append(
            torch.cat([p.grad.ravel() for p in encoder.parameters() if p.grad is not None])
        )
    apart = (grads[0] - grads[1]).norm() / grads[0].norm()
    return {
        f"NCE, CIC's constant off the denominator, {when}: loss differs by": abs(
            losses[1] / losses[0] - 1
        ),
        f"NCE, CIC's constant off the denominator, {when}: gradient differs by": float(apart),
    }


def of_prototypes() -> dict[str, float]:
    """CeSD: the part of the gradient along the prototypes, which only the official code has."""
    torch.manual_seed(0)
    state = F.normalize(torch.randn(1024, 16), dim=-1)
    following = F.normalize(state + 0.1 * torch.randn_like(state), dim=-1)
    prototypes = torch.nn.init.orthogonal_(torch.empty(16, 16)).requires_grad_()
    target = sinkhorn(following @ prototypes.detach().T / 0.1, 6)
    F.cross_entropy(state @ prototypes.T / 0.1, target).backward()
    grad = prototypes.grad
    assert grad is not None
    along = (grad * prototypes.detach()).sum(-1)
    return {
        "CeSD, share of the squared gradient along the prototypes": float(
            along.square().sum() / grad.square().sum()
        )
    }


def of_times(trainer: OffPolicyTrainer) -> dict[str, float]:
    """Milliseconds of an update, turn by turn; with other orders and rarer steps of the encoder."""
    settings, config = trainer.settings, trainer.method.config
    found: dict[str, list[float]] = {"as it is": [], "reward after": [], "every 16th": []}
    batches = [trainer.sample("diagnostics") for _ in range(TIMED)]
    for i, batch in enumerate(batches):
        for name in found:
            object.__setattr__(config, "reward_after", name == "reward after")
            object.__setattr__(settings, "representation_every", 16 if name == "every 16th" else 1)
            trainer.updates = 16 * i + 1  # not due, where it is every 16th
            found[name].append(seconds(lambda batch=batch: trainer.update(batch)))
    usual, after, rare = (1000 * statistics.median(times) for times in found.values())
    return {
        "update as it is, ms": usual,
        "update with the reward after the step, ms": after,
        "update without a step of the encoder, ms": rare,
        "update with a step of the encoder in 16, ms": (usual + 15 * rare) / 16,
    }


def measure(runs: Path) -> None:
    torch.set_num_threads(1)
    opened = Run(runs / "walker")
    trainer = opened.trainer()
    assert isinstance(trainer, OffPolicyTrainer)
    opened.restore(trainer)
    method = trainer.method
    assert isinstance(method, ComSD)
    method.reads = ("obs", "next_obs", "one_step_obs")
    rows: dict[str, list[float]] = {}
    assert trainer.optimizer is not None
    state = trainer.optimizer.state_dict()
    for _ in range(BATCHES):
        batch = trainer.sample("diagnostics")
        for name, value in (of_rewards(method, batch) | of_order(method, state, batch)).items():
            rows.setdefault(name, []).append(value)
    large = [trainer.sample("diagnostics") for _ in range(4)]
    batch = Batch(*(torch.cat(parts) for parts in zip(*large, strict=True)))  # the paper's 1024
    fresh = ContrastiveEncoder(trainer.env.obs_spec, method.space, method.config)
    trained = copy.deepcopy(method.encoder)
    once = of_denominator(fresh, batch, "untrained") | of_prototypes()
    once |= of_denominator(trained, batch, f"after {trainer.updates} updates")
    once |= of_times(trainer)
    table = [
        {
            "figure": name,
            "mean": f"{statistics.mean(values):.4g}",
            "sd over batches": f"{statistics.stdev(values):.2g}",
        }
        for name, values in rows.items()
    ]
    table += [{"figure": name, "mean": f"{value:.4g}"} for name, value in once.items()]
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_csv(RESULTS / "measured.csv", table)
    for row in table:
        print(*row.values(), sep=" | ")


# --- mazes ----------------------------------------------------------------------------------------


def collect(runs: Path) -> None:
    (RESULTS / "configs").mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name in MAZES:
        for path in sorted(runs.glob(f"{name}-*")):
            opened = Run(path)
            if not opened.finished:
                continue
            s = opened.config.run
            what = {"arm": name, "skills": s.skills, "seed": s.seed, "commit": commit_of(opened)}
            rows.append(what | opened.evaluations.rows()[-1])
            shutil.copy(path / "config.json", RESULTS / "configs" / f"{path.name}.json")
    shutil.copy(runs / "walker" / "config.json", RESULTS / "configs" / "walker.json")
    write_csv(RESULTS / "maze.csv", rows)


if __name__ == "__main__":
    commands = {"run": run, "measure": measure, "collect": collect}
    name, *place = sys.argv[1:] or [""]
    if name not in commands or len(place) > 1:
        sys.exit(__doc__)
    commands[name](Path(place[0]) if place else ROOT / "runs" / "literal")
