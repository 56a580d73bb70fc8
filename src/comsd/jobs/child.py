"""`python -m comsd.jobs.child PID ...`: the command `comsd ...`, told to stop if PID dies.

Whoever carries out a plan may be killed at any moment; its runs then save themselves instead of
going on unseen.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 1.0  # seconds between looks at the parent, where the kernel does not tell


def argv(*words: str) -> list[str]:
    """What starts a command that ends with this process."""
    return [sys.executable, "-m", "comsd.jobs.child", str(os.getpid()), *words]


def watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def bind(parent: int) -> None:
    """End as at SIGTERM, with what is trained saved, when the parent is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    else:
        threading.Thread(target=watch, args=[parent], daemon=True).start()
    if os.getppid() != parent:  # it died before
        sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    bind(int(sys.argv[1]))
    sys.argv = ["comsd", *sys.argv[2:]]
    runpy.run_module("comsd", run_name="__main__")
