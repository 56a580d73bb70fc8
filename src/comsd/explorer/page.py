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

from comsd.envs.maze import MazeEnv
from comsd.envs.mujoco import RobotEnv
from comsd.errors import InputError
from comsd.explorer.arrays import Arrays, pack_frames
from comsd.explorer.mazes import MazeWorld
from comsd.explorer.policy import policy_graph
from comsd.explorer.robots import RobotWorld
from comsd.explorer.rollouts import add_components, dimension_effects, exported_skills
from comsd.files import Folder
from comsd.runs import Run
from comsd.runs.provenance import provenance

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


def world_of(run: Run) -> RobotWorld | MazeWorld:
    if not run.pretrains:
        raise InputError(
            f"explore is for pre-trained skills and {run.path} is a run of {run.config.run.stage}"
        )
    env = run.make_env(1, 0)
    if isinstance(env, RobotEnv):
        return RobotWorld(env.robot)
    if isinstance(env, MazeEnv):
        return MazeWorld(env.maze)
    raise InputError(f"explore shows states of robots and mazes; {run.path} is on {run.spec.name}")


def run_data(
    run: Run, skills: int, starts: int, arrays: Arrays, report: Callable[[str], None]
) -> dict[str, Any]:
    world, settings, policy = world_of(run), run.config.run, run.policy
    graph = policy_graph(policy, arrays)  # first: it says what cannot be shown
    z, names = exported_skills(run.space, skills)
    seeds = range(starts)
    report(f"{len(z)} skills from {starts} starts")
    measured = world.rollouts(policy, z, seeds)
    measures = add_components(measured)
    spread = measured.means.std((0, 1)) + 1e-6
    if run.space.kind != "one-hot":
        report(f"which of the {run.space.dim} dimensions change behaviour most")
    versions = provenance()
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
        "horizon": world.horizon,
        "policy": graph,
        "world": world.spec(seeds, arrays),
        "names": names,
        "skills": arrays.add(z.numpy()),
        "flags": run.space.flag(z).tolist(),
        "measures": [vars(measure) for measure in measures],
        "axes": world.axes,
        "values": arrays.add(np.stack([*measures.values()]).astype(np.float32)),
        "effects": dimension_effects(world, policy, run.space, spread),
        "recording": pack_frames(measured.frames, arrays),
        "checks": world.checks(policy, z, arrays),
    }


def write_page(
    run: Run, folder: Folder, name: str, skills: int, starts: int, report: Callable[[str], None]
) -> Path:
    template = page_template()
    if skills < 1:
        raise InputError(f"skills is {skills}; it must be at least 1")
    if starts < 1:
        raise InputError(f"starts is {starts}; it must be at least 1")
    arrays = Arrays()
    header = {"run": run_data(run, skills, starts, arrays, report), "arrays": arrays.index}
    blocks = (
        f'<script type="application/json" id="run">{as_json(header)}</script>\n'
        f'<script type="application/gzip" id="arrays">{arrays.encoded()}</script>'
    )
    before, _, after = template.partition(HOLE)
    folder.replace(name, f"{before}{blocks}{after}".encode())
    return folder.path / name


def as_json(value: Any) -> str:
    """JSON that cannot end the element it stands in, whatever a run is called."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
