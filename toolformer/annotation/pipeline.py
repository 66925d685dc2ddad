"""Steps 0 to 3 on a batch of documents, for all tools: select, propose, execute, score.

Merging is separate, from the rows: thresholds need no model.
"""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolformer.annotation import select, variants
from toolformer.annotation.candidates import (
    SCORED,
    Candidate,
    PreFilters,
    ToolSettings,
    Window,
    longest_window,
    windows,
)
from toolformer.annotation.execute import cut_results, execute
from toolformer.annotation.merge import row
from toolformer.annotation.propose import propose
from toolformer.annotation.score import score
from toolformer.data import Document
from toolformer.lm.language_model import Encoding, LanguageModel
from toolformer.tools.base import Tool
from toolformer.tools.threads import start

OnStep = Callable[[str], object]
"""Receives the name of the current step, for progress bars."""
Funnel = dict[str, dict[str, Any]]
"""Counts by tool."""
NO_POSITION = "no start probability above the threshold"
MOST_CHARACTERS = 5_000_000
"""Maximum length of a text; one of this length takes as long as ten thousand ordinary ones."""
TOO_LONG = select.Decision(reason=f"longer than {MOST_CHARACTERS:,} characters")


@dataclass(frozen=True)
class Annotation:
    """The annotation of a batch of documents."""

    rows: list[dict[str, object]]
    """Rows of `candidates.parquet`, by document, tool, position and sample."""
    funnel: Funnel
    """How many documents and calls remain after each step, per tool, and why the others were dropped."""
    tokens: int
    """Tokens of the documents' texts."""


@dataclass
class Annotator:
    """A language model that proposes calls of tools and scores their results."""

    language_model: LanguageModel
    settings: Sequence[ToolSettings]
    tools: Mapping[str, Tool]
    seed: int = 0
    paragraphs: str = "blank_line"
    """How paragraphs are separated, `blank_line` or `line`."""
    floor: float | None = None
    """The lowest τ_f in nats to be applied: losses that decide nothing from there on are not computed. None scores all."""
    pre_filters: PreFilters = field(default_factory=PreFilters)
    """Tests that a call has to pass to be scored."""

    def __post_init__(self) -> None:
        self.language_model.check_tool_names(settings.name for settings in self.settings)

    def annotate(self, documents: Sequence[Document], on_step: OnStep = lambda step: None) -> Annotation:
        """Every candidate call of every tool for each document, executed and scored."""
        encodings = {
            document.doc_id: self.language_model.encode_text(document.text)
            if len(document.text) <= MOST_CHARACTERS
            else Encoding([], [])
            for document in documents
        }
        candidates, funnel = self._candidates(documents, encodings, on_step)
        for key, counts in funnel.items():
            statuses = Counter(candidate.status for candidate in candidates if candidate.tool == key)
            counts["scored"] = statuses.pop(SCORED, 0)
            counts["drop_reasons"] = dict(statuses)
        order = {document.doc_id: n for n, document in enumerate(documents)}
        candidates.sort(key=lambda c: (order[c.window.document.doc_id], c.tool, c.position, c.sample))
        tokens = sum(len(encoding.ids) for encoding in encodings.values())
        return Annotation([row(candidate) for candidate in candidates], funnel, tokens)

    def _candidates(
        self, documents: Sequence[Document], encodings: Mapping[str, Encoding], on_step: OnStep
    ) -> tuple[list[Candidate], Funnel]:
        """The candidates of all tools, and the funnel up to execution."""
        funnel: Funnel = {settings.key: {} for settings in self.settings}
        answers: dict[str, Callable[[], list[Candidate]]] = {settings.key: list for settings in self.settings}
        # Tools on other machines are called first, and answer while the language model continues.
        waits = {settings.key: self.tools[settings.key].is_remote for settings in self.settings}
        for settings in sorted(self.settings, key=lambda settings: not waits[settings.key]):
            on_step(f"proposing {settings.name}")
            chosen, funnel[settings.key] = self._windows(settings, documents, encodings)
            proposals = propose(
                self.language_model, settings, chosen, self.seed, _progress(on_step, settings, chosen)
            )
            proposed = [candidate for proposal in proposals for candidate in proposal.candidates]
            untried = sum(not proposal.positions for proposal in proposals)
            funnel[settings.key] |= {
                "window_reasons": {NO_POSITION: untried} if untried else {},
                "positions": sum(proposal.positions for proposal in proposals),
                "sampled": len(proposed),
                "well_formed": _scorable(proposed)[settings.key],
            }
            tool = self.tools[settings.key]
            ask = functools.partial(execute, proposed, tool, settings.drop_look_ahead)
            answers[settings.key] = start(ask).result if waits[settings.key] else ask
        on_step("executing calls")
        candidates: list[Candidate] = []
        for settings in self.settings:
            answered = answers[settings.key]()
            executed, cut = cut_results(self.language_model, answered, settings.max_result_tokens)
            funnel[settings.key] |= {"executed": _scorable(executed)[settings.key], "results_cut": cut}
            candidates += executed
        on_step("scoring")
        candidates = variants.pre_filter(candidates, self.pre_filters, self.settings)
        return score(self.language_model, candidates, self.floor), funnel

    def _windows(
        self, settings: ToolSettings, documents: Sequence[Document], encodings: Mapping[str, Encoding]
    ) -> tuple[list[Window], dict[str, Any]]:
        """The windows in which calls of a tool are tried, and the funnel's counts so far."""
        corpus = select.Corpus(self.seed, self.paragraphs, lambda text: self._identify(text))
        reasons: Counter[str] = Counter()
        chosen: list[Window] = []
        selected, longest = 0, longest_window(self.language_model, settings)
        for document in documents:
            is_too_long = len(document.text) > MOST_CHARACTERS
            decision = TOO_LONG if is_too_long else select.SELECTORS[settings.selector](document, corpus)
            reasons[decision.reason] += 1
            selected += bool(decision)
            encoding = encodings[document.doc_id]
            chosen += windows(document, encoding, decision.spans, longest, settings.window_overlap)
        return chosen, {
            "documents": len(documents),
            "selected": selected,
            "reasons": dict(reasons),
            "windows": len(chosen),
        }

    @functools.cached_property
    def _identify(self) -> select.Identify:
        from toolformer.lm.language_id import LanguageIdentifier

        return LanguageIdentifier().identify


def _progress(on_step: OnStep, settings: ToolSettings, chosen: Sequence[Window]) -> Callable[[int], object]:
    return lambda done: on_step(f"proposing {settings.name}, window {done} of {len(chosen)}")


def _scorable(candidates: Sequence[Candidate]) -> Counter[str]:
    """How many candidates of each tool have not been dropped so far."""
    return Counter(candidate.tool for candidate in candidates if candidate.status == SCORED)
