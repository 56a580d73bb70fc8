"""What `comsd analyse` measures, draws and writes, and what `comsd doctor` finds."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.image
import mujoco
import numpy as np
import pytest
from PIL import Image

import comsd
from comsd import doctor
from comsd.analysis import render, video
from comsd.analysis.poses import (
    OBLIQUE,
    POSES,
    SIDE,
    PoseModel,
    colours,
    control_step,
    draw_strips,
    ellipse,
    extent,
    moments,
    stadium,
)
from comsd.analysis.skills import describe, draw_paths
from comsd.cli import main
from comsd.doctor import Finding
from comsd.envs import rendering
from comsd.envs.mujoco import HORIZON, RobotEnv
from comsd.envs.robots import ROBOTS, load_robot
from comsd.envs.specs import make_robot
from comsd.errors import InputError, RunError
from comsd.evaluation import Options, make_skill_evaluator
from comsd.evaluation import skills as skill_evaluation
from comsd.evaluation.metrics import activity, mean_states, ms_coverage
from comsd.evaluation.rollouts import Rollouts, roll_out
from comsd.evaluation.skills import RobotEvaluator
from comsd.files import Folder
from comsd.runs import Run
from comsd.skill_sets import IDENTIFIED, RANDOM_SKILLS, SWEEP_SIZE, labels, skill_sweeps
from comsd.skills import Box, OneHot, SkillSpace, Sphere
from comsd.types import PolicyFn
from processes import SMALL


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return comsd.pretrain("comsd", run=tmp_path_factory.mktemp("analysis") / "run", **SMALL)


@pytest.fixture(scope="module")
def analysis(run: Run) -> comsd.Analysis:
    return comsd.analyse(run)


# --- what is measured -----------------------------------------------------------------------------


def lie_still(name: str, length: int = 400) -> Rollouts:
    """No torques: the robot falls and rests; the second half, from two starts."""
    env = make_robot(name, [0, 1], motion=True)
    x = env.readings

    def watch() -> dict[str, np.ndarray]:
        robot = env.robot
        shown = robot.height(x), robot.speed(x), robot.spin(x)
        return {"qpos": x["qpos"]} | dict(zip(("height", "speed", "spin"), shown, strict=True))

    still = np.zeros((2, env.action_dim), np.float32)
    whole = roll_out(env, lambda _: still, 1, length, watch=watch)
    half = length // 2
    assert whole.positions is not None
    watched = {key: values[:, :, half:] for key, values in whole.watched.items()}
    return Rollouts(
        whole.obs[:, :, half:], whole.length - half, whole.positions[:, :, half:], watched
    )


def test_a_robot_that_lies_still_is_not_active() -> None:
    rollouts = lie_still("walker")
    (row,) = describe("constant", ["c = 0"], rollouts, activity(rollouts))
    assert (row.sweep, row.skill) == ("constant", "c = 0")
    assert 0 <= row.akd < 0.2
    assert row.height is not None
    assert 0 < row.height < 0.5
    assert row.speed == pytest.approx(0, abs=0.05)
    assert row.spin == pytest.approx(0, abs=0.05)
    assert row.travel == pytest.approx(0, abs=0.3)


def test_the_rows_are_means_over_roll_outs_and_starts() -> None:
    states, length = np.zeros((2, 2, 20, 1), np.float32), np.full((2, 2), 20)
    ramp = np.zeros((2, 2, 20))
    ramp[1, 0], ramp[1, 1] = np.arange(20.0), np.arange(20.0) + 2
    places = np.zeros((2, 2, 21, 2))
    places[1, 0, -1], places[1, 1, -1] = (3, 4), (6, 8)
    watched = {"height": ramp, "speed": -ramp, "spin": 2 * ramp}
    rows = describe(
        "flag",
        ["a", "b"],
        Rollouts(states, length, places, watched),
        np.array([[0.0, 0], [2, 6]]),
    )
    assert (rows[0].akd, rows[0].akd_sd, rows[0].travel) == (0, 0, 0)
    assert (rows[1].akd, rows[1].travel) == (4, 7.5)
    assert rows[1].akd_sd == pytest.approx(np.sqrt(8))
    assert (rows[1].height, rows[1].speed, rows[1].spin) == (10.5, -10.5, 21)
    (row, _) = describe("flag", ["a", "b"], Rollouts(states, length, None), np.ones((2, 2)))
    assert (row.travel, row.height, row.speed, row.spin) == (None, None, None, None)


def thrown(name: str, velocity: Sequence[float], qpos: Sequence[float] | None = None) -> RobotEnv:
    """A robot high in the air whose first degrees of freedom move as given."""
    env = make_robot(name, [0], motion=True)

    def throw(_: int, data: mujoco.MjData) -> None:
        if qpos is not None:
            data.qpos[: len(qpos)] = qpos
        data.qvel[: len(velocity)] = velocity
        mujoco.mj_forward(env.robot.model, data)

    env.simulations.begin(throw, [0])
    return env


@pytest.mark.parametrize("name", ["walker", "hopper", "cheetah"])
def test_speed_and_spin_of_planar_robots(name: str) -> None:
    model = load_robot(name).model
    forwards, turning = np.zeros(model.nv), np.zeros(model.nv)
    forwards[model.joint("rootx").dofadr[0]] = 2
    turning[model.joint("rooty").dofadr[0]] = 1
    env = thrown(name, forwards.tolist())
    assert env.robot.speed(env.readings) == pytest.approx([2])
    assert env.robot.spin(env.readings) == pytest.approx([0], abs=1e-9)
    env = thrown(name, turning.tolist())
    assert env.robot.spin(env.readings)[0] > 0  # rolling forwards
    expected = env.readings["xpos"][0, model.body("torso").id, 2]
    assert env.robot.height(env.readings) == pytest.approx([expected])


def test_speed_and_spin_of_the_quadruped_on_its_side() -> None:
    """Rolled by a quarter turn, the world's vertical is an axis of the torso's plane."""
    half = np.sqrt(0.5)
    pose = [0, 0, 3, half, half, 0, 0]  # rolled about x
    # A free joint's angular velocity is in the body's frame: y of it is the world's z.
    env = thrown("quadruped", [1.5, 0, 0, 0, 0.7, 0], pose)
    assert env.robot.height(env.readings) == pytest.approx([3])
    assert env.robot.speed(env.readings)[0] == pytest.approx(1.5, abs=0.2)
    assert env.robot.spin(env.readings) == pytest.approx([0.7])


def test_the_figures_equal_direct_computation(run: Run, analysis: comsd.Analysis) -> None:
    evaluator = RobotEvaluator(run)
    for name, skills in skill_sweeps(run.space).items():
        rollouts = evaluator.roll_out(run.policy, skills)
        active = activity(rollouts).mean(1)
        rows = [row for row in analysis.skills if row.sweep == name]
        assert [row.akd for row in rows] == active.tolist()
        assert analysis.metrics[f"akd_max_{name}"] == active.max()
        assert analysis.metrics[f"akd_range_{name}"] == np.ptp(active)
        assert analysis.metrics[f"akd_variance_{name}"] == pytest.approx(active.var())
        assert analysis.metrics[f"ms_coverage3_{name}"] == ms_coverage(mean_states(rollouts))
    assert analysis.metrics == evaluator.measure(run.policy).values


def test_starts_are_the_same_for_all_skills_and_differ(run: Run) -> None:
    evaluator = RobotEvaluator(run)
    env, _ = evaluator.make_env(3, 2)
    obs = env.reset().reshape(3, 2, -1)
    assert (obs == obs[0]).all()
    assert (obs[:, 0] != obs[:, 1]).any()


def test_motion_is_copied_at_every_step(run: Run) -> None:
    """The simulator overwrites its readings."""
    evaluator = RobotEvaluator(run)
    evaluator.motion = True
    watched = evaluator.roll_out(run.policy, skill_sweeps(run.space)["constant"][:2]).watched
    for name in ("height", "speed", "spin"):
        assert watched[name].shape == (2, evaluator.starts, evaluator.steps)
        assert (watched[name].std(2) > 1e-6).all()
    assert (watched["qpos"].std(2) > 1e-6).any(-1).all()


def test_every_set_of_skills_is_rolled_out_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rolled: list[tuple[int, int | None]] = []

    def counted(
        env: RobotEnv, policy_fn: PolicyFn, skills: int, length: int, **options: Any
    ) -> Any:
        rolled.append((skills, length))
        return roll_out(env, policy_fn, skills, length, **options)

    monkeypatch.setattr(skill_evaluation, "roll_out", counted)
    comsd.evaluate(run)
    steps = run.config.run.rollout_steps
    assert rolled.count((SWEEP_SIZE, steps)) == 2  # constant, flag
    assert rolled.count((RANDOM_SKILLS, steps)) == 7 + 3  # flags; skills, untrained, random
    assert rolled.count((IDENTIFIED, steps)) == 3
    evaluator = RobotEvaluator(run)
    made = sum(skills * length * evaluator.starts for skills, length in rolled if length)
    assert made == evaluator.planned_steps


def test_random_actions_are_independent_between_roll_outs(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline of identification: a sequence per skill would be identified by itself."""
    taken: list[np.ndarray] = []

    def recorded(env: RobotEnv, policy_fn: PolicyFn, *args: Any, **options: Any) -> Any:
        def act(obs: np.ndarray) -> np.ndarray:
            taken.append(policy_fn(obs))
            return taken[-1]

        return roll_out(env, act, *args, **options)

    monkeypatch.setattr(skill_evaluation, "roll_out", recorded)
    evaluator = RobotEvaluator(run)
    evaluator.identify(None)
    evaluator.identify(None)
    rows = IDENTIFIED * evaluator.starts
    assert taken[0].shape == (rows, 4)
    assert len(np.unique(np.concatenate(taken), axis=0)) == len(taken) * rows


