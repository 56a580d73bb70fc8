"""Images of a simulation by MuJoCo's OpenGL renderer, without a window.

Nothing here loads OpenGL before the first image is asked for. A backend that is broken may end its
process, so whether one works is tried in another process first.

quality   full: as the model asks for
          near: smaller shadow maps and coarser curves, hardly to be told from full
          fast: no shadows, no reflections, no smoothing of edges
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

import mujoco
import numpy as np
from numpy.typing import NDArray

from comsd.envs.mujoco import Robot
from comsd.envs.robots import load_robot
from comsd.envs.simulation import STATE, Doubles
from comsd.errors import InputError

Quality = Literal["full", "near", "fast"]
Pixels = NDArray[np.uint8]

ADVICE = {  # OpenGL backends in the order of preference: what to install
    "egl": "Debian, Ubuntu: apt install libegl1 libgl1-mesa-dri; Fedora: dnf install mesa-libEGL "
    "mesa-dri-drivers",
    "osmesa": "Debian, Ubuntu: apt install libosmesa6; Fedora: dnf install mesa-compat-libOSMesa",
    "glfw": "needs a display; without one, Debian, Ubuntu: apt install xvfb, then xvfb-run comsd",
}
HEADLESS = ("egl", "osmesa")
PATIENCE = 60  # seconds for a backend to answer
SIZE = 84  # of the images that are timed

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
TIMES = """
import sys
from comsd.envs.rendering import frame_times
print(frame_times(sys.argv[1]))
"""

# --- backends -------------------------------------------------------------------------------------


def environment(backend: str) -> dict[str, str]:
    """The variables of a process that renders with a backend."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYOPENGL_PLATFORM"}
    return {**inherited, "MUJOCO_GL": backend}


def run_python(
    backend: str, *argv: str, patience: float | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv],
        env=environment(backend),
        capture_output=True,
        text=True,
        timeout=patience,
    )


def failure(backend: str, *argv: str, patience: float | None = None) -> str | None:
    """Run Python with a backend; what went wrong in one line, if anything did."""
    try:
        done = run_python(backend, *argv, patience=patience)
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


# --- images ---------------------------------------------------------------------------------------


def drawn_model(model: mujoco.MjModel, size: int, quality: Quality) -> mujoco.MjModel:
    """A copy with the buffers and the level of detail of a quality."""
    model = copy.copy(model)
    model.vis.global_.offwidth = model.vis.global_.offheight = size
    if quality != "full":
        detail = model.vis.quality
        near = quality == "near"
        detail.shadowsize = 1024
        detail.numslices, detail.numstacks, detail.numquads = (16, 8, 1) if near else (8, 4, 1)
        detail.offsamples = detail.offsamples if near else 0
    return model


@cache
def load_triton() -> None:
    """Before OpenGL: torch's builds for CUDA load it later, and its LLVM crashes after Mesa's."""
    if find_spec("triton"):
        with contextlib.suppress(ImportError):
            import_module("triton")


