"""Sweeps: the run that groups others, with their table, the best of them, and means over seeds."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from toolformer.results import Folder, Results, Run
from toolformer.results.provenance import masked_words
from toolformer.results.run import headline_metrics
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.invocation import Invocation
from toolformer.stages.versions import VERSIONS
from toolformer.step import Step

log = logging.getLogger(__name__)


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
        info = Invocation(self.command).run_info(self.config, title, about, swept=list(self.keys))
        with self.results.open(self.step, info, wait=0.5, done=lambda: None) as folder:
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
    columns = list(dict.fromkeys(key for run in runs for key in headline_metrics(run)))
    rows = [
        [run.id[:8], children[run.id], *(headline_metrics(run).get(key) for key in columns)] for run in runs
    ]
    folder.text("sweep.json", json.dumps({"columns": ["run", "swept", *columns], "data": rows}))
