"""temporary"""

from __future__ import annotations

from abc import ABC, abstractmethod


class Trainer(ABC):
    steps: int

    @abstractmethod
    def train_step(self): ...
