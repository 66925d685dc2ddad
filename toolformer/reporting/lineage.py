"""The trainings and annotations behind evaluations: found, gone, or held by a server that does not answer.

Asks the store for runs and for the files of annotations; which of several evaluations count is decided in `chosen`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolformer.errors import UserError
from toolformer.reporting.chosen import training_of
from toolformer.reporting.evidence import DATASET, Annotation
from toolformer.reporting.stages import annotation_of
from toolformer.tracking import NotFound, Run, StoreFault, Tracker


class Lineage:
    """The runs that other runs name, each looked up once."""

    def __init__(self, tracker: Tracker, known: Iterable[Run]) -> None:
        self.tracker = tracker
        self._found: dict[str, Run | None] = {run.run_id: run for run in known}
        self._away: set[str] = set()

    def get(self, run_id: str) -> Run | None:
        """A run by its id; None for one that is gone or away.

        Raises:
            StoreFault: a local store fails.
        """
        if run_id not in self._found:
            self._found[run_id] = self._ask(run_id)
        return self._found[run_id]

    def _ask(self, run_id: str) -> Run | None:
        try:
            return self.tracker.get(run_id)
        except NotFound:
            return None
        except StoreFault:
            if self.tracker.store.is_local:
                raise
            self._away.add(run_id)
            return None

    def is_away(self, run_id: str) -> bool:
        """Whether only a server that does not answer can have it."""
        return self.get(run_id) is None and run_id in self._away

    def fate(self, run_id: str) -> str:
        """What became of a run that is not found, as the end of a sentence."""
        if self.is_away(run_id):
            return f"is not to be had ({self.tracker.shown_uri} does not answer)"
        return "is gone"


def models(evaluated: Iterable[Run], known: Lineage) -> dict[str, str]:
    """The model that each evaluation's system is made of, by the evaluation's id; empty for a baseline."""
    found: dict[str, str] = {}
    for run in evaluated:
        train_id = training_of(run)
        made_of = (known.get(train_id) if train_id else None) or run
        found[run.run_id] = "" if run.tags.get("baseline") else made_of.params.get("model", "")
    return found


def trainings(
    behind: Mapping[str, str], known: Lineage, trained: Sequence[Run], model: str
) -> dict[str, Run]:
    """By data, the training behind the figures; where no evaluation names one the newest, of the tables' model first."""
    found: dict[str, Run] = {}
    for run in sorted(trained, key=lambda run: bool(model) and run.params.get("model", "") != model):
        if not behind.get(run.tags.get("data", "")):
            found.setdefault(run.tags.get("data", ""), run)
    return found | {
        data: one for data, train_id in behind.items() if train_id and (one := known.get(train_id))
    }


@dataclass(frozen=True)
class Annotated:
    """The annotation of a report."""

    shown: Annotation | None
    run: Run | None
    """Of `shown`; where nothing is shown, the one that is to be made again."""
    said: tuple[str, ...]
    """What is to be said about it."""
    away: str
    """The id of the one behind the trainings (or the newest), where it is not to be had now, but may be there."""


def annotated(known: Lineage, named: str, generated: Sequence[Run]) -> Annotated:
    """The annotation that the shown trainings name, else the newest that can be read."""
    wanted = known.get(named) if named else None
    lost = {named: known.fate(named)} if named and not wanted else {}
    away = named if named and known.is_away(named) else ""
    runs = [*([wanted] if wanted else []), *(run for run in generated if run.run_id != named)]
    shown = None
    for run in runs:
        try:
            shown = annotation_of(known.tracker, run)
            break
        except StoreFault as fault:  # of a server, which is waited for once
            lost[run.run_id] = f"could not be fetched ({fault})"
            away = run.run_id
            break
        except UserError as fault:
            lost[run.run_id] = f"cannot be read ({fault})"
    newest = generated[0].run_id if generated else ""
    said = tuple(_of_annotation(lost, named, shown.run.run_id if shown else "", newest))
    return Annotated(shown, run if shown else next(iter(runs), None), said, away)


def _of_annotation(lost: Mapping[str, str], named: str, shown: str, newest: str) -> Iterator[str]:
    """What is said of the annotation that is shown (ids of runs), and of those that are not, with the reason."""
    behind = ", on whose data the models were trained"
    if lost:
        parts = [
            f"generate run {run_id[:8]}{f'{behind},' if run_id == named else ''} {why}"
            for run_id, why in lost.items()
        ]
        said = "; ".join([*parts, *([f"the tables on annotation show run {shown[:8]}"] if shown else [])])
        yield f"{said[0].upper()}{said[1:]}."
    elif named and newest and newest != shown:
        yield f"The tables on annotation show generate run {shown[:8]}{behind}; the newest is {newest[:8]}."


def parents(known: Lineage, runs: Iterable[Run]) -> Iterator[Run]:
    """The train and generate runs behind evaluations that are still there, each once."""
    seen: set[str] = set()
    waiting = list(runs)
    while waiting:
        run = waiting.pop(0)
        for tag in ("lineage.train_run_id", "lineage.dataset_run_id"):
            run_id = run.tags.get(tag)
            if run_id and run_id not in seen:
                seen.add(run_id)
                if parent := known.get(run_id):
                    yield parent
                    waiting.append(parent)


def reads(
    known: Lineage, trained: Mapping[str, Run], annotation: Run | None, away: Mapping[str, str]
) -> dict[str, str]:
    """The first characters of the runs that `latest` would not find, by data or `DATASET`: of those that are shown, and of
    those (`away`: their ids) that are not to be had now."""
    found = {data: (run, known.tracker.latest("train", data=data)) for data, run in trained.items() if data}
    if annotation:
        found[DATASET] = (annotation, known.tracker.latest("generate"))
    shown = {
        key: run.run_id for key, (run, latest) in found.items() if latest and latest.run_id != run.run_id
    }
    return {key: run_id[:8] for key, run_id in (shown | dict(away)).items()}
