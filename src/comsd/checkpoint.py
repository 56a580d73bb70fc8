"""Checkpoints: directories of safetensors and JSON that appear whole or not at all.

A state is a tree of dicts and lists whose leaves are tensors, arrays and JSON values. The tensors
of each top-level branch go to one safetensors file, so that the agent can be read alone; the rest
goes to `state.json` together with the checksum of every file. A checkpoint is written beside its
place, flushed to disk and then renamed; the one before it is deleted only after that.

What never changes once it is written, such as the rows of a replay, is a `Chunk`: a file of its
own under `chunks/` that later checkpoints refer to instead of writing it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as decode
from safetensors.torch import save as encode
from torch import Tensor

from comsd.errors import InputError, RunError

FORMAT = 3
READ_BY = {1: "comsd 0.1.0 at commit 4f40b97", 2: "comsd 0.1.0 at commit 94b6ac0"}  # old formats
KEEP = 2
MANIFEST = "state.json"
CHUNKS = "chunks"
BEFORE = "-before"  # the name of a checkpoint while the same step is saved again ends in this


@dataclass(eq=False)
class Chunk:
    """Tensors that are written once; after that only their name and checksum are needed."""

    name: str
    span: Any  # a JSON value that says what it holds
    tensors: dict[str, Tensor] | None
    checksum: str | None = None

    def take(self, name: str) -> Tensor:
        assert self.tensors is not None, f"{self.name} has been dropped"
        return self.tensors[name]

    def drop(self) -> None:
        """Forget the content: it is on disk."""
        self.tensors = None

    def write(self, folder: Path) -> None:
        if self.checksum is not None:
            return
        assert self.tensors is not None
        folder.mkdir(exist_ok=True)
        flat: dict[str, Tensor] = {}
        pack(self.tensors, self.name, flat)
        content = encode(flat)
        replace_file(self.file(folder), content)
        self.checksum = checksum(content)
        self.drop()

    def read(self, folder: Path) -> None:
        content = read_checked(self.file(folder), self.checksum)
        self.tensors = {path.rpartition("/")[2]: t for path, t in decode(content).items()}

    def file(self, folder: Path) -> Path:
        return folder / f"{self.name}.safetensors"


def read_checked(file: Path, expected: str | None) -> bytes:
    """The content of a file, if it is what was written."""
    content = file.read_bytes()
    if checksum(content) != expected:
        raise RunError(f"{file} is damaged: its checksum does not match")
    return content


def pack(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """The tree with tensors and arrays replaced by references to `tensors`."""
    if isinstance(tree, dict):
        packed = {str(key): pack(value, f"{path}/{key}", tensors) for key, value in tree.items()}
        numbered = bool(tree) and all(isinstance(key, int) for key in tree)
        return {"$numbered": packed} if numbered else packed  # the state of torch's optimisers
    if isinstance(tree, (list, tuple)):
        return [pack(value, f"{path}/{i}", tensors) for i, value in enumerate(tree)]
    if isinstance(tree, (Tensor, np.ndarray)):
        tensor = torch.as_tensor(tree).detach().cpu().contiguous().clone()
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise RunError(f"not saved: {path.lstrip('/')} holds NaN or infinity")
        tensors[path] = tensor
        return {"$tensor" if isinstance(tree, Tensor) else "$array": path}
    if isinstance(tree, Chunk):
        return {"$chunk": tree.name, "span": tree.span, "checksum": tree.checksum}
    return tree


def nodes(tree: Any) -> Iterator[Any]:
    """Everything in a tree: branches and leaves."""
    yield tree
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else []
    for part in parts:
        yield from nodes(part)


def chunks_of(state: Any) -> list[Chunk]:
    return [node for node in nodes(state) if isinstance(node, Chunk)]


def chunk_names(packed: Any) -> set[str]:
    return {n["$chunk"] for n in nodes(packed) if isinstance(n, dict) and "$chunk" in n}


def unpack(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `pack`; the content of chunks is still to be read."""
    if isinstance(tree, dict):
        if "$chunk" in tree:
            return Chunk(tree["$chunk"], tree["span"], None, tree["checksum"])
        if "$numbered" in tree:
            return {int(key): unpack(value, tensors) for key, value in tree["$numbered"].items()}
        if "$tensor" in tree:
            return tensors[tree["$tensor"]]
        if "$array" in tree:
            return tensors[tree["$array"]].numpy()
        return {key: unpack(value, tensors) for key, value in tree.items()}
    if isinstance(tree, list):
        return [unpack(value, tensors) for value in tree]
    return tree


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def manifest_checksum(manifest: dict[str, Any]) -> str:
    return checksum(json.dumps(manifest, sort_keys=True).encode())


