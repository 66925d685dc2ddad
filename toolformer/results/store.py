"""The results below a folder: `<root>/<stage>/<key>/` each. Looked up, opened to work on, and read.

A step is done when its `result.json` is there and its files are what it logged. Resuming is opening the same folder again,
under a lock. Nothing here knows MLflow.
"""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from toolformer.errors import UserError
from toolformer.results.folder import Beginning, Folder, Listener, add_name
from toolformer.results.reading import mapping, read
from toolformer.results.run import LOCK, STAGES, SWEEP, Run, newest_first
from toolformer.step import Step
from toolformer.storage import acquired, lock_file, safe_join, sha256

log = logging.getLogger(__name__)

SHORTEST = 6
"""Characters of a run's id that name it."""


class Damaged(UserError):
    """A file of a run is not what the run logged."""


class Results:
    """The results below a folder of the user's, which is made when needed.

    Args:
        listener: hears what runs at work log.
        versions: the current version of each step, by name; results of other versions, also of tools, are refused. None
            for whoever only reads what runs say.
    """

    def __init__(
        self, root: Path, listener: Listener | None = None, versions: Mapping[str, int] | None = None
    ) -> None:
        self.root = Path(root).expanduser().absolute()
        self.listener = listener or Listener()
        self.versions = versions or {}

    def path(self, step: Step) -> Path:
        """The folder of a step's result."""
        return self.root / step.name / step.key()

    # Reading

    def all_runs(self, *stages: str) -> list[Run]:
        """Every run of these stages (of all), whatever its status; the last to finish first, then those at work."""
        folders = (path for stage in stages or STAGES for path in _folders(self.root / stage))
        return newest_first(run for folder in folders if (run := read(folder)))

    def runs(self, stage: str, experiment: str | None = None, **facts: Any) -> list[Run]:
        """The FINISHED runs of a stage, of this experiment and with these facts, the last to finish first."""
        return [
            run
            for run in self.all_runs(stage)
            if run.status == "FINISHED"
            and (experiment is None or experiment in run.experiments)
            and all(run.facts.get(name) == value for name, value in facts.items())
        ]

    def latest(self, stage: str, experiment: str | None = None, **facts: Any) -> Run | None:
        """The FINISHED run of a stage that ended last."""
        return next(iter(self.runs(stage, experiment, **facts)), None)

    def check_root(self) -> None:
        """UserError if the folder of the runs does not exist."""
        if not self.root.is_dir():
            raise UserError(f"there is no folder {self.root}; paths.root names the folder of the runs")

    def get(self, run_id: str) -> Run:
        """A run by its id, of any stage. UserError if there is none."""
        for stage in (*STAGES, SWEEP):
            if run := read(self.root / stage / run_id) if run_id.isalnum() else None:
                return run
        raise UserError(f"there is no run {run_id} in {self.root}")

    def find(self, step: Step) -> Run | None:
        """The finished run of a step, whatever became of its files since."""
        run = read(self.path(step))
        return run if run and run.status == "FINISHED" else None

    def done(self, step: Step, experiment: str | None = None) -> Run | None:
        """The finished run of a step whose files are intact; notes that `experiment` asked for it."""
        run = self.find(step)
        if run is None or not self.is_intact(run):
            return None
        if experiment and experiment not in run.experiments:
            add_name(run.folder, experiment)
        return run

    def artifact(self, run: Run, name: str) -> Path:
        """A file or folder of a run. UserError if there is none; `Damaged` if it is not what the run logged."""
        path = safe_join(run.folder, *name.split("/"))
        if not path.exists():
            raise UserError(
                f"{run.stage} run {run.id[:8]} has no {name}: run its command again: {run.command}"
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
                self.artifact(run, name)
            except UserError as fault:
                if isinstance(fault, Damaged) or not or_gone:
                    return False
        return True

    # Naming

    def resolve(
        self,
        stage: str,
        reference: str,
        experiment: str | None = None,
        *,
        preferred: Mapping[str, Any] | None = None,
        asks: bool = True,
        **facts: Any,
    ) -> Run:
        """The finished run that `reference` names: `latest`, a run id, or at least 6 characters of one.

        `latest` is the newest of this experiment and with these facts; of a sweep's runs the one that has the `preferred`
        settings, where any run has those.

        Args:
            asks: raise an error if several runs of a sweep remain; otherwise the newest of them is taken.

        Raises:
            UserError: there is none, it is of another stage or version, or it did not finish.
        """
        if reference == "latest":
            run = self._latest(stage, experiment, preferred or {}, asks, facts)
        else:
            run = self._named(stage, reference)
        self._check_version(run)
        return run

    def _check_version(self, run: Run) -> None:
        """UserError if the run, or anything that it was made from, is of another version than the code."""
        if not self.versions:  # whoever only reads what a run says
            return
        from toolformer.tools.identity import versions as tool_versions

        for step in run.step.all_steps():
            made: dict[str, tuple[Any, Any]] = {}
            made[step.name] = step.version, self.versions.get(step.name, step.version)
            for described in mapping(step.inputs.get("tools")).values():
                of_tool = mapping(described[0]) if isinstance(described, list | tuple) and described else {}
                now = tool_versions({"_target_": [*of_tool]})
                made |= {name: (version, now.get(name)) for name, version in of_tool.items()}
            for name, (version, current) in made.items():
                if version != current:
                    raise UserError(
                        f"{run.stage} run {run.id[:8]} was made by version {version} of {name}, this is {current}: run its "
                        f"command again: {run.command}"
                    )

    def _named(self, stage: str, reference: str) -> Run:
        matches = [run for run in self.all_runs(*STAGES, SWEEP) if run.id.startswith(reference)]
        matches = matches if len(reference) >= SHORTEST else []
        # One that did not finish, or is of another stage, is reported below.
        matches = [run for run in matches if run.stage == stage and run.status == "FINISHED"] or matches
        if not matches:
            advice = f"name a run of `toolformer {stage}` by at least its first {SHORTEST} characters, or say latest"
            raise UserError(f"there is no run {reference} in {self.root}; {advice}")
        if len(matches) > 1:
            raise UserError(f"{len(matches)} runs begin with {reference}; give more of its characters")
        (run,) = matches
        if run.stage != stage:
            raise UserError(
                f"run {reference} is a run of {run.stage}: name one of `toolformer {stage}`, or say latest"
            )
        if run.status != "FINISHED":
            raise UserError(f"{stage} run {reference} is {run.status}: run its command again: {run.command}")
        return run

    def _latest(
        self,
        stage: str,
        experiment: str | None,
        preferred: Mapping[str, Any],
        asks: bool,
        facts: dict[str, Any],
    ) -> Run:
        """`resolve` of `latest`; logs why it is not simply the newest."""
        runs = every = self.runs(stage, experiment, **facts)
        if not every:
            raise UserError(self._none(stage, experiment, facts))
        for key, value in preferred.items():
            runs = [run for run in runs if run.setting(key) == value] or runs
        known = {"name", *facts, *preferred}
        swept = {run.id: self._swept_keys(run.parent) - known for run in runs}
        run = next((run for run in runs if not swept[run.id]), runs[0])
        open_keys = swept[runs[0].id]
        why = [f"the newest is of a sweep over {' and '.join(sorted(open_keys))}"] if open_keys else []
        if open_keys and run is runs[0]:
            if asks:
                raise UserError(
                    f"{stage}: {why[0]}; instead of latest name one: {_alternatives(runs, swept)}"
                )
            why[0] += "; name another by its id"
        for key, value in preferred.items():
            if run.setting(key) != value:
                why.append(f"none has {key}={value}")
            elif runs[0] is not every[0]:
                why.append(f"it has {key}={value}")
        if why and len(every) > 1:
            log.info("latest %s run: %s (%s)", stage, run.id[:8], "; ".join(why))
        return run

    def _swept_keys(self, parent: str) -> set[str]:
        """The keys that a sweep varies."""
        sweep = read(self.root / SWEEP / parent) if parent else None
        return {str(key) for key in sweep.facts.get("swept", ())} if sweep else set()

    def _none(self, stage: str, experiment: str | None, facts: Mapping[str, Any]) -> str:
        """The message that a run is missing, with the other names that have one."""
        wanted = "".join(f" with {key}={value}" for key, value in facts.items())
        wanted += f" of name={experiment}" if experiment else ""
        others = {name: run.id[:8] for run in reversed(self.runs(stage, **facts)) for name in run.experiments}
        there = ", ".join(f"name={name} has {run_id}" for name, run_id in sorted(others.items()))
        plain = " data=plain" if facts.get("data") == "plain" else ""
        same = ", with the same experiment= and name=" if experiment not in (None, "default") else ""
        way_out = (
            f"name one by its name or id: {there}"
            if there
            else f"run `toolformer {stage}{plain}` first{same}"
        )
        return f"there is no finished {stage} run{wanted}: {way_out}"

    def swept(self, stage: str, reference: str) -> list[Run]:
        """The finished runs of a stage in the sweep that `reference` names; none if it names no sweep."""
        if len(reference) < SHORTEST:
            return []
        sweep = next((run for run in self.all_runs(SWEEP) if run.id.startswith(reference)), None)
        if sweep is None:
            return []
        held = {str(run_id) for run_id in sweep.facts.get("runs", ())}
        return [run for run in self.runs(stage) if run.parent == sweep.id or run.id in held]

    # Working

    @contextmanager
    def open(
        self,
        step: Step,
        beginning: Beginning,
        wait: bool | float = True,
        done: Callable[[], Run | None] | None = None,
    ) -> Iterator[Folder | Run | None]:
        """The folder of a step, ours alone for the block; the result if it is done; None if it is another process's.

        The run ends FINISHED with the block, FAILED with an exception, KILLED with Ctrl-C, SIGTERM or `sys.exit`.

        Args:
            wait: for another process that works on it; a number is so many seconds.
            done: what to return in place of the folder, if there is something; `Results.done` if it is left out.
        """
        path = self.path(step)
        lock = lock_file(path / LOCK)
        if not _acquired_within(lock, 0.0 if wait is True else float(wait)):
            if wait is not True:
                yield None
                return
            log.info("%s: another process is working on run %s; waiting for it", step.name, path.name[:8])
            while not acquired(lock, wait=True):
                pass
        try:
            if run := done() if done else self.done(step, beginning.experiment):
                yield run
                return
            yield from self._work(Folder(path, step, beginning, self.listener))
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


def _alternatives(runs: Sequence[Run], swept: Mapping[str, set[str]]) -> str:
    """The first runs of a sweep, each with its values of the swept keys."""
    shown = []
    for run in runs[:8]:
        values = [
            f"{key}={run.setting(key)}" for key in sorted(swept[run.id]) if run.setting(key) is not None
        ]
        shown.append(f"{run.id[:8]} ({', '.join(values) or run.name})")
    return ", ".join(shown) + (f" and {len(runs) - 8} more" if len(runs) > 8 else "")
