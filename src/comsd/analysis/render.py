"""The process that renders poses to a film. Started by `video.py` with MUJOCO_GL set."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from comsd.envs.mujoco import Robot
from comsd.envs.robots import Planar, load_robot
from comsd.envs.simulation import Doubles

Pixels = NDArray[np.uint8]  # (height, width, 3)

CELL = 240  # pixels of a skill's side
GAP = 4  # white between them
TEXT = 15


def grid(pictures: Sequence[Pixels], labels: Sequence[str]) -> Pixels:
    """A sheet of labelled pictures of one size, about as many rows as columns."""
    columns = math.ceil(math.sqrt(len(pictures)))
    rows = math.ceil(len(pictures) / columns)
    height, width = (side + GAP for side in pictures[0].shape[:2])
    size = (columns * width - GAP, rows * height - GAP)
    # Video codecs want even sides.
    sheet = Image.new("RGB", (size[0] + size[0] % 2, size[1] + size[1] % 2), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(TEXT)
    for i, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        x, y = i % columns * width, i // columns * height
        sheet.paste(Image.fromarray(picture), (x, y))
        pen.text((x + 6, y + 4), label, "white", font, stroke_width=2, stroke_fill="black")
    return np.asarray(sheet)


def pictures(robot: Robot, qpos: Doubles) -> Iterator[list[Pixels]]:
    """For each moment the pictures of all skills; qpos (skills, time, .)."""
    data, camera = mujoco.MjData(robot.model), mujoco.MjvCamera()
    camera.type, camera.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING.value, robot.torso
    planar = isinstance(robot, Planar)  # from the side; others from the side and above
    camera.azimuth, camera.elevation, camera.distance = (90, -12, 3) if planar else (115, -25, 4.2)
    robot.model.geom_size[robot.model.geom_bodyid == 0, :2] = 0  # draws an infinite floor
    with mujoco.Renderer(robot.model, CELL, CELL) as renderer:
        for costly in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            renderer.scene.flags[costly] = 0  # without a GPU they take most of the time
        for moment in qpos.swapaxes(0, 1):
            row = []
            for pose in moment:
                data.qpos[:] = pose
                mujoco.mj_forward(robot.model, data)
                renderer.update_scene(data, camera)
                row.append(renderer.render().copy())
            yield row


def write(film: Path, frames: Iterator[Pixels], fps: int) -> None:
    """An mp4 by imageio's ffmpeg, a GIF by Pillow."""
    if film.suffix == ".mp4":
        import imageio.v2 as imageio

        writer: Any
        with imageio.get_writer(film, fps=fps, macro_block_size=1) as writer:
            for frame in frames:
                writer.append_data(frame)
        return
    first, *others = [Image.fromarray(frame).quantize(64) for frame in frames]
    first.save(film, save_all=True, append_images=others, duration=round(1000 / fps), loop=0)


def main(name: str, poses: str, fps: str, film: str) -> None:
    saved = np.load(poses)
    moments, labels = pictures(load_robot(name), saved["qpos"]), saved["labels"].tolist()
    write(Path(film), (grid(row, labels) for row in moments), int(fps))


if __name__ == "__main__":
    main(*sys.argv[1:])
