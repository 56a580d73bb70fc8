"""kill -9 at many moments, in training and inside saves; run by `make test-kill`."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import pytest

import comsd
from robot_runs import SMALL, die_inside_a_save, fingerprint, resume, start

pytestmark = pytest.mark.slow


def test_twenty_four_deaths_and_the_same_end(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    comsd.pretrain("comsd", run=whole, **SMALL)
    rng = np.random.default_rng(1)
    for attempt in range(24):
        if attempt % 3 == 2:  # inside a save, at a random file operation of a random save
            moment, save = int(rng.integers(13)), int(rng.integers(1, 3))
            assert die_inside_a_save(killed, moment, save) in (0, 9)
            continue
        process = resume(killed) if (killed / "config.json").exists() else start(killed)
        while not (killed / "config.json").exists():
            time.sleep(0.01)
        time.sleep(float(rng.uniform(2.0, 7.0)))  # start-up alone takes seconds
        process.send_signal(signal.SIGKILL)
        process.wait()
    comsd.resume(killed)
    assert fingerprint(killed) == fingerprint(whole)
