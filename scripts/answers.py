"""The published answers of a registered experiment, by arm and benchmark; `scripts/answer_tables.py` makes tables of them.

Which evaluations a row has follows the two rules of the report (`reporting.select`). A row is labelled by the arm that they
belong to: the system; how the calls were kept and sampled that its model was trained on; the index that its tools search. Two
arms are compared as `toolformer compare` does it, on the seeds and questions that both have.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolformer.benchmarks import PAPER
from toolformer.data.parquet import read_table
from toolformer.errors import UserError, near
from toolformer.reporting.formatting import title_of
from toolformer.reporting.pairing import (
    Row,
    Seeds,
    TaskComparison,
    compare_groups,
    corrected,
    read_samples,
)
from toolformer.reporting.select import comparable, frame, seeds_of
from toolformer.results import Results, Run
from toolformer.step import Step

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
PUBLISHED = RESULTS / "headline"
REGISTRATION = RESULTS / "registration"
RULED, BASELINES = RESULTS / "rules.json", RESULTS / "baselines.json"
"""What `scripts/rules.py` and `scripts/baselines.py` write: the ids of the answers that are right."""


@dataclass(frozen=True)
class Experiment:
    """Where an experiment's files are."""

    folder: Path
    """Its published runs."""
    hypotheses: Path
    rules: tuple[Path, ...]
    """What `scripts/rules.py` writes, and further files of answers that are right."""
    is_pooled: bool = False
    """Whether an arm's trainings are of several annotations, and all arms have one index."""


EXPERIMENTS = {
    "headline": Experiment(PUBLISHED, REGISTRATION / "hypotheses.json", (RULED, BASELINES)),
    "positions": Experiment(
        RESULTS / "positions",
        REGISTRATION / "positions_hypotheses.json",
        (RESULTS / "positions_rules.json",),
        is_pooled=True,
    ),
}
"""By the name of their runs."""


ARMS = {
    "M": ("model", "loss", ""),
    "prompted": ("prompted", "loss", ""),
    "M + CC": ("model_cc", "loss", ""),
    "disabled": ("toolformer_disabled", "loss", ""),
    "Toolformer": ("toolformer", "loss", ""),
    "chance": ("toolformer", "chance", ""),
    "chance above 0": ("toolformer", "chance above 0", ""),
    "without leaks": ("toolformer", "without leaks", ""),
    "new calls": ("toolformer", "new", ""),
    "new calls, disabled": ("toolformer_disabled", "new", ""),
    "Toolformer, index without": ("toolformer", "loss", "without"),
}
"""By name in tables: the system; how the calls of its training texts were kept, by `loss`, by `chance`, or by `chance above 0`, among
those with a gain above 0, or `new` for calls that another seed sampled, kept by loss; and the name of the index that its tools
search, if that is not the annotation's."""
RULES = {
    "M + rule": "M",
    "M + CC + rule": "M + CC",
    "disabled + rule": "disabled",
    "question as query": "M",
    "question as query, index without": "M",
    "M, chat template": "M",
    "M, four examples": "M",
}
"""The rules that answer in place of learned calls (`scripts/rules.py`), other ways to ask M (`scripts/baselines.py`), and the arm whose
answers each replaces."""


@functools.cache
def _registered(name: str) -> frozenset[str]:
    """The ids below a name in the registration of the second experiment."""
    content = json.loads((REGISTRATION / "positions.json").read_text(encoding="utf-8"))
    return frozenset(map(str, content[name]))


PARTS: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    "web": ("heldout_perplexity", lambda identity: identity.startswith("web/")),
    "heldout": ("heldout_perplexity", lambda identity: not identity.startswith("web/")),
    "mawps_choice": ("mawps", lambda identity: identity in _registered("mawps_choice")),
    "svamp_choice": ("svamp", lambda identity: identity in _registered("svamp_choice")),
}
"""Parts of a benchmark, by name: the benchmark, and which ids belong to it."""
TITLES = {
    "web": "web excerpts",
    "heldout": "held-out texts",
    "wikitext_perplexity": "WikiText-2",
    "nq": "Natural Questions",
    "mawps_choice": "MAWPS with a choice",
    "svamp_choice": "SVAMP with a choice",
}


def label_of(run: Run, is_pooled: bool = False) -> str:
    """The arm of an evaluation, by its settings and those of the steps that it was made from; empty for any other.

    Args:
        is_pooled: whether new calls are of the arm of the others, and the index of no account (`Experiment`).
    """
    annotation = next(run.step.find_all("generate"), None)
    calls = calls_of(annotation) if annotation else "loss"
    index = Path(run.setting("tool.search.inference.retriever.index_path") or "").stem
    if is_pooled:
        calls, index = "loss" if calls == "new" else calls, ""
    made_with = (run.facts.get("system"), calls, index)
    return next((name for name, arm in ARMS.items() if arm == made_with), "")


def calls_of(annotation: Step) -> str:
    """How an annotation's calls were kept, as an arm has it."""
    # Of earlier releases `filter.chance`, which is now a setting of each tool.
    settings = [annotation.settings.get("filter", {}), *annotation.settings.get("tool", {}).values()]
    if any("chance_above" in part for part in settings):
        return "chance above 0"
    if any("chance" in part for part in settings):
        return "chance"
    if annotation.settings.get("filter", {}).get("leak") == "drop":
        return "without leaks"
    sampled_by = next((step.settings.get("seed", 0) for step in annotation.find_all("annotate")), 0)
    return "new" if sampled_by else "loss"


