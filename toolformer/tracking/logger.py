"""Tells MLflow what runs do, live, from a thread in the background: a slow or dead store delays and decides nothing."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolformer.credentials import without_credentials
from toolformer.errors import UserError, one_line
from toolformer.results.folder import Folder, Listener
from toolformer.tracking.mlflow_run import MlflowRun
from toolformer.tracking.store import Refused, Store

log = logging.getLogger(__name__)

CLOSING, CLOSING_LOCAL = 15.0, 60.0
"""Seconds for which the end of a run waits for a server, and for the local database, which may have to be made first."""
_SILENT: set[str] = set()
"""Addresses of stores that failed in this process, which are not asked again."""


class MlflowLogger(Listener):
    """Logs runs to a store, each event after the ones before it.

    Args:
        uri: the MLflow tracking URI; `None` is the local database.
        root: the folder of the results.
        system_metrics: whether runs log what they use of the machine, every ten seconds.
    """

    def __init__(self, uri: str | None, root: Path, system_metrics: bool = False) -> None:
        self.store = Store(root, uri)
        self.system_metrics = system_metrics
        self._events: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._runs: dict[Path, MlflowRun] = {}
        self._monitors: dict[Path, Any] = {}
        self._unread: set[Path] = set()
        """Folders whose curves grew."""

    def begin(self, folder: Folder) -> None:
        path = folder.path
        self._later(lambda: self._begin(path))

    def metrics(self, folder: Folder, values: Mapping[str, float], step: int) -> None:
        path = folder.path
        if path not in self._unread:
            self._unread.add(path)
            self._later(lambda: self._curves(path))

    def end(self, folder: Folder, status: str) -> None:
        path, ended = folder.path, threading.Event()
        self._later(lambda: self._end(path))
        self._later(ended.set)
        if not ended.wait(_patience(self.store)):
            _warn_once(self.store, f"tracking: {self.store.shown_uri} is slow")

    def _later(self, event: Callable[[], None]) -> None:
        with self._lock:
            self._events.append(event)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def _work(self) -> None:
        """Handles events until there are none."""
        while True:
            with self._lock:
                if not self._events:
                    self._thread = None
                    return
                event = self._events.popleft()
            event()

    def _begin(self, path: Path) -> None:
        run = self._runs[path] = MlflowRun(self.store, path)
        if self._tried(path, run.begin) and self.system_metrics:
            self._tried(path, lambda: self._monitor(path, run))

    def _curves(self, path: Path) -> None:
        self._unread.discard(path)
        if run := self._runs.get(path):
            self._tried(path, run.curves)

    def _end(self, path: Path) -> None:
        if monitor := self._monitors.pop(path, None):
            with suppress(Exception):  # it ends in any case
                monitor.finish()
        if run := self._runs.get(path):
            self._tried(path, run.end)
        self._runs.pop(path, None)

    def _monitor(self, path: Path, run: MlflowRun) -> None:
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        monitor = SystemMetricsMonitor(run.run_id, resume_logging=True, tracking_uri=self.store.uri)
        monitor.start()
        self._monitors[path] = monitor

    def _tried(self, path: Path, write: Callable[[], object]) -> bool:
        """Does it unless the store has failed; whether that went well. A run that is refused is not logged further."""
        if self.store.uri in _SILENT:
            return False
        try:
            write()
        except Refused as fault:
            _warn_once(self.store, f"run {path.name[:8]} was not logged in full: {fault}")
            self._runs.pop(path, None)
            return False
        except Exception as error:  # nobody above a thread would see it
            _warn_once(self.store, _reason(error))
            _SILENT.add(self.store.uri)
            return False
        return True


def log_pages(uri: str | None, root: Path, experiment: str, pages: Iterable[Path]) -> None:
    """Attaches an experiment's pages to an MLflow run `report NAME`, in place of earlier ones.

    Without a server, only where the root has a database: a report alone makes none.
    """
    store, files = Store(root, uri), list(pages)

    def write() -> None:
        try:
            _log_pages(store, experiment, files)
        except Exception as error:  # nobody above a thread would see it
            _warn_once(store, _reason(error))
            _SILENT.add(store.uri)

    has_store = not store.is_local or (store.root / "mlflow.db").exists()
    if store.uri in _SILENT or not has_store:
        return
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    thread.join(_patience(store))
    if thread.is_alive():
        _warn_once(store, f"tracking: {store.shown_uri} is slow")


def _log_pages(store: Store, experiment: str, pages: Iterable[Path]) -> None:
    row = next(store.search(report=experiment), None)
    with store.faults() as client:
        tags = {"report": experiment, "experiment": experiment, "project": "toolformer"}
        row = row or client.create_run(store.prepare(), tags=tags, run_name=f"report {experiment}")
        for page in pages:
            store.put(row.info.run_id, page)
        client.set_terminated(row.info.run_id)


_WARNED: set[str] = set()


def _warn_once(store: Store, reason: str) -> None:
    """Says that the store lacks something, once in a process."""
    if store.uri not in _WARNED:
        _WARNED.add(store.uri)
        text = "%s; results are in %s, toolformer runs push logs what the store lacks"
        log.warning(text, without_credentials(reason), store.root)


def _patience(store: Store) -> float:
    return CLOSING_LOCAL if store.is_local else CLOSING


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, UserError) else f"logging to MLflow fails ({one_line(error)})"
