"""Steps 0 to 3 on a batch of documents, for one tool: select, propose, execute, score.

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
    longest_window,
)
from toolformer.annotation.execute import cut_results, execute
from toolformer.annotation.merge import row
from toolformer.annotation.propose import propose
from toolformer.annotation.score import score
from toolformer.annotation.windows import Window, windows
from toolformer.data import Document
from toolformer.lm.language_model import Encoding, LanguageModel
from toolformer.tools.base import Tool

OnStep = Callable[[str], object]
"""Receives the name of the current step, for progress bars."""
NO_POSITION = "no start probability above the threshold"
MOST_CHARACTERS = 5_000_000
"""Maximum length of a text; one of this length takes as long as ten thousand ordinary ones."""
TOO_LONG = select.Decision(reason=f"longer than {MOST_CHARACTERS:,} characters")


@dataclass(frozen=True)
class Annotation:
    """The annotation of a batch of documents with calls of one tool."""

    rows: list[dict[str, object]]
    """Rows of `candidates.parquet`, by document, position and sample."""
    funnel: dict[str, Any]
    """How many documents and calls remain after each step, and why the others were dropped."""
    tokens: int
    """Tokens of the documents' texts."""


@dataclass
class Annotator:
    """A language model that proposes calls of a tool and scores their results."""

    language_model: LanguageModel
    settings: ToolSettings
    tool: Tool
    seed: int = 0
    paragraphs: str = "blank_line"
    """How paragraphs are separated, `blank_line` or `line`."""
    floor: float | None = None
    """The lowest τ_f in nats to be applied: losses that decide nothing from there on are not computed. None scores all."""
    pre_filters: PreFilters = field(default_factory=PreFilters)
    """Tests that a call has to pass to be scored."""

    def __post_init__(self) -> None:
        self.language_model.check_tool_names([self.settings.name])

    def annotate(self, documents: Sequence[Document], on_step: OnStep = lambda step: None) -> Annotation:
        """Every candidate call for each document, executed and scored."""
        model, settings = self.language_model, self.settings
        encodings = {
            document.doc_id: model.encode_text(document.text)
            if len(document.text) <= MOST_CHARACTERS
            else Encoding([], [])
            for document in documents
        }
        on_step(f"proposing {settings.name}")
        chosen, funnel = self._windows(documents, encodings)
        proposals = propose(model, settings, chosen, self.seed, _progress(on_step, settings, chosen))
        proposed = [candidate for proposal in proposals for candidate in proposal.candidates]
        on_step("executing calls")
        answered = execute(proposed, self.tool, settings.drop_look_ahead)
        executed, cut = cut_results(model, answered, settings.max_result_tokens)
        on_step("scoring")
        scorable = variants.pre_filter(executed, self.pre_filters, [settings])
        candidates = score(model, scorable, self.floor)
        untried = sum(not proposal.positions for proposal in proposals)
        statuses = Counter(candidate.status for candidate in candidates)
        funnel |= {
            "window_reasons": {NO_POSITION: untried} if untried else {},
            "positions": sum(proposal.positions for proposal in proposals),
            "sampled": len(proposed),
            "well_formed": _scorable(proposed),
            "executed": _scorable(executed),
            "results_cut": cut,
            "scored": statuses.pop(SCORED, 0),
            "drop_reasons": dict(statuses),
        }
        order = {document.doc_id: n for n, document in enumerate(documents)}
        candidates.sort(key=lambda c: (order[c.window.document.doc_id], c.position, c.sample))
        tokens = sum(len(encoding.ids) for encoding in encodings.values())
        return Annotation([row(candidate) for candidate in candidates], funnel, tokens)

    def _windows(
        self, documents: Sequence[Document], encodings: Mapping[str, Encoding]
    ) -> tuple[list[Window], dict[str, Any]]:
        """The windows in which calls are tried, and the funnel's counts so far."""
        settings = self.settings
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


def _scorable(candidates: Sequence[Candidate]) -> int:
    """How many candidates have not been dropped so far."""
    return sum(candidate.status == SCORED for candidate in candidates)
