"""Copies of runs between their folders and an MLflow store: `toolformer runs push` and `toolformer runs pull`."""

from __future__ import annotations

import errno
import logging
import re
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolformer.credentials import printable
from toolformer.errors import UserError, one_line
from toolformer.results import Results, Run
from toolformer.results.folder import add_name, read_json
from toolformer.results.provenance import PROJECT
from toolformer.results.reading import read
from toolformer.results.run import CONFIG, LOCK, METRICS, MLFLOW, NAMES, RESULT, STAGES, STEP, SWEEP
from toolformer.step import Step
from toolformer.storage import build_once, safe_join, sha256
from toolformer.tracking.mlflow_run import MlflowRun, note_entry
from toolformer.tracking.store import Refused, Store, StoreFault

log = logging.getLogger(__name__)

_KEY = re.compile(r"[0-9a-f]{16}")
_RESERVED = (STEP, CONFIG, METRICS, RESULT, LOCK, NAMES, MLFLOW)
"""Names that no file of a result has."""
_RECORD_LIMIT, _FILE_LIMIT = 100 << 20, 64 << 30
"""Bytes of a record, and of a result's file, that are taken from a server."""
_FILES_LIMIT = 1000


def pending(results: Results, store: Store) -> list[Run]:
    """The runs that ended and that a store does not have as they are; sweeps first, then the first to begin."""
    runs = [*results.all_runs(SWEEP), *results.all_runs()]
    runs = [run for run in runs if run.status != "RUNNING" and not run.is_sent(store.address)]
    return sorted(runs, key=lambda run: (run.stage != SWEEP, run.started))


def push(store: Store, runs: Iterable[Run]) -> tuple[int, list[str]]:
    """Logs runs to a store, unless they were deleted there; returns how many, and a line for each that it refuses.

    StoreFault if the store does not answer.
    """
    count, refused = 0, list[str]()
    for run in runs:
        copy = MlflowRun(store, run.folder)
        try:
            if copy.begin(replace_deleted=False):
                copy.end()
                count += 1
        except StoreFault:
            raise
        except UserError as fault:
            refused.append(f"{run.stage} run {run.id[:8]}: {fault}")
    return count, refused


def pull(results: Results, store: Store, reference: str = "") -> tuple[int, list[str]]:
    """Brings folders of finished runs from a store, with those of the runs that they were made from.

    A folder that exists is left as it is. Everything that the store says is checked first: it may be shared with anyone.

    Args:
        reference: the beginning of a run's id, here or in MLflow; empty for all runs.

    Returns:
        How many, and a line for each that was refused.

    Raises:
        StoreFault: the store does not answer.
    """
    rows: dict[str, Any] = {}
    for row in store.search(project=PROJECT):
        key = row.data.tags.get("key", "")
        if row.info.status == "FINISHED" and _KEY.fullmatch(key):
            rows.setdefault(key, row)  # the last to finish
    ids = {key: str(row.info.run_id) for key, row in rows.items()}
    todo = [key for key in rows if key.startswith(reference) or ids[key].startswith(reference)]
    if reference and len(todo) != 1:
        found = f"{len(todo)} finished runs begin" if todo else "no finished run begins"
        raise UserError(f"runs pull: {found} with {reference} in {store.shown_uri}")
    count, refused, seen = 0, list[str](), set[str]()
    while todo:
        key = todo.pop()
        if key in seen or key not in rows:
            continue
        seen.add(key)
        try:
            folder, is_new = _fetched(results.root, store, rows[key], key)
            count += is_new
        except StoreFault:
            raise
        except Exception as error:  # of any library that keeps artifacts, or for an answer of any form
            reason = str(error) if isinstance(error, UserError) else one_line(error)
            refused.append(printable(f"run {key[:8]}: {reason}"))
            continue
        if run := read(folder):
            todo += [*run.made_from, run.parent]
            if missing := [made[:8] for made in run.made_from if made not in rows]:
                log.info("run %s was made from %s, not in %s", key[:8], ", ".join(missing), store.shown_uri)
    return count, refused


def _fetched(root: Path, store: Store, row: Any, key: str) -> tuple[Path, bool]:
    """The folder of a run, and whether it was brought now."""
    stage = row.data.tags.get("stage", "")
    if stage not in (*STAGES, SWEEP):
        raise Refused(f"there is no stage {stage!r:.100}")
    folder = safe_join(root, stage, key)
    if folder.exists():
        return folder, False

    def build(path: Path) -> None:
        _download(store, row.info.artifact_uri, path)
        run = read(path)
        step = Step.of_json(read_json(path / STEP))
        if run is None or (step.name, step.key()) != (stage, key):
            raise Refused(f"its {STEP} is not that of {stage} run {key}")
        if run.status != "FINISHED" or not (run.parent == "" or _KEY.fullmatch(run.parent)):
            raise Refused(f"its {RESULT} is not that of a finished run")
        for name in filter(None, row.data.tags.get("experiment", "").split(", ")):
            if not re.fullmatch(r"\w[\w .+@=-]{0,99}", name):
                raise Refused(f"{name!r:.100} is not an experiment's name")
            add_name(path, name)
        note_entry(path, store, str(row.info.run_id), sent=run.ending)

    build_once(folder, build, root)
    return folder, True


def _download(store: Store, uri: str, folder: Path) -> None:
    """Downloads a run's records and the files that its result names, each with the digest that it says."""
    with store.faults():
        artifacts = store.artifacts(uri)
        listed = {item.path for item in artifacts.list_artifacts()}
        for name in (STEP, CONFIG, METRICS, RESULT):
            if name in listed:
                _download_file(artifacts, name, folder / name, _RECORD_LIMIT)
        result = read_json(folder / RESULT)
        digests, facts = result.get("digests"), result.get("facts")
        if not isinstance(digests, dict) or not isinstance(facts, dict) or len(digests) > _FILES_LIMIT:
            raise Refused(f"its {RESULT} is not that of a finished run")
        models = {facts.get("model"), (read_json(folder / STEP).get("facts") or {}).get("model"), "model"}
        for name, digest in digests.items():
            first, *_ = parts = name.split("/")
            if first in models:  # a model's weights stay where it was trained
                continue
            path = safe_join(folder, *parts)
            if first in _RESERVED:
                raise Refused(f"{name} is not a file of a result")
            _download_file(artifacts, name, path, _FILE_LIMIT)
            if sha256(path) != digest:
                raise Refused(f"its {name} is not what the run logged")


def _download_file(artifacts: Any, name: str, path: Path, limit: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _files_of_at_most(limit):
            artifacts._download_file(
                name, str(path)
            )  # as a file, whatever the store says when it is asked again
    except OSError as error:
        if error.errno not in (errno.EFBIG, errno.ENOENT):
            raise
        what = f"has more than {limit >> 20} MiB" if error.errno == errno.EFBIG else "is missing"
        raise Refused(f"its {name} {what}") from error


@contextmanager
def _files_of_at_most(limit: int) -> Iterator[None]:
    """Bounds the bytes of a file that this process writes, whatever a server sends."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    highest = before[1] if before[1] != resource.RLIM_INFINITY else limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(limit, highest), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
