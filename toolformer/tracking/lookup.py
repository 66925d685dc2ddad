"""Runs looked up in a store, and in the journals of what it does not have whole.

A server that is dead or far delays no look-up: it is left in peace for a while, and answered for by the journals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from toolformer.errors import UserError
from toolformer.provenance import PROJECT
from toolformer.tracking import silence
from toolformer.tracking.journal import Journal, all_journals, matches
from toolformer.tracking.run import Run, newest_first, tell_of_clocks
from toolformer.tracking.store import NotFound, Store, StoreFault

T = TypeVar("T")
SHORTEST = 6
"""Characters of a run's id that name it."""


class Lookup:
    """What has been tracked: the reading half of `Tracker`, which says what the arguments are."""

    def __init__(self, uri: str | None, root: Path) -> None:
        self.store = Store(uri, root)
        self.root, self.uri, self.shown_uri = self.store.root, self.store.uri, self.store.shown_uri

    def faults(self) -> AbstractContextManager[Any]:
        """The MLflow client; whatever goes wrong with it becomes a `UserError` of one line."""
        return self.store.faults()

    @property
    def _journals(self) -> Path:
        return self.root / "journal"

    def _answer(self, ask: Callable[[], T]) -> T | None:
        """What the store answers; None from a server that does not, which is then left in peace for a while."""
        if self._is_silent():
            return None
        try:
            answer = ask()
        except StoreFault as fault:
            if self.store.is_local:
                raise
            silence.begin(self.uri, fault, self._journals)
            return None
        silence.end(self.uri)
        return answer

    def _is_silent(self) -> bool:
        return silence.left(self.uri) > 0

    def runs(self, stage: str, **tags: str) -> list[Run]:
        """The FINISHED runs of a stage with these tags, of every experiment, the last to finish first."""
        return self._search({"stage": stage, "project": PROJECT, **tags}, finished=True)

    def all_runs(self, **tags: str) -> list[Run]:
        """Every run with these tags, whatever its stage and status; the last to finish first, then those at work."""
        return self._search({"project": PROJECT, **tags}, finished=None)

    def _search(self, tags: Mapping[str, str], finished: bool | None) -> list[Run]:
        """The store's runs, and those of journals that the store does not have whole."""
        condition = None if finished is None else f"attributes.status {'=' if finished else '!='} 'FINISHED'"
        stored = self._answer(lambda: self.store.search(tags, condition))
        local = {
            journal.run_id: journal.run()
            for journal in all_journals(self.root)
            if stored is None or not journal.is_sent(self.shown_uri)
        }
        found = [run for run in stored or () if run.run_id not in local]
        found += [
            run
            for run in local.values()
            if matches(run, tags) and (finished is None or (run.status == "FINISHED") == finished)
        ]
        return newest_first(found)

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
            StoreFault: the server that may have it does not answer, or a local store fails.
        """
        journal = Journal(self._journals / run_id)
        local = journal.run() if journal.is_there() else None
        if local and not journal.is_sent(self.shown_uri):
            return local
        answer = self._answer(lambda: (self.store.get(run_id),))
        (found,) = answer or (local,)
        if found:
            return found
        if answer is None:
            raise StoreFault(f"run {run_id} is not to be had: {self.shown_uri} does not answer")
        if self.store.is_absent():
            raise NotFound(f"there is no run {run_id}: {self.shown_uri} does not exist yet")
        raise NotFound(f"there is no run {run_id} in {self.shown_uri}")

    def resolve(self, stage: str, ref: str, **tags: str) -> Run:
        """The finished run that `ref` names: `latest`, a run id, or the first characters (at least 6) of one.

        Raises:
            UserError: there is none, it is of another stage, or it did not finish.
        """
        wanted = "".join(f" with {key}={value}" for key, value in tags.items())
        if ref == "latest":
            every = self.runs(stage, **tags)
            found = every[0] if every else None
            tell_of_clocks(every)
            if found is None:
                raise UserError(
                    f"there is no finished {stage} run{wanted}: run `toolformer {stage}` first{self._silence()}"
                )
            return found
        matches = []
        if SHORTEST <= len(ref) < 32:
            matches = [run for run in self.runs(stage, **tags) if run.run_id.startswith(ref)]
            if len(matches) == 1:
                return matches[0]
            # One that did not finish, or is of another stage: said below.
            matches = matches or [run for run in self.all_runs() if run.run_id.startswith(ref)]
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

    def place(self) -> str:
        """Where runs have been read from so far, for headings."""
        return f"the journals below {self.root}{self._silence()}" if self._is_silent() else self.shown_uri

    def _silence(self) -> str:
        return f" ({self.shown_uri} does not answer)" if self._is_silent() else ""

    def history(self, run: Run, key: str) -> list[tuple[int, float]] | None:
        """A metric's (step, value) in order of step and time; None where the server that has them does not answer.

        Raises:
            StoreFault: a local store fails.
        """
        journal = Journal(self._journals / run.run_id)
        local = journal.history(key)
        if local and not journal.is_sent(self.shown_uri):
            return local
        stored_as = run.stored_as or journal.sent(self.shown_uri).run_id or run.run_id

        def ask() -> list[tuple[int, float]]:
            with self.faults() as client:
                logged = [
                    (row.step, row.timestamp, row.value) for row in client.get_metric_history(stored_as, key)
                ]
            return [(step, value) for step, _, value in sorted(logged)]

        stored = self._answer(ask)
        # A journal may have what a server lost.
        return local if local and not stored else stored

    def artifact_path(self, run: Run, name: str) -> Path:
        """An artifact (file or folder) as a local path: the stored one if the store is local, else a copy.

        That of a root's own store is looked for below the root first.

        Raises:
            UserError: the run has no such artifact.
        """
        missing = UserError(f"{run.stage} run {run.run_id} has no {name}: run `toolformer {run.stage}` again")
        parts = urlsplit(run.artifact_uri)
        named = [Path(unquote(parts.path))] if parts.scheme in ("", "file") else []
        journal = Journal(self._journals / run.run_id).artifacts
        below = self.root / "artifacts" / (run.stored_as or run.run_id) / "artifacts"
        # What a root's own database names may be the place of another root, of which this one is a copy.
        folders = [below, journal, *named] if self.store.is_own else [*named, journal, below]
        found = next((folder / name for folder in folders if (folder / name).exists()), None)
        if found is None and parts.scheme not in ("", "file"):
            found = self.store.download(run, name)
        if found is None:
            raise missing
        return found
