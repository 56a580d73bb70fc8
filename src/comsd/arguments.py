"""Arguments of the Python API: what is wrong with one is said as the command line says it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from comsd.config import check_value, shown
from comsd.errors import InputError


def as_path(name: str, value: object) -> Path:
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text or not is_encodable(text):
        raise InputError(f"{name} is {shown(value)}; it must be a path")
    return Path(text)


def is_encodable(text: str) -> bool:
    """Can it be the name of a file?"""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def as_flag(name: str, value: object) -> bool:
    flag = value.item() if isinstance(value, np.bool_) else value
    check_value(name, flag, bool, {})
    return bool(flag)


def check_report(report: object) -> None:
    if not callable(report):
        raise InputError(f"report is {shown(report)}; it must be a function of a text")
