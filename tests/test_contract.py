"""Every method keeps the contract, with all its values, and every clause of it can be broken."""

from __future__ import annotations

import ast
import inspect
from itertools import product

import pytest
import torch

import broken
from comsd.methods import contract
from comsd.methods.base import Method
from comsd.methods.contract import CLAUSES, Clause, breach
from comsd.methods.synthetic import FAMILIES, Case, cases, narrow_config
from comsd.registry import METHODS
from comsd.skills import OneHot
from comsd.user_files import check_definition
from conftest import make_batch, make_method, make_space, method_cases

USUAL = [case for kind in METHODS.values() for case in cases(kind)]


def variant(name: str, kind: str, family: str, **values: object) -> Case:
    config = narrow_config(METHODS[name].config_class, FAMILIES[family], **values)
    return Case(METHODS[name], config, make_space(kind), family)


VARIANTS = (
    [
        variant(name, "box", "defaults", **values)
        for name in ("comsd", "cic")
        for values in ({"denominator": "constant"}, {"reward_after": True})
    ]
    + [
        variant("comsd", kind, "mazes", **values)
        for kind in ("one-hot", "box", "sphere")
        for values in (
            {"smw": False},
            {"diversity": False},
            {"exploration": False},
            {"knn": "embedding"},
            {"knn": "trajectory", "knn_form": "log1p", "knn_scale": "std"},
            {"knn": "frozen-random", "knn_form": "log1p"},
            {"diversity_form": "log-q", "query": "learned"},
        )
    ]
    + [
        variant("becl", "one-hot", "robots", denominator="all"),
        variant("smm", "one-hot", "robots", skill_term="log-likelihood"),
    ]
)


def test_every_method_has_all_cases() -> None:
    wanted = {(*pair, family) for pair, family in product(method_cases(), FAMILIES)}
    assert {(case.kind.name, case.space.kind, case.family) for case in USUAL} == wanted


@pytest.mark.parametrize("case", USUAL + VARIANTS, ids=lambda case: f"{case.kind.name}, {case}")
def test_every_method_keeps_every_clause(case: Case) -> None:
    case.check()
    assert [wrong for clause in CLAUSES.values() if (wrong := breach(case, clause))] == []


# --- every clause can be broken -------------------------------------------------------------------


BROKEN: dict[Clause, dict[type[Method], str]] = {
    contract.every_parameter_gets_gradient: {
        broken.Unused: "none for extra.hidden.0.weight",
        broken.WrongWidth: "(64x4 and 2x16) (broken.py, line ",  # raised in torch
        broken.AttachedMetric: "others from the loss: sound/loss",
        broken.IdleOptimizer: "expected no optimizer",
    },
    contract.updates_step_down_the_loss: {
        broken.HalfAnOptimizer: "found another for net.out.bias, net.out.weight",
        broken.OtherGradient: "found another for net.hidden",
        broken.AttachedReward: "expected rewards without gradient",
        broken.LostMetrics: "found no sound/loss",
    },
    contract.training_reduces_the_loss: {
        broken.Hardly: "expected a loss that falls by a tenth in 100 steps, found 1e+03 after",
    },
    contract.rewards_are_numbers: {
        broken.NaN: "finite rewards, found 31 of 64 that are NaN or infinite",
        broken.Constant: "rewards that tell transitions apart, found one for all",
        broken.PythonMetric: "others from the reward: sound/error",
        broken.OddMetric: "found only for some: sound/",
    },
    contract.saving_keeps_everything: {
        broken.Counting: "state outside parameters and buffers",
        broken.FromNumPy: "or randomness outside torch",
    },
    contract.enough_rows_are_enough: {
        broken.Greedy: "out of range (broken.py, line ",
        broken.PairsOnly: "expected finite rewards for 2 rows",
    },
    contract.skills_change_rewards: {
        broken.Unskilled: "found the same (reward_uses_skill is True)",
        broken.ModestlySkilled: "found others (reward_uses_skill is False)",
    },
    contract.order_changes_nothing: {
        broken.Ordered: "found others (reward_uses_order is False)",
        broken.AllegedlyOrdered: "found the same (reward_uses_order is True)",
    },
    contract.reads_is_honest: {
        broken.SecretReader: "expected no use of next_obs, one_step_obs",
        broken.SecretLoss: "expected no use of obs, one_step_obs",
    },
    contract.relabelling_is_declared: {
        broken.Relabelling: "no value_skill with the choices in on_policy",
        broken.RelabellingOdd: "expected skills (64, 5) from value_skill, found (64,)",
    },
    contract.looking_changes_nothing: {
        broken.AlwaysTraining: "found other moments.count",
        broken.NoisyScores: "expected no random numbers",
        broken.FlatScores: "found (64,) for B = 64",
        broken.PythonDiagnostics: "others from diagnostics: sound/more",
    },
    contract.progress_is_logged: {
        broken.NoProgress: "expected one to three progress_metrics, found 0",
        broken.MisspeltProgress: "found sound/lost, not logged",
    },
}


@pytest.mark.parametrize("case", cases(broken.Sound), ids=str)
def test_what_the_broken_methods_are_derived_from_is_sound(case: Case) -> None:
    assert [wrong for clause in CLAUSES.values() if (wrong := breach(case, clause))] == []


@pytest.mark.parametrize(
    ("clause", "kind"),
    [(clause, kind) for clause, kinds in BROKEN.items() for kind in kinds],
    ids=lambda each: each.__name__,
)
def test_a_broken_clause_says_what_and_where(clause: Clause, kind: type[Method]) -> None:
    case = next(case for case in cases(kind) if case.family == "robots")
    wrong = breach(case, clause)
    assert wrong is not None
    assert BROKEN[clause][kind] in wrong
    assert wrong.endswith("(one-hot skills, values for robots)")
    assert "\n" not in wrong


def test_every_clause_has_a_method_that_breaks_it() -> None:
    assert {*BROKEN} == {*CLAUSES.values()}


# --- cases ----------------------------------------------------------------------------------------


def test_what_a_method_refuses_is_no_case() -> None:
    found = cases(broken.Wide)
    assert {case.config.hidden for case in found} == {64}  # it cannot be narrower
    assert {case.space.kind for case in found} == {"one-hot", "box"}
    assert {case.family for case in found} == {*FAMILIES} - {"images"}


# --- of the package's methods alone ---------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
def test_the_reward_may_come_from_a_pass_after_the_step(after: bool) -> None:
    method = make_method("diayn", space := OneHot(5), reward_after=after)
    batch = make_batch(space, 64)
    before = method.intrinsic_reward(batch).reward
    learnt = method.update(batch, method.optimizer()).reward
    assert torch.equal(learnt, method.intrinsic_reward(batch).reward if after else before)
    assert not torch.equal(before, method.intrinsic_reward(batch).reward)


@pytest.mark.parametrize("name", METHODS)
def test_the_definition_is_sound_and_there_is_a_critic_of_its_form(name: str) -> None:
    check_definition(METHODS[name])


@pytest.mark.parametrize("name", METHODS)
def test_no_method_imports_another(name: str) -> None:
    module = inspect.getmodule(METHODS[name])
    assert module is not None
    source = inspect.getsource(module)
    imported = [
        n.module or "" for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom)
    ]
    assert not {m.__module__ for m in METHODS.values()} & set(imported)
    assert len(source.splitlines()) <= 170
