"""The skill explorer's data; the page itself is tested in tests/test_viewer.py."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
import torch

import comsd
from comsd.agents.dqn import GreedyPolicy
from comsd.analysis.skills import SkillFigures, describe
from comsd.cli import main
from comsd.envs.foreign import REGISTERED
from comsd.envs.mujoco import RobotEnv
from comsd.envs.recipe import Part, declared_recipe, observe
from comsd.envs.reward import register_reward
from comsd.envs.robots import ROBOTS, load_robot
from comsd.envs.skills import SkillEnv
from comsd.evaluation.base import Options
from comsd.evaluation.metrics import activity
from comsd.evaluation.skills import RobotEvaluator
from comsd.evaluation.tasks import TaskEvaluator
from comsd.explorer import page
from comsd.explorer.arrays import Arrays, pack_frames
from comsd.explorer.measures import exported_skills, skill_names
from comsd.explorer.models import PageModel
from comsd.explorer.policy import policy_graph
from comsd.reproduction.collect import FinishedRun
from comsd.reproduction.page import explorer_links
from comsd.resolve import resolve
from comsd.runs import Run
from comsd.skill_sets import labels, skill_sweeps
from comsd.skills import Box, OneHot, Sphere
from comsd.training.trainer import TrainingState
from comsd.user_files import register_env_file


def untrained(path: Path, method: str, env: str, **settings: Any) -> Run:
    run = Run.create(path, resolve(method, env, "smoke", **settings))
    run.save(run.trainer(), TrainingState())
    return run


def unpack(arrays: Arrays, i: int) -> np.ndarray[Any, Any]:
    kind, shape, offset = arrays.index[i]
    block = gzip.decompress(base64.b64decode(arrays.encoded()))
    return np.frombuffer(block, f"<{kind}", int(np.prod(shape)), offset).reshape(shape)


def test_recorded_poses_survive_sixteen_bits() -> None:
    frames = np.random.default_rng(0).normal(size=(3, 50, 4)).cumsum(1)
    arrays = Arrays()
    packed = pack_frames([*frames], arrays)
    codes, low, step = (unpack(arrays, packed[key]["array"]) for key in ("codes", "low", "step"))
    assert codes.shape == (2, 3, 4, 50)
    levels = (codes[0] + 256 * codes[1].astype(np.int64)).cumsum(-1) % 65536
    again = low[:, :, None] + step[:, :, None] * levels
    spans = np.ptp(frames, axis=1)[:, None]
    assert np.abs(again.transpose(0, 2, 1) - frames).max() <= 1e-4 * spans.max()


@pytest.mark.parametrize("name", ROBOTS)
def test_text_and_numbers_together_are_the_model(name: str) -> None:
    robot = load_robot(name)
    made = PageModel(robot.spec, robot.model)
    for field in ("body_mass", "body_inertia", "geom_size", "jnt_range", "actuator_gear"):
        assert np.array_equal(getattr(made.model, field), getattr(robot.model, field)), field
    assert "texture" not in made.xml
    assert made.same_kind


def test_files_of_meshes_come_along(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    corners = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\n"
    (tmp_path / "parts" / "wedge.obj").write_text(corners + "f 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")
    place = tmp_path / "model.xml"
    place.write_text(
        '<mujoco><compiler meshdir="parts"/><asset><mesh file="wedge.obj"/></asset><worldbody>'
        '<body><freejoint/><geom type="mesh" mesh="wedge"/></body></worldbody></mujoco>'
    )
    made = PageModel(mujoco.MjSpec.from_file(str(place)), mujoco.MjModel.from_xml_path(str(place)))
    assert [*made.files] == ["0.obj"]
    assert str(tmp_path) not in made.xml
    assert made.model.nmeshvert == 4


@pytest.mark.parametrize(
    ("method", "env", "options", "last"),
    [
        ("comsd", "hopper", {}, "tanh"),
        ("comsd", "hopper", {"agent": "sac"}, "tanh"),
        ("diayn", "hopper", {"agent": "ppo"}, "sub"),
    ],
)
def test_policies_of_all_agents_become_operations(
    method: str, env: str, options: dict[str, Any], last: str, tmp_path: Path
) -> None:
    run = untrained(tmp_path / "run", method, env, **options)
    arrays = Arrays()
    graph = policy_graph(run.policy, arrays)
    assert graph["nodes"][-1]["op"] == last
    assert graph["output"] == 1 + len(graph["nodes"])
    weights = sum(int(np.prod(shape)) for _, shape, _ in arrays.index)
    assert weights >= sum(p.numel() for p in run.policy.parameters())


def test_exported_skills_are_those_of_evaluations() -> None:
    for space, first in ((Box(64), "c = 0"), (Sphere(3), "angle 0°"), (OneHot(5), "skill 0")):
        sweeps = exported_skills(space, 64)
        names = skill_names(space, sweeps)
        assert len(names) == sum(map(len, sweeps.values())) == min(64, len(set(names)))
        assert names[0] == first
        for name, skills in skill_sweeps(space).items():
            if name in sweeps:
                assert torch.equal(sweeps[name][: len(skills)], skills), (space, name)
    assert [len(skill_names(Box(64), exported_skills(Box(64), n))) for n in (1, 2, 8)] == [1, 2, 8]


def test_a_name_cannot_leave_its_element() -> None:
    text = page.as_json({"run": "</script><img src=x onerror=alert(1)>&"})
    assert "<" not in text
    assert "&" not in text
    assert json.loads(text)["run"].startswith("</script>")


def test_without_the_built_page_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = untrained(tmp_path / "run", "comsd", "maze-tree", skills=4)
    monkeypatch.setattr(page, "files", lambda _: tmp_path)
    with pytest.raises(comsd.InputError, match="make viewer"):
        comsd.explore(run)


@pytest.fixture
def blank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page without the viewer."""
    (tmp_path / "page.html").write_text(f"<body>{page.HOLE}</body>")
    monkeypatch.setattr(page, "files", lambda _: tmp_path)
    return tmp_path


