"""Tracked runs, written and looked up: what stages and commands ask of tracking.

Every run is written to the local store at once; the server that `tracking.uri` names gets a copy in the background, and is
asked for the runs of other machines. One that does not answer delays no result and hides no local run.
"""

import logging
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from toolformer.errors import UserError
from toolformer.results.provenance import PROJECT, TAG_LIMIT, git_commit, masked_flat, provenance, run_name
from toolformer.storage import acquired, below, lock_file, locked, sha256
from toolformer.tracking.mirror import Mirror
from toolformer.tracking.run import EXPERIMENT, HELD, NOTE, PARENT, SWEPT, Run, newest_first, now
from toolformer.tracking.run_logger import ActiveRun
from toolformer.tracking.store import Refused, Store, StoreFault

log = logging.getLogger(__name__)
T = TypeVar("T")
SHORTEST = 6
"""Characters of a run's id that name it."""


def _ended_by(error: BaseException) -> str:
    """The status of a run that an exception ended; after a signal the traceback's frames let go of what they hold."""
    if not isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        return "FAILED"
    # The cursor of a read that the signal cut short, and with it SQLite's lock.
    traceback.clear_frames(error.__traceback__)
    return "KILLED"


def _listed(runs: Sequence[Run], above: Mapping[str, set[str]]) -> str:
    """The first of some runs of sweeps, each with its values of the swept keys."""
    shown = []
    for run in runs[:8]:
        values = [
            f"{key}={run.params[key]}" for key in sorted(above[run.tags.get(PARENT, "")]) if key in run.params
        ]
        shown.append(f"{run.run_id[:8]} ({', '.join(values) or run.name})")
    return ", ".join(shown) + (f" and {len(runs) - 8} more" if len(runs) > 8 else "")


class Damaged(UserError):
    """A file of a run is not what the run logged."""


