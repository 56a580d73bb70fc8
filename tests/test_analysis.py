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
from comsd.analysis.robots import Motion, describe, labels, record_motion, skill_motion
from comsd.cli import main
from comsd.doctor import Finding
from comsd.envs import rendering
from comsd.envs.mujoco import HORIZON, RobotEnv
from comsd.envs.robots import ROBOTS, load_robot
from comsd.envs.specs import make_robot
from comsd.errors import InputError, RunError
from comsd.evaluation import robots as robot_evaluation
from comsd.evaluation.robots import (
    IDENTIFIED,
    SWEEP_SIZE,
    RobotEvaluator,
    akd,
    ms_coverage,
    skill_sweeps,
)
from comsd.files import Folder
from comsd.runs import Run
from comsd.skills import Box, OneHot, SkillSpace, Sphere
from comsd.training.rollout import PolicyFn, rollout
from processes import SMALL


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return comsd.pretrain("comsd", run=tmp_path_factory.mktemp("analysis") / "run", **SMALL)


@pytest.fixture(scope="module")
def analysis(run: Run) -> comsd.Analysis:
    return comsd.analyse(run)


# --- what is measured -----------------------------------------------------------------------------


def lie_still(name: str, length: int = 400) -> Motion:
    """No torques: the robot falls and rests."""
    env = make_robot(name, [0], motion=True)
    motion = record_motion(env, lambda _: np.zeros((1, env.action_dim), np.float32), length)
    return Motion(*(column[:, length // 2 :] for column in vars(motion).values()))


def test_a_robot_that_lies_still_is_not_active() -> None:
    (row,) = describe("constant", ["c = 0"], lie_still("walker"))
    assert (row.sweep, row.skill) == ("constant", "c = 0")
    assert 0 <= row.akd < 0.2
    assert 0 < row.height < 0.5
    assert row.speed == pytest.approx(0, abs=0.05)
    assert row.spin == pytest.approx(0, abs=0.05)


def test_the_rows_are_means_over_the_roll_out() -> None:
    states = np.zeros((2, 20, 1), np.float32)
    states[1, :, 0] = np.arange(20)
    ramp = np.stack([np.zeros(20), np.arange(20.0)])
    rows = describe("flag", ["a", "b"], Motion(states, np.zeros((2, 20, 1)), ramp, -ramp, 2 * ramp))
    assert rows[0].akd == 0
    assert rows[1].akd == pytest.approx(akd(states)[1])
    assert (rows[1].height, rows[1].speed, rows[1].spin) == (9.5, -9.5, 19)


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
        states = evaluator.states(run.policy, skills, seed=0)
        activity = akd(states)
        rows = [row for row in analysis.skills if row.sweep == name]
        assert [row.akd for row in rows] == activity.tolist()
        assert analysis.metrics[f"akd_max_{name}"] == activity.max()
        assert analysis.metrics[f"akd_range_{name}"] == np.ptp(activity)
        assert analysis.metrics[f"akd_variance_{name}"] == pytest.approx(activity.var())
        assert analysis.metrics[f"ms_coverage3_{name}"] == ms_coverage(states)
    metrics = evaluator.evaluate(run.policy)
    metrics.pop("identification")
    assert analysis.metrics == metrics


def test_motion_is_copied_at_every_step(run: Run) -> None:
    """The simulator overwrites its readings."""
    motion = skill_motion("hopper", run.policy, skill_sweeps(run.space)["constant"][:2])
    for series in (motion.height, motion.speed, motion.spin):
        assert series.shape == (2, HORIZON)
        assert (series.std(1) > 1e-6).all()
    assert (motion.qpos.std(1) > 1e-6).any(1).all()


def test_every_sweep_is_rolled_out_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rolled: list[tuple[int, int | None]] = []

    def counted(env: RobotEnv, policy_fn: PolicyFn, length: int | None, **options: Any) -> Any:
        rolled.append((env.num_envs, length))
        return rollout(env, policy_fn, length, **options)

    monkeypatch.setattr(robot_evaluation, "rollout", counted)
    comsd.evaluate(run)
    sweeps = skill_sweeps(run.space)
    assert rolled.count((SWEEP_SIZE, None)) == 2 * len(sweeps)  # skills, random actions


def test_random_actions_are_drawn_anew_for_every_roll_out(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline of identification: a sequence per skill would be identified by itself."""
    taken: list[np.ndarray] = []

    def recorded(env: RobotEnv, policy_fn: PolicyFn, _: int | None, **options: Any) -> Any:
        for step in rollout(env, policy_fn, 5, **options):
            taken.append(step.action)
            yield step

    monkeypatch.setattr(robot_evaluation, "rollout", recorded)
    evaluator = RobotEvaluator(run)
    evaluator.identify(None)
    assert len(taken) == 5 * evaluator.rollouts
    assert taken[0].shape == (IDENTIFIED, 4)
    assert len(np.unique(np.concatenate(taken), axis=0)) == len(taken) * IDENTIFIED


@pytest.mark.parametrize(
    ("space", "sweep", "expected"),
    [
        (Box(3), "constant", ["c = 0", "c = 0.1", "c = 1"]),
        (Box(3), "flag", ["z1 = 0", "z1 = 0.1", "z1 = 1"]),
        (Box(3), "random", ["random 1", "random 2", "random 11"]),
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
    still = np.repeat(lie_still(name, 40).qpos[:, -1:], HORIZON, 1)
    figure = draw_strips(machine, still.repeat(2, 0), ["one", "two"], np.array([1.0, 2.5]), "title")
    written = [text.get_text() for text in figure.axes[0].texts]
    assert {"one", "AKD 1.00", "two", "AKD 2.50", "0.00", "title"} <= set(written)
    poses = [c for c in figure.axes[0].collections if len(c.get_paths()) > 1]
    assert len(poses) == 2 * POSES
    assert all(len(c.get_paths()) == machine.model.ngeom - 1 for c in poses)  # all but the floor


# --- what is written ------------------------------------------------------------------------------


def test_the_files(run: Run, analysis: comsd.Analysis) -> None:
    folder = run.path / "analysis"
    names = {"analysis.json", "skills.csv", "analysis.png", "strips.png"}
    assert {path.name for path in folder.iterdir()} == names == set(analysis.files)
    for name in ("analysis.png", "strips.png"):
        picture = matplotlib.image.imread(folder / name)
        assert picture.std() > 0.05  # not blank
    record = json.loads((folder / "analysis.json").read_text())
    assert record["metrics"] == analysis.metrics
    assert len(record["skills"]) == 3 * SWEEP_SIZE
    with (folder / "skills.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, figures in zip(rows, analysis.skills, strict=True):
        assert (row["sweep"], row["skill"]) == (figures.sweep, figures.skill)
        assert float(row["akd"]) == figures.akd
        assert float(row["spin"]) == figures.spin


@pytest.mark.parametrize(("env", "space"), [("quadruped", "sphere"), ("cheetah", "one-hot")])
def test_other_robots_and_spaces(
    env: str, space: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = f"--preset smoke --steps 300 --space {space} --skills 3 --run {tmp_path}/run"
    main(f"pretrain comsd --env {env} {settings}".split())
    main(f"analyse {tmp_path}/run --json --sweep random --out {tmp_path}/deep/out".split())
    record = json.loads(capsys.readouterr().out)
    grid = 3 if space == "one-hot" else SWEEP_SIZE
    assert [row["sweep"] for row in record["skills"]] == ["constant"] * grid + ["random"] * grid
    assert (tmp_path / "deep" / "out" / "strips.png").exists()
    assert not (tmp_path / "run" / "analysis").exists()


def test_the_command_prints_tables(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    main(["analyse", str(run.path)])
    out = capsys.readouterr().out
    for word in ("akd range", "ms coverage3", "flag sweep", "z1 = 0.3", "spin, kg m²/s"):
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


def test_a_maze_is_for_evaluate(tmp_path: Path) -> None:
    maze = comsd.pretrain("comsd", env="maze-tree", preset="smoke", skills=3, run=tmp_path / "run")
    with pytest.raises(InputError, match=r"analyse is for the skills of robots .* `comsd evaluate"):
        comsd.analyse(maze)
    assert not (tmp_path / "run" / "analysis").exists()


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
