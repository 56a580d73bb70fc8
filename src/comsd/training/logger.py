"""Where the figures of training go: tables, TensorBoard, progress."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from comsd.training.progress import Progress


class Rows(Protocol):
    def append(self, row: Mapping[str, float]) -> None: ...


class Logger:
    """Metrics of training and of evaluations by step; a context, since some are kept open."""

    def __init__(
        self,
        metrics: Rows,
        evaluations: Rows,
        progress: Progress,
        tensorboard: Path | None = None,
        start: int = 0,
    ) -> None:
        """start: the step to continue from; what TensorBoard has of later ones is replaced."""
        self.metrics, self.evaluations, self.progress = metrics, evaluations, progress
        self.board: Any = None
        if tensorboard is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(tensorboard), purge_step=start + 1)

    def __enter__(self) -> Logger:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
        if self.board is not None:
            self.board.close()

    def log_metrics(self, step: int, values: Mapping[str, float], seconds: float) -> None:
        self.metrics.append({"step": step, **values, "seconds": round(seconds, 2)})
        self._show(step, values, "")

    def log_evaluation(self, step: int, values: Mapping[str, float]) -> None:
        self.evaluations.append({"step": step, **values})
        self._show(step, values, "evaluation/")

    def _show(self, step: int, values: Mapping[str, float], prefix: str) -> None:
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(prefix + name, value, step)
        self.progress.show(values)

    def advance(self, step: int) -> None:
        self.progress.advance(step)
