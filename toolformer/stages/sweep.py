"""Sweeps: the run that groups others, with their table, the best of them, and means over seeds."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import mean

from toolformer.errors import UserError
from toolformer.results import Folder, Results, Run
from toolformer.results.provenance import masked_words
from toolformer.results.run import figures
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.invocation import Invocation
from toolformer.stages.versions import VERSIONS
from toolformer.step import Step

log = logging.getLogger(__name__)

_BETTER: tuple[tuple[str, Callable[..., Run]], ...] = (
    ("/score", max),
    ("/perplexity", min),
    ("best_heldout_perplexity", min),
)


@dataclass(frozen=True)
class Sweep:
    """A sweep, identified by its stage and what was asked for.

    Args:
        key: what identifies it.
        keys: the keys that it varies.
    """

    config: Config
    stage: str
    name: str
    key: Sequence[str]
    keys: Sequence[str]
    command: str = ""

    @property
    def step(self) -> Step:
        key = masked_words(self.key)  # it is written to the sweep's folder
        return Step("sweep", VERSIONS["sweep"], {"stage": self.stage, "key": key})

    @property
    def id(self) -> str:
        return self.step.key()

    @property
    def results(self) -> Results:
        return instantiate.results(self.config)

    @contextmanager
    def open(self) -> Iterator[Folder | None]:
        """The sweep's folder, RUNNING for the block, also if it was finished before; None while an equal sweep has it."""
        title = f"{self.name}: {self.stage}" + (f" over {', '.join(self.keys)}" if self.keys else "")
        about = {"experiment": self.config.name, "holds": "the runs of a sweep, below it"}
        beginning = Invocation(self.command).beginning(self.config, title, about, swept=list(self.keys))
        with self.results.open(self.step, beginning, wait=0.5, done=lambda: None) as folder:
            assert not isinstance(folder, Run)
            yield folder


def swept_keys(differing: Iterable[Sequence[str]]) -> list[str]:
    """The keys of overrides in which jobs differ."""
    return list(dict.fromkeys(word.lstrip("+").partition("=")[0] for words in differing for word in words))


def summarise(sweep: Sweep, folder: Folder, children: Mapping[str, str], done: Sequence[str]) -> None:
    """Writes the sweep's table, which run is best, and the means over seeds.

    Args:
        children: the ids of runs, with what was swept.
        done: the ids of runs of the sweep that were done before.
    """
    results = sweep.results
    folder.note(runs=[*done, *children])
    if not children:
        return
    runs = [results.get(run_id) for run_id in children]
    columns = list(dict.fromkeys(key for run in runs for key in figures(run)))
    rows = [[run.id[:8], children[run.id], *(figures(run).get(key) for key in columns)] for run in runs]
    folder.text("sweep.json", json.dumps({"columns": ["run", "swept", *columns], "data": rows}))
    if chosen := best(runs):
        folder.note(best_child=chosen.id, best_child_swept=children[chosen.id])
    if sweep.stage == "evaluate":
        metrics = _means_over_seeds(results, [*done, *children])
        folder.metrics(metrics)
        if metrics:
            log.info(
                "evaluate: means over seeds are on the sweep's run %s; toolformer compare takes it", sweep.id
            )


def best(runs: Sequence[Run]) -> Run | None:
    """The run with the highest mean score, else with the lowest mean perplexity; None if they measured different things."""
    for ending, choose in _BETTER:
        keys = [{key for key in figures(run) if key.endswith(ending)} for run in runs]
        if any(keys):
            is_fair = len(runs) > 1 and all(others == keys[0] for others in keys)
            return (
                choose(runs, key=lambda run: mean(run.metrics[key] for key in keys[0])) if is_fair else None
            )
    return None


def _means_over_seeds(results: Results, ids: Iterable[str]) -> dict[str, float]:
    """`<task>/score` (or perplexity), `ci_low`, `ci_high` and `seeds` of the runs that differ only in their seed.

    With several systems or settings in the sweep, these precede the task: `toolformer/svamp/score`.
    """
    from toolformer.reporting.frame import KIND, frame
    from toolformer.reporting.pairing import over_seeds, read_samples

    trained = {run.id: run for run in results.runs("train")}
    cells = frame([results.get(run_id) for run_id in ids], trained, {})
    cells = cells.drop_duplicates([*KIND, "task", "seed"], keep="last").sort_values("seed")
    groups = {key: [*group.run] for key, group in cells.groupby([*KIND, "task"], sort=False)}
    kinds = {tuple(kind) for *kind, _ in groups}
    metrics: dict[str, float] = {}
    for (*kind, task), runs in groups.items():
        if len(runs) < 2:
            continue
        with suppress(UserError):  # samples that are gone cost their own metrics only
            files = [results.artifact(run, f"samples/{task}.parquet") for run in runs]
            average = over_seeds([read_samples(file) for file in files])
            measure = "perplexity" if task.endswith("perplexity") else "score"
            values = {
                measure: average.value,
                "ci_low": average.low,
                "ci_high": average.high,
                "seeds": len(runs),
            }
            metrics |= {f"{_prefix(kind, kinds)}{task}/{key}": value for key, value in values.items()}
    return metrics


def _prefix(kind: Sequence[str], kinds: Collection[Sequence[str]]) -> str:
    """What distinguishes a kind of run (`frame.KIND`) from the others, to precede a task."""
    if len(kinds) == 1:
        return ""

    def parts(kind: Sequence[str]) -> tuple[str, ...]:
        _, wording, system, baseline, policy, replicate, model = kind
        return baseline or system, wording, f"k={policy}", replicate[:8] or model

    first, *further = parts(kind)
    alike = list(zip(*(parts(other)[1:] for other in kinds if parts(other)[0] == first), strict=True))
    distinct = [part for part, others in zip(further, alike, strict=True) if len(set(others)) > 1]
    return " ".join([first, *distinct]) + "/"
