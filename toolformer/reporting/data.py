"""The data of a report, which `reader` reads from runs and the tables and figures show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolformer.reporting.pairing import TaskComparison
from toolformer.reporting.select import Thresholds
from toolformer.reporting.table import Passage
from toolformer.results import Run

NEWEST = 8
"""Runs of each benchmark on the samples page."""
Points = Sequence[tuple[int, float]]
"""(step, value) of a metric, in order."""


@dataclass(frozen=True)
class Score:
    """The result of one system on one task, with its 95 % interval."""

    value: float
    """Percent, or perplexity."""
    low: float | None
    high: float | None
    runs: tuple[Run, ...]
    """Several differ only in their seed; every number is then a mean over them."""
    metrics: Mapping[str, float]
    """The task's others (docs/benchmarks.md), and `tokens`, written in `seconds`."""

    @property
    def run(self) -> Run:
        return self.runs[0]

    @property
    def n(self) -> int:
        """Examples, 0 where it is not known."""
        return round(self.metrics.get("n", 0))

    @property
    def calls(self) -> int:
        """Examples with an executed call."""
        return round(self.metrics.get("n_ac", 0))


@dataclass(frozen=True)
class Sampled:
    """An evaluation whose samples can be read."""

    run_id: str
    title: str
    """System, k and model, as far as they distinguish it."""
    system: str
    """The system's name, or the baseline's."""
    files: Mapping[str, Path]
    """Files of samples by task, those that can be read; columns as in docs/benchmarks.md."""
    classes: Mapping[str, Path] = field(default_factory=dict)
    """Files with the class of each sample by task, of what was explained."""


@dataclass(frozen=True)
class Annotation:
    """The results of a generate run."""

    run: Run
    counts: Mapping[tuple[str, float], tuple[int, int]]
    """Table 2: by tool and τ_f, texts with at least one call, and places in these texts that have one."""
    funnel: Mapping[str, Mapping[str, Any]]
    """By tool, counts by `funnel.STEPS` and the reasons `funnel.REASONS`; older runs lack some."""
    examples: Sequence[Passage]
    gains: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By tool, the scored candidates by bin of their gains; the outermost bins also hold everything beyond."""
    edges: Sequence[float] = ()
    """Edges of all tools' bins, in nats."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """τ_f by tool."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Artifacts by name; `documents_without_calls.parquet` may be missing."""
    baseline: str = "paper"
    """The loss that the gain is measured against: `paper` or `plain`."""
    lost: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By tool, how many texts came how far (`candidate_stats.FATES`)."""

    @property
    def difference(self) -> str:
        """The gain as a formula, the paper's (section 2) or over the loss without a call."""
        return "L(ε) − L⁺" if self.baseline == "plain" else "L⁻ − L⁺"


@dataclass(frozen=True)
class Evidence:
    """All that a report is made of."""

    experiment: str | None = None
    annotation: Annotation | None = None
    scores: Mapping[tuple[str, str], Score] = field(default_factory=dict)
    """By system (a baseline's name after `BASELINE`) and task."""
    trained: Mapping[str, tuple[Run, Sequence[Run]]] = field(default_factory=dict)
    """By data, `augmented` or `plain`: the training that was evaluated, else the newest; and its annotations, none if one of
    them is gone."""
    remarks: Sequence[str] = ()
    by_k: Mapping[tuple[int, str], Score] = field(default_factory=dict)
    """Toolformer, by k and task, for the tasks that were measured with at least two."""
    by_threshold: Mapping[tuple[Thresholds, str], Score] = field(default_factory=dict)
    """Toolformer, by τ_f of each tool and by task, for the tasks that were measured with at least two."""
    kept: Mapping[Thresholds, Run] = field(default_factory=dict)
    """Their annotations, by τ_f."""
    wordings: Mapping[tuple[str, str, str], Score] = field(default_factory=dict)
    """By row, wording and task, of what was asked in another wording than the paper's."""
    model: str = ""
    """The model of the tables: the one with the most figures."""
    paired: Mapping[tuple[str, str, str], TaskComparison] = field(default_factory=dict)
    """By task, system (or a baseline's key), and the system it is compared with: the former minus the latter."""
    curves: Mapping[tuple[str, str], Points] = field(default_factory=dict)
    """Metrics over the steps of the trainings, by data and metric."""
    sizes: Mapping[tuple[str, str, str], Score] = field(default_factory=dict)
    """Figure 4: scores by model, system and task."""
    sampled: Sequence[Sampled] = ()
    """All evaluations, the newest first."""
    ladders: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By task, the metrics of the explanation of Toolformer's evaluation."""

    @property
    def parameters(self) -> dict[str, float]:
        """Numbers of parameters of Figure 4's models."""
        return {model: score.run.metrics["parameters"] for (model, *_), score in self.sizes.items()}
