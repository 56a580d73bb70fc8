"""A MuJoCo model for the page: its text, and the numbers that a text's six digits round.

The text is MJCF, since MuJoCo's own files can only be read by the version that wrote them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from comsd.envs.simulation import Doubles
from comsd.explorer.arrays import Arrays

STATE = ("qpos", "qvel", "act", "qacc_warmstart")  # all that the next step depends on
FLAGS = ("disableflags", "enableflags")


class PageModel:
    """A model without its looks, as the page builds it."""

    def __init__(self, spec: mujoco.MjSpec, model: mujoco.MjModel) -> None:
        """model: what was made of the spec, and perhaps changed since."""
        spec = spec.copy()
        for material in spec.materials:
            material.textures = [""] * len(material.textures)
        for part in (*spec.textures, *spec.lights, *spec.cameras, *spec.skins):
            spec.delete(part)
        self.files = take_files(spec)
        spec.compile()
        self.xml: str = spec.to_xml()
        self.model = mujoco.MjModel.from_xml_string(self.xml, self.files)
        self.same_kind = all(
            getattr(model, size) == getattr(self.model, size)
            for size in ("nq", "nv", "nu", "na", "nbody", "ngeom", "nsensordata")
        )
        self.numbers = different_arrays(self.model, model)
        self.options = different_arrays(self.model.opt, model.opt)
        for owner, values in ((self.model, self.numbers), (self.model.opt, self.options)):
            for name, value in values.items():
                getattr(owner, name)[...] = value
        for name in FLAGS:
            setattr(self.model.opt, name, getattr(model.opt, name))
        self.model.opt.timestep = model.opt.timestep
        self.model.stat.meaninertia = model.stat.meaninertia  # the solver's unit

    def to_json(self, arrays: Arrays) -> dict[str, Any]:
        def packed(values: dict[str, NDArray[np.floating]]) -> list[dict[str, Any]]:
            rows = {name: x.astype(np.float64).ravel() for name, x in values.items()}
            return [{"field": name, "values": arrays.add(x)} for name, x in rows.items()]

        contents = {name: np.frombuffer(x, np.uint8) for name, x in self.files.items()}
        return {
            "xml": self.xml,
            "files": [{"name": name, "bytes": arrays.add(x)} for name, x in contents.items()],
            "numbers": packed(self.numbers),
            "options": packed(self.options),
            "flags": {name: int(getattr(self.model.opt, name)) for name in FLAGS},
            "timestep": self.model.opt.timestep,
            "mean_inertia": float(self.model.stat.meaninertia),
        }


def take_files(spec: mujoco.MjSpec) -> dict[str, bytes]:
    """The files of meshes and height fields, under new names without directories."""
    files: dict[str, bytes] = {}
    folder = Path(spec.modelfiledir) / spec.meshdir
    for part in (*spec.meshes, *spec.hfields):
        if not part.file:
            continue
        content = spec.assets.get(part.file) if spec.assets else None
        name = f"{len(files)}{Path(part.file).suffix}"
        files[name] = (folder / part.file).read_bytes() if content is None else bytes(content)
        part.name, part.file = part.name or Path(part.file).stem, name
    if files:
        spec.meshdir = ""
        spec.assets = files
    return files


def different_arrays(read: Any, model: Any) -> dict[str, NDArray[np.floating]]:
    """The arrays of the model that those of another of the same kind do not equal."""
    found = {}
    for name in dir(model):
        value = None if name.startswith("_") else getattr(model, name)
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        other = getattr(read, name)
        if other.shape == value.shape and not np.array_equal(other, value):
            found[name] = value
    return found


def state_of(data: mujoco.MjData) -> dict[str, Doubles]:
    return {name: getattr(data, name).copy() for name in STATE}


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """{"a.b": x} -> {"a": {"b": x}}"""
    result: dict[str, Any] = {}
    for name, value in flat.items():
        outer, _, inner = name.rpartition(".")
        (result.setdefault(outer, {}) if outer else result)[inner] = value
    return result


def stacked(rows: list[dict[str, Any]], arrays: Arrays) -> dict[str, Any]:
    """Rows with the same names, as one array each."""
    columns = {name: np.stack([np.array(row[name]) for row in rows]) for name in rows[0]}
    return nested({name: arrays.add(x) for name, x in columns.items()})
