"""What the folders of all search indexes have in common: a manifest, written last; a folder is whole or is not there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolformer.errors import UserError
from toolformer.tools.made_once import made_once
from toolformer.tools.retrieval.passages import Passage

MANIFEST = "index.json"
BACKENDS = ("bm25", "lucene")
VERSION = 1


def row(passage: Passage) -> dict[str, Any]:
    """A passage as an index stores it: the fields of `Passage` but the score."""
    stored = {"passage_id": passage.passage_id, "title": passage.title, "text": passage.text}
    return {**stored, "article": passage.article} if passage.article is not None else stored


def write(
    folder: Path,
    backend: str,
    fill: Callable[[Path], int],
    about: Mapping[str, Any] | None = None,
    workshop: Path | None = None,
) -> int:
    """Builds an index beside its place and moves it there when it is whole; returns its number of passages.

    Args:
        fill: writes the index into the folder it is given and returns the number of its passages.
        about: what the manifest keeps beside that number: where the texts came from.
        workshop: the folder for locks and scratch; beside the index if it is None.

    Raises:
        UserError: there is no passage, or the folder is another index already.
        OSError: the folder cannot be written, or something else is in it.
    """
    made: list[dict[str, Any]] = []

    def build(place: Path) -> None:
        count = fill(place)
        if not count:
            raise UserError("index: the corpus holds no text; nothing was written")
        made.append({"backend": backend, "version": VERSION, "passages": count, **(about or {})})
        (place / MANIFEST).write_text(json.dumps(made[0], indent=1), encoding="utf-8")

    made_once(folder, build, workshop or folder.parent, lambda place: manifest_of(place) is not None)
    there = manifest_of(folder) or {}
    if not made and not {"backend": backend, **(about or {})}.items() <= there.items():
        raise UserError(f"index: another process has made {folder} of other texts; name another folder")
    return int(there["passages"])


def manifest_of(folder: Path) -> dict[str, Any] | None:
    """What is said of an index in its folder; None if it has no manifest."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def check(folder: Path, backend: str) -> None:
    """Whether a folder holds an index that `backend` can read, as far as its files' names tell.

    Raises:
        UserError: it does not.
    """
    if not folder.is_dir():
        raise UserError(f"search: index_path: there is no folder {folder}; make one with toolformer index")
    manifest = manifest_of(folder)
    made = manifest.get("backend") if manifest else None
    if made is not None and made != backend:
        raise UserError(
            f"search: index_path: {folder} is an index for {made}, not for {backend}; take that retriever or build "
            f"it again with index.backend={backend}"
        )
    # Lucene's own folders have no manifest of ours.
    whole = any(folder.glob("segments_*")) if backend == "lucene" else made == backend
    if not whole:
        raise UserError(
            f"search: index_path: {folder} is no {backend} index; make one with toolformer index index.path={folder} "
            f"index.backend={backend}"
        )
    if manifest and manifest.get("version") != VERSION:
        raise UserError(f"search: index_path: {folder} was built by another version; build it again")
