"""The contract: what a method keeps in every skill space, whatever its values.

Each clause would have caught a fault of a published code base: a skill query overwritten by
zeros, a network that is optimised and never used, running statistics lost at restart. A clause
sees synthetic batches and raises RunError, which says what was expected and what was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from comsd.encoders import OBSERVATIONS
from comsd.errors import InputError, RunError, one_line
from comsd.methods.base import Method
from comsd.methods.synthetic import OBS, ROWS, SKILLS, Case, state_of
from comsd.nn import optimizer_step
from comsd.types import Batch, Metrics

FIT = 100, 3e-3  # steps in which a representation learns something, and least learning rate


def require(kept: bool, expected: str, found: str) -> None:
    if not kept:
        raise RunError(f"expected {expected}, found {found}")


def listed(names: Collection[str], most: int = 3) -> str:
    more = len(names) - most
    return ", ".join([*names][:most]) + (f" and {more} more" if more > 0 else "")


def trained(method: Method) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in method.named_parameters() if p.requires_grad}


def rewards(method: Method, batch: Batch) -> Tensor:
    """With the same random numbers each time, for methods that draw some."""
    torch.manual_seed(0)
    return method.intrinsic_reward(batch).reward


def loss_of(method: Method, batch: Batch) -> tuple[Tensor, Metrics]:
    """Likewise."""
    torch.manual_seed(0)
    return method.embed_and_loss(batch)[1:]


def check_metrics(what: str, metrics: Metrics, rows: int = ROWS) -> None:
    def sound(value: Any) -> bool:
        return isinstance(value, Tensor) and value.numel() in (1, rows) and not value.requires_grad

    wrong = [name for name, value in metrics.items() if not sound(value)]
    expected = "tensors without gradient, of one number or one per row, as metrics"
    require(not wrong, expected, f"others from {what}: {listed(wrong)}")


# --- clauses --------------------------------------------------------------------------------------


def every_parameter_gets_gradient(case: Case) -> None:
    method = case.method()
    if not trained(method):
        require(method.optimizer() is None, "no optimizer, as nothing needs a gradient", "one")
        return
    loss, metrics = loss_of(method, case.batch())
    check_metrics("the loss", metrics)
    loss.backward()
    without = [
        name
        for name, p in trained(method).items()
        # A bias may have a gradient of zero: where only differences count, it cancels out.
        if p.grad is None or not (bool(p.grad.any()) or name.endswith("bias"))
    ]
    require(
        not without,
        "a gradient for every parameter that requires one",
        f"none for {listed(without)}",
    )


def updates_step_down_the_loss(case: Case) -> None:
    (method, twin), batch = case.twins(), case.batch()
    optimizer = method.optimizer()
    if optimizer is None:
        same = torch.equal(method.update(batch, None).reward, rewards(twin, batch))
        require(same, "the rewards of `intrinsic_reward` from `update`", "others")
        return
    names = {id(p): name for name, p in method.named_parameters()}
    stepped = {names.get(id(p), "?") for group in optimizer.param_groups for p in group["params"]}
    odd = sorted(stepped ^ trained(method).keys())
    require(not odd, "an optimizer of all that requires a gradient", f"another for {listed(odd)}")
    loss, metrics = loss_of(twin, batch)
    loss.backward()
    torch.manual_seed(0)
    output = method.update(batch, optimizer)
    wanted = {name: p.grad for name, p in trained(twin).items()}
    other = [name for name, p in trained(method).items() if not close(p.grad, wanted[name])]
    require(not other, "a step down the gradient of the loss", f"another for {listed(other)}")
    require(not output.reward.requires_grad, "rewards without gradient", "some with one")
    check_metrics("the update", output.metrics)
    missing = metrics.keys() - output.metrics.keys()
    require(not missing, "the metrics of the loss in the log", f"no {listed(missing)}")


def close(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return torch.allclose(a, b, atol=1e-5)


def rewards_are_numbers(case: Case) -> None:
    method = case.method()
    reward, metrics, _ = method.intrinsic_reward(case.batch())
    wrong = int((~torch.isfinite(reward)).sum())
    require(not wrong, "finite rewards", f"{wrong} of {ROWS} that are NaN or infinite")
    require(bool(reward.std() > 0), "rewards that tell transitions apart", "one for all")
    check_metrics("the reward", metrics)
    again = method.intrinsic_reward(case.batch(seed=1)).metrics
    odd = sorted(metrics.keys() ^ again.keys())
    require(not odd, "the same metrics for every batch", f"only for some: {listed(odd)}")


def enough_rows_are_enough(case: Case) -> None:
    rows = max(case.config.rows_needed().values(), default=2)
    reward = rewards(case.method(), case.batch(rows))
    finite = bool(torch.isfinite(reward).all())
    require(finite, f"finite rewards for {rows} rows", "NaN or infinity")


def skills_change_rewards(case: Case) -> None:
    (method, twin), batch = case.twins(), case.batch()
    redrawn = batch._replace(skill=case.batch(seed=1).skill)
    same = torch.equal(rewards(method, batch), rewards(twin, redrawn))
    if method.reward_uses_skill:
        require(not same, "other rewards for other skills", "the same (reward_uses_skill is True)")
    else:
        require(same, "the same rewards for other skills", "others (reward_uses_skill is False)")


def order_changes_nothing(case: Case) -> None:
    (method, twin), batch = case.twins(), case.batch()
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(0))
    shuffled = Batch(*(column[order] for column in batch))
    first, second = rewards(method, batch)[order], rewards(twin, shuffled)
    same = torch.allclose(first, second, atol=1e-5, rtol=1e-4)
    if method.reward_uses_order:
        expected, found = "other rewards in another order", "the same (reward_uses_order is True)"
    else:
        expected, found = "the same rewards in another order", "others (reward_uses_order is False)"
    require(same != method.reward_uses_order, expected, found)


def looking_changes_nothing(case: Case) -> None:
    method, batch = case.method(), case.batch()
    rewards(method, case.batch(seed=5))  # give running statistics a past
    before = state_of(method)
    method.eval()
    method.intrinsic_reward(batch)
    drawn = torch.get_rng_state()
    with torch.no_grad():
        scores, metrics = method.skill_scores(batch), method.diagnostics(batch)
    drew = not torch.equal(torch.get_rng_state(), drawn)
    require(not drew, "no random numbers in skill_scores and diagnostics", "some")
    shape = (ROWS, ROWS) if scores is None else tuple(scores.shape)
    require(shape == (ROWS, ROWS), "(B, B) scores of skills", f"{shape} for B = {ROWS}")
    check_metrics("diagnostics", metrics)
    after = method.state_dict()
    changed = [name for name in before | after if not same_value(before, after, name)]
    require(not changed, "the same state after a look in eval mode", f"other {listed(changed)}")


def same_value(before: dict[str, Any], after: dict[str, Any], name: str) -> bool:
    if name not in before or name not in after:
        return False
    a, b = before[name], after[name]
    return torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b


def saving_keeps_everything(case: Case) -> None:
    method, batch = case.method(), case.batch()
    rewards(method, case.batch(seed=5))
    shifted = OBS._replace(mean=OBS.mean + 1, std=np.multiply(OBS.std, 2))  # the saved ones count
    twin = case.method(shifted, seed=123)
    twin.load_state_dict(state_of(method))
    same = torch.equal(rewards(method, batch), rewards(twin, batch))
    found = "others: is there state outside parameters and buffers, or randomness outside torch?"
    require(same, "the same rewards from a copy made of the saved state", found)


def reads_is_honest(case: Case) -> None:
    (method, twin), batch = case.twins(), case.batch()
    hidden = [name for name in OBSERVATIONS if name not in method.reads]
    if not hidden:
        return
    nothing = {name: torch.full_like(getattr(batch, name), torch.nan) for name in hidden}
    blind = batch._replace(**nothing)
    same = torch.equal(rewards(method, batch), rewards(twin, blind))
    if trained(method):
        same &= torch.equal(loss_of(method, batch)[0], loss_of(twin, blind)[0])
    require(same, f"no use of {listed(hidden)}, which reads leaves out", "some")


def relabelling_is_declared(case: Case) -> None:
    batch, c = case.batch(), case.config
    skill = case.method().intrinsic_reward(batch).value_skill
    if skill is not None:
        fits = skill.shape == batch.skill.shape
        require(
            fits, f"skills {tuple(batch.skill.shape)} from value_skill", f"{tuple(skill.shape)}"
        )
    if all(getattr(c, name) == choice for name, choice in c.on_policy.items()):
        require(skill is None, "no value_skill with the choices in on_policy", "one")


def training_reduces_the_loss(case: Case) -> None:
    """Skills live in separate places and move in their own directions."""
    steps, least = FIT
    method = case.method()
    optimizer = method.optimizer()
    if optimizer is None:
        return
    for group in optimizer.param_groups:  # enough for so few steps, whatever the setting
        group["lr"] = max(group["lr"], least)
    skills, which = case.space.sample_balanced(SKILLS, np.random.default_rng(0)), torch.arange(ROWS)
    which, batch = which % SKILLS, case.batch()
    angle = 2 * math.pi * which / SKILLS
    obs = 3 * which[:, None] + 0.1 * batch.action
    after = obs + torch.stack([angle.cos(), angle.sin()], -1)
    one_step = after if batch.one_step_obs is batch.next_obs else (2 * obs + after) / 3
    batch = batch._replace(obs=obs, next_obs=after, one_step_obs=one_step, skill=skills[which])
    losses: list[float] = []
    for _ in range(steps):
        _, loss, _ = method.embed_and_loss(batch)
        optimizer_step(optimizer, loss)
        losses.append(loss.item())
    fits = losses[-1] < losses[0] - 0.1 * abs(losses[0])
    found = f"{losses[-1]:.3g} after {losses[0]:.3g}"
    require(fits, f"a loss that falls by a tenth in {steps} steps", found)


def progress_is_logged(case: Case) -> None:
    """With values for robots alone: others may leave terms out."""
    if case.family != "robots":
        return
    method, batch = case.method(), case.batch()
    logged = method.update(batch, method.optimizer()).metrics | method.diagnostics(batch)
    names = method.progress_metrics
    require(1 <= len(names) <= 3, "one to three progress_metrics", str(len(names)))
    missing = names.keys() - logged.keys()
    require(not missing, "progress_metrics that are logged", f"{listed(missing)}, not logged")


Clause = Callable[[Case], None]
CLAUSES: dict[str, Clause] = {
    "all that requires a gradient gets one from the loss": every_parameter_gets_gradient,
    "an update steps down the loss, and its rewards carry no gradient": updates_step_down_the_loss,
    "training on skills in separate places reduces the loss by a tenth": training_reduces_the_loss,
    "the reward is (B,), float32, finite and not constant": rewards_are_numbers,
    "a copy made from the saved state gives the same rewards": saving_keeps_everything,
    "as many rows as rows_needed asks for can be rewarded": enough_rows_are_enough,
    "other skills give other rewards, unless reward_uses_skill is False": skills_change_rewards,
    "reordering rows reorders rewards, unless reward_uses_order is True": order_changes_nothing,
    "loss and reward depend on no observation that reads leaves out": reads_is_honest,
    "no row trains the value of another skill, unless on_policy says so": relabelling_is_declared,
    "in eval mode no state changes, and figures draw no random numbers": looking_changes_nothing,
    "progress_metrics names one to three metrics that are logged": progress_is_logged,
}


def problem(clause: Callable[[], None]) -> str | None:
    """What is wrong, in a sentence; the method's code may raise anything."""
    try:
        clause()
    except (InputError, RunError) as error:
        return str(error)
    except Exception as error:
        return one_line(error)
    return None


def breach(case: Case, clause: Clause) -> str | None:
    """What is wrong and where, if a method breaks a clause."""
    wrong = problem(partial(clause, case))
    return None if wrong is None else f"{wrong} ({case})"
