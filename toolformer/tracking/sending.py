"""Journals sent to their server: in the background while a run is at work, and again on demand.

Every event is sent at least once and in order, and writing one twice changes nothing, so that a sending may end anywhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from toolformer.errors import UserError
from toolformer.tracking.journal import BEGIN, METRICS, Journal
from toolformer.tracking.run import LOCAL_ID
from toolformer.tracking.store import Store

PARENT = "mlflow.parentRunId"
PAUSE = 60.0
"""Seconds between two tries at a server that does not answer."""
_TOGETHER = 1000  # metrics in one request


def send(journal: Journal, store: Store) -> None:
    """Sends what the server does not have; does nothing if it has all.

    Raises:
        StoreFault: the server does not take it; what it took is marked.
    """
    with journal.lock():
        sent = journal.sent(store.shown_uri)
        run_id = sent.run_id
        for offset, kind, content in _together(journal.events(sent.offset)):
            if kind == BEGIN:
                run_id = _begin(journal, store, content)
            else:
                assert run_id is not None
                store.apply(run_id, kind, content, journal.artifacts)
            journal.mark(store.shown_uri, run_id, offset)


def _begin(journal: Journal, store: Store, content: dict[str, Any]) -> str:
    found = store.search({LOCAL_ID: journal.run_id})
    if found:  # created, but a killed process did not mark it
        return found[0].stored_as
    tags = content["tags"] | {LOCAL_ID: journal.run_id}
    if PARENT in tags:
        above = Journal(journal.folder.parent / tags[PARENT])
        if above.is_there():
            send(above, store)
            tags[PARENT] = above.sent(store.shown_uri).run_id
    return store.create(content["experiment"], content["name"], tags, content["started"])


def _together(events: Iterator[tuple[int, str, Any]]) -> Iterator[tuple[int, str, Any]]:
    """Metrics that follow one another as one event."""
    rows: list[Any] = []
    end = 0
    for offset, kind, content in events:
        if rows and (kind != METRICS or len(rows) >= _TOGETHER):
            yield end, METRICS, rows
            rows = []
        if kind == METRICS:
            rows, end = rows + content, offset
        else:
            yield offset, kind, content
    if rows:
        yield end, METRICS, rows


class Sender:
    """Writes a run's events into its journal, and sends them in the background: no server is waited for."""

    def __init__(self, journal: Journal, store: Store, on_fault: Callable[[UserError], None]) -> None:
        self.journal, self.run_id = journal, journal.run_id
        self._store, self._on_fault = store, on_fault
        self._wake, self._ending = threading.Event(), threading.Event()
        self._failed = 0.0
        self._thread = threading.Thread(target=self._work, name=f"send {journal.run_id[:8]}", daemon=True)
        self._thread.start()

    def record(self, kind: str, content: Any) -> None:
        """Takes an event."""
        self.journal.append(kind, content)
        self._wake.set()

    def close(self) -> None:
        """Waits until all is sent; a server that does not answer is not waited for."""
        self._ending.set()
        self._wake.set()
        self._thread.join()

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            ending = self._ending.is_set()
            if self._failed and ending and time.monotonic() < self._failed + PAUSE:
                return
            try:
                send(self.journal, self._store)
                self._failed = 0.0
            except (UserError, OSError) as fault:
                self._failed = time.monotonic()
                self._on_fault(fault if isinstance(fault, UserError) else UserError(str(fault)))
                self._ending.wait(PAUSE)
                self._wake.set()
            if ending:
                return


class Direct:
    """Writes a run's events into a local store."""

    def __init__(self, run_id: str, store: Store) -> None:
        self.run_id, self._store = run_id, store

    def record(self, kind: str, content: Any) -> None:
        """Takes an event."""
        self._store.apply(self.run_id, kind, content, Path())

    def close(self) -> None:
        """Nothing is left to do."""
