"""Arguments of the Python API: what is wrong with one is said as the command line says it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def plain(value: Any) -> Any:
    """Numbers and arrays of NumPy as those of Python."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def as_flag(name: str, value: object) -> bool:
    flag = plain(value)
    check_value(name, flag, bool, {})
    return bool(flag)


def as_number(name: str, value: object, kind: type, low: float, high: float) -> Any:
    """kind: int or float."""
    number = plain(value)
    check_value(name, number, kind, {"low": low, "high": high})
    return number


def as_text(name: str, value: object) -> str:
    check_value(name, value, str, {})
    return str(value)


def as_names(name: str, value: object) -> list[str]:
    names = plain(value)
    if not isinstance(names, list | tuple) or not all(isinstance(each, str) for each in names):
        raise InputError(f"{name} is {shown(value)}; it must be a list of names")
    return list(names)


def as_mapping(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{name} is {shown(value)}; it must be a dict with names as keys")
    return {key: plain(each) for key, each in value.items()}


def check_report(report: object) -> None:
    if not callable(report):
        raise InputError(f"report is {shown(report)}; it must be a function of a text")
