"""A server's copy of local runs: made by `Mirror.copy`, again and again, and in the background while a run is at work.

A copy may end anywhere and be made again: a run is created once, known by its tag `local_id`, and gets what is newer than
its tag `mirrored`, the time of the last whole copy.
"""

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from toolformer.errors import UserError, one_line
from toolformer.results.provenance import PROJECT
from toolformer.storage import below, locked
from toolformer.tracking.run import LOGGED_MODEL, NOTE, PARENT, Run, now
from toolformer.tracking.store import LOCAL_ID, Refused, Store, StoreFault

log = logging.getLogger(__name__)

MIRRORED = "mirrored"
_LOCAL = ("registered_model", LOGGED_MODEL)
"""Tags that name something of the local store."""
EVERY = 30.0
"""Seconds between two copies of a run at work."""
CLOSING = 15.0
"""Seconds for which the end of a run waits for the server."""
_OVERLAP = 60_000
"""Milliseconds: what was written so long before the last copy is given again, for it may have been on its way to disk."""
_LINK = re.compile(r"(?<=\(#/runs/)[0-9a-f]{32}")


class Mirror:
    """Copies runs of the local store to a server."""

    def __init__(self, local: Store, server: Store) -> None:
        self.local, self.server = local, server

    @contextmanager
    def follow(self, run_id: str) -> Iterator[None]:
        """Copies a run in the background during the block and after it; a dead or slow server holds nothing up."""
        ended = threading.Event()
        thread = threading.Thread(target=self._follow, args=(run_id, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(CLOSING)
            if thread.is_alive():
                reason = (
                    "tracking: %s is slow; toolformer runs push copies what it does not get of run %s now"
                )
                log.warning(reason, self.server.shown_uri, run_id)

    def _follow(self, run_id: str, ended: threading.Event) -> None:
        refused, is_last = "", False
        while not is_last:
            is_last = ended.is_set()
            try:
                self.copy(run_id)
            except StoreFault as fault:
                self.server.silence(fault)
            except UserError as fault:
                if str(fault) != refused:
                    log.warning("run %s was not fully copied to the server: %s", run_id, fault)
                refused = str(fault)
            except Exception as error:  # nobody above a thread would see it
                self.server.silence(f"copying to {self.server.shown_uri} fails ({one_line(error)})")
            ended.wait(EVERY)

    def copy(self, run_id: str) -> str:
        """Gives the server what it lacks of a run, unless the run was deleted there; returns the run's id there.

        `Refused` if the server does not take some of it (the rest is there), `StoreFault` if a store does not answer.
        """
        with locked(below(self.local.root / "locks", f"{run_id}.mirror")):
            began = now()
            with self.local.faults() as client:
                run = client.get_run(run_id)
            copy = self._find_or_create(run)
            copy_id = str(copy.info.run_id)
            if copy.info.lifecycle_stage == "deleted":
                return copy_id
            refused: list[Refused] = []
            for write in self._lacking(run, copy):
                try:
                    write()
                except Refused as fault:
                    refused.append(fault)
            if refused:
                raise refused[0]
            self.server.log(copy_id, tags={MIRRORED: str(began)})
            return copy_id

    def pending(self, runs: list[Run]) -> list[Run]:
        """Those of some local runs that the server does not have as they are, the first to begin first."""
        condition = f"tags.project = '{PROJECT}' and tags.{LOCAL_ID} LIKE '%'"
        copies = {row.data.tags[LOCAL_ID]: row for row in self.server.rows(condition, with_deleted=True)}
        runs = sorted(runs, key=lambda run: run.started)
        return [run for run in runs if not _is_whole(run, copies.get(run.run_id))]

    def _find_or_create(self, run: Any) -> Any:
        condition = f"tags.{LOCAL_ID} = '{run.info.run_id}'"
        if copy := next(self.server.rows(condition, with_deleted=True), None):
            return copy
        tags = self._tags(run) | {LOCAL_ID: run.info.run_id}
        run_id = self.server.create(run.info.run_name, tags, run.info.start_time)
        with self.server.faults() as client:
            return client.get_run(run_id)

    def _lacking(self, run: Any, copy: Any) -> Iterator[Callable[[], object]]:
        """What is to be written to make a copy whole, the status last."""
        run_id, copy_id = run.info.run_id, copy.info.run_id
        newer = _mirrored(copy) - _OVERLAP
        with self.local.faults() as client:
            rows = [row for key in run.data.metrics for row in client.get_metric_history(run_id, key)]
            models = client.search_model_versions(f"run_id = '{run_id}'")
        rows.sort(key=lambda row: (row.timestamp, row.step))
        metrics = [(row.key, row.value, row.timestamp, row.step) for row in rows if row.timestamp >= newer]
        params = {key: value for key, value in run.data.params.items() if key not in copy.data.params}
        tags = {key: value for key, value in self._tags(run).items() if copy.data.tags.get(key) != value}
        yield partial(self.server.log, copy_id, metrics=metrics)
        yield partial(self.server.log, copy_id, params=params)
        yield partial(self.server.log, copy_id, tags=tags)
        folder = below(self.local.root / "artifacts", run_id, "artifacts")
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith(".") and path.stat().st_mtime_ns // 10**6 >= newer:
                yield partial(self._send, copy, path, path.parent.relative_to(folder).as_posix())
        if run.inputs and run.inputs.dataset_inputs:
            yield partial(self.server.inputs, copy_id, run.inputs.dataset_inputs)
        for model in models:
            yield partial(self.server.register, copy_id, model.name, model.tags)
        yield partial(self.server.status, copy_id, run.info.status, run.info.end_time)

    def _send(self, copy: Any, path: Path, folder: str) -> None:
        with self.server.faults():
            there = self.server.artifacts(copy.info.artifact_uri)
            there.log_artifact(str(path), None if folder == "." else folder)

    def _tags(self, run: Any) -> dict[str, str]:
        """A run's tags with the server's ids where MLflow follows them: the parent, and a description's links."""
        tags = {key: value for key, value in run.data.tags.items() if key not in _LOCAL}
        if PARENT in tags:
            tags[PARENT] = self.copy(tags[PARENT])
        if NOTE in tags:
            for run_id in _LINK.findall(tags[NOTE]):
                if copy := self.server.get(run_id):
                    tags[NOTE] = tags[NOTE].replace(run_id, copy.stored_as)
        return tags


def _is_whole(run: Run, copy: Any) -> bool:
    if copy is None or copy.info.lifecycle_stage == "deleted":
        return copy is not None
    ended = run.ended.timestamp() * 1000 if run.ended else float("inf")
    return copy.info.status == run.status and _mirrored(copy) >= ended


def _mirrored(copy: Any) -> int:
    """When a copy was last whole, in milliseconds."""
    tag = copy.data.tags.get(MIRRORED, "")
    return int(tag) if tag.isdecimal() else 0
