"""Runs: the directory, and what its config describes."""

from comsd.runs.run import Run

__all__ = ["Run"]
