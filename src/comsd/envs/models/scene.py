"""What the models of all robots have: sky, floor, materials, motors, sensors."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from mujoco import mjtSensor as Sensor

Body = Any  # mujoco.MjsBody, whose methods have no annotations
Vector = tuple[float, ...]

PLANE = mujoco.mjtGeom.mjGEOM_PLANE
SLIDE = mujoco.mjtJoint.mjJNT_SLIDE
CAPSULE = mujoco.mjtGeom.mjGEOM_CAPSULE
TRACK = mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM  # follows the centre of mass
X, Y, Z = (1, 0, 0), (0, 1, 0), (0, 0, 1)


def ball(radius: float) -> Vector:
    """The size of a spherical site; the other numbers are MuJoCo's default, and unused."""
    return radius, 0.005, 0.005


def new_scene(timestep: float, floor: dict[str, Any], **materials: Vector) -> mujoco.MjSpec:
    """A sky, a checkered floor and materials of these colours; no body yet."""
    spec = mujoco.MjSpec()
    spec.option.timestep = timestep
    light, view = spec.visual.headlight, spec.visual
    light.ambient, light.diffuse, light.specular = [0.4] * 3, [0.8] * 3, [0.1] * 3
    view.map.znear, view.quality.shadowsize = 0.01, 2048
    spec.add_texture(
        name="skybox",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        mark=mujoco.mjtMark.mjMARK_RANDOM,
        rgb1=(0.4, 0.6, 0.8),
        rgb2=(0, 0, 0),
        markrgb=(1, 1, 1),
        width=800,
        height=800,
    )
    spec.add_texture(
        name="grid",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        mark=mujoco.mjtMark.mjMARK_EDGE,
        rgb1=(0.1, 0.2, 0.3),
        rgb2=(0.2, 0.3, 0.4),
        markrgb=(0.2, 0.3, 0.4),
        width=300,
        height=300,
    )
    textures = [""] * int(mujoco.mjtTextureRole.mjNTEXROLE)
    textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "grid"
    spec.add_material(name="grid", textures=textures, texuniform=True, reflectance=0.2)
    for name, colour in {"self": (0.7, 0.5, 0.3, 1), **materials}.items():
        spec.add_material(name=name, rgba=colour)
    spec.worldbody.add_geom(type=PLANE, material="grid", **floor)
    return spec


def add_planar_root(body: Body, slides: str, **values: Any) -> None:
    """Free motion in a plane: slides along x and z in this order, and a hinge about y."""
    for name in slides:
        body.add_joint(name=f"root{name}", type=SLIDE, axis=X if name == "x" else Z, **values)
    body.add_joint(name="rooty", axis=Y, **values)


def add_motors(spec: mujoco.MjSpec, **gears: float) -> None:
    """A torque of gear x control in [-1, 1], by the name of the joint."""
    for joint, gear in gears.items():
        motor = spec.add_actuator(
            name=joint,
            target=joint,
            trntype=mujoco.mjtTrn.mjTRN_JOINT,
            gear=(gear, 0, 0, 0, 0, 0),
            ctrllimited=True,
            ctrlrange=(-1, 1),
        )
        motor.set_to_motor()


def add_sensor(spec: mujoco.MjSpec, name: str, kind: Sensor, of: str, *, site: bool = True) -> None:
    """Of a site, or of a body and all below it."""
    where = mujoco.mjtObj.mjOBJ_SITE if site else mujoco.mjtObj.mjOBJ_BODY
    spec.add_sensor(name=name, type=kind, objtype=where, objname=of)


def add_velocity_sensor(spec: mujoco.MjSpec) -> None:
    add_sensor(spec, "torso_subtreelinvel", Sensor.mjSENS_SUBTREELINVEL, "torso", site=False)


def compile_with_mass(spec: mujoco.MjSpec, total: float) -> mujoco.MjModel:
    """All masses scaled to a total. MuJoCo does not scale the statistics, the solver's units."""
    model = spec.compile()
    data, inertia = mujoco.MjData(model), np.empty((model.nv, model.nv))
    mujoco.mj_setTotalmass(model, total)
    mujoco.mj_setConst(model, data)
    mujoco.mj_fullM(model, data, inertia)
    # Added one by one as MuJoCo does: sum() is more exact since Python 3.12.
    model.stat.meaninertia = inertia.diagonal().cumsum()[-1] / model.nv
    model.stat.meanmass = model.body_mass[1:].cumsum()[-1] / (model.nbody - 1)
    return model
