"""`python -m comsd.jobs.child`: the command `comsd`, told to stop if its parent process dies.

A node's worker may be killed at any moment; its run then saves itself instead of going on unseen.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before
        sys.exit(128 + signal.SIGTERM)
    sys.argv = ["comsd", *sys.argv[2:]]
    runpy.run_module("comsd", run_name="__main__")
