"""The results below a folder: `<root>/<stage>/<key>/` each. Looked up, opened to work on, and read.

A step is done when its `result.json` is there and its files are what it logged. Resuming is opening the same folder again,
under a lock. Nothing here knows MLflow.
"""

from __future__ import annotations

import logging
import os
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from toolformer.decoding.settings import SYSTEMS
from toolformer.errors import UserError, near
from toolformer.results.folder import Folder, Listener, RunInfo, add_name, names_in, read_json, write_record
from toolformer.results.reading import mapping, read_run
from toolformer.results.run import LOCK, RESULT, RUN_STEPS, STEP, Run, newest_first
from toolformer.step import Step
from toolformer.storage import acquired, lock_file, remove_leftovers, safe_join, sha256

log = logging.getLogger(__name__)

SHORTEST = 6
"""Characters of a run's id that name it."""
CANDIDATES = 8
"""Runs that a message names at most."""


LATEST = "latest"


def parse_reference(reference: str) -> tuple[str, dict[str, Any]]:
    """A run's id, its first characters or `latest`, and the facts that `latest:SYSTEM` asks of it. UserError for another name."""
    name, colon, system = reference.partition(":")
    if colon and (name != LATEST or system not in SYSTEMS):
        raise UserError(
            f"{reference!r} is not a run; give an id, latest or latest:SYSTEM{near(system, SYSTEMS)}"
        )
    return name, {"system": system} if colon else {}


class Damaged(UserError):
    """A file of a run is not what the run logged."""


