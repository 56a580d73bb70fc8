"""What the processor of a run can do."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from comsd.config import RunSettings
from comsd.errors import InputError

CPU_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # x86: the first two; Arm: the last


def check_device(settings: RunSettings) -> None:
    """Raise InputError unless the device is there and has the precision."""
    device = torch.device(settings.device)
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise InputError(f"device is {settings.device!r}, but torch finds none here") from None
    if settings.precision == "bf16" and not has_bf16(device):
        raise InputError(
            f"precision is 'bf16', but this {settings.device} has no instructions for it; "
            "allowed: float32"
        )


def has_bf16(device: torch.device) -> bool:
    """Does it multiply bfloat16 faster than float32?"""
    return torch.cuda.is_bf16_supported() if device.type == "cuda" else bool(cpu_bf16_flags())


def cpu_bf16_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    if not cpuinfo.exists():
        return set()
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    return CPU_FLAGS.intersection(line[1].split()) if line else set()