def contents(path: Path) -> tuple[dict[str, Any], Callable[[Any], np.ndarray[Any, Any]]]:
    """The header of a page, and what unpacks its arrays."""
    text = path.read_text()
    header = json.loads(text.partition('id="run">')[2].partition("</script>")[0])
    arrays = Arrays()
    arrays.index = header["arrays"]
    arrays.block = bytearray(
        gzip.decompress(base64.b64decode(text.partition('id="arrays">')[2].partition("<")[0]))
    )
    return header["run"], lambda reference: unpack(arrays, reference["array"])


def test_a_page_holds_the_run_and_wrong_wishes_are_named(blank: Path) -> None:
    run = untrained(blank / "run", "comsd", "maze-tree", skills=4)
    wishes: list[tuple[dict[str, Any], str]] = [
        ({"skills": 0}, "skills is 0; it must be between 1 and 1000"),
        ({"skills": "many"}, "skills is 'many'; it must be"),
        ({"starts": 1}, "starts is 1; it must be at least 2"),
        ({"starts": 2.5}, "starts is 2.5; it must be"),
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"out": 7}, "out is 7; it must be a path"),
        ({"out": blank}, "it must be a file"),
        ({"report": "x"}, "report is 'x'; it must be a function"),
    ]
    for wish, said in wishes:
        with pytest.raises(comsd.InputError, match=re.escape(said)):
            comsd.explore(run, **wish)
    path = comsd.explore(run, starts=2)
    assert path == run.path / "explore.html"
    header, _ = contents(path)
    assert header["title"]["env"] == "maze-tree"
    assert header["names"] == [f"skill {i}" for i in range(4)]


def test_figures_of_the_map_are_those_of_analyse(blank: Path) -> None:
    run = untrained(blank / "run", "comsd", "hopper", skills=3)
    header, array = contents(comsd.explore(run, skills=60, starts=2, steps=40))
    keys = [measure["key"] for measure in header["measures"]]
    values = array(header["values"]).mean(-1)
    evaluator = RobotEvaluator(run, Options(2, None, 40))  # of `comsd analyse`
    evaluator.motion = True
    ordered: list[SkillFigures] = []
    for name in ("constant", "flag"):
        skills = evaluator.sweeps[name]
        rollouts = evaluator.roll_out(run.policy, skills)
        ordered += describe(name, labels(run.space, name, skills), rollouts, activity(rollouts))
    assert header["names"][: len(ordered)] == [row.skill for row in ordered]
    for name in ("akd", "height", "speed", "spin"):
        theirs = [getattr(row, name) for row in ordered]
        ours = values[keys.index(name)][: len(ordered)]
        assert np.allclose(ours, np.array(theirs, np.float32), rtol=1e-6), name
    assert array(header["recording"]["codes"]).shape[-1] == 41


