"""One HTML file in which a run's robot acts: the built page of viewer/ and the run's data."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch

from comsd.errors import InputError
from comsd.evaluation.base import Options
from comsd.explorer.arrays import Arrays, pack_frames
from comsd.explorer.mazes import MazeWorld
from comsd.explorer.measures import (
    Measured,
    World,
    dimension_effects,
    exported_skills,
    measure,
    planned_steps,
    skill_names,
)
from comsd.explorer.policy import policy_graph
from comsd.explorer.robots import RobotWorld
from comsd.files import Folder
from comsd.runs import Run
from comsd.runs.provenance import provenance
from comsd.training.logger import Progress

HOLE = "<!--run-->"


def page_template() -> str:
    """The built page, which is no part of the sources."""
    page = files("comsd.explorer") / "page.html"
    if not page.is_file():
        raise InputError(
            "the page of the explorer is not built: `make viewer` in the repository builds it, "
            "and the wheel of comsd contains it"
        )
    return page.read_text(encoding="utf-8")


def world_of(run: Run, options: Options) -> World:
    if not run.pretrains:
        raise InputError(
            f"explore is for pre-trained skills and {run.path} is a run of {run.config.run.stage}"
        )
    if run.spec.families[0] == "robots":
        return RobotWorld(run, options)
    if run.spec.families[0] == "maze":
        return MazeWorld(run, options)
    from comsd.envs.gym import GymEnv  # slow to import
    from comsd.explorer.foreign import ForeignWorld

    env = run.make_env(1, 0)
    assert isinstance(env, GymEnv)
    return ForeignWorld(run, env, options)


def run_data(
    run: Run, skills: int, options: Options, arrays: Arrays, report: Callable[[str], None]
) -> dict[str, Any]:
    settings, policy = run.config.run, run.policy
    graph = policy_graph(policy, arrays)  # first: it says what cannot be shown
    world = world_of(run, options)
    sweeps = exported_skills(run.space, skills)
    z = torch.cat([*sweeps.values()])
    evaluator, versions = world.evaluator, provenance()
    report(f"{len(z)} skills from {evaluator.starts} starts, {evaluator.steps} steps each")
    with Progress(planned_steps(world, run.space, len(z)), 0, {}, report) as progress:
        evaluator.tick = progress.count
        measured = measure(world, policy, sweeps)
        effects = dimension_effects(world, policy, run.space, measured.spread)
    return {
        "title": {
            "method": settings.method,
            "env": settings.env,
            "seed": settings.seed,
            "step": run.used_step,
            "run": run.path.resolve().name,
        },
        "versions": {
            "comsd": versions["comsd"],
            "mujoco": mujoco.__version__,
            "torch": torch.__version__,
        },
        "space": {"kind": run.space.kind, "dim": run.space.dim},
        "dt": world.dt,
        "horizon": run.spec.horizon,
        "ends": world.ends,
        "policy": graph,
        "world": world.spec(arrays),
        "names": skill_names(run.space, sweeps),
        "skills": arrays.add(z.numpy()),
        "flags": run.space.flag(z).tolist(),
        "measures": [vars(key) for key in measured.values],
        "axes": shown_axes(world, measured),
        "values": arrays.add(np.stack([*measured.values.values()]).astype(np.float32)),
        "effects": effects,
        "recording": pack_frames(measured.frames, arrays),
        "checks": world.checks(policy, z, arrays),
    }


def shown_axes(world: World, measured: Measured) -> list[str]:
    """Those that the map shows first, as far as they are known."""
    keys = [key.key for key in measured.values]
    return [axis if axis in keys else keys[-1] for axis in world.axes]


def write_page(
    run: Run,
    folder: Folder,
    name: str,
    skills: int,
    options: Options,
    report: Callable[[str], None],
) -> Path:
    template = page_template()
    arrays = Arrays()
    header = {"run": run_data(run, skills, options, arrays, report), "arrays": arrays.index}
    blocks = (
        f'<script type="application/json" id="run">{as_json(header)}</script>\n'
        f'<script type="application/gzip" id="arrays">{arrays.encoded()}</script>'
    )
    before, _, after = template.partition(HOLE)
    folder.make()
    folder.replace(name, f"{before}{blocks}{after}".encode())
    return folder.path / name


def as_json(value: Any) -> str:
    """JSON that cannot end the element it stands in, whatever a run is called."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