class Renderer:
    """Square images of one model from one of its cameras; camera -1: from outside."""

    def __init__(
        self, model: mujoco.MjModel, size: int, quality: Quality, camera: int, backend: str
    ) -> None:
        self.model, self.size = drawn_model(model, size, quality), size
        os.environ["PYOPENGL_PLATFORM"] = backend  # must be known before OpenGL is loaded
        os.environ.setdefault("LP_NUM_THREADS", "0")  # small images gain nothing from threads
        load_triton()
        self.gl: Any = import_module(f"mujoco.{backend}").GLContext(size, size)
        self.gl.make_current()
        self.context = mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self.context)
        self.scene = mujoco.MjvScene(self.model, maxgeom=1000)
        if quality == "fast":
            for costly in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
                self.scene.flags[costly] = 0
        self.data, self.option = mujoco.MjData(self.model), mujoco.MjvOption()
        self.camera = mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(self.model, self.camera)
        if camera >= 0:
            self.camera.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
            self.camera.fixedcamid = camera
        self.viewport = mujoco.MjrRect(0, 0, size, size)
        self.frame = 3, size, size
        self.rows = np.empty((size, size, 3), np.uint8)  # from the lowest row to the highest
        atexit.register(self.close)

    def render(self, state: Doubles) -> Pixels:
        """(N, 3, H, W) for states of simulations (N, .), as `simulations.state()` has them."""
        return self.render_all([(self.model, row) for row in state])

    def render_pairs(self, pairs: Sequence[tuple[mujoco.MjModel, mujoco.MjData]]) -> Pixels:
        """Of simulations as they are now, each with a model of its own: tasks change them."""
        state = np.empty((len(pairs), mujoco.mj_stateSize(self.model, STATE)))
        for (model, data), row in zip(pairs, state, strict=True):
            mujoco.mj_getState(model, data, row, STATE)
        models = (model for model, _ in pairs)
        return self.render_all(list(zip(models, state, strict=True)))

    def render_all(self, shown: Sequence[tuple[mujoco.MjModel, Doubles]]) -> Pixels:
        images = np.empty((len(shown), *self.frame), np.uint8)
        self.gl.make_current()
        for (model, state), image in zip(shown, images, strict=True):
            self.draw(model, state)
            image[:] = self.rows[::-1].transpose(2, 0, 1)
        return images

    def draw(self, model: mujoco.MjModel, state: Doubles) -> None:
        data, everything = self.data, mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mj_setState(model, data, state, STATE)
        mujoco.mj_kinematics(model, data)  # what is drawn depends on no more than these four
        mujoco.mj_comPos(model, data)
        mujoco.mj_camlight(model, data)
        mujoco.mj_tendon(model, data)
        mujoco.mjv_updateScene(model, data, self.option, None, self.camera, everything, self.scene)
        mujoco.mjr_render(self.viewport, self.scene, self.context)
        mujoco.mjr_readPixels(self.rows, None, self.viewport, self.context)

    def close(self) -> None:
        """Before the interpreter ends, or the drivers complain."""
        with contextlib.suppress(Exception):
            self.context.free()
            self.gl.free()


def needed_backend() -> str:
    """Raises InputError where nothing can draw."""
    backend = first_working()
    if backend is None:
        raise InputError(
            "pixels need OpenGL, and neither EGL nor OSMesa works here: on Debian or Ubuntu "
            "`apt install libegl1 libgl1-mesa-dri` gives EGL; `comsd doctor` says more"
        )
    return backend


@cache
def make_renderer(robot: str, size: int, quality: Quality) -> Renderer:
    """One for all simulations of a robot."""
    found: Robot = load_robot(robot)
    return Renderer(found.model, size, quality, found.camera, needed_backend())


MODEL_RENDERERS: dict[tuple[Any, ...], Renderer] = {}


def model_renderer(model: mujoco.MjModel, size: int, quality: Quality) -> Renderer:
    """One for all models that only differ in what is drawn anew for every image.

    Its camera is the one called `track`, as in Gymnasium, else the first, else one from outside.
    """
    kept = bytes(model.names), model.tex_data, model.mesh_vert, model.skin_vert, model.hfield_data
    key = size, quality, hashlib.sha256(b"".join(map(bytes, kept))).hexdigest()
    if key not in MODEL_RENDERERS:
        track = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA.value, "track")
        camera = track if track >= 0 or not model.ncam else 0
        MODEL_RENDERERS[key] = Renderer(model, size, quality, camera, needed_backend())
    return MODEL_RENDERERS[key]


def frame_times(backend: str, robot: str = "cheetah", frames: int = 5) -> str:
    """Milliseconds per image of each quality, as text."""
    times: list[str] = []
    model, camera = load_robot(robot).model, load_robot(robot).camera
    state = np.zeros((1, mujoco.mj_stateSize(model, STATE)))
    mujoco.mj_getState(model, mujoco.MjData(model), state[0], STATE)
    quality: Quality
    for quality in ("full", "near", "fast"):
        renderer = Renderer(model, SIZE, quality, camera, backend)
        renderer.render(state)
        began = time.perf_counter()
        for _ in range(frames):
            renderer.render(state)
        times.append(f"{quality} {1000 * (time.perf_counter() - began) / frames:.2g}")
    return f"ms per image of {SIZE} x {SIZE}: {', '.join(times)}"


def measured_times(backend: str) -> str:
    """The same, measured in a process of its own."""
    done = run_python(backend, "-c", TIMES, backend, patience=PATIENCE)
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 else "draws"
