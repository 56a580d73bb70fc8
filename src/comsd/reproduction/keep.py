"""What a report is made of, without weights and replay: small enough to publish.

Every finished run becomes a directory of its config, its tables, its analysis and the part of its
last checkpoint that seals the tables; paths on this machine stay behind. `comsd report` reads it as
it reads the run itself, so kept runs of several machines, or of other people, can be laid into one
directory and compared.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from comsd import checkpoint
from comsd.config import SCALES
from comsd.errors import InputError
from comsd.files import Folder
from comsd.reproduction.collect import FinishedRun, find_runs, record_exhibits, requested_exhibits
from comsd.runs.record import CONFIG, read_record
from comsd.runs.run import TABLES


def keep_runs(directory: Path, to: Path) -> None:
    """Copy what is finished below `directory` to `to`; what was kept there before stays."""
    if to.resolve() == directory.resolve():
        raise InputError(f"keep is {to}; it must be another directory than that of the runs")
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"keep {to} cannot be created: {error.strerror}") from None
    for preset in SCALES:
        source, target = directory / preset, Folder(to) / preset
        runs, others = find_runs(source) if source.is_dir() else ([], [])
        if others:
            warnings.warn(f"not kept: {', '.join(others)}", stacklevel=2)
        for found in runs:
            keep_run(found, target / found.stage / found.env / f"{found.arm}-{found.seed}")
        if exhibits := requested_exhibits(source):
            record_exhibits(target, exhibits)


def keep_run(found: FinishedRun, to: Folder) -> None:
    run = found.run
    to.make()
    checkpoint.copy(run.checkpoints, to / "checkpoints", ["run"])
    for name in (f"{table}.csv" for table in TABLES):
        if run.folder.has(name):
            to.replace(name, run.folder.read(name))
    if run.source is not None:
        (to / "source").make()
        (to / "source").replace(CONFIG, run.source.folder.read(CONFIG))
    (to / "analysis").make()
    if found.analysis is not None:
        (to / "analysis").write_sealed("analysis.json", {**found.analysis, "files": {}})
    else:  # one that was kept before is of another training
        to.remove_folder("analysis", ["analysis.json"])
    record = read_record(run.folder)
    if source := record["config"].get("adapt", {}).get("source"):  # from its stage on
        record["config"]["adapt"]["source"] = "/".join(Path(source).parts[-3:])
    to.write_sealed(CONFIG, record)  # last: only now is it a run
