"""Checkpoints: directories of safetensors and JSON that appear whole or not at all.

A state is a tree of dicts and lists whose leaves are tensors, arrays and JSON values. The tensors
of each top-level branch go to one safetensors file, so that the agent can be read alone; the rest
goes to `state.json` together with the checksum of every file. A checkpoint is written beside its
place, flushed to disk and then renamed; the one before it is deleted only after that.

What never changes once it is written, such as the rows of a replay, is a `Chunk`: a file of its
own under `pieces/` that later checkpoints refer to instead of writing it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as decode
from safetensors.torch import save as encode
from torch import Tensor

from comsd.errors import InputError, RunError

FORMAT = 2
KEEP = 2
MANIFEST = "state.json"
PIECES = "pieces"
BEFORE = "-before"  # the name of a checkpoint while the same step is saved again ends in this


class Chunk:
    """Tensors that are written once; after that only their name and checksum are needed."""

    def __init__(
        self,
        name: str,
        span: Any,
        tensors: dict[str, Tensor] | None,
        checksum: str | None = None,
    ) -> None:
        self.name, self.span, self.tensors, self.checksum = name, span, tensors, checksum

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
        aside = folder / f".tmp-{self.name}"
        write_file(aside, content)
        aside.rename(self.file(folder))
        self.checksum = hashlib.sha256(content).hexdigest()
        self.drop()

    def read(self, folder: Path) -> None:
        content = checked(self.file(folder), self.checksum)
        self.tensors = {path.rpartition("/")[2]: t for path, t in decode(content).items()}

    def file(self, folder: Path) -> Path:
        return folder / f"{self.name}.safetensors"


def checked(file: Path, checksum: str | None) -> bytes:
    """The content of a file, if it is what was written."""
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != checksum:
        raise RunError(f"{file} is damaged: its checksum does not match")
    return content


def pack(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """The tree with tensors and arrays replaced by references to `tensors`."""
    if isinstance(tree, dict):
        return {str(key): pack(value, f"{path}/{key}", tensors) for key, value in tree.items()}
    if isinstance(tree, list):
        return [pack(value, f"{path}/{i}", tensors) for i, value in enumerate(tree)]
    if isinstance(tree, (Tensor, np.ndarray)):
        kind = "tensor" if isinstance(tree, Tensor) else "array"
        tensor = torch.as_tensor(tree).detach().cpu().contiguous().clone()
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise RunError(f"not saved: {path.lstrip('/')} holds NaN or infinity")
        tensors[path] = tensor
        return {"$" + kind: path}
    if isinstance(tree, Chunk):
        return {"$piece": tree.name, "span": list(tree.span), "checksum": tree.checksum}
    return tree


def pieces_of(tree: Any) -> list[Chunk]:
    """All pieces in a state."""
    if isinstance(tree, Chunk):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else []
    return [piece for part in parts for piece in pieces_of(part)]


def names_of(tree: Any) -> set[str]:
    """The names of all pieces in a packed state."""
    if isinstance(tree, dict):
        own = {tree["$piece"]} if "$piece" in tree else set[str]()
        return own.union(*map(names_of, tree.values()))
    return set[str]().union(*map(names_of, tree)) if isinstance(tree, list) else set()


def unpack(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `pack`; the content of pieces is still to be read."""
    if isinstance(tree, dict):
        if "$piece" in tree:
            return Chunk(tree["$piece"], tree["span"], None, tree["checksum"])
        if "$tensor" in tree:
            return tensors[tree["$tensor"]]
        if "$array" in tree:
            return tensors[tree["$array"]].numpy()
        return {key: unpack(value, tensors) for key, value in tree.items()}
    if isinstance(tree, list):
        return [unpack(value, tensors) for value in tree]
    return tree


def seal(manifest: dict[str, Any]) -> str:
    """Checksum of the manifest's own content."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


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


def mend(folder: Path) -> None:
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
    mend(folder)
    for leftover in folder.glob(".tmp-*"):
        shutil.rmtree(leftover)
    place, aside = folder / f"{step:012d}", folder / f".tmp-{step}"
    aside.mkdir()
    try:
        for piece in pieces_of(state):
            piece.write(folder / PIECES)
        if (folder / PIECES).is_dir():
            flush(folder / PIECES)
        tree, files = {}, {}
        for branch, value in state.items():
            tensors: dict[str, Tensor] = {}
            tree[branch] = pack(value, branch, tensors)
            name = f"{branch}.safetensors"
            content = encode(tensors)
            write_file(aside / name, content)
            files[name] = hashlib.sha256(content).hexdigest()
        manifest = {"format": FORMAT, "step": step, "files": files, "state": tree}
        write_json(aside / MANIFEST, {**manifest, "seal": seal(manifest)})
        before = folder / f".tmp-{place.name}{BEFORE}"
        if place.exists():  # the same step again
            place.rename(before)
        aside.rename(place)
        flush(folder)
        shutil.rmtree(before, ignore_errors=True)  # `mend` is only for a death in between
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    for old in sorted(found(folder))[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)
    drop_pieces(folder)
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


def drop_pieces(folder: Path) -> None:
    """Delete the pieces that no checkpoint refers to."""
    if not (folder / PIECES).is_dir():
        return
    try:
        manifests = [json.loads((place / MANIFEST).read_text()) for place in found(folder)]
    except (OSError, ValueError):  # a damaged manifest may refer to any of them
        return
    used = names_of([manifest.get("state") for manifest in manifests])
    for file in (folder / PIECES).iterdir():
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
            raise InputError(
                f"{place} was written by another version: format {manifest['format']}, "
                f"this one reads format {FORMAT}"
            )
        if manifest.pop("seal") != seal(manifest):
            raise RunError(f"{place / MANIFEST} is damaged: its checksum does not match")
        state = {}
        for branch in manifest["state"] if branches is None else branches:
            if not branch.isidentifier():
                raise RunError(f"{place / MANIFEST} names a file that is none of its own")
            file = place / f"{branch}.safetensors"
            content = checked(file, manifest["files"][file.name])
            state[branch] = unpack(manifest["state"][branch], decode(content))
        for piece in pieces_of(state):
            if Path(piece.name).name != piece.name:
                raise RunError(f"{place / MANIFEST} names a file that is none of its own")
            piece.read(place.parent / PIECES)
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
    problems: list[str] = []
    passed: list[Path] = []
    for place in sorted(found(folder), reverse=True):
        try:
            state = read(place, branches)
        except RunError as error:
            problems.append(str(error))
            passed.append(place)
            continue
        for damaged in passed if set_aside else ():
            damaged.rename(folder / f".tmp-damaged-{damaged.name}")
        return state, problems
    if problems:
        raise RunError("no checkpoint can be read: " + "; ".join(problems))
    raise RunError(f"{folder} holds no checkpoint")
