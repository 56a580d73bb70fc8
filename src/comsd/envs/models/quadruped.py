"""Quadruped: an ellipsoid on four legs. Angles are in degrees."""

from __future__ import annotations

from typing import Any

import mujoco
from mujoco import mjtSensor as Sensor

from comsd.envs.models.scene import (
    CAPSULE,
    TRACK,
    Body,
    Vector,
    X,
    Y,
    Z,
    add_sensor,
    ball,
    new_scene,
)

SPHERE, ELLIPSOID = mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_ELLIPSOID
CYLINDER, BOX = mujoco.mjtGeom.mjGEOM_CYLINDER, mujoco.mjtGeom.mjGEOM_BOX

LEGS = {  # corner of the torso and heading
    "front_left": (0.2, 0.2, 45),
    "front_right": (0.2, -0.2, -45),
    "back_right": (-0.2, -0.2, -135),
    "back_left": (-0.2, 0.2, 135),
}
CONTACT = {"solimp": (0.9, 0.99, 0.003, 0.5, 2), "solref": (0.01, 1)}


def quadruped() -> mujoco.MjSpec:
    """Each leg has three segments and a toe, and is driven by servos behind a low-pass filter."""
    floor = {"name": "floor", "size": (100, 100, 0.5), **CONTACT}
    colours = {"effector": (0.7, 0.4, 0.2, 1), "eye": (0, 0.2, 1, 1), "site": (0.5, 0.5, 0.5, 0.3)}
    spec = new_scene(0.005, floor, **colours)
    spec.visual.map.znear, spec.visual.map.zfar = 0.005, 20
    spec.visual.rgba.rangefinder = (1, 1, 0.1, 0.1)
    axes = -1, -1, 0, 1, 0, 1
    spec.worldbody.add_camera(name="global", pos=(-10, 10, 10), xyaxes=axes, mode=TRACK)
    torso = spec.worldbody.add_body(name="torso", pos=(0, 0, 0.57))
    torso.add_freejoint(name="root")
    torso.add_camera(name="x", pos=(-1.7, 0, 1), xyaxes=(0, -1, 0, 0.75, 0, 1), mode=TRACK)
    torso.add_camera(name="y", pos=(0, 4, 2), xyaxes=(-1, 0, 0, 0, -0.5, 1), mode=TRACK)
    axes = 0, -1, 0, 0.4, 0, 1
    torso.add_camera(name="egocentric", pos=(0.3, 0, 0.11), xyaxes=axes, fovy=60)
    torso.add_light(name="light", pos=(0, 0, 4), mode=TRACK)
    for side, y in (("r", -0.07), ("l", 0.07)):
        ends = 0.1, y, 0.12, 0.31, y, 0.08
        add_geom(torso, f"eye_{side}", size=(0.05, 0, 0), type=CYLINDER, fromto=ends, mass=0)
        pupil = {"size": ball(0.033), "pos": (0.3, y, 0.08), "zaxis": X}
        torso.add_site(name=f"pupil_{side}", material="eye", **pupil)
    place = {"size": (0.3, 0.3, 0.3), "pos": (0.8, 0, -0.2), "group": 3}
    torso.add_site(name="workspace", material="site", **place)
    add_geom(torso, "torso", size=(0.3, 0.27, 0.2), type=ELLIPSOID, density=1000)
    torso.add_site(name="torso_touch", type=BOX, size=(0.26, 0.26, 0.26), rgba=(0, 0, 1, 0))
    torso.add_site(name="torso", size=ball(0.05), rgba=(1, 0, 0, 1))
    for leg, (x, y, heading) in LEGS.items():
        add_leg(torso, leg, (x, y, 0), heading)
    for add in (add_coupling, add_leg_tendons, add_leg_actuators):
        for leg in LEGS:
            add(spec, leg)
    add_sensors(spec)
    return spec


def add_geom(body: Body, name: str, **values: Any) -> None:
    """A light capsule without friction unless told otherwise."""
    usual = {"type": CAPSULE, "condim": 1, "density": 500, "material": "self"}
    body.add_geom(name=name, **CONTACT | usual | values)