@pytest.mark.parametrize(
    ("space", "sweep", "expected"),
    [
        (Box(3), "constant", ["c = 0", "c = 0.1", "c = 1"]),
        (Box(3), "flag", ["z1 = 0", "z1 = 0.1", "z1 = 1"]),
        (Box(3), "random", ["random 1", "random 2", "random 12"]),
        (OneHot(16), "constant", ["skill 0", "skill 1", "skill 10"]),
        (Sphere(3), "constant", ["angle 0°", "angle 33°", "angle 327°"]),
    ],
)
def test_names_of_skills(space: SkillSpace, sweep: str, expected: list[str]) -> None:
    names = labels(space, sweep, skill_sweeps(space)[sweep])
    assert [names[0], names[1], names[-1]] == expected


# --- what is drawn --------------------------------------------------------------------------------


def test_a_known_pose_has_known_ends() -> None:
    """Walker's torso: a capsule of half-length 0.3 at x = 0, z = 1.3, then pitched forwards."""
    poses = PoseModel(load_robot("walker"))
    torso = poses.model.geom("torso").id
    slide, turn = (poses.model.joint(n).qposadr[0] for n in ("rootx", "rooty"))
    qpos = np.zeros(poses.model.nq)
    poses.set_pose(qpos)
    assert poses.ends(torso)[:, [0, 2]] == pytest.approx(np.array([[0, 1.0], [0, 1.6]]))
    qpos[slide], qpos[turn] = 5, np.pi / 2
    poses.set_pose(qpos)
    assert poses.ends(torso)[:, [0, 2]] == pytest.approx(np.array([[4.7, 1.3], [5.3, 1.3]]))


