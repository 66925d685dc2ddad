"""Tracked runs: what stages and commands ask of tracking; what has been tracked is looked up by `lookup`.

Runs of a local store are written to it at once. Runs of a server are written to journals first, and sent in the
background: a server that is dead or far delays no result.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from toolformer.errors import UserError
from toolformer.provenance import (
    PROJECT,
    TAG_LIMIT,
    git_commit,
    masked_flat,
    masked_text,
    provenance,
    run_name,
)
from toolformer.tracking import upkeep
from toolformer.tracking.active import ActiveRun
from toolformer.tracking.journal import (
    BEGIN,
    METRICS,
    PARAMS,
    STATUS,
    Journal,
    all_journals,
    matches,
)
from toolformer.tracking.lookup import Lookup
from toolformer.tracking.run import NOTE, Run, now
from toolformer.tracking.sending import PARENT, Direct, Sender, stored_tags

EXPERIMENT = "toolformer"


class Tracker(Lookup):
    """A tracking store and a folder for what belongs to it (journals, locks, local artifacts, downloads).

    Args:
        uri: any MLflow tracking URI; `None` is SQLite at `<root>/mlflow.db`.
        root: a folder of the user's; made when needed.
    """

    def prepare(self, experiment: str = EXPERIMENT) -> str:
        """Make the database and the experiment, if they are not there, and return the experiment's id."""
        return self.store.prepare(experiment)

    @contextmanager
    def run(
        self,
        *,
        stage: str,
        name: str,
        fingerprint: str,
        config: Mapping[str, Any],
        tags: Mapping[str, object] | None = None,
        parent: str | None = None,
        experiment: str = EXPERIMENT,
        description: str = "",
    ) -> Iterator[ActiveRun]:
        """A stage's run: FINISHED at the end, FAILED on an exception, KILLED on Ctrl-C or `sys.exit`.

        A run of the same stage and fingerprint that was interrupted and that nobody works at is gone on with.
        `config` is logged flattened as parameters and whole as `config.yaml`, with secrets masked; `description` is
        Markdown that MLflow's pages show.

        Raises:
            UserError: a local store does not work.
        """
        began = time.monotonic()
        given = dict(tags or {}) | ({NOTE: masked_text(description)} if description else {})
        active, claim, before = self._begin(stage, name, fingerprint, config, given, parent, experiment)
        try:
            yield active
        except BaseException as error:
            killed = isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
            with suppress(UserError):  # the first fault is the one to report
                active.tag("error", f"{type(error).__name__}: {error}")
                self._end(active, "KILLED" if killed else "FAILED", before + time.monotonic() - began)
            raise
        else:
            self._end(active, "FINISHED", before + time.monotonic() - began)
            self._claim_path(active.run_id).unlink(missing_ok=True)
        finally:
            try:
                active.close()
            finally:  # also when Ctrl-C ends the wait for a server
                claim.release()

    def _begin(
        self,
        stage: str,
        name: str,
        fingerprint: str,
        config: Mapping[str, Any],
        tags: Mapping[str, object],
        parent: str | None,
        experiment: str,
    ) -> tuple[ActiveRun, FileLock, float]:
        own: dict[str, object] = {"stage": stage, "fingerprint": fingerprint, "project": PROJECT}
        own |= {"experiment": experiment}
        own |= provenance(stage, tags) | dict(tags)
        own["mlflow.source.name"] = f"toolformer {stage}"
        if parent:
            own[PARENT] = parent
        # No lock is held while a store is asked: one that hangs would have every other process wait in turn.
        old, claim = self._claim_interrupted(stage, fingerprint)
        recorder: Direct | Sender
        if old is None or claim is None:
            recorder, claim = self._create(run_name(name), experiment, masked_flat(own, TAG_LIMIT))
        else:
            recorder = self._recorder(old, experiment)
        active = ActiveRun(recorder.run_id, old is not None, recorder)
        try:
            if old is not None:
                active.status("RUNNING")
                if old.commit != own["git_commit"]:
                    own["git_commit.earlier"] = old.commit
                active.tags(own)
            active.params(config, old.params if old else {})
        except BaseException:
            try:
                with suppress(UserError):
                    active.status("FAILED")
                active.close()
            finally:
                claim.release()
            raise
        return active, claim, old.metrics.get("duration_seconds", 0.0) if old else 0.0

    def _create(self, name: str, experiment: str, tags: dict[str, str]) -> tuple[Direct | Sender, FileLock]:
        """A new run, and the lock on it. One of a server has its id before the server hears of it, so that whatever is
        cut off in between makes no second one."""
        if self.store.is_local:
            run_id = self.store.create(experiment, name, stored_tags(self.store, tags))
            return Direct(run_id, self.store), self._claim(run_id)
        run_id = uuid.uuid4().hex
        claim = self._claim(run_id)
        return self._journaled(run_id, name, experiment, tags), claim

    def _journaled(self, run_id: str, name: str, experiment: str, tags: Mapping[str, str]) -> Sender:
        journal = Journal(self._journals / run_id)
        content = {"name": name, "experiment": experiment, "tags": dict(tags), "started": now()}
        journal.append(BEGIN, content)
        return Sender(journal, self.store)

    def _recorder(self, run: Run, experiment: str) -> Direct | Sender:
        """Goes on with a run."""
        if self.store.is_local and not Journal(self._journals / run.run_id).is_there():
            return Direct(run.run_id, self.store)
        journal = Journal(self._journals / run.run_id)
        if not journal.is_there():  # begun under another root
            started = int(run.started.timestamp() * 1000)
            journal.append(
                BEGIN,
                {"name": run.name, "experiment": experiment, "tags": dict(run.tags), "started": started},
            )
            journal.append(PARAMS, dict(run.params))
            journal.append(METRICS, [[key, value, started, 0] for key, value in run.metrics.items()])
            journal.mark(self.shown_uri, run.stored_as or run.run_id)
        return Sender(journal, self.store)

    def _claim(self, run_id: str) -> FileLock:
        lock = FileLock(self._claim_path(run_id), thread_local=False)
        lock.acquire(timeout=0)
        return lock

    def _claim_path(self, run_id: str) -> Path:
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{run_id}.lock"

    def _claim_interrupted(self, stage: str, fingerprint: str) -> tuple[Run | None, FileLock | None]:
        """The newest unfinished run of this work that no living process holds, and the lock on it."""
        query = {"stage": stage, "fingerprint": fingerprint}
        for run in self._search(query, finished=False):
            # A killed process leaves its lock file; RUNNING without one is at work on another machine.
            if run.status == "RUNNING" and not self._claim_path(run.run_id).exists():
                continue
            with suppress(Timeout):
                claim = self._claim(run.run_id)
                if self.get(run.run_id).status != "FINISHED":  # it may have ended since the search
                    return run, claim
                claim.release()
        return None, None

    def _end(self, active: ActiveRun, status: str, seconds: float) -> None:
        active.metrics({"duration_seconds": seconds})
        active.status(status)

    def parent_run(
        self, sweep_key: str, name: str, experiment: str = EXPERIMENT, description: str = ""
    ) -> str:
        """The id of the run that holds a sweep's runs together, made by whoever comes first."""
        found = self._search({"sweep": sweep_key}, finished=True)
        if found:
            return found[0].run_id
        name, tags = run_name(name), {"sweep": sweep_key, "project": PROJECT, "git_commit": git_commit()}
        tags |= masked_flat({NOTE: masked_text(description)}, TAG_LIMIT) if description else {}
        recorder: Direct | Sender
        with self.store.lock():
            # Another process may have been first since; a server is not asked again while others wait.
            known = (
                self._search({"sweep": sweep_key}, finished=True)
                if self.store.is_local
                else self._kept(sweep_key)
            )
            if known:
                return known[0].run_id
            if self.store.is_local:
                recorder = Direct(self.store.create(experiment, name, tags), self.store)
            else:
                recorder = self._journaled(uuid.uuid4().hex, name, experiment, tags)
            # It does no work of its own, and none of its children knows which is the last.
            recorder.record(STATUS, {"status": "FINISHED", "time": now()})
        recorder.close()
        return recorder.run_id

    def _kept(self, sweep_key: str) -> list[Run]:
        return [run for one in all_journals(self.root) if matches(run := one.run(), {"sweep": sweep_key})]

    def unsent(self) -> list[Run]:
        """Runs in journals that the store does not have whole, the first to begin first."""
        return upkeep.unsent(self.store)

    def resend(self) -> upkeep.Resent:
        """Sends what the store does not have; a run that it refuses keeps none of the others back.

        Raises:
            StoreFault: the store does not answer; what it took is not sent again.
        """
        return upkeep.resend(self.store)

    def prune(self) -> int:
        """Removes the journals of ended runs that the store has whole; returns their number.

        Raises:
            StoreFault: the store does not answer.
        """
        return upkeep.prune(self.store, self._claim)