def flush(path: Path) -> None:
    """Make the entries of a directory last."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Write and flush; a full disk shows here, as an OSError."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that is there whole or as it was before."""
    aside = path.with_name(path.name + ".tmp")
    write_file(aside, content)
    aside.rename(path)
    flush(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file in one step."""
    replace_file(path, (json.dumps(value, indent=1) + "\n").encode())


def recover(folder: Path) -> None:
    """Put back what a save of the same step again had moved away when its process died.

    For the one process that writes here.
    """
    for before in folder.glob(f".tmp-*{BEFORE}"):
        place = folder / before.name.removeprefix(".tmp-").removesuffix(BEFORE)
        if not place.exists():
            before.rename(place)


def save(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write `folder/<step>` and drop all but the newest two."""
    folder.mkdir(exist_ok=True)
    recover(folder)
    for leftover in folder.glob(".tmp-*"):
        shutil.rmtree(leftover)
    place, aside = folder / f"{step:012d}", folder / f".tmp-{step}"
    aside.mkdir()
    try:
        for chunk in chunks_of(state):
            chunk.write(folder / CHUNKS)
        tree, files = {}, {}
        for branch, value in state.items():
            tensors: dict[str, Tensor] = {}
            tree[branch] = pack(value, branch, tensors)
            name = f"{branch}.safetensors"
            content = encode(tensors)
            write_file(aside / name, content)
            files[name] = checksum(content)
        manifest = {"format": FORMAT, "step": step, "files": files, "state": tree}
        write_json(aside / MANIFEST, {**manifest, "checksum": manifest_checksum(manifest)})
        before = folder / f".tmp-{place.name}{BEFORE}"
        if place.exists():  # the same step again
            place.rename(before)
        aside.rename(place)
        flush(folder)
        shutil.rmtree(before, ignore_errors=True)  # `recover` is only for a death in between
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    for old in sorted(found(folder))[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)
    drop_chunks(folder)
    return place


def copy(folder: Path, to: Path, branches: list[str]) -> None:
    """The newest checkpoint of a folder, reduced to some branches, where it has them."""
    place = max(found(folder))
    kept = [name for name in branches if (place / f"{name}.safetensors").exists()]
    save(to, int(place.name), read(place, kept))


def plain_state(place: Path, branch: str) -> dict[str, Any] | None:
    """The numbers and texts of a branch, None if the checkpoint's manifest cannot be read."""
    try:
        return dict(json.loads((place / MANIFEST).read_text())["state"][branch])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def drop_chunks(folder: Path) -> None:
    """Delete the chunks that no checkpoint refers to."""
    if not (folder / CHUNKS).is_dir():
        return
    try:
        manifests = [json.loads((place / MANIFEST).read_text()) for place in found(folder)]
    except (OSError, ValueError):  # a damaged manifest may refer to any of them
        return
    used = chunk_names(manifests)
    for file in (folder / CHUNKS).iterdir():
        if file.name.removesuffix(".safetensors") not in used:
            file.unlink(missing_ok=True)


def found(folder: Path) -> list[Path]:
    """The checkpoints in a folder, and nothing a user may have put beside them."""
    places = folder.glob("[0-9]" * 12)
    return [path for path in places if path.is_dir() and not path.is_symlink()]


def read(place: Path, branches: list[str] | None = None) -> dict[str, Any]:
    """The state of one checkpoint, or only some branches of it; checks every file it reads."""
    try:
        manifest = json.loads((place / MANIFEST).read_text())
        if manifest["format"] != FORMAT:
            other = READ_BY.get(manifest["format"], "another version")
            raise InputError(
                f"{place} is for {other}: format {manifest['format']}, this one reads {FORMAT}"
            )
        if manifest.pop("checksum") != manifest_checksum(manifest):
            raise RunError(f"{place / MANIFEST} is damaged: its checksum does not match")
        wanted = manifest["state"] if branches is None else branches
        packed = {branch: manifest["state"][branch] for branch in wanted}
        if any(Path(name).name != name for name in {*packed, *chunk_names(packed)}):
            raise RunError(f"{place / MANIFEST} names a file that is none of its own")
        state = {}
        for branch, tree in packed.items():
            file = place / f"{branch}.safetensors"
            content = read_checked(file, manifest["files"][file.name])
            state[branch] = unpack(tree, decode(content))
        for chunk in chunks_of(state):
            chunk.read(place.parent / CHUNKS)
        return state
    except OSError as error:
        raise RunError(f"{error.filename} cannot be read: {error.strerror}") from None
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError, RecursionError):
        raise RunError(f"{place / MANIFEST} is damaged") from None
    except SafetensorError as error:
        raise RunError(f"{place} is damaged: {error}") from None


def latest(
    folder: Path, branches: list[str] | None = None, *, set_aside: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """The newest checkpoint that is whole, and what was wrong with newer ones.

    set_aside: who goes on from here takes the damaged ones out of the way, or they would count as
    the newer ones again. The next save deletes them.
    """
    problems: dict[Path, str] = {}
    for place in sorted(found(folder), reverse=True):
        try:
            state = read(place, branches)
        except RunError as error:
            problems[place] = str(error)
            continue
        for damaged in problems if set_aside else ():
            damaged.rename(folder / f".tmp-damaged-{damaged.name}")
        return state, list(problems.values())
    if problems:
        raise RunError("no checkpoint can be read: " + "; ".join(problems.values()))
    raise RunError(f"{folder} holds no checkpoint")