def test_a_pose_stays_in_its_place_and_shows_the_torso() -> None:
    poses = PoseModel(load_robot("walker"))
    qpos = np.zeros(poses.model.nq)
    here = poses.pose(qpos)
    qpos[poses.model.joint("rootx").qposadr[0]] = 100
    there = poses.pose(qpos)
    assert np.concatenate([o.points for o in here]) == pytest.approx(
        np.concatenate([o.points for o in there])
    )
    assert [o.torso for o in here].count(True) == 1
    depths = [o.depth for o in here]
    assert depths == sorted(depths, reverse=True)  # what is nearest is drawn last
    shades = colours(here)
    assert len(set(shades)) == 3  # torso, the leg on this side, the other
    low, high = extent([here])
    assert low[1] == pytest.approx(0, abs=0.05)
    assert high[1] == pytest.approx(1.67, abs=0.01)  # 1.6 and the radius of the torso


def test_a_stadium_is_round_at_both_ends() -> None:
    points = stadium(np.array([0.0, 0.0]), np.array([3.0, 4.0]), 0.5)
    along = points @ [0.6, 0.8]
    across = points @ [-0.8, 0.6]
    assert along.min() == pytest.approx(-0.5, abs=0.01)
    assert along.max() == pytest.approx(5.5, abs=0.01)
    assert np.abs(across).max() == pytest.approx(0.5, abs=0.01)


def test_an_ellipsoid_seen_from_the_side_is_its_own_ellipse() -> None:
    points = ellipse(SIDE[:2] * [0.3, 0.27, 0.2])
    assert np.abs(points).max(0) == pytest.approx([0.3, 0.2])
    ball = ellipse(OBLIQUE[:2] * 0.4)
    assert np.linalg.norm(ball, axis=1) == pytest.approx(np.full(len(ball), 0.4))


def test_views() -> None:
    assert pytest.approx(np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0]])) == SIDE
    assert pytest.approx(np.eye(3)) == OBLIQUE @ OBLIQUE.T
    assert PoseModel(load_robot("walker")).view is SIDE
    assert PoseModel(load_robot("quadruped")).view is OBLIQUE