# --- adapted runs ---------------------------------------------------------------------------------

SHORT: dict[str, Any] = {"preset": "smoke", "steps": 300, "evaluate_every": 10**6}
DISCRETE: dict[str, Any] = {"adapt": {"controller": "discrete"}}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("source") / "run"
    quick = {"starts": 2, "rollout_steps": 20}  # evaluations
    return comsd.pretrain("comsd", env="hopper", skills=8, run=place, **quick, **SHORT)


@pytest.fixture(scope="module")
def adapted(source: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    place = tmp_path_factory.mktemp("adapted")
    hop: dict[str, Any] = {"task": "hopper_hop", **SHORT}
    return {
        "discrete": comsd.combine(source, run=place / "discrete", **hop, **DISCRETE),
        "continuous": comsd.combine(source, run=place / "continuous", adapt={"hold": 7}, **hop),
        "tuned": comsd.finetune(source, run=place / "tuned", **hop),
        "scratch": comsd.finetune(None, run=place / "scratch", **hop),
    }


def returns_of(header: dict[str, Any], array: Callable[[Any], Any]) -> np.ndarray[Any, Any]:
    """(entries, starts)"""
    keys = [measure["key"] for measure in header["measures"]]
    assert header["axes"][1] == "return"
    return array(header["values"])[keys.index("return")]


@pytest.mark.parametrize("kind", ["discrete", "continuous", "tuned", "scratch"])
def test_returns_of_whole_episodes_are_those_of_evaluations(
    kind: str, adapted: dict[str, Run], blank: Path
) -> None:
    run = adapted[kind]
    page = comsd.explore(run, blank / "x.html", skills=1, starts=2, steps=1000)
    header, array = contents(page)
    ours = returns_of(header, array)
    evaluator = TaskEvaluator(run)
    evaluator.seed, evaluator.rollouts = 0, 2  # the starts of pages
    skill = run.selected_skill
    assert ours[0] == pytest.approx(evaluator.returns(run.policy, skill), rel=1e-6)
    if run.source and kind == "tuned":
        assert header["names"][:3] == ["tuned skill", "before tuning", "c = 0"]
        assert ours[1] == pytest.approx(evaluator.returns(run.source.policy, skill), rel=1e-6)
        assert header["adaptation"]["opening"] == [0, 1]
    assert "return in 1000 steps" in {measure["label"] for measure in header["measures"]}


@pytest.mark.parametrize(("kind", "hold"), [("discrete", 10), ("continuous", 7)])
def test_the_controller_of_a_page_chooses_as_in_its_environment(
    kind: str, hold: int, adapted: dict[str, Run], blank: Path
) -> None:
    run, choices = adapted[kind], 4
    options: dict[str, Any] = {"skills": 6, "starts": 2, "steps": choices * hold}
    header, array = contents(comsd.explore(run, blank / "x.html", **options))
    about = header["adaptation"]["controller"]
    assert (about["hold"], about["discrete"]) == (hold, kind == "discrete")
    env = run.make_env(2, 0)  # the first two starts
    assert isinstance(env, SkillEnv)
    obs, total = env.reset(), np.zeros(2)
    chosen: list[list[float]] = []
    for _ in range(choices):
        action = run.policy(obs, np.zeros(0, np.float32))
        step = env.step(action)
        chosen.append(skill_of(env, action)[0].tolist())
        obs, total = step.obs, total + step.reward
    assert array(about["choices"]).tolist() == chosen
    assert returns_of(header, array)[0] == pytest.approx(total, rel=1e-6)
    assert isinstance(env.env, RobotEnv)
    last = poses(header, array, 0)[-1]
    np.testing.assert_allclose(last, env.env.simulations.qpos[0], atol=1e-3)
    checked = array(about["checks"]["obs"]).copy()
    skills = skill_of(env, run.policy(checked, np.zeros(0, np.float32)))
    np.testing.assert_allclose(array(about["checks"]["skill"]), skills, atol=1e-6)
    assert checked.shape == (24, 15)


def skill_of(env: SkillEnv, action: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return env.space.decode(torch.from_numpy(action)).numpy() if env.decode else action


def poses(header: dict[str, Any], array: Callable[[Any], Any], entry: int) -> Any:
    """The recorded ones of an entry, (time, .)."""
    recording = header["recording"]
    codes, low, step = (array(recording[key]) for key in ("codes", "low", "step"))
    levels = (codes[0, entry] + 256 * codes[1, entry].astype(np.int64)).cumsum(-1) % 65536
    return (low[entry, :, None] + step[entry, :, None] * levels).T


def test_every_candidate_is_on_the_map_and_the_best_are_shown_first(
    adapted: dict[str, Run], blank: Path
) -> None:
    run = adapted["discrete"]
    header, array = contents(comsd.explore(run, blank / "x.html", starts=2, steps=30))
    assert isinstance(run.policy, GreedyPolicy)
    candidates = run.policy.candidates.numpy()
    k = len(candidates)
    assert header["names"] == ["controller", *(f"candidate {i}" for i in range(k))]
    assert np.array_equal(array(header["skills"])[1:], candidates)
    alone = []
    for candidate in candidates:
        env = run.make_env(2, 0)
        env.reset()
        always = candidate[None].repeat(2, 0)
        alone.append(sum(env.step(always).reward for _ in range(3)))
    ours = returns_of(header, array)
    np.testing.assert_allclose(ours[1:], alone, rtol=1e-4)
    best = 1 + np.argsort(-ours[1:].mean(1))[:3]
    assert header["adaptation"]["opening"] == [0, *best]
    assert header["effects"] == []
    assert "other starts" in header["adaptation"]["notes"][1]
    assert header["title"]["method"] == "comsd"
    assert header["adaptation"]["heading"] == "comsd's skills combined for hopper_hop"


def test_more_candidates_than_a_page_holds_are_refused(
    adapted: dict[str, Run], blank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comsd.explorer.adapted.MOST_EXPLORED", 3)
    with pytest.raises(comsd.InputError, match="all candidates of a controller, at most 3; "):
        comsd.explore(adapted["discrete"], blank / "x.html")


def half(*_: Any) -> float:
    return 0.5


def test_a_reward_of_yours_is_measured(source: Run, blank: Path) -> None:
    register_reward("half", half)
    run = comsd.finetune(source, reward="half", run=blank / "run", **SHORT)
    header, array = contents(comsd.explore(run, skills=2, starts=2, steps=40))
    assert (returns_of(header, array) == 20).all()
    assert header["adaptation"]["heading"] == "comsd fine-tuned on hopper, half"


@pytest.mark.usefixtures("sled")
@pytest.mark.parametrize("env", ["maze-tree", "Sled"])
def test_adapted_runs_of_other_environments_are_refused(env: str, blank: Path) -> None:
    register_reward("half", half)
    before = comsd.pretrain("comsd", env=env, skills=4, run=blank / "before", **SHORT)
    run = comsd.combine(before, reward="half", run=blank / "run", **SHORT)
    said = f"explore shows adapted runs of walker, quadruped, hopper, cheetah; {run.path} is a "
    with pytest.raises(comsd.InputError, match=re.escape(f"{said}combine run on {env}")):
        comsd.explore(run)


# --- environments of others -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("HalfCheetah-v5", {}),
        ("Hopper-v5", {}),
        ("Walker2d-v5", {}),
        ("Swimmer-v5", {}),
        ("Ant-v5", {}),
        ("Ant-v5", {"contact_force_range": (-0.1, 0.2)}),
        ("Ant-v5", {"exclude_current_positions_from_observation": False}),
        ("Ant-v5", {"include_cfrc_ext_in_observation": False}),
        ("Humanoid-v5", {}),
        ("HumanoidStandup-v5", {"include_cvel_in_observation": False}),
        ("InvertedPendulum-v5", {}),
        ("InvertedDoublePendulum-v5", {}),
        ("Pusher-v5", {}),
    ],
)
@pytest.mark.filterwarnings("ignore:compiler attribute")
def test_recipes_of_gymnasium_are_its_observations(name: str, options: dict[str, Any]) -> None:
    env: Any = gymnasium.make(name, **options).unwrapped
    recipe = declared_recipe(env)
    assert recipe is not None
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    for _ in range(30):
        assert np.array_equal(observe(recipe, env.data), obs.astype(np.float32))
        obs = env.step(env.action_space.sample())[0]


def test_nothing_is_known_of_other_environments() -> None:
    assert declared_recipe(gymnasium.make("Reacher-v5").unwrapped) is None
    assert declared_recipe(gymnasium.make("Pendulum-v1").unwrapped) is None


@pytest.fixture
def sled() -> type[Any]:
    register_env_file(Path(__file__).parents[1] / "examples" / "sled.py")
    make = REGISTERED["Sled"].make
    assert isinstance(make, type)
    return make


def test_an_environment_of_a_file_is_shown(sled: type[Any], blank: Path) -> None:
    run = untrained(blank / "run", "comsd", "Sled", skills=3)
    header, array = contents(comsd.explore(run, skills=6, starts=2, steps=30))
    assert header["world"]["order"] in ("mj_rnePostConstraint", "")
    assert header["world"]["substeps"] == sled.frame_skip
    assert [part["transform"] for part in header["world"]["recipe"]] == [None, "sin", "cos", None]
    assert {m["key"] for m in header["measures"]} >= {"akd", "speed", "travel", "height", "spin"}
    assert array(header["world"]["starts"]["qpos"]).shape == (2, 3)
    assert header["recording"]["lengths"] == [31] * 6


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"comsd_recipe": None}, "has no comsd_recipe, a list of comsd.Part"),
        ({"comsd_recipe": "qpos"}, "comsd_recipe is 'qpos'; it must be a list of comsd.Part"),
        ({"comsd_recipe": [Part("qpoz")]}, "the field 'qpoz'; it must be an array of mjData"),
        ({"comsd_recipe": [Part("qpos", None, "tan")]}, "transform of comsd_recipe is 'tan'"),
        ({"comsd_recipe": [Part("qpos"), Part("qvel")]}, "which has 6 numbers instead of 7"),
        (
            {"comsd_recipe": [Part("qpos"), Part("qpos", slice(1)), Part("qvel")]},
            "the first observation is not what comsd_recipe says, number 2",
        ),
        ({"frame_skip": 4.5}, "frame_skip of Changed is 4.5; it must be a whole number"),
        ({"comsd_model": None}, "does not say where its model comes from"),
        ({"comsd_model": "<mujoco"}, "the model of Changed cannot be read"),
        ({"comsd_model": "<mujoco/>"}, "is not the one that its source describes"),
        ({"model": None}, "has no model and data of MuJoCo"),
    ],
)
def test_what_a_page_lacks_is_named(
    changes: dict[str, Any], said: str, sled: type[Any], blank: Path
) -> None:
    changed = type("Changed", (sled,), changes)
    if "frame_skip" in changes:  # what the page is told, not what the environment does
        changed.step = lambda self, action: sled.step(FiveTimes(self), action)
    if "model" in changes:
        changed = type("Changed", (gymnasium.make("Pendulum-v1").unwrapped.__class__,), {})
    comsd.register_env("Changed", changed, horizon=20)
    with pytest.raises(comsd.InputError, match=re.escape(said)):
        comsd.explore(untrained(blank / "run", "comsd", "Changed", skills=3), skills=4, starts=2)


