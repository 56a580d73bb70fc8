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
from comsd.evaluation.skills import RobotEvaluator
from comsd.explorer.adapted import acting_run, adapted_entries, method_of
from comsd.explorer.arrays import Arrays, pack_frames
from comsd.explorer.entries import Entries
from comsd.explorer.mazes import MazeWorld
from comsd.explorer.measures import Measured, World, exported_skills, measure
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
    """Of a pre-trained run."""
    if run.spec.families[0] == "robots":
        return RobotWorld(RobotEvaluator(run, options))
    if run.spec.families[0] == "maze":
        return MazeWorld(run, options)
    from comsd.envs.gym import GymEnv  # slow to import
    from comsd.explorer.foreign import ForeignWorld

    env = run.make_env(1, 0)
    assert isinstance(env, GymEnv)
    return ForeignWorld(run, env, options)


def entries_of(run: Run, skills: int, options: Options) -> Entries:
    if not run.pretrains:
        return adapted_entries(run, skills, options)
    world, sweeps = world_of(run, options), exported_skills(run.space, skills)
    return Entries(run.policy, run.space, world, sweeps)


def run_data(
    run: Run, skills: int, options: Options, arrays: Arrays, report: Callable[[str], None]
) -> dict[str, Any]:
    settings = run.config.run
    graph = policy_graph(acting_run(run).policy, arrays)  # first: it says what cannot be shown
    entries = entries_of(run, skills, options)
    world, space, names, z = entries.world, entries.space, entries.names, entries.skills
    evaluator, versions = world.evaluator, provenance()
    report(f"{len(z)} skills from {evaluator.starts} starts, {evaluator.steps} steps each")
    with Progress(entries.planned_steps, 0, {}, report) as progress:
        evaluator.tick = progress.count
        measured = measure(world, entries.roll_outs())
        effects = entries.effects(measured.spread)
    return {
        "title": {
            "method": method_of(run),
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
        "space": {"kind": space.kind, "dim": space.dim},
        "dt": world.dt,
        "horizon": run.spec.horizon,
        "ends": world.ends,
        "policy": graph,
        "world": world.spec(arrays),
        "names": names,
        "skills": arrays.add(z.numpy()),
        "flags": entries.flags,
        "measures": [vars(key) for key in measured.values],
        "axes": shown_axes(world, measured),
        "values": arrays.add(np.stack([*measured.values.values()]).astype(np.float32)),
        "effects": effects,
        "recording": pack_frames(measured.frames, arrays),
        "checks": world.checks(entries.policy, z, arrays),
    } | entries.to_json(measured, arrays)


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
