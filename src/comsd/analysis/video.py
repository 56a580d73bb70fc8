"""A video of all skills of a sweep side by side, rendered by a separate process.

MuJoCo chooses its OpenGL when it is imported, by MUJOCO_GL, and cannot change its mind: whoever
wants to render starts a process with that variable set. A bad OpenGL may crash its process, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from comsd.envs.simulation import Doubles
from comsd.errors import RunError
from comsd.files import Folder

ADVICE = {  # OpenGL backends in the order of preference: what to install
    "egl": "Debian, Ubuntu: apt install libegl1 libgl1-mesa-dri; Fedora: dnf install mesa-libEGL "
    "mesa-dri-drivers",
    "osmesa": "Debian, Ubuntu: apt install libosmesa6; Fedora: dnf install mesa-compat-libOSMesa",
    "glfw": "needs a display; without one, Debian, Ubuntu: apt install xvfb, then xvfb-run comsd",
}
HEADLESS = ("egl", "osmesa")
PATIENCE = 60  # seconds for a backend to answer
FPS = 20
SECONDS = 10

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


def failure(backend: str, *argv: str, patience: float | None = None) -> str | None:
    """Run Python with a backend; what went wrong in one line, if anything did."""
    try:
        done = subprocess.run(
            [sys.executable, *argv],
            env=environment(backend),
            capture_output=True,
            text=True,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {patience} seconds"
    lines = done.stderr.strip().splitlines() or [f"the process ended with code {done.returncode}"]
    return lines[-1] if done.returncode else None


def problem(backend: str) -> str | None:
    """Why a backend does not work here; None if it does."""
    return failure(backend, "-c", PROBE, patience=PATIENCE)


def first_working() -> str | None:
    """The backend to render with: MUJOCO_GL if it is set, else egl, else osmesa."""
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    candidates = (asked,) if asked in ADVICE else HEADLESS
    return next((backend for backend in candidates if problem(backend) is None), None)


def has_ffmpeg() -> bool:
    return all(find_spec(name) for name in ("imageio", "imageio_ffmpeg"))


def write_video(
    robot: str,
    qpos: Doubles,
    labels: Sequence[str],
    control_step: float,
    folder: Folder,
    report: Callable[[str], None],
) -> Path:
    """The first seconds of each roll-out at true speed: skills.mp4, or a GIF without ffmpeg."""
    report("testing OpenGL")
    backend = first_working()
    if backend is None:
        raise RunError("no video: OpenGL does not work here; `comsd doctor` says what to install")
    kind = "mp4" if has_ffmpeg() else "gif"
    if kind == "gif":
        report("a GIF, as there is no ffmpeg: pip install 'comsd[video]' for mp4")
    steps = np.round(np.arange(SECONDS * FPS) / (FPS * control_step)).astype(int)
    frames = qpos[:, steps[steps < qpos.shape[1]]]
    report(f"rendering {frames.shape[0]} x {frames.shape[1]} pictures by {backend}")
    with tempfile.TemporaryDirectory(prefix=".tmp-") as temporary:
        poses, film = Path(temporary, "poses.npz"), Path(temporary, f"skills.{kind}")
        np.savez(poses, qpos=frames, labels=labels)
        argv = ["-m", "comsd.analysis.render", robot, str(poses), str(FPS), str(film)]
        if why := failure(backend, *argv):
            raise RunError(f"no video: rendering failed: {why}")
        folder.replace(film.name, film.read_bytes())
        return folder.path / film.name
