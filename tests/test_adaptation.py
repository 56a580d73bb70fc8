"""Fine-tuning, combination and plain DDPG: what is taken over, what is scored, exact resume."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import comsd
from comsd.adaptation import FinetuneSettings
from comsd.agents.base import make_policy_fn
from comsd.agents.ddpg import DDPG
from comsd.agents.dqn import DQN
from comsd.cli import main
from comsd.errors import InputError
from comsd.evaluation.base import untrained_policy
from comsd.evaluation.tasks import TaskEvaluator
from comsd.registry import METHODS
from comsd.resolve import resolve, resolve_combine, resolve_finetune
from comsd.runs import factory
from comsd.runs.run import Run
from comsd.skill_sets import find_skill, random_skills
from comsd.skills import Box, OneHot, Sphere
from comsd.training.off_policy import OffPolicyTrainer
from processes import call

PRETRAINING: dict[str, Any] = {
    "env": "hopper",
    "preset": "smoke",
    "skills": 8,
    "steps": 300,
    "evaluate_every": 10**6,
}


SOURCE = ("path", "at", "space", "spec", "finished", "reached")  # of a run that can be adapted


def on_images(source: Run) -> Any:
    """The run as if it had been trained on images: enough to resolve its adaptations."""
    imagined = SimpleNamespace(**{name: getattr(source, name) for name in SOURCE})
    imagined.config = resolve("comsd", "hopper", "lite", pixels=True)
    return imagined


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return comsd.pretrain("comsd", run=tmp_path_factory.mktemp("source") / "run", **PRETRAINING)


@pytest.fixture(scope="module")
def tuned(source: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("tuned") / "run"
    return comsd.finetune(source, task="hopper_hop", run=place, seed=3)


def test_the_untrained_policy_of_a_fine_tuning_is_that_of_its_skills(
    source: Run, tuned: Run
) -> None:
    obs, skill = torch.randn(5, 15), source.space.grid(5)
    assert torch.equal(untrained_policy(tuned)(obs, skill), source.policy(obs, skill))
    assert not torch.equal(tuned.policy(obs, skill), source.policy(obs, skill))


def fresh(source: Run, place: Path, critic_init: str) -> tuple[DDPG, DDPG]:
    """The agents of a fine-tuning before its first step, and of its source."""
    settings: dict[str, Any] = {"seed": 5, "adapt": {"critic_init": critic_init}}
    resolved = resolve_finetune(source, "hopper_hop", **settings)
    learner = Run.create(place, resolved, source).trainer()
    before = source.load_agent()
    assert isinstance(learner, OffPolicyTrainer)
    assert isinstance(before, DDPG)
    return learner.agent, before


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_fine_tuned_by_its_rule_and_combined(name: str, tmp_path: Path) -> None:
    short: dict[str, Any] = {"preset": "smoke", "steps": 260, "evaluate_every": 10**6}
    skills = comsd.pretrain(name, env="hopper", run=tmp_path / "skills", **short)
    tuned = comsd.finetune(skills, task="hopper_hop", run=tmp_path / "tuned", steps=300)
    rule = METHODS[name].finetuning_rule
    assert isinstance(tuned.config.adapt, FinetuneSettings)
    assert tuned.config.adapt.rule == rule
    assert (tuned.evaluations.rows()[0]["step"] == "0") == (rule != "regress")
    if isinstance(skills.space, Sphere):
        assert tuned.selected_skill.norm().item() == pytest.approx(1, abs=1e-5)
    combined = comsd.combine(skills, task="hopper_hop", run=tmp_path / "combined", steps=300)
    obs = np.zeros(combined.policy.obs_shape, np.float32)
    assert combined.policy(obs, np.zeros(0, np.float32)).shape == (skills.space.dim,)
    assert comsd.evaluate(tuned).metrics["return"] >= 0


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("critic_init", ["trunk", "none", "full"])
def test_what_is_taken_over(critic_init: str, source: Run, tmp_path: Path) -> None:
    agent, before = fresh(source, tmp_path / "run", critic_init)
    assert same_weights(agent.actor, before.actor)
    assert same_weights(agent.critic.trunk, before.critic.trunk) == (critic_init != "none")
    assert same_weights(agent.critic, before.critic) == (critic_init == "full")
    assert same_weights(agent.target, agent.critic)  # synced after loading
    assert not same_weights(agent.target, before.target)


def test_one_skill_all_along_and_its_own_reward(tuned: Run) -> None:
    assert tuned.selected_skill.tolist() == [0] + [0.5] * 7  # the paper's
    learner = tuned.trainer()
    assert isinstance(learner, OffPolicyTrainer)
    tuned.restore(learner)
    batch = learner.replay.transitions()
    assert bool((batch.skill == tuned.selected_skill).all())
    reward = learner.method.intrinsic_reward(batch).reward
    assert torch.equal(reward, batch.reward)


def test_the_score_is_the_mean_return_of_single_episodes(tuned: Run) -> None:
    evaluator = TaskEvaluator(tuned)
    evaluator.rollouts = 3
    returns = evaluator.returns(tuned.policy, tuned.selected_skill)
    for i, total in enumerate(returns):
        env = comsd.make_task("hopper_hop", 1, evaluator.seed + i)
        obs, ended, alone = env.reset(), False, 0.0
        policy_fn = make_policy_fn(tuned.policy, tuned.selected_skill[None], None)
        while not ended:
            step = env.step(policy_fn(obs))
            obs, ended = step.obs, step.ended[0]
            alone += float(step.reward[0])
        assert alone == pytest.approx(total, rel=1e-3, abs=1e-6)


def test_an_adaptation_has_random_numbers_of_its_own(source: Run, tuned: Run) -> None:
    """Of one seed: fresh heads are not those that pre-training began with."""
    configs = [run.config.derive("run.seed", 7, "you") for run in (source, tuned)]
    ours, theirs = ([s.generate_state(1)[0] for s in factory.seeds(c)] for c in configs)
    assert not {*ours} & {*theirs}


def test_the_first_score_is_that_of_the_skill_as_it_was(source: Run, tuned: Run) -> None:
    rows = tuned.evaluations.rows()
    assert [row["step"] for row in rows] == ["0", "400", "800"]
    before = TaskEvaluator(tuned).returns(source.policy, tuned.selected_skill)
    assert float(rows[0]["return"]) == pytest.approx(before.mean())


def test_the_values_of_the_paper(source: Run) -> None:
    config = resolve_finetune(source, "hopper_flip", "paper")
    agent, train = config.agent.__dict__, config.train.__dict__
    assert config.run.steps == 100_000
    assert (agent["lr"], train["random_steps"], train["batch_size"]) == (2e-5, 4000, 1024)
    assert agent["hidden"] == source.config.agent.__dict__["hidden"]
    assert config.sources["agent.hidden"] == "the pre-trained run"
    assert (config.run.evaluate_every, config.run.rollouts) == (10_000, 10)
    config = resolve_combine(source, "hopper_flip", "paper")
    assert (config.run.steps, config.agent.__dict__["lr"]) == (2_000_000, 1e-4)
    assert (config.run.space, config.run.skills) == ("none", 0)
    assert resolve_combine(source, "hopper_flip", "lite").run.steps == 500_000
    assert resolve_finetune(source, "hopper_flip", "lite").agent.__dict__["lr"] == 1e-4


def test_the_literal_preset_adapts_by_the_papers_algorithms_and_table(source: Run) -> None:
    tuned = resolve_finetune(source, "hopper_flip", "literal")
    how = tuned.adapt.__dict__
    assert (how["critic_init"], how["rule"]) == ("none", "fixed")  # Algorithm 3, z = (0, .5, ...)
    assert tuned.sources["adapt.critic_init"] == "paper, Algorithm 3"
    assert (tuned.run.steps, tuned.agent.__dict__["lr"]) == (100_000, 2e-5)
    combined = resolve_combine(source, "hopper_flip", "literal")
    how = combined.adapt.__dict__
    assert (how["controller"], how["hold"]) == ("continuous", 1)  # Algorithm 2
    assert how["skill_noise"]  # a ~ pi in training, without noise in scores
    assert how["evaluation_noise"]  # the controller's, 0.2
    assert combined.agent.__dict__["noise"] == 0.2
    assert (combined.run.steps, combined.run.evaluate_every) == (2_000_000, 10_000)
    assert combined.run.rollouts == 10


def test_what_belongs_to_the_skills_cannot_be_changed(source: Run) -> None:
    changes: list[dict[str, Any]] = [{"skills": 4}, {"agent": {"hidden": 64}}]
    for settings in changes:
        with pytest.raises(InputError, match="cannot be chosen"):
            resolve_finetune(source, "hopper_hop", **settings)


def test_a_flag_counts_even_if_it_names_the_default(source: Run, tmp_path: Path) -> None:
    argv = f"combine {source.path} --task hopper_hop --hold 10 --agent.discount 0.99 --steps 210"
    main([*argv.split(), "--run", str(tmp_path / "run")])
    assert Run(tmp_path / "run").config.agent.__dict__["discount"] == 0.99


def test_a_held_choice_is_discounted_as_several_steps(source: Run) -> None:
    config = resolve_combine(source, "hopper_hop", adapt={"hold": 3})
    assert config.agent.__dict__["discount"] == pytest.approx(0.99**3)
    assert "hold" in config.sources["agent.discount"]


def test_a_discrete_controller_chooses_among_different_skills(source: Run, tmp_path: Path) -> None:
    how: dict[str, Any] = {"adapt": {"controller": "discrete"}, "steps": 400}
    run = comsd.combine(source, task="hopper_hop", run=tmp_path / "run", **how)
    config = run.config
    assert (config.run.agent, config.agent.__dict__["candidates"]) == ("dqn", 4)
    assert config.adapt.__dict__["hold"] == 10
    assert config.agent.__dict__["discount"] == pytest.approx(0.99**10)
    agent = run.load_agent()
    assert isinstance(agent, DQN)
    assert len(agent.candidates.unique(dim=0)) == 4
    assert int(agent.updates) > 0
    obs = np.zeros(run.policy.obs_shape, np.float32)
    chosen = run.policy(obs, np.zeros(0, np.float32))
    assert (chosen == agent.candidates.numpy()).all(-1).any()
    metrics = comsd.evaluate(run).metrics
    assert set(metrics) == {"return", "return_best_candidate"}  # of one episode, without noise
    evaluator = TaskEvaluator(run)
    alone, tried = (
        evaluator.candidate_returns(agent.candidates, evaluator.seed + i) for i in (0, 1)
    )
    best = alone[tried.argmax()]  # chosen on other starts than those that it is scored on
    assert metrics["return_best_candidate"] == best
    assert {float(row["return_best_candidate"]) for row in run.evaluations.rows()} == {best}
    # Random candidates, not points anywhere; both baselines act by the candidates of the run.
    drawn = agent.policy.random_candidates(50, np.random.default_rng(0))
    assert len(np.unique(drawn, axis=0)) == 4
    assert torch.equal(untrained_policy(run).candidates, agent.candidates)  # type: ignore[attr-defined]
    assert 0 <= evaluator.baseline(None)["return"] < 1000
    last = agent.q.out
    assert isinstance(last, nn.Linear)
    with torch.no_grad():  # a controller that always takes the third is worth what the third is
        last.weight.zero_()
        last.bias.copy_(torch.eye(4)[2])
    assert evaluator.returns(agent.policy, torch.zeros(0)).mean() == alone[2]
    longer = resolve_combine(source, "hopper_hop", "lite", **{"adapt.controller": "discrete"})
    assert longer.run.steps == 100_000
    assert longer.agent.__dict__["epsilon_updates"] == round(0.3 * 96_000 / 25)
    assert longer.agent.__dict__["hidden"] == 256  # not the source's 32


def test_a_skill_is_chosen_by_the_name_that_analyse_lists(source: Run, tmp_path: Path) -> None:
    run = comsd.finetune(
        source, task="hopper_hop", steps=252, run=tmp_path / "run", adapt={"skill": "z1=0.3"}
    )
    wanted = source.space.flags(11)[3]
    assert torch.equal(run.selected_skill, wanted)
    assert comsd.load(tmp_path / "run").config.sources["adapt.rule"] != "you"
    numbers = ",".join(map(str, wanted.tolist()))
    assert torch.equal(find_skill(source.space, numbers), wanted)
    assert torch.equal(find_skill(source.space, "random 2"), random_skills(source.space)[1])
    assert (
        find_skill(OneHot(15), "12").argmax() == find_skill(OneHot(15), "skill 12").argmax() == 12
    )
    assert find_skill(Sphere(2), "angle 98").tolist() == pytest.approx([0, 1], abs=0.2)
    for space in (Box(3), OneHot(3), Sphere(3)):
        for wrong in ("0.5,2,0", "1", "z9", "nan,0,1", ""):
            if not (wrong == "1" and isinstance(space, OneHot)):
                with pytest.raises(InputError, match=r"skill is .*; allowed: .* the 3 numbers of"):
                    find_skill(space, wrong)


def test_few_skills_are_all_candidates(tmp_path: Path) -> None:
    settings: dict[str, Any] = PRETRAINING | {"skills": 3}
    few = comsd.pretrain("smm", run=tmp_path / "run", **settings)
    how: dict[str, Any] = {"adapt.controller": "discrete"}
    config = resolve_combine(few, "hopper_hop", "lite", **how)
    assert config.agent.__dict__["candidates"] == 3
    assert config.sources["agent.candidates"] == "all skills of the run"
    how["agent.candidates"] = 5
    asked = resolve_combine(few, "hopper_hop", "lite", **how)
    assert asked.agent.__dict__["candidates"] == 5  # refused when it starts


@pytest.mark.parametrize(("preset", "tries", "hold"), [("lite", 8, 250), ("paper", 4, 500)])
def test_on_images_trials_share_the_random_steps(
    source: Run, preset: str, tries: int, hold: int
) -> None:
    """Of 4000 steps, by actions of two steps each."""
    how = {"adapt.rule": "best-of-k", "adapt.tries": tries}
    config = resolve_finetune(on_images(source), "hopper_hop", preset, **how)
    assert config.train.__dict__["hold"] == hold


def test_a_discrete_controller_on_images_learns_at_its_own_rate(source: Run) -> None:
    for preset in ("lite", "paper"):
        config = resolve_combine(
            on_images(source), "hopper_hop", preset, adapt={"controller": "discrete"}
        )
        values = config.agent.__dict__ | config.train.__dict__
        assert (values["lr"], values["batch_size"], values["update_every"]) == (3e-4, 256, 25)
        assert values["encoder_from"] == "critic"


def test_best_of_k_acts_from_the_first_step(source: Run, tmp_path: Path) -> None:
    how = {"rule": "best-of-k", "tries": 4}
    run = comsd.finetune(source, task="hopper_hop", run=tmp_path / "run", steps=252, adapt=how)
    learner = run.trainer()
    assert isinstance(learner, OffPolicyTrainer)
    run.restore(learner)
    batch = learner.replay.transitions()
    flags = batch.skill[:200, 0].view(4, 50)  # 200 steps shared by four candidates
    assert torch.allclose(flags, torch.linspace(0, 1, 4)[:, None].expand(4, 50))
    means = batch.reward[:200].view(4, 50).mean(1)
    assert run.selected_skill[0] == pytest.approx(flags[int(means.argmax()), 0].item())
    assert run.evaluations.rows()[0]["step"] == "252"  # nothing was chosen at step 0


def test_the_random_rule_follows_the_seed(source: Run, tmp_path: Path) -> None:
    skills = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        how: dict[str, Any] = {"seed": seed, "adapt": {"rule": "random"}, "steps": 210}
        skills.append(
            comsd.finetune(source, task="hopper_hop", run=tmp_path / name, **how).selected_skill
        )
    assert torch.equal(skills[0], skills[1])
    assert not torch.equal(skills[0], skills[2])


def test_a_run_needs_nothing_outside_its_directory(source: Run, tmp_path: Path) -> None:
    copy = tmp_path / "source"
    shutil.copytree(source.path, copy)
    run = comsd.combine(copy, task="hopper_hop", run=tmp_path / "run", steps=300)
    before = comsd.evaluate(run).metrics
    assert set(before) == {"return", "return_without_noise"}
    shutil.rmtree(copy)
    moved = tmp_path / "elsewhere"
    shutil.move(run.path, moved)
    record = json.loads((moved / "config.json").read_text())
    del record["seal"]
    record["config"]["run"]["steps"] = 500
    (moved / "config.json").write_text(json.dumps(record))
    assert comsd.evaluate(comsd.load(moved)).metrics == before
    assert comsd.resume(moved).finished


def test_scratch_sees_no_skill(tmp_path: Path) -> None:
    run = comsd.finetune(None, task="walker_run", run=tmp_path / "run", preset="smoke", steps=300)
    obs = np.zeros(24, np.float32)  # the observation alone
    assert run.policy(obs, np.zeros(0, np.float32)).shape == (6,)
    assert np.isfinite(float(run.evaluations.rows()[-1]["return"]))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("finetune SOURCE --task walker_run", "has the skills of hopper; allowed: hopper_hop"),
        (
            "finetune SOURCE --task hopper_hopp",
            "task is 'hopper_hopp' (did you mean 'hopper_hop'?)",
        ),
        ("finetune SOURCE --task hopper", "task is 'hopper'"),
        ("finetune SOURCE", "--task is missing"),
        ("finetune --task hopper_hop", "RUN is missing (or --scratch)"),
        ("combine nowhere --task hopper_hop", "nowhere is not a run directory"),
        ("finetune UNFINISHED --task hopper_hop", "is unfinished: step 200 of 300"),
        ("finetune TUNED --task hopper_hop", "is itself a finetune run"),
        ("finetune SOURCE --task hopper_hop --rule best", "--rule is 'best'"),
        ("finetune SOURCE --task hopper_hop --skill z2=1", "skill is 'z2=1'; allowed: c = 0, c ="),
        (
            "finetune SOURCE --task hopper_hop --rule random --skill c=0",
            "rule is 'random', but a skill is given; allowed: fixed",
        ),
        ("finetune SOURCE --task hopper_hop --rule regress", "comsd has no features for it"),
        (
            "finetune SOURCE --task hopper_hop --tries 1",
            "adapt.tries is 1; it must be between 2 and 1000",
        ),
        ("finetune SOURCE --task hopper_hop --rule best-of-k --tries 3", "tries is 3"),
        ("finetune SOURCE --task hopper_hop --rule best-of-k --steps 200", "must fit into steps"),
        (
            "finetune SOURCE --task hopper_hop --rule best-of-k --train.envs 20",
            "must fit into steps",
        ),
        ("finetune SOURCE --task hopper_hop --agent.hidden 64", "no option '--agent.hidden'"),
        (
            "combine SOURCE --task hopper_hop --train.representation-steps 2",
            "no option '--train.representation-steps'",
        ),
        (
            "combine SOURCE --task hopper_hop --controller dqn",
            "controller is 'dqn'; allowed: continuous, discrete",
        ),
        (
            "combine SOURCE --task hopper_hop --controller discrete --agent.candidates 1",
            "agent.candidates is 1; it must be between 2 and 4096",
        ),
        ("combine SOURCE --task hopper_hop --hold 0", "hold is 0; it must be at least 1"),
        ("pretrain comsd --env hopper_hop", "env is 'hopper_hop', a task"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    argv: str,
    message: str,
    source: Run,
    tuned: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    unfinished = tmp_path / "unfinished"
    if "UNFINISHED" in argv:
        shutil.copytree(source.path, unfinished)
        newest = unfinished / "checkpoints" / "000000000300"
        newest.rename(newest.with_name("000000000200"))
    for name, place in (("SOURCE", source.path), ("UNFINISHED", unfinished), ("TUNED", tuned.path)):
        argv = argv.replace(name, str(place))
    code, _, err = call(f"{argv} --run {tmp_path / 'run'}", capsys)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["finetune", "combine"])
def test_help_shows_the_settings_of_the_run_if_it_is_named(
    command: str, source: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    code, general, _ = call(f"{command} --help", capsys)
    assert code == 0
    assert "(default: paper)" in general
    code, own, _ = call(f"{command} {source.path} --task hopper_hop --help", capsys)
    assert code == 0
    assert "(default: smoke)" in own


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"skills": 5}, "skills cannot be chosen"),
        ({"space": "one-hot"}, "space cannot be chosen"),
        ({"agent": {"hold": 7}}, "train.hold cannot be chosen"),
    ],
)
def test_what_an_adaptation_decides_is_no_setting_in_python_either(
    settings: dict[str, Any], message: str, source: Run, tmp_path: Path
) -> None:
    place = tmp_path / "run"
    for start in (
        lambda: comsd.finetune(source, task="hopper_hop", run=place, **settings),
        lambda: comsd.finetune(None, task="hopper_hop", run=place, preset="smoke", **settings),
        lambda: comsd.combine(source, task="hopper_hop", run=place, **settings),
    ):
        with pytest.raises(InputError, match=message):
            start()
    with pytest.raises(InputError, match="env is 'hopper_hop', a task"):
        comsd.pretrain("comsd", env="hopper_hop", run=place)
    with pytest.raises(InputError, match="agent cannot be chosen"):
        comsd.finetune(source, task="hopper_hop", run=place, agent="sac")
    with pytest.raises(InputError, match="agent is 'ppo'; allowed: ddpg, sac"):
        comsd.combine(source, task="hopper_hop", run=place, agent="ppo")
    assert not place.exists()


def test_double_precision_and_arrays_act_as_well(source: Run) -> None:
    obs, skill = torch.zeros(1, 15), source.space.grid(1)
    action = source.policy(obs, skill)
    assert torch.equal(source.policy(obs.double(), skill.double()), action)
    assert np.array_equal(source.policy(obs.numpy(), skill.numpy()), action.detach().numpy())


def test_the_agent_of_the_skills_goes_on(
    source: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Skills of SAC are fine-tuned by SAC; a controller may be another agent."""
    soft = comsd.pretrain("cic", run=tmp_path / "sac", **PRETRAINING, agent="sac")
    place = tmp_path / "tuned"
    asked = f"finetune {soft.path} --task hopper_hop --agent.temperature 0.05 --run {place}"
    assert call(f"{asked} --steps 400", capsys)[0] == 0
    tuned = Run(place)
    assert (tuned.finished, tuned.config.run.agent) == (True, "sac")
    assert tuned.config.agent.__dict__["temperature"] == 0.05
    assert np.isfinite(float(tuned.metrics.rows()[-1]["sac/entropy"]))
    assert resolve_combine(soft, "hopper_hop").run.agent == "sac"
    assert resolve_combine(soft, "hopper_hop", agent="ddpg").run.agent == "ddpg"
    combined = comsd.combine(
        source, task="hopper_hop", run=tmp_path / "combined", agent="sac", steps=300
    )
    assert (combined.finished, combined.config.run.agent) == (True, "sac")
