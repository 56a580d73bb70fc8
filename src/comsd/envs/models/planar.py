"""Walker, Hopper and Cheetah, which move in the x-z plane. Angles are in degrees."""

from __future__ import annotations

import mujoco
from mujoco import mjtSensor as Sensor

from comsd.envs.models.scene import (
    CAPSULE,
    TRACK,
    Body,
    Vector,
    X,
    Y,
    add_motors,
    add_planar_root,
    add_sensor,
    add_velocity_sensor,
    ball,
    new_scene,
)


def walker() -> mujoco.MjSpec:
    """A torso on two legs of thigh, shin and foot; feet and floor touch, legs pass each other."""
    touch = {"conaffinity": 0, "friction": (0.7, 0.1, 0.1)}
    floor = {"name": "floor", "pos": (248, 0, 0), "size": (250, 0.8, 0.2), **touch}
    spec = new_scene(0.0025, floor | {"conaffinity": 1})
    spec.stat.extent, spec.stat.center = 2, (0, 0, 1)
    limits = {"damping": (0.1, 0, 0), "armature": 0.01, "solimp_limit": (0, 0.99, 0.01, 0.5, 2)}

    def add_geom(body: Body, name: str, radius: float, half: float, **where: Vector) -> None:
        size = radius, half, 0
        body.add_geom(name=name, type=CAPSULE, size=size, material="self", **touch, **where)

    def add_joint(body: Body, name: str, low: float, high: float, *pos: float) -> None:
        body.add_joint(
            name=name, axis=(0, -1, 0), pos=pos or (0, 0, 0), range=(low, high), **limits
        )

    torso = spec.worldbody.add_body(name="torso", pos=(0, 0, 1.3))
    torso.add_light(name="light", pos=(0, 0, 2), mode=TRACK)
    torso.add_camera(name="side", pos=(0, -2, 0.7), euler=(60, 0, 0), mode=TRACK)
    torso.add_camera(name="back", pos=(-2, 0, 0.5), xyaxes=(0, -1, 0, 1, 0, 3), mode=TRACK)
    add_planar_root(torso, "zx", solimp_limit=limits["solimp_limit"])
    add_geom(torso, "torso", 0.07, 0.3)
    for side, y in (("right", -0.05), ("left", 0.05)):
        thigh = torso.add_body(name=f"{side}_thigh", pos=(0, y, -0.3))
        add_joint(thigh, f"{side}_hip", -20, 100)
        add_geom(thigh, f"{side}_thigh", 0.05, 0.225, pos=(0, 0, -0.225))
        leg = thigh.add_body(name=f"{side}_leg", pos=(0, 0, -0.7))
        add_joint(leg, f"{side}_knee", -150, 0, 0, 0, 0.25)
        add_geom(leg, f"{side}_leg", 0.04, 0.25)
        foot = leg.add_body(name=f"{side}_foot", pos=(0.06, 0, -0.25))
        add_joint(foot, f"{side}_ankle", -45, 45, -0.06, 0, 0)
        add_geom(foot, f"{side}_foot", 0.05, 0.1, zaxis=X)
    add_velocity_sensor(spec)
    for side in ("right", "left"):
        add_motors(spec, **{f"{side}_hip": 100, f"{side}_knee": 50, f"{side}_ankle": 20})
    return spec


