"""A video of all skills of a sweep side by side, rendered by a separate process.

MuJoCo chooses its OpenGL when it is imported, by MUJOCO_GL, and cannot change its mind: whoever
wants to render starts a process with that variable set. A bad OpenGL may crash its process, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from comsd.envs.rendering import failure, first_working
from comsd.envs.simulation import Doubles
from comsd.errors import RunError
from comsd.files import Folder

FPS = 20
SECONDS = 10


def has_ffmpeg() -> bool:
    return all(find_spec(name) for name in ("imageio", "imageio_ffmpeg"))


def write_video(
    robot: str,
    qpos: Doubles,
    labels: Sequence[str],
    control_step: float,
    folder: Folder,
    report: Callable[[str], None],
    name: str = "skills",
) -> Path:
    """The first seconds of each roll-out at true speed: NAME.mp4, or a GIF without ffmpeg."""
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
        poses, film = Path(temporary, "poses.npz"), Path(temporary, f"{name}.{kind}")
        np.savez(poses, qpos=frames, labels=labels)
        argv = ["-m", "comsd.analysis.render", robot, str(poses), str(FPS), str(film)]
        if why := failure(backend, *argv):
            raise RunError(f"no video: rendering failed: {why}")
        folder.replace(film.name, film.read_bytes())
        return folder.path / film.name
