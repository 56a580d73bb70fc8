"""Pictures: that they show the same skills in the same colours, and say what their axes are."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

import comsd
from comsd.analysis.poses import draw_strips
from comsd.envs.gym import GymEnv
from comsd.envs.maze import MAZES, MazeEnv
from comsd.envs.mujoco import HORIZON
from comsd.envs.robots import load_robot
from comsd.envs.skills import SkillEnv
from comsd.envs.specs import make_robot
from comsd.evaluation import Options, make_skill_evaluator
from comsd.evaluation.pictures import skill_colours, sweep_colours
from comsd.evaluation.rollouts import position_axes
from comsd.reproduction.behaviour import PAPER, UNLEARNED, draw
from comsd.reproduction.figures import draw_steps, panels
from comsd.reproduction.run_page import curves
from comsd.reproduction.statistics import summarise
from comsd.skill_sets import FLAGS, labels, skill_sweeps
from comsd.skills import OneHot, Sphere
from processes import SMALL


def test_labels_of_strips_are_inside_the_picture() -> None:
    machine = load_robot("walker")
    still = np.zeros((1, HORIZON, machine.model.nq))
    figure = draw_strips(machine, still, ["angle 327°"], np.array([[90.0, 110.0]]), "title")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in figure.axes[0].texts]
    assert all(box.x0 > 0 and box.x1 < figure.bbox.width for box in boxes)


def test_one_skill_has_one_colour() -> None:
    space = OneHot(16)
    shown = {
        name: dict(
            zip(labels(space, name, skills), sweep_colours(space, name, skills), strict=True)
        )
        for name, skills in skill_sweeps(space).items()
    }
    for name in shown["constant"].keys() & shown["random"].keys():
        assert shown["constant"][name] == shown["random"][name]
    for n in (10, 16, 64):
        assert len(set(skill_colours(n))) == n
    assert skill_colours(16)[:10] == skill_colours(10)


def test_the_first_direction_is_next_to_the_last() -> None:
    circle = skill_sweeps(Sphere(3))["constant"]
    colours = np.array(sweep_colours(Sphere(3), "constant", circle))
    apart = np.linalg.norm(colours[:, None] - colours, axis=-1)
    assert apart[0, -1] < 0.7 < apart[0, 5]


def test_both_panels_of_an_evaluation_show_the_same_skills(tmp_path: Path) -> None:
    evaluator = make_skill_evaluator(
        comsd.pretrain("comsd", run=tmp_path / "run", **SMALL), Options(2, 2, 5)
    )
    bars, paths, along = evaluator.figure().axes
    assert bars.get_title() == "flag sweep: activity, SD over starts"
    assert paths.get_title() == "flag sweep: trajectories"
    assert "along the flag" in along.get_title()
    handles, names = paths.get_legend_handles_labels()
    assert names == [label.get_text() for label in bars.get_xticklabels()]
    drawn = [bar.get_facecolor()[:3] for bar in bars.patches if isinstance(bar, Rectangle)]
    assert drawn == [to_rgb(line.get_color()) for line in handles if isinstance(line, Line2D)]


@pytest.mark.parametrize(("name", "second"), [("hopper", "z [m]"), ("quadruped", "y [m]")])
def test_axes_of_robots_are_in_metres(name: str, second: str) -> None:
    env = make_robot(name, [0])
    assert position_axes(env) == ("x [m]", second)
    wrapped = SkillEnv(env, lambda *_: lambda obs: obs, OneHot(2))
    assert position_axes(wrapped) == ("x [m]", second)


def test_axes_of_others() -> None:
    walker = GymEnv(lambda: gymnasium.make("Walker2d-v5"), [0], 5, "Walker2d-v5")
    assert position_axes(walker) == ("x [m]", "z [m]")
    assert position_axes(walker, (3, 0)) == ("observation 3", "observation 0")
    assert position_axes(MazeEnv(MAZES["tree"], 1, 0)) == ("x", "y")


# --- reports --------------------------------------------------------------------------------------


def test_the_figure_of_behaviour_explains_its_marks_and_clips_nothing() -> None:
    arm = "comsd"
    values = {f"A({flag:g})": 7 + flag for flag in FLAGS} | {"AKD maximum": 9.0}
    values |= {"identification": 0.0} | dict.fromkeys(UNLEARNED.values(), 0.0)
    cells = [
        summarise(f"walker: {row}", arm, [value], (9.5, None) if "max" in row else (None, None))
        for row, value in values.items()
    ]
    figure = draw(["walker"], [arm], cells)
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == [PAPER, "untrained policy", "random actions"]
    panel = {axes.get_title(): axes for axes in figure.axes}
    assert panel["walker: A(f)"].get_ylim()[1] > 8.2
    assert panel["walker: identification"].get_ylim() == (0, 1)


def test_steps_are_read_as_steps() -> None:
    figure, (axes,) = panels(1, 1, 3, 3)
    axes.plot([0, 800], [0, 1])
    draw_steps(axes)
    FigureCanvasAgg(figure).draw()
    assert "800" in [label.get_text() for label in axes.get_xticklabels()]
    assert axes.xaxis.get_offset_text().get_text() == ""
    axes.plot([0, 100_000], [0, 1])
    FigureCanvasAgg(figure).draw()
    assert "100k" in [label.get_text() for label in axes.get_xticklabels()]


def test_the_curves_of_a_run_say_what_is_along(tmp_path: Path) -> None:
    figure = curves(comsd.pretrain("comsd", run=tmp_path / "run", **SMALL))
    assert figure is not None
    assert {axes.get_xlabel() for axes in figure.axes} == {"environment steps"}
