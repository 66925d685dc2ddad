"""The journals of a root as a whole: which runs a store lacks, all of them sent, and removed where they are sent."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from filelock import FileLock, Timeout

from toolformer.errors import UserError
from toolformer.tracking import silence
from toolformer.tracking.journal import Journal, all_journals
from toolformer.tracking.run import Run
from toolformer.tracking.sending import send
from toolformer.tracking.store import Store, StoreFault


@dataclass(frozen=True)
class Resent:
    """What became of the runs that a store did not have."""

    runs: int
    """Runs that it has now."""
    refused: int
    """Their events that it does not take; each stands in the `refused.jsonl` of its journal."""
    faults: tuple[str, ...] = ()
    """Runs that it does not take at all, each with the reason; they are kept."""


def unsent(store: Store) -> list[Run]:
    """Runs in journals that the store does not have whole, the first to begin first; of a local store, those that no
    server has either."""
    return [one.run() for one in all_journals(store.root) if not _is_kept(one, store)]


def _is_kept(journal: Journal, store: Store) -> bool:
    places = {store.shown_uri, *journal.places()} if store.is_local else {store.shown_uri}
    return any(journal.is_sent(place) for place in places)


def resend(store: Store) -> Resent:
    """Sends what the store does not have; a run that it refuses keeps none of the others back.

    Raises:
        StoreFault: the store does not answer; what it took is not sent again.
    """
    sent = refused = 0
    faults: list[str] = []
    for journal in all_journals(store.root):
        if journal.is_sent(store.shown_uri):
            continue
        try:
            refused += send(journal, store)
            sent += 1
        except StoreFault:
            raise
        except UserError as fault:
            faults.append(f"run {journal.run_id}: {fault}")
    silence.end(store.uri)
    return Resent(sent, refused, tuple(faults))


def prune(store: Store, claim: Callable[[str], FileLock]) -> int:
    """Removes the journals of ended runs that the store has whole; returns their number.

    The store is asked about each. What it refused, and what a process works at, is left alone.

    Raises:
        StoreFault: the store does not answer.
    """
    removed = 0
    for journal in all_journals(store.root):
        run = journal.run()
        if run.status == "RUNNING" or journal.refused.exists() or not journal.is_sent(store.shown_uri):
            continue
        try:
            held = claim(run.run_id)
        except Timeout:
            continue
        with held:
            stored = store.get(run.run_id)
            if stored is not None and stored.status == run.status:
                shutil.rmtree(journal.folder)
                removed += 1
    return removed
