"""Which OpenGL can MuJoCo draw with here? Tried in processes of their own, as a bad one may crash.

MuJoCo chooses when it is imported, by MUJOCO_GL, and cannot change its mind: whoever wants to
render starts a process with that variable set.
"""

from __future__ import annotations

import os
import subprocess
import sys

ADVICE = {  # in the order of preference: what to install
    "egl": "Debian, Ubuntu: apt install libegl1 libgl1-mesa-dri; Fedora: dnf install mesa-libEGL "
    "mesa-dri-drivers",
    "osmesa": "Debian, Ubuntu: apt install libosmesa6; Fedora: dnf install mesa-compat-libOSMesa",
    "glfw": "needs a display; without one, Debian, Ubuntu: apt install xvfb, then xvfb-run comsd",
}
HEADLESS = ("egl", "osmesa")
SECONDS = 60

PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><light pos='0 0 3'/><geom size='.3'/></worldbody></mujoco>"
)
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data)
    assert renderer.render().any(), "the picture is black"
"""


def environment(backend: str) -> dict[str, str]:
    """The variables of a process that renders with a backend."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYOPENGL_PLATFORM"}
    return {**inherited, "MUJOCO_GL": backend}


def problem(backend: str) -> str | None:
    """Why a backend does not work here; None if it does."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE],
            env=environment(backend),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {SECONDS} seconds"
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"the process ended with code {done.returncode}"


def first_working() -> str | None:
    """The backend to render with: MUJOCO_GL if it is set, else egl, else osmesa."""
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    candidates = (asked,) if asked in ADVICE else HEADLESS
    return next((backend for backend in candidates if problem(backend) is None), None)
