"""All that a report is made of, as plain data: what `reader` finds in the runs and the tables show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from toolformer.calls import ApiCall
from toolformer.reporting.pairing import Compared

DATASET = "dataset"
"""The annotation, where trainings go by their data."""
GAIN = "L⁻ − L⁺"
"""The paper's gain (section 2)."""


@dataclass(frozen=True)
class RunNote:
    """What the report says about a run."""

    run_id: str
    stage: str
    system: str
    """Key of the system (evaluate), the data (train), or empty."""
    commit: str
    date: str
    """Day it was started, in UTC, ISO."""
    device: str


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
    run: RunNote
    seconds: float | None = None
    """What all answers together took."""
    tokens: int | None = None
    """Written in that time."""
    calls: int | None = None
    """Examples with an executed call."""


@dataclass(frozen=True)
class KScore:
    """Toolformer's score on one task at one k, in percent."""

    value: float
    n: int
    ac: float | None
    """Over the examples with a call; None where there are none."""
    n_ac: int
    nc: float | None
    n_nc: int
    low: float | None = None
    """The 95 % interval of `value`, as the evaluation logged it."""
    high: float | None = None
    run: RunNote | None = None


@dataclass(frozen=True)
class Counts:
    """Table 2, one tool at one τ_f."""

    examples: int
    """Texts with at least one call."""
    calls: int
    """Places in these texts that have a call."""


@dataclass(frozen=True)
class Example:
    """A scored call and the text around its place."""

    tool: str
    doc_id: str
    position: int
    call: ApiCall
    gain: float
    kept: bool
    text: str | None
    """The plain text of the document, or None where the run holds it no more (it kept no call)."""


@dataclass(frozen=True)
class ToolFunnel:
    """How many of a tool's texts and candidates each step of the annotation let through."""

    steps: Mapping[str, int]
    """Those of `STEPS` that the run counted."""
    reasons: Mapping[str, int]
    """Why texts were not selected (or were)."""
    drop_reasons: Mapping[str, int]
    """Why candidates were dropped."""
    window_reasons: Mapping[str, int] = field(default_factory=dict)
    """Why windows of selected texts gave no candidate."""
    filter_reasons: Mapping[str, int] = field(default_factory=dict)
    """Why scored candidates were not kept."""


@dataclass(frozen=True)
class Gains:
    """The gains of a tool's scored candidates, in nats."""

    counts: tuple[int, ...]
    """By bin of `Annotation.edges`; the first and the last bin also hold what lies beyond."""
    threshold: float | None
    """τ_f."""
    starts: tuple[tuple[float, float], ...]
    """(start probability, gain) of some candidates, evenly drawn from all gains."""


@dataclass(frozen=True)
class Cost:
    """What a stage took."""

    seconds: float | None
    calls: int | None = None
    """Calls that were executed."""
    tokens: int | None = None


@dataclass(frozen=True)
class Curve:
    """A figure over the steps of a training run."""

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
    """By task, fetched when asked for; columns as in docs/benchmarks.md. A file may be gone: then `get` gives None."""


@dataclass(frozen=True)
class Annotation:
    """What a generate run found."""

    run: RunNote
    counts: Mapping[tuple[str, float], Counts]
    """By tool and τ_f."""
    funnel: Mapping[str, ToolFunnel]
    examples: tuple[Example, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Rows that reading the corpus left out, by reason."""
    gains: Mapping[str, Gains] = field(default_factory=dict)
    """By tool."""
    edges: tuple[float, ...] = ()
    """Of the bins of all tools."""
    cost: Cost = Cost(None)
    files: Mapping[str, Path] = field(default_factory=dict)
    """Artifacts by name; `documents_without_calls.parquet` may be missing."""
    baseline: str = "paper"
    """What the gain is measured against."""

    @property
    def difference(self) -> str:
        """The gain as a formula: L⁻ is the smaller of the losses without a call and with one that has no result."""
        return "L(ε) − L⁺" if self.baseline == "plain" else GAIN


@dataclass(frozen=True)
class Evidence:
    """All that a report is made of."""

    experiment: str | None
    annotation: Annotation | None
    scores: Mapping[tuple[str, str], Score]
    """By system and task."""
    trained: Mapping[str, RunNote]
    """The training behind the scores by its data, `augmented` or `plain`; the newest where no evaluation names one."""
    lineage: tuple[RunNote, ...] = ()
    """The runs that the evaluated systems come from, where they are not shown otherwise."""
    remarks: tuple[str, ...] = field(default=())
    by_k: Mapping[tuple[int, str], KScore] = field(default_factory=dict)
    """Toolformer, by k and task."""
    baselines: Mapping[tuple[str, str], Score] = field(default_factory=dict)
    """Other models, by name and task."""
    model: str = ""
    """The model of the tables: the one with the most figures."""
    paired: Mapping[tuple[str, str, str], Compared] = field(default_factory=dict)
    """By task, system (or a baseline's key), and the system it is compared with: the former minus the latter."""
    curves: tuple[Curve, ...] = ()
    training: Mapping[str, Cost] = field(default_factory=dict)
    """By data."""
    sizes: Mapping[tuple[str, str, str], Score] = field(default_factory=dict)
    """Scores by model, system and task, of every model whose size is known (Figure 4)."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Parameters of these models."""
    sampled: tuple[Sampled, ...] = ()
    """All evaluations, the newest first."""
    annotating: Mapping[str, Cost] = field(default_factory=dict)
    """What the annotation took that a training read, by the training's data; only where one names it."""
    overrides: tuple[str, ...] = ()
    """What commands begin with that are to do as the shown runs did: experiment or name, model, data, tools, limits.

    A value that no word can say is one of `grammar.absent`, here and among `places`, `recipe` and `limits`.
    """
    places: tuple[str, ...] = ()
    """What the command of Figure 4 is told of data."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """The run to name where `latest` would be another than the one shown: by the training's data, or `DATASET`."""
    away: frozenset[str] = frozenset()
    """What the shown runs name and a server has that does not answer: data of trainings, or `DATASET`."""
    unread: Sequence[str] = ()
    """A sentence for samples that are there and were not to be had; grows as files of `sampled` are asked for."""
    recipe: tuple[str, ...] = ()
    """What a training is to be told besides, so that it is as the others."""
    asked_otherwise: frozenset[str] = frozenset()
    """The tasks of which our systems were not all asked the same questions."""
    asked_otherwise_by_k: frozenset[str] = frozenset()
    """... of which Toolformer was not asked the same questions with each k."""
    limits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By task, the words for the limit of the runs in its column, where they are known, in place of that of `overrides`."""


STEPS = (
    "documents",
    "selected",
    "windows",
    "positions",
    "sampled",
    "well_formed",
    "executed",
    "scored",
    "kept",
)
"""The steps of `annotation.funnel`."""
