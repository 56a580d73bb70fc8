"""Checkpoints: directories of safetensors and JSON that appear whole or not at all.

A state is a tree of dicts and lists whose leaves are tensors, arrays and JSON values. The tensors
of each top-level branch go to one safetensors file, so that the agent can be read alone; the rest
goes to `state.json` together with the checksum of every file. A checkpoint is written beside its
place, flushed to disk and then renamed; the one before it is deleted only after that.

What never changes once it is written, such as the rows of a replay, is a `Chunk`: a file of its
own under `chunks/` that later checkpoints refer to instead of writing it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
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
from comsd.files import ASIDE, Folder, checksum, seal

FORMAT = 3
READ_BY = {1: "comsd 0.1.0 at commit 4f40b97", 2: "comsd 0.1.0 at commit 94b6ac0"}  # old formats
KEEP = 2
MANIFEST = "state.json"
CHUNKS = "chunks"
BEFORE = "-before"  # the name of a checkpoint while the same step is saved again ends in this
# The names of what this file creates, and may therefore remove.
PLACE = re.compile(r"[0-9]{12}")
LEFTOVER = re.compile(rf"\.tmp-([0-9]+|[0-9]{{12}}{BEFORE}|damaged-[0-9]{{12}})")
FILE = re.compile(rf"[a-z]+\.safetensors|{re.escape(MANIFEST)}({re.escape(ASIDE)})?")
CHUNK = re.compile(rf"[a-z]+-[0-9]{{12}}\.safetensors({re.escape(ASIDE)})?")
NAME = re.compile(r"[a-z][a-z0-9_-]*")  # of a branch or a chunk


@dataclass(eq=False)
class Chunk:
    """Tensors that are written once; after that only their name and checksum are needed."""

    name: str
    span: Any  # a JSON value that says what it holds
    tensors: dict[str, Tensor] | None
    checksum: str | None = None
    folder: Folder | None = None  # of the file, once there is one

    def take(self, name: str) -> Tensor:
        """Reads the file if its content is not in memory."""
        if self.tensors is None:
            assert self.folder is not None, f"{self.name} was never written"
            content = read_tensors(self.folder, self.file, self.checksum)
            self.tensors = {path.rpartition("/")[2]: t for path, t in content.items()}
        return self.tensors[name]

    def drop(self) -> None:
        """Forget the content: it is on disk."""
        self.tensors = None

    def write(self, folder: Folder) -> None:
        if self.checksum is not None:
            return
        assert self.tensors is not None
        folder.make()
        flat: dict[str, Tensor] = {}
        pack(self.tensors, self.name, flat)
        content = encode(flat)
        self.folder = folder
        folder.replace(self.file, content)
        self.checksum = checksum(content)
        self.drop()

    def check(self, folder: Folder) -> None:
        """Is the file what was written? Its content is read again when it is needed."""
        self.folder = folder
        read_tensors(folder, self.file, self.checksum)

    @property
    def file(self) -> str:
        return f"{self.name}.safetensors"


def read_tensors(folder: Folder, name: str, expected: Any) -> dict[str, Tensor]:
    """The content of a file, if it is what was written."""
    content, file = folder.read(name), folder.path / name
    if checksum(content) != expected:
        raise RunError(f"{file} is damaged: its checksum does not match")
    tensors = decode(content)
    if any(t.is_floating_point() and not bool(torch.isfinite(t).all()) for t in tensors.values()):
        raise RunError(f"{file} holds NaN or infinity")
    return tensors


def pack(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """The tree with tensors and arrays replaced by references to `tensors`."""
    if isinstance(tree, dict):
        return {str(key): pack(value, f"{path}/{key}", tensors) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [pack(value, f"{path}/{i}", tensors) for i, value in enumerate(tree)]
    if isinstance(tree, (Tensor, np.ndarray)):
        tensor = torch.as_tensor(tree).detach().cpu().contiguous().clone()
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise RunError(f"not saved: {path.lstrip('/')} holds NaN or infinity")
        tensors[path] = tensor
        return {"$tensor" if isinstance(tree, Tensor) else "$array": path}
    if isinstance(tree, np.generic):
        return tree.item()
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
        if "$tensor" in tree:
            return tensors[tree["$tensor"]]
        if "$array" in tree:
            return tensors[tree["$array"]].numpy()
        return {key: unpack(value, tensors) for key, value in tree.items()}
    if isinstance(tree, list):
        return [unpack(value, tensors) for value in tree]
    return tree


def as_folder(folder: Folder | Path) -> Folder:
    return folder if isinstance(folder, Folder) else Folder(folder.parent, folder.name)


def recover(folder: Folder | Path) -> None:
    """Put back what a save of the same step again had moved away when its process died.

    For the one process that writes here.
    """
    folder = as_folder(folder)
    for before in folder.names():
        place = before.removeprefix(".tmp-").removesuffix(BEFORE)
        if before == f".tmp-{place}{BEFORE}" and PLACE.fullmatch(place) and not folder.has(place):
            folder.rename(before, place)


def save(folder: Folder | Path, step: int, state: dict[str, Any], keep: int | None = KEEP) -> Path:
    """Write `folder/<step>` and drop all but the newest `keep`, or nothing."""
    folder = as_folder(folder)
    folder.make()
    recover(folder)
    for leftover in filter(LEFTOVER.fullmatch, folder.names()):
        remove(folder, leftover)
    place, aside = f"{step:012d}", f".tmp-{step}"
    (folder / aside).make()
    try:
        for chunk in chunks_of(state):
            chunk.write(folder / CHUNKS)
        tree, files = {}, {}
        for branch, value in state.items():
            tensors: dict[str, Tensor] = {}
            tree[branch] = pack(value, branch, tensors)
            name = f"{branch}.safetensors"
            content = encode(tensors)
            (folder / aside).write(name, content)
            files[name] = checksum(content)
        manifest = {"format": FORMAT, "step": step, "files": files, "state": tree}
        (folder / aside).write_json(MANIFEST, {**manifest, "checksum": seal(manifest)})
        before = f".tmp-{place}{BEFORE}"
        if folder.has(place):  # the same step again
            folder.rename(place, before)
        folder.rename(aside, place)
        folder.sync()
        remove(folder, before)  # `recover` is only for a death in between
    except BaseException:
        remove(folder, aside)
        raise
    for old in sorted(found(folder))[:-keep] if keep else ():
        remove(folder, old.name)
    drop_chunks(folder)
    return folder.path / place


def remove(folder: Folder, name: str) -> None:
    """What a checkpoint is made of, if it can be; what a user put beside it stays."""
    with suppress(OSError):
        if folder.has_folder(name):
            place = folder / name
            try:
                files = {*read_manifest(place)["files"], MANIFEST, MANIFEST + ASIDE}
            except (OSError, RunError, InputError):
                files = {file for file in place.names() if FILE.fullmatch(file)}
            folder.remove_folder(name, files)


def copy(folder: Folder, to: Folder, branches: list[str]) -> None:
    """The newest checkpoint of a folder, reduced to some branches, where it has them."""
    place = folder / max(found(folder)).name
    kept = [name for name in branches if place.has(f"{name}.safetensors")]
    save(to, int(place.path.name), read(place, kept))


def has_branch(folder: Folder, branch: str) -> bool:
    """Does the newest checkpoint hold it?"""
    places = found(folder)
    return bool(places) and (folder / max(places).name).has(f"{branch}.safetensors")


def drop_chunks(folder: Folder) -> None:
    """Delete the chunks that no checkpoint refers to."""
    chunks = folder / CHUNKS
    try:
        manifests = [read_manifest(folder / place.name) for place in found(folder)]
    except (OSError, RunError, InputError):  # a damaged manifest may refer to any of them
        return
    used = {f"{name}.safetensors" for name in chunk_names(manifests)}
    for name in chunks.names():
        if CHUNK.fullmatch(name) and name not in used:
            chunks.remove(name)


def found(folder: Folder | Path) -> list[Path]:
    """The checkpoints in a folder, and nothing a user may have put beside them."""
    folder = as_folder(folder)
    names = filter(PLACE.fullmatch, folder.names())
    return [folder.path / name for name in names if folder.has_folder(name)]


def read_manifest(place: Folder) -> dict[str, Any]:
    """What a checkpoint consists of; raises RunError if that is damaged."""
    file = place.path / MANIFEST
    manifest = place.read_json(MANIFEST)
    try:
        form = manifest["format"]
        if isinstance(form, int) and form != FORMAT:
            other = READ_BY.get(form, "another version")
            raise InputError(f"{place.path} is for {other}: format {form}, this one reads {FORMAT}")
        if manifest.pop("checksum") != seal(manifest) or form != FORMAT:
            raise RunError(f"{file} is damaged: its checksum does not match")
        names = {*manifest["state"], *chunk_names(manifest["state"])}
        files = {*manifest["files"]}
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise RunError(f"{file} is damaged") from None
    own = {f"{name}.safetensors" for name in manifest["state"]}
    if files != own or not all(map(NAME.fullmatch, map(str, names))):
        raise RunError(f"{file} names a file that is none of its own")
    return manifest


def read(place: Folder | Path, branches: list[str] | None = None) -> dict[str, Any]:
    """The state of one checkpoint, or those of some branches that it has; checks what it reads."""
    place = place if isinstance(place, Folder) else Folder(place.parent, place.name)
    file = place.path / MANIFEST
    try:
        manifest = read_manifest(place)
        state = {}
        for branch, tree in manifest["state"].items():
            if branches is None or branch in branches:
                name = f"{branch}.safetensors"
                tensors = read_tensors(place, name, manifest["files"][name])
                state[branch] = unpack(tree, tensors)
        for chunk in chunks_of(state):
            chunk.check(Folder(place.top, *place.below[:-1], CHUNKS))
        return state
    except (InputError, RunError):
        raise
    except OSError as error:
        raise RunError(f"{error.filename} cannot be read: {error.strerror}") from None
    except SafetensorError as error:
        raise RunError(f"{place.path} is damaged: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        raise RunError(f"{file} is damaged") from None


Check = Callable[[dict[str, Any]], None]  # raises RunError for a state that cannot be used


def accept(state: dict[str, Any]) -> None:
    """Every state that is whole."""


def newest(
    folder: Folder | Path, branches: list[str] | None = None, check: Check = accept
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Step and state of the newest checkpoint that is whole; what was wrong with newer ones."""
    folder, problems = as_folder(folder), dict[str, str]()
    for place in sorted(found(folder), reverse=True):
        try:
            state = read(folder / place.name, branches)
            check(state)
            return int(place.name), state, problems
        except RunError as error:
            problems[place.name] = str(error)
    if problems:
        raise RunError("no checkpoint can be read: " + "; ".join(problems.values()))
    raise RunError(f"{folder.path} holds no checkpoint")


def latest(
    folder: Folder | Path,
    branches: list[str] | None = None,
    *,
    check: Check = accept,
    set_aside: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """The newest checkpoint that is whole, and what was wrong with newer ones.

    set_aside: who goes on from here takes the damaged ones out of the way, or they would count as
    the newer ones again. The next save deletes them.
    """
    _, state, problems = newest(folder, branches, check)
    for damaged in problems if set_aside else ():
        as_folder(folder).rename(damaged, f".tmp-damaged-{damaged}")
    return state, list(problems.values())
