"""Tables of text: what is to be typed stays whole at every width, prose makes room for it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from comsd.cli.console import printable, wrapped

USUAL = 80  # columns of a terminal that does not say
UNLIMITED = 10_000  # columns of a pipe: a line per row, to be searched
MARGIN, GAP, INDENT = 2, 3, " " * 4
READABLE = 40  # columns below which sentences are tiring


class Table:
    """Columns of names and figures, which are never cut, and of prose, which folds.

    prose: these columns, and the width that each needs. Without that room, the last of them are
    put below their row or, if `elsewhere` says how to see them, left out.
    """

    def __init__(
        self, *columns: str, prose: Mapping[str, int] | None = None, elsewhere: str = ""
    ) -> None:
        self.columns, self.prose = [printable(name) for name in columns], prose or {}
        self.elsewhere = printable(elsewhere)
        self.rows: list[list[str]] = []  # an empty one begins a section

    def add_row(self, *cells: str) -> None:
        self.rows.append([printable(cell) for cell in cells])

    def add_section(self) -> None:
        if self.rows:
            self.rows.append([])

    def lines(self, width: int) -> list[str]:
        widths = self.widths(width)
        below = [i for i in range(len(self.columns)) if i not in widths]
        rule = " " * MARGIN + dash() * (total(widths.values()) - MARGIN)
        lines = ["", *fold(self.columns, widths), rule]
        for row in self.rows:
            lines += fold(row, widths) if row else [""]
            told = [i for i in below if row and row[i] and not self.elsewhere]
            for i in told:
                label = f"{self.columns[i]}: " if len(below) > 1 else ""
                lines += [INDENT + line for line in wrapped(label + row[i], width - len(INDENT))]
        return [*lines, "", *([self.elsewhere] if below and self.elsewhere else [])]

    def widths(self, width: int) -> dict[int, int]:
        """Of the columns for which there is room, by their place."""
        folding = [i for i, name in enumerate(self.columns) if name in self.prose]
        widths, spare = dict[int, int](), 0
        for kept in range(len(folding), -1, -1):
            below = folding[kept:]
            widths = {i: self.least(i) for i in range(len(self.columns)) if i not in below}
            spare = width - total(widths.values())
            if spare >= 0:
                break
        for i, least in widths.items():  # what is left, for headings and prose
            wanted = max(len(self.columns[i]), longest(self.cells(i)))
            widths[i] += max(0, min(wanted - least, spare))
            spare -= widths[i] - least
        return widths

    def least(self, i: int) -> int:
        heading, cells = longest(self.columns[i].split()), self.cells(i)
        if self.columns[i] not in self.prose:
            return max(heading, longest(cells))
        words = longest([word for cell in cells for word in cell.split()])
        return max(heading, words, min(longest(cells), self.prose[self.columns[i]]))

    def cells(self, i: int) -> list[str]:
        return [row[i] for row in self.rows if row]


def longest(texts: Sequence[str]) -> int:
    return max(map(len, texts), default=0)


def total(widths: Iterable[int]) -> int:
    each = [*widths]
    return MARGIN + sum(each) + GAP * (len(each) - 1)


def dash() -> str:
    return "─" if (sys.stdout.encoding or "").lower().startswith("utf") else "-"


def fold(cells: Sequence[str], widths: Mapping[int, int]) -> list[str]:
    """The lines of a row."""
    columns = [wrapped(cells[i], width) for i, width in widths.items()]
    padded = [
        [f"{part:{width}}" for part, width in zip(parts, widths.values(), strict=True)]
        for parts in zip_longest(*columns, fillvalue="")
    ]
    return [" " * MARGIN + (" " * GAP).join(parts).rstrip() for parts in padded]


def terminal_width() -> int:
    """COLUMNS, or those of the terminal."""
    usual = USUAL if sys.stdout.isatty() else UNLIMITED
    return shutil.get_terminal_size((usual, 24)).columns


def show(table: Table) -> None:
    print("\n".join(table.lines(terminal_width())), flush=True)