def add_leg(torso: Body, leg: str, pos: Vector, heading: float) -> None:
    limits = {"damping": (30, 0, 0), "armature": 0.01, "solimp_limit": (0, 0.99, 0.01, 0.5, 2)}
    hip = torso.add_body(name=f"hip_{leg}", pos=pos, euler=(0, 0, heading))
    hip.add_joint(name=f"yaw_{leg}", axis=Z, range=(-50, 50), **limits)
    hip.add_joint(name=f"pitch_{leg}", axis=Y, range=(-20, 60), **limits)
    add_geom(hip, f"thigh_{leg}", size=(0.08, 0, 0), fromto=(0, 0, 0, 0.3, 0, 0.11))
    knee = hip.add_body(name=f"knee_{leg}", pos=(0.3, 0, 0.11))
    knee.add_joint(name=f"knee_{leg}", axis=Y, range=(-60, 50), **limits)
    add_geom(knee, f"shin_{leg}", size=(0.065, 0, 0), fromto=(0, 0, 0, 0.25, 0, -0.25))
    ankle = knee.add_body(name=f"ankle_{leg}", pos=(0.25, 0, -0.25))
    ankle.add_joint(name=f"ankle_{leg}", axis=Y, range=(-45, 55), **limits)
    add_geom(ankle, f"foot_{leg}", size=(0.055, 0, 0), fromto=(0, 0, 0, 0, 0, -0.25))
    toe = ankle.add_body(name=f"toe_{leg}", pos=(0, 0, -0.3))
    looks = {"type": SPHERE, "material": "effector", "friction": (1.5, 0.005, 0.0001)}
    add_geom(toe, f"toe_{leg}", size=(0.08, 0, 0), **looks)
    toe.add_site(name=f"toe_{leg}", size=ball(0.084), material="site", group=4)


def add_tendon(spec: mujoco.MjSpec, name: str, **coefficients: float) -> None:
    """A weighted sum of joint angles."""
    tendon = spec.add_tendon(name=name)
    for joint, coefficient in coefficients.items():
        tendon.wrap_joint(joint, coefficient)


def add_coupling(spec: mujoco.MjSpec, leg: str) -> None:
    """The sum of a leg's angles stays, nearly: its toe points the same way."""
    angles = {f"{joint}_{leg}": 0.333 for joint in ("pitch", "knee", "ankle")}
    add_tendon(spec, f"coupling_{leg}", **angles)
    spec.add_equality(
        name=f"coupling_{leg}",
        name1=f"coupling_{leg}",
        type=mujoco.mjtEq.mjEQ_TENDON,
        solimp=(0.95, 0.99, 0.01, 0.5, 2),
        solref=(0.005, 0.5),
    )


def add_leg_tendons(spec: mujoco.MjSpec, leg: str) -> None:
    pitch, knee, ankle = (f"{joint}_{leg}" for joint in ("pitch", "knee", "ankle"))
    add_tendon(spec, f"extend_{leg}", **{pitch: 0.25, knee: -0.5, ankle: 0.25})
    add_tendon(spec, f"lift_{leg}", **{pitch: 0.5, ankle: -0.5})


def add_leg_actuators(spec: mujoco.MjSpec, leg: str) -> None:
    """Servos to a position, of the hip's yaw and of the leg's two tendons."""
    joint, tendon = mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_TENDON
    for name, kind, low, high in (
        ("yaw", joint, -1, 1),
        ("lift", tendon, -1, 1.1),
        ("extend", tendon, -0.8, 0.8),
    ):
        spec.add_actuator(
            name=f"{name}_{leg}",
            target=f"{name}_{leg}",
            trntype=kind,
            ctrllimited=True,
            ctrlrange=(low, high),
            dyntype=mujoco.mjtDyn.mjDYN_FILTER,
            dynprm=(0.1,) + (0,) * 9,
            gainprm=(1000,) + (0,) * 9,
            biastype=mujoco.mjtBias.mjBIAS_AFFINE,
            biasprm=(0, -1000) + (0,) * 8,
        )


def add_sensors(spec: mujoco.MjSpec) -> None:
    add_sensor(spec, "imu_accel", Sensor.mjSENS_ACCELEROMETER, "torso")
    add_sensor(spec, "imu_gyro", Sensor.mjSENS_GYRO, "torso")
    add_sensor(spec, "velocimeter", Sensor.mjSENS_VELOCIMETER, "torso")
    for name, kind in (("force", Sensor.mjSENS_FORCE), ("torque", Sensor.mjSENS_TORQUE)):
        for leg in LEGS:
            add_sensor(spec, f"{name}_toe_{leg}", kind, f"toe_{leg}")
    add_sensor(spec, "center_of_mass", Sensor.mjSENS_SUBTREECOM, "torso", site=False)
