"""Connecting to a Ray cluster: an existing one by its address, or one of this machine's cores.

Token authentication is on, nothing is reported to anybody, and a cluster that is started here
listens on the loopback interface alone.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from comsd.errors import InputError
from comsd.jobs.local import available_cores

REACHABLE = 5.0  # seconds
ANSWERS = 30.0  # seconds
CHECK = """\
import sys, ray
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
"""


def connect(address: str | None) -> Any:
    """The module `ray`, connected; raises InputError, one sentence, if that cannot be."""
    if find_spec("ray") is None:
        raise InputError("on is 'ray' but needs the extra: pip install 'comsd[ray]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if address is None:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        # Ray's switch for machines that are no cluster: every server listens on 127.0.0.1 only.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    else:
        check_reachable(address)
        check_token()
        check_answer(address)
    ray: Any = import_module("ray")
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        if address is None:
            ray.init(address="local", num_cpus=available_cores(), include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"address is {address!r}; Ray cannot be used there: {reason}") from None
    return ray


def check_reachable(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise InputError(f"address is {address!r}; it must be HOST:PORT of the cluster's head")
    try:
        socket.create_connection((host, int(port)), REACHABLE).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"address is {address!r}, which does not answer: {error}") from None


def check_token() -> None:
    if os.environ["RAY_AUTH_MODE"] != "token":
        return
    file = os.environ.get("RAY_AUTH_TOKEN_PATH") or str(Path.home() / ".ray" / "auth_token")
    if not os.environ.get("RAY_AUTH_TOKEN") and not Path(file).is_file():
        raise InputError(
            "the cluster's token is missing: set RAY_AUTH_TOKEN or write it to ~/.ray/auth_token "
            "(RAY_AUTH_MODE=disabled for a cluster without one)"
        )


def check_answer(address: str) -> None:
    """In a process of its own: Ray goes on asking, and says so, when the token is refused."""
    asked = [sys.executable, "-c", CHECK, address]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=ANSWERS)
        said = done.stderr
        if done.returncode == 0:
            return
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode(errors="replace")
    if "InvalidAuthToken" in said or "Unauthenticated" in said:
        raise InputError(f"the token in RAY_AUTH_TOKEN is not that of the cluster at {address}")
    last = said.strip().splitlines()[-1:] or ["no answer"]
    raise InputError(f"address is {address!r}; Ray cannot be used there: {last[0]}")
