"""Folders of search indexes: atomic, with a manifest that is written last and has a digest of the other files."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolformer.errors import UserError
from toolformer.storage import build_once, content_digest
from toolformer.tools.retrieval.passages import Passage

MANIFEST = "index.json"
VERSIONS = {"bm25": 6, "lucene": 4}
"""By backend: raise it in the commit that makes its indexes find other passages."""


def row(passage: Passage) -> dict[str, Any]:
    """A passage as an index stores it: without the score."""
    return {key: value for key, value in asdict(passage).items() if key != "score" and value is not None}


def write(
    folder: Path,
    backend: str,
    fill: Callable[[Path], int],
    entries: Mapping[str, Any] | None = None,
    scratch: Path | None = None,
    replace: bool = False,
) -> int:
    """Builds an index, atomically, unless it is there and intact; returns its number of passages.

    Args:
        fill: writes the index into the folder it is given and returns the number of its passages.
        entries: more entries for the manifest, such as the source of the texts.
        scratch: the folder for locks and unfinished indexes; None for the index's parent.
        replace: whether to replace a damaged index.

    UserError without passages, OSError if the folder cannot be written or holds something else.
    """

    def build(unfinished: Path) -> None:
        count = fill(unfinished)
        if not count:
            raise UserError("index: the corpus has no text; nothing was written")
        manifest = {"backend": backend, "version": VERSIONS[backend], "passages": count, **(entries or {})}
        manifest["digest"] = _digest(unfinished)
        (unfinished / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")

    build_once(folder, build, scratch or folder.parent, is_intact, replace)
    return int((manifest_of(folder) or {})["passages"])


def manifest_of(folder: Path) -> dict[str, Any] | None:
    """An index's manifest; None if it has none."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return manifest if isinstance(manifest, dict) else None


def has_damaged_manifest(folder: Path) -> bool:
    """Whether a folder has a manifest that cannot be read."""
    return manifest_of(folder) is None and (folder / MANIFEST).is_file()


def is_intact(folder: Path) -> bool:
    """Whether the files of an index are those that its manifest was written for."""
    manifest = manifest_of(folder)
    try:
        return manifest is not None and manifest.get("digest") == _digest(folder)
    except OSError:
        return False


def _digest(folder: Path) -> str:
    """A hash of an index's files but the manifest."""
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.name != MANIFEST:
            digest.update(os.fsencode(file.name) + b"\0" + content_digest(file).encode() + b"\n")
    return digest.hexdigest()


def check_index(folder: Path, backend: str) -> None:
    """`UserError` unless the folder is an intact index of this backend and version; one without manifest is Lucene's."""
    if has_damaged_manifest(folder):
        raise UserError(
            f"search: index_path: {folder} is damaged: its {MANIFEST} cannot be read; remove the folder and build the index "
            f"again, toolformer index index.path={folder} ..."
        )
    manifest = manifest_of(folder) or {}
    built_for = manifest.get("backend")
    # Indexes that Lucene wrote have no manifest.
    is_lucenes = backend == "lucene" and built_for is None and any(folder.glob("segments_*"))
    if not is_lucenes and built_for != backend:
        what = f"an index for {built_for}, not for" if built_for else "no index for"
        command = f"toolformer index index.path=FOLDER index.backend={backend}"
        raise UserError(f"search: index_path: {folder} is {what} {backend}; make one with {command}")
    if not is_lucenes and manifest.get("version") != VERSIONS[backend]:
        reason = "an index of another version of toolformer, which splits texts into words differently"
        raise UserError(f"search: index_path: {folder} is {reason}; delete it and build it again")
    if not is_lucenes and not is_intact(folder):
        raise UserError(
            f"search: index_path: {folder} is damaged: its files have changed since it was built; give the command again "
            f"that built it, toolformer index index.path={folder} ..."
        )
