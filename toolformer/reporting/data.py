"""What `reader` reads from the runs and the tables and figures show, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolformer.reporting.pairing import Compared
from toolformer.reporting.selection import Thresholds
from toolformer.reporting.table import Passage
from toolformer.tracking import Run

GAIN = "L⁻ − L⁺"
"""The paper's gain (section 2)."""


@dataclass(frozen=True)
class Score:
    """A figure of one system on one task, with its 95 % interval."""

    value: float
    """Percent, or perplexity."""
    low: float | None
    high: float | None
    n: int | None
    call_share: float | None
    """Share of the examples with a call, 0 to 1."""
    tool_shares: Mapping[str, float]
    run: Run
    seconds: float | None = None
    """What all answers together took."""
    tokens: int | None = None
    """Written in that time."""
    calls: int | None = None
    """Examples with an executed call."""
    with_call: float | None = None
    """The score over these; None where there are none."""
    without_call: float | None = None
    others: tuple[Run, ...] = ()
    """Runs that differ from `run` only in their seed: every figure is then the mean of one."""

    @property
    def seeds(self) -> int:
        return 1 + len(self.others)


@dataclass(frozen=True)
class Counts:
    """Table 2, one tool at one τ_f."""

    examples: int
    """Texts with at least one call."""
    calls: int
    """Places in these texts that have a call."""


@dataclass(frozen=True)
class ToolFunnel:
    """How many of a tool's texts and candidates each step of the annotation let through, and why the others not."""

    steps: Mapping[str, int]
    """Those of `STEPS` that the run counted."""
    reasons: Mapping[str, int]
    """Why texts were not selected (or were)."""
    dropped: Mapping[str, int]
    """Why windows gave no candidate, and candidates were dropped."""
    filtered: Mapping[str, int]
    """Why scored candidates were not kept."""


@dataclass(frozen=True)
class Gains:
    """The gains of a tool's scored candidates, in nats."""

    counts: tuple[int, ...]
    """By bin of `Annotation.edges`; the first and the last bin also hold what lies beyond."""
    threshold: float | None
    """τ_f."""


@dataclass(frozen=True)
class Training:
    """The training behind a system's scores, and what it and its annotation took."""

    run: Run
    seconds: float | None
    tokens: int | None
    annotation_seconds: float | None = None
    calls: int | None = None
    """Calls that the annotation executed."""


@dataclass(frozen=True)
class Curve:
    """A metric over the steps of a training run."""

    data: str
    """`augmented` or `plain`."""
    metric: str
    points: tuple[tuple[int, float], ...]
    """(step, value), in order."""


@dataclass(frozen=True)
class Sampled:
    """An evaluation whose samples can be read."""

    run_id: str
    title: str
    """System, k and model, as far as they tell it from others."""
    system: str
    """The system's name, or the baseline's."""
    files: Mapping[str, Path]
    """Files of samples by task, those that can be read; columns as in docs/benchmarks.md."""
    classes: Mapping[str, Path] = field(default_factory=dict)
    """Files with the class of each sample by task, of what was explained."""


@dataclass(frozen=True)
class Annotation:
    """What a generate run found."""

    run: Run
    counts: Mapping[tuple[str, float], Counts]
    """By tool and τ_f."""
    funnel: Mapping[str, ToolFunnel]
    examples: tuple[Passage, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Rows that reading the corpus left out, by reason."""
    gains: Mapping[str, Gains] = field(default_factory=dict)
    """By tool."""
    edges: tuple[float, ...] = ()
    """Of the bins of all tools."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Artifacts by name; `documents_without_calls.parquet` may be missing."""
    baseline: str = "paper"
    """What the gain is measured against."""
    lost: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By tool, how many texts came how far (`candidate_stats.FATES`)."""

    @property
    def difference(self) -> str:
        """The gain as a formula: L⁻ is the smaller of the losses without a call and with one that has no result."""
        return "L(ε) − L⁺" if self.baseline == "plain" else GAIN


@dataclass(frozen=True)
class Evidence:
    """All that a report is made of."""

    experiment: str | None = None
    annotation: Annotation | None = None
    scores: Mapping[tuple[str, str], Score] = field(default_factory=dict)
    """By system (a baseline's name after `BASELINE`) and task."""
    trained: Mapping[str, Training] = field(default_factory=dict)
    """By data, `augmented` or `plain`; the newest where no evaluation names one."""
    remarks: tuple[str, ...] = ()
    by_k: Mapping[tuple[int, str], Score] = field(default_factory=dict)
    """Toolformer, by k and task, for the tasks that were measured with at least two."""
    by_threshold: Mapping[tuple[Thresholds, str], Score] = field(default_factory=dict)
    """Toolformer, by τ_f of each tool and by task, for the tasks that were measured with at least two."""
    wordings: Mapping[tuple[str, str], Mapping[str, Score]] = field(default_factory=dict)
    """By row and task, the figures in each wording, of what was asked in another than the paper's."""
    kept: Mapping[Thresholds, Run] = field(default_factory=dict)
    """The annotations behind these, by τ_f."""
    model: str = ""
    """The model of the tables: the one with the most figures."""
    paired: Mapping[tuple[str, str, str], Compared] = field(default_factory=dict)
    """By task, system (or a baseline's key), and the system it is compared with: the former minus the latter."""
    curves: tuple[Curve, ...] = ()
    sizes: Mapping[tuple[str, str, str], Score] = field(default_factory=dict)
    """Figure 4: scores by model, system and task."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Of the models of Figure 4."""
    sampled: tuple[Sampled, ...] = ()
    """All evaluations, the newest first."""
    ladders: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By task, the metrics of the explanation of Toolformer's evaluation."""
