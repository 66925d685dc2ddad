"""A listener that logs runs to MLflow while they work. A store that fails or is slow costs one warning and no more."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolformer.errors import UserError
from toolformer.results.folder import Folder, Listener
from toolformer.tracking.mlflow_run import MlflowRun, log_report
from toolformer.tracking.store import Store

log = logging.getLogger(__name__)

PATIENCE, PATIENCE_LOCAL = 15.0, math.inf
"""Seconds after which the beginning or the end of a run sends nothing more to a server, and to a database, which is there or
fails."""
INTERVAL, SHARE = 10.0, 0.05
"""Seconds between two updates of curves; the share of a run's time that these may take."""
_FAILED: set[str] = set()
"""Addresses of stores that failed in this process, to which nothing more is sent."""


class MlflowLogger(Listener):
    """Logs runs to a store.

    Args:
        uri: the MLflow tracking URI; `None` is the local database.
        root: the folder of the results.
        system_metrics: whether runs log what they use of the machine, every ten seconds.
        traces: whether samples of evaluations are also traces.
    """

    def __init__(
        self, uri: str | None, root: Path, system_metrics: bool = False, traces: bool = True
    ) -> None:
        self.store = Store(root, uri)
        self.system_metrics, self.traces = system_metrics, traces
        self._runs: dict[Path, MlflowRun] = {}
        self._monitors: dict[Path, Any] = {}
        self._next_update = 0.0

    def begin(self, folder: Folder) -> None:
        self._tried(lambda: self._begin(folder.path))

    def metrics(self, folder: Folder, values: Mapping[str, float], step: int) -> None:
        began = time.monotonic()
        if folder.path in self._runs and began >= self._next_update:
            self._tried(self._runs[folder.path].curves)
            took = time.monotonic() - began
            self._next_update = began + max(INTERVAL, took / SHARE)

    def end(self, folder: Folder, status: str) -> None:
        if monitor := self._monitors.pop(folder.path, None):
            with suppress(Exception):  # it ends in any case
                monitor.finish()
        if run := self._runs.pop(folder.path, None):
            self._tried(run.end)

    def killed(self, path: Path) -> None:
        if self.store.database is None or self.store.database.exists():
            self._tried(lambda: MlflowRun(self.store, path).end())

    def report(self, folder: Path, name: str, headline: str, parent: str = "") -> None:
        """A report was written into a folder. It is logged where runs are: no store is made for it alone."""
        if self.store.database is None or self.store.database.exists():
            self._tried(lambda: log_report(self.store, folder, name, headline, parent))

    def _begin(self, path: Path) -> None:
        self._runs[path] = run = MlflowRun(self.store, path, self.traces)
        if self.system_metrics:
            from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

            monitor = SystemMetricsMonitor(run.run_id, resume_logging=True, tracking_uri=self.store.uri)
            monitor.start()
            self._monitors[path] = monitor

    def _tried(self, write: Callable[[], object]) -> None:
        """Writes unless the store has failed; a failure is a warning, once in a process."""
        store = self.store
        if store.uri in _FAILED:
            return
        store.deadline = time.monotonic() + (PATIENCE if store.is_served else PATIENCE_LOCAL)
        try:
            with store.errors():
                write()
        except UserError as fault:
            _FAILED.add(store.uri)
            self._runs.clear()
            log.warning("%s; results are in %s, toolformer runs log logs them later", fault, store.root)
