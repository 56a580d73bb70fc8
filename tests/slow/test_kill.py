"""kill -9 at many moments, in training and inside saves; run by `make test-kill`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import comsd
from processes import (
    SMALL,
    die_inside_a_save,
    fingerprint,
    kill_after_a_save,
    newest,
    resume,
    start,
)

pytestmark = pytest.mark.slow


LONG = {**SMALL, "steps": 16_000}


def test_twenty_four_deaths_and_the_same_end(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    comsd.pretrain("comsd", run=whole, **LONG)
    rng = np.random.default_rng(1)
    for attempt in range(24):
        if attempt % 3 == 2:  # inside a save: at any file operation of the next, or the one after
            moment, save = int(rng.integers(12)), int(rng.integers(1, 3))
            assert die_inside_a_save(killed, moment, save, LONG) == 9
        else:
            before = newest(killed)
            process = resume(killed) if before else start(killed, LONG)
            kill_after_a_save(process, killed, before, float(rng.uniform(0, 0.4)))
    assert newest(killed) < "000000016000"  # every death was one of a run at work
    comsd.resume(killed)
    assert fingerprint(killed) == fingerprint(whole)
