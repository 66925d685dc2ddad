"""Steps 0 to 3 on a batch of documents, for all tools: select, propose, execute, score.

Merging comes later, from the rows: thresholds need no model.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from toolformer.annotation import select
from toolformer.annotation.candidates import SCORED, Candidate, ToolSettings, Window, windows
from toolformer.annotation.execute import execute
from toolformer.annotation.merge import row
from toolformer.annotation.propose import propose
from toolformer.annotation.score import score
from toolformer.documents import Document
from toolformer.language_model import Encoding, LanguageModel
from toolformer.tools.base import Tool, works_elsewhere

NO_POSITION = "no start probability above the threshold"


@dataclass(frozen=True)
class Annotation:
    """What a batch of documents gave."""

    rows: list[dict[str, object]]
    """Rows of `candidates.parquet`, by document, tool, position and sample."""
    funnel: dict[str, dict[str, Any]]
    """How many documents and calls each step left, per tool, and why the others were dropped."""
    tokens: int
    """Tokens of the documents' texts."""


class Annotator:
    """A language model that proposes calls of tools and weighs their results."""

    def __init__(
        self,
        language_model: LanguageModel,
        settings: Sequence[ToolSettings],
        tools: Mapping[str, Tool],
        seed: int = 0,
        score_dtype: str = "auto",
    ) -> None:
        self.language_model = language_model
        self.settings = list(settings)
        self.tools = tools
        self.seed = seed
        self.score_dtype = score_dtype
        self._identify: select.Identify | None = None

    def annotate(
        self, documents: Sequence[Document], tell: Callable[[str], object] = lambda step: None
    ) -> Annotation:
        """Every candidate call of every tool for each document, executed and scored.

        Args:
            tell: hears which step has begun, for people who watch.
        """
        encodings = {
            document.doc_id: self.language_model.encode_text(document.text) for document in documents
        }
        funnel: dict[str, dict[str, Any]] = {one.key: {} for one in self.settings}
        answers: dict[str, Callable[[], list[Candidate]]] = {one.key: list for one in self.settings}
        # What another machine answers is asked for first, and the language model goes on meanwhile.
        waits = {one.key: works_elsewhere(self.tools[one.key]) for one in self.settings}
        for settings in sorted(self.settings, key=lambda one: not waits[one.key]):
            tell(f"proposing {settings.name}")
            found, funnel[settings.key] = self._propose(settings, documents, encodings)
            translating = (settings.key,) if settings.selector == "translation" else ()
            ask = partial(execute, found, self.tools, translating)
            answers[settings.key] = _begun(ask) if waits[settings.key] else ask
        tell("executing calls")
        candidates = [candidate for answered in answers.values() for candidate in answered()]
        executed = _scorable(candidates)
        tell("scoring")
        candidates = score(self.language_model, candidates, dtype=self.score_dtype)
        for key, counts in funnel.items():
            statuses = Counter(candidate.status for candidate in candidates if candidate.tool == key)
            counts["executed"] = executed[key]
            counts["scored"] = statuses.pop(SCORED, 0)
            counts["drop_reasons"] = dict(statuses)
        order = {document.doc_id: n for n, document in enumerate(documents)}
        candidates.sort(key=lambda c: (order[c.window.document.doc_id], c.tool, c.position, c.sample))
        tokens = sum(len(encoding.ids) for encoding in encodings.values())
        return Annotation([row(candidate) for candidate in candidates], funnel, tokens)

    def _propose(
        self, settings: ToolSettings, documents: Sequence[Document], encodings: Mapping[str, Encoding]
    ) -> tuple[list[Candidate], dict[str, Any]]:
        """Candidate calls of one tool, and the counts of the funnel up to them."""
        reasons: Counter[str] = Counter()
        chosen: list[Window] = []
        selected = 0
        for document in documents:
            decision = self._decide(settings.selector, document)
            reasons[decision.reason] += 1
            selected += bool(decision)
            encoding = encodings[document.doc_id]
            chosen += windows(self.language_model, document, encoding, settings, list(decision.spans))
        proposals = propose(self.language_model, settings, chosen, self.seed)
        candidates = [candidate for proposal in proposals for candidate in proposal.candidates]
        untried = sum(not proposal.positions for proposal in proposals)
        return candidates, {
            "documents": len(documents),
            "selected": selected,
            "reasons": dict(reasons),
            "windows": len(chosen),
            "window_reasons": {NO_POSITION: untried} if untried else {},
            "positions": sum(proposal.positions for proposal in proposals),
            "sampled": len(candidates),
            "well_formed": _scorable(candidates)[settings.key],
        }

    def _decide(self, selector: str, document: Document) -> select.Decision:
        if selector == "calculator":
            return select.calculator(document, self.seed)
        if selector == "calendar":
            return select.calendar(document)
        if selector == "translation":
            return select.translation(document, self._language)
        return select.whole(document)

    def _language(self, text: str) -> tuple[str, float]:
        if self._identify is None:
            from toolformer.language_id import LanguageIdentifier

            self._identify = LanguageIdentifier().identify
        return self._identify(text)


def _begun(ask: Callable[[], list[Candidate]]) -> Callable[[], list[Candidate]]:
    """Asks in a thread that ends with the program at the latest; returns what waits for the answers."""
    answers: Future[list[Candidate]] = Future()

    def work() -> None:
        try:
            answers.set_result(ask())
        except BaseException as error:  # told to who waits
            answers.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return answers.result


def _scorable(candidates: Sequence[Candidate]) -> Counter[str]:
    """How many candidates of each tool nothing has been found against so far."""
    return Counter(candidate.tool for candidate in candidates if candidate.status == SCORED)
