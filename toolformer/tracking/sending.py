"""Journals sent to their server: in the background while a run is at work, and again on demand.

Every event is sent at least once and in order, and writing one twice changes nothing, so that a sending may end anywhere.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolformer.errors import UserError
from toolformer.tracking import silence
from toolformer.tracking.journal import BEGIN, METRICS, PARAMS, TAGS, Journal
from toolformer.tracking.run import LOCAL_ID, NOTE
from toolformer.tracking.store import Refused, Store, StoreFault

log = logging.getLogger(__name__)

PARENT = "mlflow.parentRunId"
_LINK = re.compile(r"(\(#/runs/)(\w+)")
CLOSING = 10.0
"""Seconds for which the end of a run waits for a server that is slow."""
_TOGETHER = 1000  # metrics in one request


def send(journal: Journal, store: Store) -> int:
    """Sends what the server does not have; does nothing if it has all.

    Returns:
        The number of events that the server refuses; they are set aside, and the others sent.

    Raises:
        Refused: the server does not take the run itself.
        StoreFault: the server does not answer; what it took is marked.
    """
    refused = 0
    with journal.lock():
        sent = journal.sent(store.shown_uri)
        run_id = sent.run_id
        for offset, kind, content in _together(journal.events(sent.offset)):
            if kind == BEGIN:
                run_id = _begin(journal, store, content)
            else:
                assert run_id is not None
                content = stored_tags(store, content) if kind == TAGS else content
                refused += _apply(journal, store, run_id, kind, content)
            journal.mark(store.shown_uri, run_id, offset)
    if refused:
        events = f"{refused} event{'' if refused == 1 else 's'}"
        log.warning(
            "%s does not take %s of run %s: %s", store.shown_uri, events, journal.run_id, journal.refused
        )
    return refused


def _apply(journal: Journal, store: Store, run_id: str, kind: str, content: Any) -> int:
    """Writes an event; of one with many parts, only those are set aside that the server refuses."""
    try:
        store.apply(run_id, kind, content, journal.artifacts)
    except Refused as fault:
        parts = _halves(kind, content)
        if parts:
            return sum(_apply(journal, store, run_id, kind, part) for part in parts)
        journal.set_aside(store.shown_uri, str(fault), kind, content)
        return 1
    return 0


def _halves(kind: str, content: Any) -> list[Any]:
    if kind not in (METRICS, PARAMS, TAGS) or len(content) < 2:
        return []
    rows, middle = list(content if kind == METRICS else content.items()), len(content) // 2
    parts = [rows[:middle], rows[middle:]]
    return parts if kind == METRICS else [dict(part) for part in parts]


def _begin(journal: Journal, store: Store, content: dict[str, Any]) -> str:
    found = store.search({LOCAL_ID: journal.run_id})
    if found:  # created, but a killed process did not mark it
        return found[0].stored_as
    tags = stored_tags(store, content["tags"]) | {LOCAL_ID: journal.run_id}
    return store.create(content["experiment"], content["name"], tags, content["started"])


def stored_tags(store: Store, tags: Mapping[str, str]) -> dict[str, str]:
    """Tags with the store's own ids where MLflow follows them: the parent, which is sent first, and a description's links."""
    found = dict(tags)
    if PARENT in found:
        above = Journal(store.root / "journal" / found[PARENT])
        if above.is_there():
            with suppress(Refused):
                send(above, store)
        found[PARENT] = _stored_id(store, found[PARENT])
    if NOTE in found:
        found[NOTE] = _LINK.sub(lambda link: link[1] + _stored_id(store, link[2]), found[NOTE])
    return found


def _stored_id(store: Store, run_id: str) -> str:
    """The store's own id of a run."""
    journal = Journal(store.root / "journal" / run_id)
    sent = journal.sent(store.shown_uri).run_id
    if sent:
        return sent
    known = store.get(run_id)
    return (known.stored_as or known.run_id) if known else run_id


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

    def __init__(self, journal: Journal, store: Store) -> None:
        self.journal, self.run_id = journal, journal.run_id
        self._store = store
        self._wake, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"send {journal.run_id[:8]}", daemon=True)
        self._thread.start()

    def record(self, kind: str, content: Any) -> None:
        """Takes an event."""
        self.journal.append(kind, content)
        self._wake.set()

    def close(self) -> None:
        """Waits until all is sent, for a while; a server that does not answer is not waited for."""
        self._ending.set()
        self._wake.set()
        self._thread.join(CLOSING)
        if self._thread.is_alive():
            log.warning(
                "tracking: %s is slow; what it does not get of run %s while this command lasts, toolformer runs resend sends",
                self._store.shown_uri,
                self.run_id,
            )

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            pause = silence.left(self._store.uri)
            if pause and self._ending.wait(pause):
                return
            ending = self._ending.is_set()
            try:
                send(self.journal, self._store)
                silence.end(self._store.uri)
            except StoreFault as fault:
                self._pause(fault)
            except UserError as fault:  # the run is not taken: more of it neither
                log.warning("run %s is kept in %s: %s", self.run_id, self.journal.folder, fault)
                return
            except Exception as fault:  # a thread has nobody above it to tell
                self._pause(
                    UserError(f"sending to {self._store.shown_uri} fails ({fault!r}); the run is kept")
                )
            if ending:
                return

    def _pause(self, fault: UserError) -> None:
        silence.begin(self._store.uri, fault, self.journal.folder.parent)
        self._wake.set()


class Direct:
    """Writes a run's events into a local store."""

    def __init__(self, run_id: str, store: Store) -> None:
        self.run_id, self._store = run_id, store

    def record(self, kind: str, content: Any) -> None:
        """Takes an event."""
        content = stored_tags(self._store, content) if kind == TAGS else content
        self._store.apply(self.run_id, kind, content, Path())

    def close(self) -> None:
        """Nothing is left to do."""
