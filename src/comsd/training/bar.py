"""The live bar of progress. Loaded only on a terminal, since rich takes time to load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.table import Column
from rich.text import Text


class Fitting:
    """As many figures as there is room for, none of them cut."""

    def __init__(self, figures: Sequence[str]) -> None:
        self.figures = figures

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        text = ""
        for figure in self.figures:
            longer = f"{text}  {figure}" if text else figure
            if len(longer) > options.max_width:
                break
            text = longer
        yield Text(text, no_wrap=True)


class Figures(ProgressColumn):
    def render(self, task: Task) -> Fitting:
        return Fitting(task.fields["figures"])


def make_bar(console: Console) -> Progress:
    """How far, how fast and how long keep their width; the figures take what is left."""
    return Progress(
        "{task.percentage:>3.0f}%",
        BarColumn(min(40, console.width // 8)),
        "{task.completed:,.0f}/{task.total:,.0f}",
        "{task.fields[speed]}",
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        Figures(table_column=Column(no_wrap=True, ratio=1)),
        console=console,
        expand=True,
    )