def hopper() -> mujoco.MjSpec:
    """A torso on one leg; its foot feels touch at toe and heel."""
    spec = new_scene(0.005, {"name": "floor", "pos": (48, 0, 0), "size": (100, 1, 0.2)})
    spec.stat.extent, spec.stat.center = 2, (0, 0, 0.5)
    world = spec.worldbody
    world.add_camera(name="cam0", pos=(0, -2.8, 0.8), euler=(90, 0, 0), mode=TRACK)
    world.add_camera(name="back", pos=(-2, -0.2, 1.2), xyaxes=(0.2, -1, 0, 0.5, 0, 2), mode=TRACK)
    torso = world.add_body(name="torso", pos=(0, 0, 1))
    torso.add_light(name="top", pos=(0, 0, 2), mode=TRACK)
    add_planar_root(torso, "xz")

    def add_geom(body: Body, name: str, radius: float, fromto: Vector) -> None:
        size = radius, 0, 0
        body.add_geom(name=name, type=CAPSULE, size=size, fromto=fromto, material="self")

    add_geom(torso, "torso", 0.0653, (0, 0, -0.05, 0, 0, 0.2))
    add_geom(torso, "nose", 0.03, (0.08, 0, 0.13, 0.15, 0, 0.14))
    body = torso
    # Each hangs below the last: its height there, joint and range, radius and axis.
    for name, z, joint, bounds, radius, fromto in (
        ("pelvis", -0.05, "waist", (-30, 30), 0.065, (0, 0, 0, 0, 0, -0.15)),
        ("thigh", -0.2, "hip", (-170, 10), 0.04, (0, 0, 0, 0, 0, -0.33)),
        ("calf", -0.33, "knee", (5, 150), 0.03, (0, 0, 0, 0, 0, -0.32)),
        ("foot", -0.32, "ankle", (-45, 45), 0.04, (-0.08, 0, 0, 0.17, 0, 0)),
    ):
        body = body.add_body(name=name, pos=(0, 0, z))
        body.add_joint(name=joint, axis=Y, range=bounds, damping=(0.05, 0, 0), armature=0.2)
        add_geom(body, name, radius, fromto)
    add_velocity_sensor(spec)
    for site, x in (("touch_toe", 0.17), ("touch_heel", -0.08)):
        body.add_site(name=site, pos=(x, 0, 0), size=ball(0.05), group=3)
        add_sensor(spec, site, Sensor.mjSENS_TOUCH, site)
    add_motors(spec, waist=30, hip=40, knee=30, ankle=10)
    return spec


def cheetah() -> mujoco.MjSpec:
    """A torso with a head, on a back and a front leg with springs; 14 kg in all."""
    spec = new_scene(0.01, {"name": "ground", "pos": (98, 0, 0), "size": (200, 0.8, 0.5)})
    spec.stat.extent, spec.stat.center = 2, (0, 0, 0.7)
    torso = spec.worldbody.add_body(name="torso", pos=(0, 0, 0.7))
    torso.add_light(name="light", pos=(0, 0, 2), mode=TRACK)
    torso.add_camera(name="side", pos=(0, -3, 0), quat=(0.707, 0.707, 0, 0), mode=TRACK)
    axes = 0.45, -0.9, 0, 0.3, 0.15, 0.94
    torso.add_camera(name="back", pos=(-1.8, -1.3, 0.8), xyaxes=axes, mode=TRACK)
    add_planar_root(torso, "xz")

    def add_geom(body: Body, name: str, half: float, **where: Vector) -> None:
        size, friction = (0.046, half, 0), (0.4, 0.1, 0.1)
        looks = {"material": "self", "friction": friction}
        body.add_geom(name=name, type=CAPSULE, size=size, **looks, **where)

    add_geom(torso, "torso", 0, fromto=(-0.5, 0, 0, 0.5, 0, 0))
    add_geom(torso, "head", 0.15, pos=(0.6, 0, 0.1), euler=(0, 50, 0))
    body, motors = torso, {}
    # Place (x, z) in the body above; range, stiffness and damping of the joint; half-length, place
    # and tilt of the geom; gear of the motor.
    for name, (x, z), bounds, spring, damping, half, (gx, gz), tilt, gear in (
        ("bthigh", (-0.5, 0), (-30, 60), 240, 6, 0.145, (0.1, -0.13), -218, 120),
        ("bshin", (0.16, -0.25), (-50, 50), 180, 4.5, 0.15, (-0.14, -0.07), -116, 90),
        ("bfoot", (-0.28, -0.14), (-230, 50), 120, 3, 0.094, (0.03, -0.097), -15, 60),
        ("fthigh", (0.5, 0), (-57, 0.4), 180, 4.5, 0.133, (-0.07, -0.12), 30, 90),
        ("fshin", (-0.14, -0.24), (-70, 50), 120, 3, 0.106, (0.065, -0.09), -34, 60),
        ("ffoot", (0.13, -0.18), (-28, 28), 60, 1.5, 0.07, (0.045, -0.07), -34, 30),
    ):
        body = (torso if name.endswith("thigh") else body).add_body(name=name, pos=(x, 0, z))
        forces = {"stiffness": (spring, 0, 0), "damping": (damping, 0, 0), "armature": 0.1}
        body.add_joint(name=name, axis=Y, range=bounds, **forces)
        add_geom(body, name, half, pos=(gx, 0, gz), euler=(0, tilt, 0))
        motors[name] = gear
    add_velocity_sensor(spec)
    add_motors(spec, **motors)
    return spec
