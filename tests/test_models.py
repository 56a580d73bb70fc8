"""The robots' models against dm_control's, every number of every array."""

from __future__ import annotations

import os

os.environ.setdefault("MUJOCO_GL", "disable")  # dm_control searches for a display otherwise

from typing import Any

import mujoco
import numpy as np
import pytest

from comsd.envs.models import build

suite = pytest.importorskip("dm_control.suite")  # has no release for Python 3.13

TASKS = {"walker": "walk", "hopper": "hop", "cheetah": "run", "quadruped": "run"}
FLOORS = {"hopper": (50, 100), "cheetah": (100, 200)}  # half-lengths: theirs and ours
# Of these the suite has more, which no task of ours uses; the others have the same in one order.
FEWER = {"mat": "material", "site": "site", "tex": "texture"}
KINDS = ("body", "joint", "geom", "camera", "light", "sensor", "actuator", "tendon", "equality")
# Places in the buffers of names, files and pixels, and sizes that follow from what is left out.
BOOKKEEPING = ("name", "nname", "path", "text_", "hfield", "nhfield", "tex_adr", "tex_data")
SIZES = {"nmat", "nsite", "ntex", "ntexdata", "nbuffer", "npaths", "signature"}
REFERENCES = {"geom_matid": "mat", "site_matid": "mat", "mat_texid": "tex", "sensor_objid": "site"}


@pytest.fixture(params=TASKS)
def pair(request: pytest.FixtureRequest) -> tuple[str, mujoco.MjModel, mujoco.MjModel]:
    name = request.param
    return name, build(name)[1], suite.load(name, TASKS[name]).physics.model.ptr


def names(model: mujoco.MjModel, kind: str) -> list[str]:
    sizes = {
        "body": "nbody",
        "joint": "njnt",
        "camera": "ncam",
        "actuator": "nu",
        "equality": "neq",
    }
    sizes |= {"material": "nmat", "texture": "ntex"}
    count = getattr(model, sizes.get(kind, f"n{kind}"))
    objects = mujoco.mjtObj.__members__
    return [mujoco.mj_id2name(model, objects[f"mjOBJ_{kind.upper()}"], i) for i in range(count)]


def fields(x: Any) -> dict[str, Any]:
    found = {name: getattr(x, name) for name in dir(x) if not name.startswith("_")}
    return {name: value for name, value in found.items() if not callable(value)}


def test_every_array_equals_dm_controls(
    pair: tuple[str, mujoco.MjModel, mujoco.MjModel],
) -> None:
    robot, ours, theirs = pair
    rows = {
        short: np.array([names(theirs, kind).index(name) for name in names(ours, kind)], int)
        for short, kind in FEWER.items()
    }
    compared = 0
    for name, mine in fields(ours).items():
        if name.startswith(BOOKKEEPING) or name in SIZES or isinstance(mine, bytes):
            continue
        other = getattr(theirs, name)
        if name in ("opt", "stat", "vis"):
            assert_equal_structs(name, mine, other)
            continue
        kind = name.partition("_")[0]
        if kind in FEWER:
            other = other[rows[kind]]
        if name in REFERENCES:  # ours as theirs would be numbered
            known = np.append(rows[REFERENCES[name]], -1)  # -1 is none
            sites = ours.sensor_objtype == mujoco.mjtObj.mjOBJ_SITE
            where = sites if name == "sensor_objid" else np.full_like(mine, True, dtype=bool)
            mine = mine.copy()
            mine[where] = known[mine[where]]
        if name == "geom_size" and robot in FLOORS:
            assert (other[0, 0], mine[0, 0]) == FLOORS[robot]
            mine[0, 0] = other[0, 0]
        assert np.array_equal(mine, other), name
        compared += 1
    assert compared > 300


def assert_equal_structs(path: str, mine: Any, other: Any) -> None:
    for name, value in fields(mine).items():
        if isinstance(value, (int, float, np.ndarray)):
            assert np.array_equal(value, getattr(other, name)), f"{path}.{name}"
        else:
            assert_equal_structs(f"{path}.{name}", value, getattr(other, name))


def test_names_and_their_order_are_dm_controls(
    pair: tuple[str, mujoco.MjModel, mujoco.MjModel],
) -> None:
    _, ours, theirs = pair
    for kind in KINDS:
        assert names(ours, kind) == names(theirs, kind), kind
    left_out = set(names(theirs, "site")) - set(names(ours, "site"))
    assert all(name.startswith("rf_") for name in left_out)  # of range finders
    used = {*ours.geom_matid.tolist(), *ours.site_matid.tolist()} - {-1}
    assert used == set(range(ours.nmat))


def test_textures_are_dm_controls_pixel_by_pixel(
    pair: tuple[str, mujoco.MjModel, mujoco.MjModel],
) -> None:
    _, ours, theirs = pair
    for name in names(ours, "texture"):
        pixels = []
        for model in (ours, theirs):
            i = names(model, "texture").index(name)
            size = model.tex_height[i] * model.tex_width[i] * model.tex_nchannel[i]
            pixels.append(model.tex_data[model.tex_adr[i] : model.tex_adr[i] + size])
        assert len(pixels[0]) > 1000
        assert np.array_equal(*pixels), name