@pytest.mark.parametrize("name", ROBOTS)
def test_strips_of_every_robot(name: str) -> None:
    machine = load_robot(name)
    when = moments(machine, HORIZON)
    assert len(when) == POSES
    assert when[-1] < HORIZON
    assert np.diff(when * control_step(machine)) == pytest.approx(0.15, abs=0.011)
    assert moments(machine, 60)[-1] < 60  # a short roll-out: poses are nearer to each other
    still = np.repeat(lie_still(name, 40).watched["qpos"][0, :1, -1:], HORIZON, 1)
    akd = np.array([[1.0, 1.0], [2.0, 3.0]])
    figure = draw_strips(machine, still.repeat(2, 0), ["one", "two"], akd, "title")
    written = [text.get_text() for text in figure.axes[0].texts]
    assert {"one", "AKD 1.0 ± 0.0", "two", "AKD 2.5 ± 0.7", "0.00", "title"} <= set(written)
    poses = [c for c in figure.axes[0].collections if len(c.get_paths()) > 1]
    assert len(poses) == 2 * POSES
    assert all(len(c.get_paths()) == machine.model.ngeom - 1 for c in poses)  # all but the floor


# --- what is written ------------------------------------------------------------------------------


def test_the_files(run: Run, analysis: comsd.Analysis) -> None:
    folder = run.path / "analysis"
    names = {"analysis.json", "skills.csv", "analysis.png", "strips.png", "trajectories.png"}
    assert {path.name for path in folder.iterdir()} == names == set(analysis.files)
    for name in ("analysis.png", "strips.png", "trajectories.png"):
        picture = matplotlib.image.imread(folder / name)
        assert picture.std() > 0.05  # not blank
    record = json.loads((folder / "analysis.json").read_text())
    assert record["metrics"] == analysis.metrics
    assert len(record["skills"]) == 2 * SWEEP_SIZE + RANDOM_SKILLS
    assert record["random"].keys() == record["untrained"].keys()
    assert {"identification", "state_coverage", "xy_coverage"} <= record["random"].keys()
    with (folder / "skills.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, figures in zip(rows, analysis.skills, strict=True):
        assert (row["sweep"], row["skill"]) == (figures.sweep, figures.skill)
        assert float(row["akd"]) == figures.akd
        assert float(row["spin"]) == figures.spin


@pytest.mark.parametrize(
    ("env", "space", "skills"), [("quadruped", "sphere", 3), ("cheetah", "one-hot", 16)]
)
def test_other_robots_and_spaces(
    env: str, space: str, skills: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = f"--preset smoke --steps 300 --space {space} --skills {skills} --run {tmp_path}/run"
    main(f"pretrain comsd --env {env} {settings}".split())
    main(f"analyse {tmp_path}/run --json --sweep random --out {tmp_path}/deep/out".split())
    record = json.loads(capsys.readouterr().out)
    expected = ["constant"] * SWEEP_SIZE + ["random"] * RANDOM_SKILLS
    assert [row["sweep"] for row in record["skills"]] == expected
    assert (tmp_path / "deep" / "out" / "strips.png").exists()
    assert not (tmp_path / "run" / "analysis").exists()


def test_the_command_prints_tables(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    main(["analyse", str(run.path)])
    out = capsys.readouterr().out
    for word in ("2 starts per skill", "akd range", "flag sweep", "z1 = 0.3", "spin, kg m²/s"):
        assert word in out
    assert f"written: {run.path / 'analysis' / 'strips.png'}" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("analyse", "RUN is missing"),
        ("analyse nowhere", "nowhere is not a run directory"),
        ("analyse nowhere --vdeo", "(did you mean '--video'?)"),
        ("analyse RUN --out", "--out needs a value"),
        ("analyse RUN --out FILE", "FILE cannot be created: File exists"),
        ("analyse RUN --xy 0", "--xy is '0'; it must be two numbers such as 0,1, or a name"),
        ("analyse RUN --sweep flog", "sweep is 'flog' (did you mean 'flag'?)"),
        ("doctor me", "`comsd doctor` takes none"),
    ],
)
def test_bad_input_is_one_sentence(
    words: str, expected: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SystemExit) as stop:
        main(
            words.replace("RUN", str(run.path), words.count("RUN "))
            .replace("FILE", str(file))
            .split()
        )
    err = capsys.readouterr().err
    assert stop.value.code == 2
    assert expected.replace("FILE", str(file)) in err
    assert err.count("\n") == 1


def test_a_maze_is_analysed_inside_its_walls(tmp_path: Path) -> None:
    maze = comsd.pretrain("comsd", env="maze-tree", preset="smoke", skills=3, run=tmp_path / "run")
    found = comsd.analyse(maze, starts=3)
    assert [row.skill for row in found.skills] == [f"skill {i}" for i in range(3)]  # once each
    assert found.skills[0].height is None
    assert set(found.files) == {"skills.csv", "analysis.png", "trajectories.png", "analysis.json"}
    assert found.metrics["xy_coverage"] > 1
    header = found.files["skills.csv"].read_text().splitlines()[0]
    assert header == "sweep,skill,akd,akd_sd,travel"
    with pytest.raises(InputError, match="video is for our robots"):
        comsd.analyse(maze, video=True)


def test_a_picture_has_one_title(run: Run) -> None:
    evaluator = make_skill_evaluator(run, Options(2, 2, 5))
    (axes,) = draw_paths(evaluator, "constant", "the title").axes
    assert [axes.get_title(where) for where in ("left", "center", "right")] == ["the title", "", ""]


# --- video: all but OpenGL itself -----------------------------------------------------------------


def solid(*colour: int) -> np.ndarray:
    return np.full((40, 60, 3), colour, np.uint8)


def test_a_grid_of_pictures() -> None:
    sheet = render.grid([solid(10 * i, 0, 0) for i in range(5)], [""] * 5)
    assert sheet.shape == (2 * 40 + render.GAP, 3 * 60 + 2 * render.GAP, 3)
    assert sheet[20, 30].tolist() == [0, 0, 0]
    assert sheet[20, 30 + 2 * (60 + render.GAP)].tolist() == [20, 0, 0]
    assert sheet[20 + 40 + render.GAP, 30].tolist() == [30, 0, 0]
    assert sheet[-1, -1].tolist() == [255, 255, 255]  # no sixth skill
    labelled = render.grid([solid(0, 0, 0)], ["c = 0"])
    assert labelled[:20].max() > 200  # white letters


@pytest.mark.parametrize("kind", ["mp4", "gif"])
def test_films(kind: str, tmp_path: Path) -> None:
    film = tmp_path / f"skills.{kind}"
    render.write(film, (render.grid([solid(20 * i, 0, 0)], ["x"]) for i in range(6)), fps=20)
    if kind == "gif":
        with Image.open(film) as picture:
            assert getattr(picture, "n_frames", 1) == 6
            assert picture.size == (60, 40)
    else:
        assert film.read_bytes()[4:8] == b"ftyp"


def test_no_video_without_opengl(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "problem", lambda _: "none here")
    with pytest.raises(RunError, match="no video: OpenGL does not work here; `comsd doctor`"):
        comsd.analyse(run, video=True, out=tmp_path)
    assert (tmp_path / "strips.png").exists()  # the rest is there


def test_a_failing_renderer_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video, "first_working", lambda: "egl")
    monkeypatch.setattr(rendering, "environment", lambda _: {"MUJOCO_GL": "disable"})
    with pytest.raises(RunError, match="no video: rendering failed: "):
        video.write_video("walker", np.zeros((1, 9, 9)), ["c = 0"], 0.025, Folder(tmp_path), print)
    assert list(tmp_path.iterdir()) == []