class Tracker:
    """The local store below a folder, and the server that gets a copy of its runs.

    Args:
        uri: the MLflow tracking URI of the server; `None` is none.
        root: a folder of the user's for the database, artifacts and locks; made when needed.
        system_metrics: whether runs log what they use of the machine, every ten seconds.
    """

    def __init__(self, uri: str | None, root: Path, system_metrics: bool = False) -> None:
        self.root = Path(root).expanduser().absolute()
        self.store = Store(self.root)
        self.server = Store(self.root, uri) if uri and uri != self.store.uri else None
        self.mirror = Mirror(self.store, self.server) if self.server else None
        self.shown_uri = (self.server or self.store).shown_uri
        self.system_metrics = system_metrics

    def runs(self, stage: str, **tags: str) -> list[Run]:
        """The FINISHED runs of a stage with these tags, of every experiment, the last to finish first."""
        return [run for run in self.all_runs(stage=stage, **tags) if run.status == "FINISHED"]

    def all_runs(self, **tags: str) -> list[Run]:
        """Every run with these tags, whatever its stage and status; the last to finish first, then those at work."""
        tags = {"project": PROJECT, **tags}
        local = self.store.search(tags)
        ids = {run.run_id for run in local}
        served = self._of_server(lambda server: server.search(tags), list[Run]())
        return newest_first([*local, *(run for run in served if run.run_id not in ids)])

    def latest(self, stage: str, **tags: str) -> Run | None:
        """The FINISHED run of a stage with these tags that ended last."""
        return next(iter(self.runs(stage, **tags)), None)

    def get(self, run_id: str) -> Run:
        """A run by its id; UserError if there is none, or the server that may have it does not answer."""
        if run := self.store.get(run_id) or self._of_server(lambda server: server.get(run_id), None):
            return run
        raise UserError(f"there is no run {run_id} in {self.place()}")

    def resolve(
        self,
        stage: str,
        ref: str,
        preferred: Mapping[str, str] | None = None,
        asks: bool = True,
        /,
        **tags: str,
    ) -> Run:
        """The finished run that `ref` names: `latest`, with these tags; a run id, or at least 6 characters of one.

        `latest` is the newest that these tags and the `preferred` parameters, where any run has those, tell from the other
        runs of its sweep.

        UserError if there is none, it is of another stage, or it did not finish; with `asks` also if nothing tells the
        runs of a sweep apart, of which it is otherwise the newest.
        """
        if ref == "latest":
            return self._latest(stage, preferred or {}, asks, tags)
        matches = [run for run in self.all_runs() if run.is_named(ref)] if len(ref) >= SHORTEST else []
        finished = [run for run in matches if run.stage == stage and run.status == "FINISHED"]
        matches = finished or matches  # one that did not finish, or is of another stage, is reported below
        if not matches:
            advice = f"name a run of `toolformer {stage}` by at least its first {SHORTEST} characters, or say latest"
            raise UserError(f"there is no run {ref} in {self.place()}; {advice}")
        if len(matches) > 1:
            raise UserError(f"{len(matches)} runs begin with {ref}; give more of its characters")
        (run,) = matches
        if run.stage != stage:
            raise UserError(
                f"run {ref} is a run of {run.stage or 'a sweep'}: name one of `toolformer {stage}`, or say latest"
            )
        if run.status != "FINISHED":
            raise UserError(f"{stage} run {ref} is {run.status}: give its `toolformer {stage}` command again")
        return run

    def _latest(self, stage: str, preferred: Mapping[str, str], asks: bool, tags: dict[str, str]) -> Run:
        """`resolve` of `latest`; logs why it is not simply the newest."""
        runs = every = self.runs(stage, **tags)
        if not every:
            raise UserError(self._none(stage, tags))
        for key, value in preferred.items():
            runs = [run for run in runs if run.params.get(key) == value] or runs
        # The tag `experiment` holds the key `name`.
        told, above = {"name", *tags, *preferred} - {"experiment"}, dict[str, set[str]]()
        for run in runs:
            parent = run.tags.get(PARENT, "")
            above[parent] = above[parent] if parent in above else self._swept_over(parent)
            if above[parent] <= told:
                break
        else:
            run = runs[0]
        left_out = " and ".join(sorted(above[runs[0].tags.get(PARENT, "")] - told))
        why = [f"the newest is of a sweep over {left_out}"] if left_out else []
        if left_out and run is runs[0]:
            if asks:
                raise UserError(f"{stage}: {why[0]}; instead of latest name one: {_listed(runs, above)}")
            why[0] += "; name another by its id"
        for key, value in preferred.items():
            if run.params.get(key) != value:
                why.append(f"none has {key}={value}")
            elif runs[0] is not every[0]:
                why.append(f"it has {key}={value}")
        if why and len(every) > 1:
            log.info("latest %s run: %s (%s)", stage, run.run_id[:8], "; ".join(why))
        return run

    def _swept_over(self, parent: str) -> set[str]:
        """The keys that the sweep below this run varies; none without one."""
        with suppress(UserError):
            return {*self.get(parent).tags.get(SWEPT, "").split()} if parent else set()
        return set()

    def _none(self, stage: str, tags: dict[str, str]) -> str:
        """That there is no such run, and under which other names of experiments there is one."""
        name = tags.pop("experiment", "")
        wanted = "".join(f" with {key}={value}" for key, value in tags.items())
        wanted += f" of name={name}" if name else ""
        others = {run.tags.get("experiment"): run.run_id[:8] for run in reversed(self.runs(stage, **tags))}
        there = ", ".join(f"name={other} has {run_id}" for other, run_id in others.items())
        run = f"run `toolformer {stage}{' data=plain' if tags.get('data') == 'plain' else ''}` first" + (
            ", with the same experiment= and name=" if name not in ("", "default") else ""
        )
        way_out = f"say which one, by its name or its id: {there}" if there else run
        return f"there is no finished {stage} run{wanted}: {way_out}{self._silence()}"

    def swept(self, stage: str, ref: str) -> list[Run]:
        """The finished runs of a stage in the sweep whose parent run `ref` names (as `resolve`); none if it names no parent."""
        parents = (run for run in self.all_runs() if "sweep" in run.tags and run.is_named(ref))
        if len(ref) < SHORTEST or not (parent := next(parents, None)):
            return []
        held, ids = parent.tags.get(HELD, "").split(), (parent.run_id, parent.stored_as or parent.run_id)
        return [run for run in self.runs(stage) if run.tags.get(PARENT) in ids or run.run_id in held]

    def history(self, run: Run, key: str) -> list[tuple[int, float]] | None:
        """A metric's (step, value) in order of step; None where the server that has them does not answer."""
        if not run.stored_as:
            return self.store.history(run.run_id, key)
        return self._of_server(lambda server: server.history(run.stored_as, key), None)

    def artifact_path(self, run: Run, name: str) -> Path:
        """An artifact (file or folder) as a local path; one of a run on the server is copied.

        UserError if there is none; `Damaged` if it, or a file of the folder, is not what the run logged.
        """
        store = self.server if run.stored_as and self.server else self.store
        path = store.artifact(run, name)
        for logged, digest in run.digests.items():
            if logged != name and not logged.startswith(f"{name}/"):
                continue
            file = below(path, *filter(None, logged.removeprefix(name).split("/")))
            if not file.is_file() or sha256(file) != digest:
                if run.stored_as:  # it is fetched again
                    shutil.rmtree(below(self.root / "fetched", run.run_id), ignore_errors=True)
                raise Damaged(
                    f"{logged} of {run.stage} run {run.run_id[:8]} is damaged; give its command again: {run.command}"
                )
        return path

    def is_intact(self, run: Run, or_gone: bool = False) -> bool:
        """Whether a run's artifacts are what it logged, or, `or_gone`, were removed; on a server nobody looks."""
        for name in () if run.stored_as else run.digests:
            try:
                self.artifact_path(run, name)
            except UserError as fault:
                if isinstance(fault, Damaged) or not or_gone:
                    return False
        return True

    def done(self, stage: str, fingerprint: str) -> list[Run]:
        """The finished runs of this work whose artifacts are intact, the last to finish first."""
        return [run for run in self.runs(stage, fingerprint=fingerprint) if self.is_intact(run)]

    def _of_server(self, ask: Callable[[Store], T], otherwise: T) -> T:
        """What the server answers; `otherwise` without one, or where it does not answer."""
        if self.server is None or self.server.is_silent:
            return otherwise
        try:
            return ask(self.server)
        except StoreFault as fault:
            self.server.silence(fault)
            return otherwise

    def place(self) -> str:
        """Where runs have been read from so far, for headings."""
        if self.server is None:
            return self.shown_uri
        return f"{self.root}{self._silence() or f' and {self.shown_uri}'}"

    def _silence(self) -> str:
        return f" ({self.shown_uri} does not answer)" if self.server and self.server.is_silent else ""

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
        description: str = "",
    ) -> Iterator[ActiveRun]:
        """A stage's run: FINISHED at the end, FAILED on an exception, KILLED on Ctrl-C, SIGTERM or `sys.exit`.

        A run of the same stage and fingerprint that was interrupted, or whose artifacts were damaged since, and that nobody
        works at, is continued.
        `config` is logged flattened as parameters and whole as `config.yaml`, with secrets masked; `description` is
        Markdown that MLflow's pages show. UserError if the local store does not work.
        """
        began = time.monotonic()
        given = {
            "stage": stage, "fingerprint": fingerprint, "project": PROJECT, "experiment": EXPERIMENT,
            "mlflow.source.name": f"toolformer {stage}", **provenance(), **(tags or {}),
        }  # fmt: skip
        given |= {key: value for key, value in ((NOTE, description), (PARENT, parent)) if value}
        with ExitStack() as stack:
            old, claim = self._claim_interrupted(stage, fingerprint)
            run_id = old.run_id if old else self.store.create(run_name(name), masked_flat(given, TAG_LIMIT))
            if claim is None:
                claim = self._claim(run_id)
                acquired(claim)
            stack.callback(claim.release)
            active = ActiveRun(self.store, run_id)
            spent = old.metrics.get("duration_seconds", 0.0) if old else 0.0
            try:
                if old:
                    if old.status == "FINISHED":
                        log.warning(
                            "%s: files of run %s are damaged or gone; making them again", stage, run_id[:8]
                        )
                    self.store.status(run_id, "RUNNING")
                    changed = old.commit != git_commit()
                    active.tags(given | ({"git_commit.earlier": old.commit} if changed else {}))
                active.params(config, old.params if old else {})
                if self.mirror:
                    stack.enter_context(self.mirror.follow(run_id))
                if self.system_metrics:
                    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

                    monitor = SystemMetricsMonitor(
                        run_id, resume_logging=old is not None, tracking_uri=self.store.uri
                    )
                    monitor.start()
                    stack.callback(monitor.finish)
                yield active
            except BaseException as error:
                status = _ended_by(error)
                with suppress(UserError):  # the first fault is the one to report
                    active.tags({"error": f"{type(error).__name__}: {error}"})
                    active.end(status, spent + time.monotonic() - began)
                raise
            active.end("FINISHED", spent + time.monotonic() - began)
            Path(claim.lock_file).unlink(missing_ok=True)

    def _claim(self, run_id: str) -> FileLock:
        return lock_file(below(self.root / "locks", f"{run_id}.lock"))

    def _claim_interrupted(self, stage: str, fingerprint: str) -> tuple[Run | None, FileLock | None]:
        """The newest local run of this work that is unfinished or damaged, and that no living process holds; its lock."""

        def is_done(run: Run) -> bool:
            return run.status == "FINISHED" and self.is_intact(run)

        for run in self.store.search({"stage": stage, "fingerprint": fingerprint}):
            if is_done(run):
                continue
            claim = self._claim(run.run_id)
            # A killed process leaves its lock file; RUNNING without one is at work on another machine.
            if run.status == "RUNNING" and not Path(claim.lock_file).exists():
                continue
            if acquired(claim):
                if not is_done(self.get(run.run_id)):  # it may have ended since the search
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
        """The id of the run that holds a sweep's runs together, or an experiment's pages; made by whoever comes first.

        `reopened` ends it.
        """
        given = {kind: key, "project": PROJECT, "git_commit": git_commit(), **(tags or {})}
        given |= {NOTE: description} if description else {}
        with locked(self.root / "locks" / "sweeps.lock"):
            if known := self.store.search({kind: key}):
                return known[0].run_id
            return self.store.create(run_name(name), masked_flat(given, TAG_LIMIT))

    @contextmanager
    def reopened(self, run_id: str) -> Iterator[ActiveRun]:
        """A run of `parent_run`, RUNNING for the block, to log to; then it ends, and is copied to the server."""
        active = ActiveRun(self.store, run_id)
        self.store.status(run_id, "RUNNING")
        try:
            yield active
        except BaseException as error:
            with suppress(UserError):
                self.store.status(run_id, _ended_by(error), now())
            raise
        self.store.status(run_id, active.outcome, now())
        if self.mirror:
            with self.mirror.follow(run_id):
                pass

    def sum_up(self, parent: str, metrics: Mapping[str, float], runs: Sequence[str]) -> None:
        """Logs what a sweep came to on its parent run; `runs` are the ids of all its runs."""
        below_it = {run.run_id for run in self.store.search({PARENT: parent})}
        active = ActiveRun(self.store, parent)
        active.metrics(metrics)
        if held := " ".join(run_id for run_id in runs if run_id not in below_it):
            active.tags({HELD: held})

    def pending(self) -> list[Run]:
        """Local runs that the server does not have as they are; none without a server, StoreFault if it does not answer."""
        return self.mirror.pending(self.store.search({"project": PROJECT})) if self.mirror else []

    def push(self) -> tuple[int, list[Refused]]:
        """Copies to the server what it lacks; returns how many runs it has now, and why it has others not whole.

        StoreFault if the server does not answer.
        """
        assert self.mirror
        faults: list[Refused] = []
        pending = self.pending()
        for run in pending:
            try:
                self.mirror.copy(run.run_id)
            except Refused as fault:
                faults.append(fault)
        return len(pending) - len(faults), faults