class Answers:
    """The evaluations in a folder of runs, by arm and benchmark."""

    def __init__(self, folder: Path = PUBLISHED, experiment: str = "headline") -> None:
        self.results, self.experiment = Results(folder), EXPERIMENTS[experiment]
        self.results.check_root()
        trained, annotated = (
            {run.id: run for run in self.results.runs(stage)} for stage in ("train", "generate")
        )
        cells = frame(self.results.runs("evaluate"), trained, annotated)
        # Registered arms: which trainings and indexes they pool was said before they were measured.
        labels = [label_of(run, self.experiment.is_pooled) for run in cells.run]
        cells = cells.assign(label=labels, arm=labels, annotated=labels)
        self._runs = {
            (arm, task, wording): {seeds_of(run): run for run in runs}
            for wording, worded in cells[cells.label != ""].groupby("wording")
            for (arm, task), runs in comparable(worded, ["label"]).items()
        }

    def of(self, arm: str, benchmark: str, wording: str = PAPER) -> Seeds:
        """The answers of an arm by seed. UserError if there are none, or a file is not what was published."""
        task, belongs = PARTS.get(benchmark, (benchmark, None))
        if arm in RULES:
            right = right_answers(*self.experiment.rules)
            answered = self.of(RULES[arm], benchmark, wording)
            return [(seeds, scored(arm, task, seeds[0], rows, right)) for seeds, rows in answered]
        runs = sorted(self.runs_of(arm, task, wording).items())
        rows = ((seeds, self._rows(run, task)) for seeds, run in runs)
        return [
            (seeds, [row for row in each if not belongs or belongs(str(row["id"]))]) for seeds, each in rows
        ]

    def runs_of(self, arm: str, task: str, wording: str = PAPER) -> Mapping[tuple[int, int], Run]:
        """The evaluations of an arm on a task by seeds. UserError if there are none, or there is no such arm."""
        known = (*ARMS, *RULES)
        if arm not in known:
            raise UserError(f"there is no arm {arm!r}{near(arm, known)}; known: {', '.join(known)}")
        if runs := self._runs.get((arm, task, wording)):
            return runs
        raise UserError(f"{self.results.root} has no answers of {arm} on {task}")

    def has(self, arm: str, benchmark: str) -> bool:
        """Whether an arm answered a benchmark."""
        task, _ = PARTS.get(benchmark, (benchmark, None))
        return (RULES.get(arm, arm), task, PAPER) in self._runs

    @functools.cache  # noqa: B019  # an instance is as long as its process
    def _rows(self, run: Run, task: str) -> list[Row]:
        return [*read_samples(self.results.artifact(run, f"samples/{task}.parquet", reduced=True))]

    def by_seed(self, arm: str, task: str) -> dict[tuple[int, int], list[Row]]:
        """All columns of an arm's answers, by seed."""
        runs = sorted(self.runs_of(arm, task).items())
        files = {
            seeds: self.results.artifact(run, f"samples/{task}.parquet", reduced=True) for seeds, run in runs
        }
        return {seeds: read_table(file).to_pylist() for seeds, file in files.items()}

    def whole(self, arm: str, task: str) -> list[Row]:
        """All columns of an arm's answers, all seeds together."""
        return [row for rows in self.by_seed(arm, task).values() for row in rows]

    def compare_one(self, of: str, over: str, benchmark: str, wording: str = PAPER) -> TaskComparison:
        """An arm over another one on a benchmark; p is not corrected. UserError if they have no question in common."""
        sides = (self.of(name, benchmark, wording) for name in (over, of))
        compared = compare_groups(benchmark, *sides)
        if compared is None:
            raise UserError(f"{of} and {over} have no question of {benchmark} in common")
        return compared

    def compared(
        self, of: str, over: str, benchmarks: Sequence[str], wordings: Sequence[str] = (PAPER,)
    ) -> list[TaskComparison]:
        """An arm over another one on each benchmark in each wording, in this order, with p corrected over all of them."""
        return corrected(
            [
                self.compare_one(of, over, benchmark, wording)
                for benchmark in benchmarks
                for wording in wordings
            ]
        )


def right_answers(*paths: Path) -> dict[str, Any]:
    """The ids of the answers that are right, by rule, benchmark and seed, of these files together; without one, of the rules of the first
    experiment."""
    content: dict[str, Any] = {}
    for path in paths or (RULED,):
        content |= json.loads(path.read_text(encoding="utf-8"))
    return content


def scored(rule: str, benchmark: str, seed: int, rows: Sequence[Row], right: Mapping[str, Any]) -> list[Row]:
    """Rows with the rule's answers and scores in place of the system's.

    Args:
        rule: a key of `right`, with benchmarks, seeds and ids below it.
    """
    try:
        ids = {*right[rule][benchmark][str(seed)]}
    except KeyError as error:
        raise UserError(
            f"{RULED} has no answers of {rule} on {benchmark}, seed {seed}; python scripts/rules.py DATA"
        ) from error
    return [{**row, "score": 100.0 * (str(row["id"]) in ids)} for row in rows]


def title(benchmark: str) -> str:
    return TITLES.get(benchmark, title_of(benchmark))
