"""Tracked runs: what stages and commands ask of tracking; the reading half is `queries.Lookup`.

Every run is written to the local store at once; a server gets a copy in the background, and delays no result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from toolformer.errors import UserError
from toolformer.storage import acquired, below, lock_file, locked
from toolformer.tracking.mirror import Follower, Mirror
from toolformer.tracking.provenance import (
    PROJECT,
    TAG_LIMIT,
    git_commit,
    masked_flat,
    provenance,
    run_name,
)
from toolformer.tracking.queries import Lookup
from toolformer.tracking.run import EXPERIMENT, HELD, NOTE, PARENT, Run, now
from toolformer.tracking.run_logger import ActiveRun
from toolformer.tracking.store import Refused


class Tracker(Lookup):
    """The local store below a folder, and the server that gets a copy of its runs.

    Args:
        uri: the MLflow tracking URI of the server; `None` is none.
        root: a folder of the user's for the database, artifacts and locks; made when needed.
        system_metrics: whether runs log what they use of the machine, every ten seconds.
    """

    def __init__(self, uri: str | None, root: Path, system_metrics: bool = False) -> None:
        super().__init__(uri, root)
        self.system_metrics = system_metrics

    def prepare(self, experiment: str = EXPERIMENT) -> str:
        """Makes the local database and the experiment if they are not there; returns the experiment's id."""
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
        """A stage's run: FINISHED at the end, FAILED on an exception, KILLED on Ctrl-C, SIGTERM or `sys.exit`.

        A run of the same stage and fingerprint that was interrupted, and that nobody works at, is continued.
        `config` is logged flattened as parameters and whole as `config.yaml`, with secrets masked; `description` is
        Markdown that MLflow's pages show.

        Raises:
            UserError: the local store does not work.
        """
        began = time.monotonic()
        own = {"stage": stage, "fingerprint": fingerprint, "project": PROJECT, "experiment": experiment}
        own |= {"mlflow.source.name": f"toolformer {stage}"}
        own |= {key: value for key, value in ((NOTE, description), (PARENT, parent)) if value}
        given = own | provenance(stage, tags or {}) | dict(tags or {})
        old, claim = self._claim_interrupted(stage, fingerprint)
        spent = old.metrics.get("duration_seconds", 0.0) if old else 0.0
        with ExitStack() as stack:
            if old is None or claim is None:
                run_id = self.store.create(experiment, run_name(name), masked_flat(given, TAG_LIMIT))
                claim = self._claim(run_id)
                acquired(claim)
            else:
                run_id = old.run_id
            stack.callback(claim.release)
            active = ActiveRun(self.store, run_id, resumed=old is not None)
            try:
                if old is not None:
                    self.store.status(run_id, "RUNNING")
                    active.tags(
                        given | ({"git_commit.earlier": old.commit} if old.commit != git_commit() else {})
                    )
                active.params(config, old.params if old else {})
                if self.server:
                    stack.callback(Follower(Mirror(self.store, self.server), run_id).close)
                if self.system_metrics:
                    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

                    monitor = SystemMetricsMonitor(
                        run_id, resume_logging=old is not None, tracking_uri=self.store.uri
                    )
                    monitor.start()
                    stack.callback(monitor.finish)
                yield active
            except BaseException as error:
                killed = isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
                with suppress(UserError):  # the first fault is the one to report
                    active.tag("error", f"{type(error).__name__}: {error}")
                    active.end("KILLED" if killed else "FAILED", spent + time.monotonic() - began)
                raise
            active.end("FINISHED", spent + time.monotonic() - began)
            Path(claim.lock_file).unlink(missing_ok=True)

    def _claim(self, run_id: str) -> FileLock:
        return lock_file(below(self.root / "locks", f"{run_id}.lock"))

    def _claim_interrupted(self, stage: str, fingerprint: str) -> tuple[Run | None, FileLock | None]:
        """The newest unfinished local run of this work that no living process holds, and the lock on it."""
        for run in self.store.search({"stage": stage, "fingerprint": fingerprint}):
            if run.status == "FINISHED":
                continue
            claim = self._claim(run.run_id)
            # A killed process leaves its lock file; RUNNING without one is at work on another machine.
            if run.status == "RUNNING" and not Path(claim.lock_file).exists():
                continue
            if acquired(claim):
                if self.get(run.run_id).status != "FINISHED":  # it may have ended since the search
                    return run, claim
                claim.release()
        return None, None

    def parent_run(
        self,
        key: str,
        name: str,
        tags: Mapping[str, str] | None = None,
        description: str = "",
        kind: str = "sweep",
    ) -> str:
        """The id of the run that holds a sweep's runs together, or an experiment's pages; made by whoever comes first."""
        given = {kind: key, "project": PROJECT, "git_commit": git_commit(), **(tags or {})}
        given |= {NOTE: description} if description else {}
        with locked(self.root / "locks" / "sweeps.lock"):
            for run in self.store.search({kind: key}):
                if run.status == "FINISHED":
                    return run.run_id
            run_id = self.store.create(EXPERIMENT, run_name(name), masked_flat(given, TAG_LIMIT))
            # It does no work of its own, and none of its children knows which is the last.
            self.store.status(run_id, "FINISHED", now())
            return run_id

    def sum_up(self, parent: str, metrics: Mapping[str, float], runs: Sequence[str]) -> None:
        """Logs what a sweep came to on its parent run; `runs` are the ids of all its runs."""
        below_it = {run.run_id for run in self.store.search({PARENT: parent})}
        held = " ".join(run_id for run_id in runs if run_id not in below_it)
        active = ActiveRun(self.store, parent, resumed=True)
        active.metrics(metrics)
        active.tags({HELD: held} if held else {})
        self.store.status(parent, "FINISHED", now())
        if self.server:
            Follower(Mirror(self.store, self.server), parent).close()

    def pending(self) -> list[Run]:
        """Local runs that the server does not have as they are, the first to begin first; none without a server.

        Raises:
            StoreFault: the server does not answer.
        """
        if self.server is None:
            return []
        return Mirror(self.store, self.server).pending(self.store.search({"project": PROJECT}))

    def push(self) -> tuple[int, list[Refused]]:
        """Copies to the server what it lacks; returns how many runs it has now, and why it has others not whole.

        Raises:
            StoreFault: the server does not answer.
        """
        assert self.server
        mirror = Mirror(self.store, self.server)
        faults: list[Refused] = []
        pending = self.pending()
        for run in pending:
            try:
                mirror.copy(run.run_id)
            except Refused as fault:
                faults.append(fault)
        return len(pending) - len(faults), faults