def test_the_backend_is_the_users_or_the_first_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "problem", lambda backend: None if backend == "osmesa" else "no")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    assert rendering.first_working() == "osmesa"
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    assert rendering.first_working() is None
    assert rendering.environment("egl")["MUJOCO_GL"] == "egl"


# --- doctor ---------------------------------------------------------------------------------------


def test_a_backend_that_cannot_work_says_why() -> None:
    answer = rendering.problem("nonsense")
    assert answer is not None
    assert "MUJOCO_GL" in answer
    assert "\n" not in answer


def test_doctor_lists_what_there_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"egl": None}
    monkeypatch.setattr(rendering, "problem", lambda backend: found.get(backend, "no library"))
    main(["doctor"])
    out = capsys.readouterr().out
    for word in ("torch", "mujoco", "egl", "osmesa", "glfw", "tensorboard", "video", "C++", "CUDA"):
        assert word in out
    assert "libosmesa6" in out
    assert "libegl1" not in out  # it works


def test_only_what_is_essential_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = Finding("OpenGL", False, "none", "install it")
    monkeypatch.setattr(doctor, "CHECKS", [lambda: missing])
    main(["doctor"])
    broken = Finding("simulation", False, "no", "install it", essential=True)
    monkeypatch.setattr(doctor, "CHECKS", [lambda: missing, lambda: broken])
    with pytest.raises(SystemExit) as stop:
        main(["doctor"])
    assert stop.value.code == 1
    assert "cannot work here: simulation" in capsys.readouterr().err
