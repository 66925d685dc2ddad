"""Samples of evaluations: what each is called in the viewer, and its files, fetched from the store when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from toolformer.errors import UserError
from toolformer.reporting import chosen
from toolformer.reporting.cells import SYSTEMS, title_of
from toolformer.reporting.chosen import DEFAULT_K, measured
from toolformer.reporting.evidence import Sampled
from toolformer.reporting.pairing import check_samples
from toolformer.tracking import Run, StoreFault, Tracker


def baseline_names(runs: Iterable[Run]) -> dict[str, str]:
    """What each evaluation's baseline is called, by the run's id: with its path where folders share their last name."""
    named = [run for run in runs if run.tags.get("baseline")]
    places: dict[str, set[str]] = {}
    for run in named:
        places.setdefault(run.tags["baseline"], set()).add(_place(run))
    return {
        run.run_id: f"{name} ({place})" if len(places[name]) > 1 and place else name
        for run in named
        for name, place in [(run.tags["baseline"], _place(run))]
    }


def _place(run: Run) -> str:
    """Where a baseline's model is; an endpoint may be served anywhere."""
    return run.params.get("model", "") if run.tags.get("system") == "baseline" else ""


def sampled(
    fetched: Fetched,
    runs: Sequence[Run],
    models: Mapping[str, str],
    model: str,
    behind: Mapping[str, str],
) -> tuple[Sampled, ...]:
    """The evaluations for the viewer, titled by what tells each from those of the tables' model and trainings."""
    found = []
    names = baseline_names(runs)
    for run in runs:
        system = names.get(run.run_id) or SYSTEMS.get(run.tags.get("system", ""), "")
        other = models[run.run_id] if models[run.run_id] != model else ""
        k = run.tags.get("decoding.k", DEFAULT_K) if run.tags.get("system") == "toolformer" else DEFAULT_K
        training = chosen.training_of(run)
        apart = not other and training and training != behind.get(chosen.data_of(run))
        parts = (
            system,
            other,
            f"k = {k}" if k != DEFAULT_K else "",
            f"training {training[:8]}" if apart else "",
        )
        title = ", ".join(part for part in parts if part)
        if run.run_id in names and system in SYSTEMS.values():
            title = system = f"{system} (baseline)"
        found.append(Sampled(run.run_id, title, system, _Samples(fetched, run)))
    return tuple(found)


class Fetched:
    """Files of samples, each fetched and tried when it is asked for first."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._found: dict[tuple[str, str], Path | None] = {}
        self._is_away = False
        self.unread: list[str] = []
        """A sentence for everything that is there and was not to be had."""

    def path(self, run: Run, task: str) -> Path | None:
        key = (run.run_id, task)
        if key not in self._found:
            self._found[key] = self._fetch(run, task)
        return self._found[key]

    def _fetch(self, run: Run, task: str) -> Path | None:
        name = f"samples/{task}.parquet"
        if self._is_away and not run.artifact_uri.startswith("file:"):
            return None
        try:
            path = self._tracker.artifact_path(run, name)
        except StoreFault as fault:
            self._is_away = True  # a server that does not answer is waited for once
            self.unread.append(
                f"Samples of evaluations, such as those of run {run.run_id[:8]}, could not be fetched ({fault}): "
                "significance and answers lack them."
            )
            return None
        except UserError:  # logged without samples, or they are gone: the figures still stand
            return None
        try:
            check_samples(path)
        except UserError:
            self.unread.append(
                f"The samples of evaluate run {run.run_id[:8]} on {title_of(task)} cannot be read: significance and "
                "answers lack them."
            )
            return None
        return path


class _Samples(Mapping[str, Path]):
    """The files of an evaluation's samples by task; each is fetched when it is asked for."""

    def __init__(self, fetched: Fetched, run: Run) -> None:
        self._fetched, self._run = fetched, run
        self._tasks = tuple(task for task, _ in measured(run))

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, task: str) -> Path:
        if task not in self._tasks:
            raise KeyError(task)
        if path := self._fetched.path(self._run, task):
            return path
        raise KeyError(task)
