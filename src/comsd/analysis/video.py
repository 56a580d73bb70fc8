"""A video of all skills of a sweep side by side, rendered by a separate process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from comsd import gl
from comsd.envs.simulation import Doubles
from comsd.errors import RunError

FPS = 20
SECONDS = 10


def has_ffmpeg() -> bool:
    return all(find_spec(name) for name in ("imageio", "imageio_ffmpeg"))


def write_video(
    robot: str,
    qpos: Doubles,
    labels: Sequence[str],
    control_step: float,
    folder: Path,
    report: Callable[[str], None],
) -> Path:
    """The first seconds of each roll-out at true speed: skills.mp4, or a GIF without ffmpeg."""
    report("testing OpenGL")
    backend = gl.first_working()
    if backend is None:
        raise RunError("no video: OpenGL does not work here; `comsd doctor` says what to install")
    kind = "mp4" if has_ffmpeg() else "gif"
    if kind == "gif":
        report("a GIF, as there is no ffmpeg: pip install 'comsd[video]' for mp4")
    steps = np.round(np.arange(SECONDS * FPS) / (FPS * control_step)).astype(int)
    frames = qpos[:, steps[steps < qpos.shape[1]]]
    report(f"rendering {frames.shape[0]} x {frames.shape[1]} pictures by {backend}")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".tmp-") as temporary:
        place = Path(temporary)
        np.savez(place / "poses.npz", qpos=frames, labels=labels)
        film = place / f"skills.{kind}"
        argv = [robot, str(place / "poses.npz"), str(FPS), str(film)]
        done = subprocess.run(
            [sys.executable, "-m", "comsd.analysis.render", *argv],
            env=gl.environment(backend),
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"code {done.returncode}"]
            raise RunError(f"no video: rendering failed: {lines[-1]}")
        return film.rename(folder / film.name)