class FiveTimes:
    """An environment, but for how often it steps."""

    frame_skip = 5

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


def test_a_step_of_another_kind_is_noticed(sled: type[Any], blank: Path) -> None:
    class Doubled(sled):
        def step(self, action: Any) -> Any:
            return super().step(np.clip(2 * action, -1, 1))

    comsd.register_env("Doubled", Doubled, horizon=20)
    with pytest.raises(comsd.InputError, match=r"its step is not data.ctrl\[:\] = action"):
        comsd.explore(untrained(blank / "run", "comsd", "Doubled", skills=3), skills=4, starts=2)


def test_the_command_writes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.html").write_text(page.HOLE)
    monkeypatch.setattr(page, "files", lambda _: tmp_path)
    run, out = untrained(tmp_path / "run", "comsd", "maze-tree", skills=4), tmp_path / "out.html"
    main(["explore", str(run.path), "--out", str(out), "--starts", "2", "--no-open"])
    assert str(out) in capsys.readouterr().out
    assert out.exists()


def test_the_report_links_the_pages_there_are(tmp_path: Path) -> None:
    run = untrained(tmp_path / "smoke" / "pretrain" / "maze" / "comsd-0", "comsd", "maze-tree")
    finished = [FinishedRun("pretrain", "maze", "comsd <i>", 0, run)]
    assert explorer_links(finished, tmp_path / "report") == ""
    (run.path / "explore.html").touch()
    links = explorer_links(finished, tmp_path / "report")
    assert 'href="../smoke/pretrain/maze/comsd-0/explore.html"' in links
    assert "<i>" not in links