class Results:
    """The results below a folder of the user's, which is made when needed.

    Args:
        listener: hears what runs at work log.
        versions: the current version of each step, by name; results of other versions, also of tools, are refused. None
            for readers of what runs say.
    """

    def __init__(
        self, root: Path, listener: Listener | None = None, versions: Mapping[str, int] | None = None
    ) -> None:
        self.root = Path(root).expanduser().absolute()
        self.listener = listener or Listener()
        self.versions = versions or {}
        self._has_ended_killed = False

    def path(self, step: Step) -> Path:
        """The folder of a step's result."""
        return self.root / step.name / step.key()

    # Reading

    def all_runs(self, *stages: str) -> list[Run]:
        """Every run of these stages (of all), whatever its status; the last to finish first, then those at work."""
        folders = (path for stage in stages or RUN_STEPS for path in _folders(self.root / stage))
        return newest_first(run for folder in folders if (run := read_run(folder)))

    def runs(self, stage: str, experiment: str | None = None, **facts: Any) -> list[Run]:
        """The FINISHED runs of a stage, of this experiment and with these facts, the last to finish first."""
        return [
            run
            for run in self.all_runs(stage)
            if run.status == "FINISHED"
            and (experiment is None or experiment in run.experiments)
            and all(run.facts.get(name) == value for name, value in facts.items())
        ]

    def damaged(self, stage: str, experiment: str | None = None) -> list[str]:
        """The ids of the runs of a stage whose records are damaged, of this experiment or maybe so: they count nowhere."""

        def is_asked(folder: Path) -> bool:
            names, changed = names_in(folder)
            return experiment is None or experiment in names or bool(changed)

        return [
            folder.name
            for folder in sorted(_folders(self.root / stage))
            if is_asked(folder)
            and any(
                (folder / f"{name}{packed}").exists() for name in (STEP, RESULT) for packed in ("", ".gz")
            )
            and ((run := read_run(folder)) is None or run.status == "DAMAGED")
        ]

    def latest(self, stage: str, experiment: str | None = None, **facts: Any) -> Run | None:
        """The FINISHED run of a stage that ended last."""
        return next(iter(self.runs(stage, experiment, **facts)), None)

    def check_root(self) -> None:
        """UserError if the folder of the runs does not exist."""
        if not self.root.is_dir():
            raise UserError(f"there is no folder {self.root}; name the folder of your runs: paths.root=DIR")

    def get(self, run_id: str) -> Run:
        """A run by its id, of any stage. UserError if there is none."""
        for stage in RUN_STEPS:
            if run := read_run(self.root / stage / run_id) if run_id.isalnum() else None:
                return run
        raise UserError(f"there is no run {run_id} in {self.root}")

    def find(self, step: Step) -> Run | None:
        """The finished run of a step, whatever became of its files since."""
        run = read_run(self.path(step))
        return run if run and run.status == "FINISHED" else None

    def done(self, step: Step) -> Run | None:
        """The finished run of a step whose files are intact, and which read what its inputs hold now. Writes nothing."""
        run = self.find(step)
        is_done = (
            run
            # The scores of a published evaluation are whole; the texts that a training needs are not published.
            and not (run.stage == "generate" and run.reduced)
            and self.is_intact(run)
            and run.read.items() <= {**run.read, **self._fingerprints(step)}.items()
        )
        return run if is_done else None

    def _fingerprints(self, step: Step) -> dict[str, str]:
        """The fingerprints of the runs that a step reads, as far as they are there, by id."""
        sources = (
            self.find(source)
            for source in step.all_steps()
            if source.name in RUN_STEPS and source is not step
        )
        return {run.id: run.fingerprint for run in sources if run and run.fingerprint}

    def artifact(self, run: Run, name: str, reduced: bool = False) -> Path:
        """A file or folder of a run. UserError if there is none; `Damaged` if it is not what the run logged.

        Args:
            reduced: whether it may be published without its texts.
        """
        path = safe_join(run.folder, *name.split("/"))
        if not path.exists():
            raise UserError(
                f"{run.stage} run {run.id[:8]} has no {name}: run its command again: {run.command}"
            )
        if not reduced and any(file == name or file.startswith(f"{name}/") for file in run.reduced):
            raise UserError(
                f"{name} of {run.stage} run {run.id[:8]} is published without its texts: run its command again: {run.command}"
            )
        for logged, digest in run.digests.items():
            if logged == name or logged.startswith(f"{name}/"):
                file = safe_join(run.folder, *logged.split("/"))
                if not file.is_file() or sha256(file) != digest:
                    raise Damaged(
                        f"{logged} of {run.stage} run {run.id[:8]} is damaged; run its command again: {run.command}"
                    )
        return path

    def is_intact(self, run: Run, or_gone: bool = False) -> bool:
        """Whether a run's files are what it logged; with `or_gone`, also where they were removed."""
        for name in run.digests:
            try:
                self.artifact(run, name, reduced=True)
            except UserError as error:
                if isinstance(error, Damaged) or not or_gone:
                    return False
        return True

    # Naming

    def resolve(
        self, stage: str, reference: str, experiment: str | None = None, seed: int | None = None, **facts: Any
    ) -> Run:
        """The finished run that `reference` names: a run id, at least 6 characters of one, `latest` or `latest:SYSTEM`.

        `latest` is the newest of this experiment, with this seed and these facts.

        Raises:
            UserError: there is none, it is of another stage or version, or it did not finish.
        """
        name, asked = parse_reference(reference)
        if name == LATEST:
            facts |= asked
            runs = self.runs(stage, experiment, **facts)
            run = next((run for run in runs if seed in (None, run.seed)), None)
            if run is None:
                raise UserError(self._none(stage, experiment, seed, facts))
        else:
            run = self._named(stage, reference)
        self._check_version(run)
        return run

    def _check_version(self, run: Run) -> None:
        """UserError if the run, or anything that it was made from, is of another version than the code."""
        if not self.versions:  # only reads what a run says
            return
        from toolformer.tools.identity import version_of

        for step in run.step.all_steps():
            made: dict[str, tuple[Any, Any]] = {}
            made[step.name] = step.version, self.versions.get(step.name, step.version)
            for described in mapping(step.inputs.get("tools")).values():
                recorded = mapping(described[0]) if isinstance(described, list | tuple) and described else {}
                made |= {name: (version, version_of(name)) for name, version in recorded.items()}
            for name, (version, current) in made.items():
                if version != current:
                    raise UserError(
                        f"{run.stage} run {run.id[:8]} was made by version {version} of {name}, this is {current}: run "
                        f"{self._again(run)}"
                    )

    def _again(self, run: Run) -> str:
        """The commands that make a run and all that it was made from again, the first one first."""
        steps = [step for step in run.step.all_steps() if step.name in RUN_STEPS]
        runs = [made for step in dict.fromkeys(reversed(steps)) if (made := self.find(step)) and made.command]
        # A later one reads what an earlier one has made by then.
        commands = [_NAMED_RUNS.sub(_newly_made, made.command) for made in runs]
        if len(commands) == 1:
            return f"its command again: {commands[0]}"
        several = "; each RUN is the id that an earlier command prints" if "RUN+RUN" in commands[-1] else ""
        return f"these commands again, in this order: {'; '.join(commands)}{several}"

    def _named(self, stage: str, reference: str) -> Run:
        matches = [run for run in self.all_runs(*RUN_STEPS) if run.id.startswith(reference)]
        matches = matches if len(reference) >= SHORTEST else []
        # One that did not finish, or is of another stage, is reported below.
        matches = [run for run in matches if run.stage == stage and run.status == "FINISHED"] or matches
        if not matches:
            advice = (
                f"name a run of `toolformer {stage}` by at least its first {SHORTEST} characters, or latest"
            )
            raise UserError(f"there is no run {reference} in {self.root}; {advice}")
        if len(matches) > 1:
            raise UserError(f"{len(matches)} runs begin with {reference}; give more of its characters")
        (run,) = matches
        if run.stage != stage:
            raise UserError(
                f"run {reference} is a run of {run.stage}; name a run of `toolformer {stage}`, or latest"
            )
        if run.status != "FINISHED":
            raise UserError(f"{stage} run {reference} is {run.status}: run its command again: {run.command}")
        return run

    def _none(self, stage: str, experiment: str | None, seed: int | None, facts: Mapping[str, Any]) -> str:
        """The message that there is no such run, with those that might be meant."""
        conditions = [f"{key}={value}" for key, value in facts.items()]
        conditions += [f"name={experiment}"] if experiment else []
        conditions += [f"seed={seed}"] if seed is not None else []
        candidates = self.runs(stage, **facts)
        labels = [
            f"{run.id[:8]} (name={', '.join(sorted(run.experiments)) or 'none'}, seed={run.seed})"
            for run in candidates[:CANDIDATES]
        ]
        more = f" and {len(candidates) - CANDIDATES} more" if len(candidates) > CANDIDATES else ""
        data = " data=plain" if facts.get("data") == "plain" else ""
        advice = (
            f"name one: {', '.join(labels)}{more}"
            if labels
            else f"run `toolformer {stage}{data}` first, with the same experiment= and name="
        )
        return f"there is no finished {stage} run with {' '.join(conditions)}; {advice}"

    # Working

    def add_name(self, run: Run, experiment: str) -> None:
        """Notes that an experiment of this name asked for a run."""
        if experiment and experiment not in run.experiments:
            add_name(run.folder, experiment)

    @contextmanager
    def open(
        self,
        step: Step,
        info: RunInfo,
        wait: bool | float = True,
        done: Callable[[], Run | None] | None = None,
    ) -> Iterator[Folder | Run | None]:
        """The folder of a step, ours alone for the block; the result if it is done; None if it is another process's.

        The run ends FINISHED with the block, FAILED with an exception, KILLED with Ctrl-C, SIGTERM or `sys.exit`.

        Args:
            wait: for another process that works on it; a number is so many seconds.
            done: what to return in place of the folder, if there is something; `Results.done` if it is left out. The name of
                the experiment is added to it.
        """
        path = self.path(step)
        if path.is_dir() and not os.access(path, os.W_OK):  # what is finished may be read in a read-only root
            if run := done() if done else self.done(step):
                yield run
                return
        self._end_killed()
        lock = lock_file(path / LOCK)
        if not _acquired_within(lock, 0.0 if wait is True else float(wait)):
            if wait is not True:
                yield None
                return
            log.info("%s: another process is working on run %s; waiting for it", step.name, path.name[:8])
            while not acquired(lock, wait=True):
                pass
        try:
            if run := done() if done else self.done(step):
                self.add_name(run, info.experiment)
                yield run
                return
            remove_leftovers(path)  # of a process that was killed while it held the lock
            folder = Folder(path, step, info, self.listener)
            folder.read = self._fingerprints(step)
            yield from self._work(folder)
        finally:
            lock.release()

    def _end_killed(self) -> None:
        """Says of each run that a kill (-9) left RUNNING that it was killed, also to the listener; once per process and root."""
        if self._has_ended_killed:
            return
        self._has_ended_killed = True
        for path in (path for stage in RUN_STEPS for path in _folders(self.root / stage)):
            if read_json(path / STEP).get("status") != "RUNNING":
                continue
            run, lock = read_run(path), lock_file(path / LOCK)
            if run and run.status == "KILLED" and acquired(lock):
                try:
                    record = read_json(path / STEP)
                    if record.get("status") == "RUNNING":  # still: no other process was faster
                        write_record(path / STEP, {**record, "status": "KILLED"})
                        self.listener.killed(path)
                finally:
                    lock.release()

    def _work(self, folder: Folder) -> Iterator[Folder]:
        folder.begin()
        try:
            yield folder
        except BaseException as error:
            status = "FAILED"
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
                status = "KILLED"
                traceback.clear_frames(error.__traceback__)  # they may hold gigabytes, or an open database
            try:
                folder.fail(status, error)
            except UserError:
                log.debug(
                    "run %s: its end could not be written", folder.id
                )  # the first error is the one to report
            raise
        folder.finish()


_NAMED_RUNS = re.compile(r"\b(dataset|checkpoint)=(\"?)([0-9a-f]{6,}(?:\+[0-9a-f]{6,})*)\2(?![\w/+])")
"""An override that names runs by their ids."""


def _newly_made(match: re.Match[str]) -> str:
    """The override, naming the runs that are made again: `latest` names only one."""
    several = match[3].count("+")
    return f"{match[1]}={'+'.join(['RUN'] * (several + 1)) if several else 'latest'}"


def _folders(path: Path) -> list[Path]:
    try:
        return [entry for entry in path.iterdir() if re.fullmatch(r"[0-9a-f]{16}", entry.name)]
    except OSError:
        return []


def _acquired_within(lock: FileLock, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not acquired(lock):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True
