"""Runs looked up in the local store, and on the server where `tracking.uri` names one: those of other machines.

A server that does not answer delays no look-up twice in a minute, and hides no local run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from toolformer.errors import UserError
from toolformer.tracking.provenance import PROJECT
from toolformer.tracking.run import HELD, PARENT, Run, newest_first
from toolformer.tracking.store import NotFound, Store, StoreFault

T = TypeVar("T")
SHORTEST = 6
"""Characters of a run's id that name it."""


class Lookup:
    """What has been tracked: the reading half of `Tracker`, which says what the arguments are."""

    def __init__(self, uri: str | None, root: Path) -> None:
        self.root = Path(root).expanduser().absolute()
        self.store = Store(self.root)
        self.server = Store(self.root, uri) if uri and uri != self.store.uri else None
        self.shown_uri = (self.server or self.store).shown_uri

    def faults(self) -> AbstractContextManager[Any]:
        """The local store's MLflow client; whatever goes wrong with it becomes a `UserError` of one line."""
        return self.store.faults()

    def _of_server(self, ask: Callable[[Store], T], otherwise: T) -> T:
        """What the server answers; `otherwise` without one, or where it does not answer."""
        if self.server is None or self.server.is_silent:
            return otherwise
        try:
            return ask(self.server)
        except StoreFault as fault:
            self.server.silence(fault)
            return otherwise

    def runs(self, stage: str, **tags: str) -> list[Run]:
        """The FINISHED runs of a stage with these tags, of every experiment, the last to finish first."""
        return [run for run in self.all_runs(stage=stage, **tags) if run.status == "FINISHED"]

    def all_runs(self, **tags: str) -> list[Run]:
        """Every run with these tags, whatever its stage and status; the last to finish first, then those at work."""
        tags = {"project": PROJECT, **tags}
        local = self.store.search(tags)
        ids = {run.run_id for run in local}
        nothing: list[Run] = []
        served = self._of_server(lambda server: server.search(tags), nothing)
        return newest_first([*local, *(run for run in served if run.run_id not in ids)])

    def find_finished(self, stage: str, fingerprint: str) -> Run | None:
        """The FINISHED run that did exactly this work, if there is one."""
        return next(iter(self.runs(stage, fingerprint=fingerprint)), None)

    def latest(self, stage: str, **tags: str) -> Run | None:
        """The FINISHED run of a stage that ended last."""
        return next(iter(self.runs(stage, **tags)), None)

    def get(self, run_id: str) -> Run:
        """A run by its id.

        Raises:
            NotFound: there is none.
            StoreFault: the server that may have it does not answer, or the local store fails.
        """
        run = self.store.get(run_id) or self._of_server(lambda server: server.get(run_id), None)
        if run:
            return run
        if self.server and self.server.is_silent:
            raise StoreFault(
                f"run {run_id} is not in {self.root}, and {self.server.shown_uri} does not answer"
            )
        raise NotFound(f"there is no run {run_id} in {self.shown_uri}")

    def resolve(self, stage: str, ref: str, **tags: str) -> Run:
        """The finished run that `ref` names: `latest`, the newest with these tags; a run id, or at least 6 characters of one.

        Raises:
            UserError: there is none, it is of another stage, or it did not finish.
        """
        if ref == "latest":
            if run := self.latest(stage, **tags):
                return run
            raise UserError(self._none(stage, tags))
        matches = []
        if SHORTEST <= len(ref) < 32:
            runs = [run for run in self.all_runs() if run.run_id.startswith(ref)]
            finished = [run for run in runs if run.stage == stage and run.status == "FINISHED"]
            matches = finished or runs  # one that did not finish, or is of another stage, is reported below
        if len(matches) > 1:
            raise UserError(f"{len(matches)} runs begin with {ref}; give more of its characters")
        try:
            run = matches[0] if matches else self.get(ref)
        except NotFound as error:
            short = f" of {SHORTEST} characters at least" if len(ref) < SHORTEST else ""
            raise UserError(
                f"{error}; name the id{short} of a run of `toolformer {stage}`, or say latest"
            ) from error
        if run.stage != stage:
            raise UserError(
                f"run {ref} is a run of {run.stage or 'a sweep'}: name one of `toolformer {stage}`, or say latest"
            )
        if run.status != "FINISHED":
            raise UserError(f"{stage} run {ref} is {run.status}: give its `toolformer {stage}` command again")
        return run

    def _none(self, stage: str, tags: dict[str, str]) -> str:
        """That there is no such run, and where there is one: under which other names of experiments."""
        name = tags.pop("experiment", "")
        wanted = "".join(f" with {key}={value}" for key, value in tags.items())
        others = {
            run.tags.get("experiment", ""): run.run_id[:8] for run in reversed(self.runs(stage, **tags))
        }
        there = ", ".join(f"name={other} has {run_id}" for other, run_id in others.items())
        first = (
            f"run `toolformer {stage}` first"
            if not there
            else f"say which one, by its name or its id: {there}"
        )
        return f"there is no finished {stage} run{wanted}{f' of name={name}' * bool(name)}: {first}{self._silence()}"

    def swept(self, stage: str, ref: str) -> list[Run]:
        """The finished runs of a stage in the sweep whose parent run `ref` names (as `resolve`); none if it names no parent."""
        if len(ref) < SHORTEST:
            return []
        parent = next(
            (run for run in self.all_runs() if "sweep" in run.tags and run.run_id.startswith(ref)), None
        )
        if parent is None:
            return []
        held, ids = parent.tags.get(HELD, "").split(), (parent.run_id, parent.stored_as or parent.run_id)
        return [run for run in self.runs(stage) if run.tags.get(PARENT) in ids or run.run_id in held]

    def place(self) -> str:
        """Where runs have been read from so far, for headings."""
        if self.server is None:
            return self.store.shown_uri
        return f"{self.root}{self._silence() or f' and {self.server.shown_uri}'}"

    def _silence(self) -> str:
        return f" ({self.shown_uri} does not answer)" if self.server and self.server.is_silent else ""

    def history(self, run: Run, key: str) -> list[tuple[int, float]] | None:
        """A metric's (step, value) in order of step; None where the server that has them does not answer.

        Raises:
            StoreFault: the local store fails.
        """
        if not run.stored_as:
            return self.store.history(run.run_id, key)
        return self._of_server(lambda server: server.history(run.stored_as, key), None)

    def artifact_path(self, run: Run, name: str) -> Path:
        """An artifact (file or folder) as a local path; one of a run on the server is copied.

        Raises:
            UserError: the run has no such artifact.
        """
        store = self.server if run.stored_as and self.server else self.store
        path = store.artifact(run, name)
        if path is None:
            raise UserError(
                f"{run.stage} run {run.run_id[:8]} has no {name}: run `toolformer {run.stage}` again"
            )
        return path
