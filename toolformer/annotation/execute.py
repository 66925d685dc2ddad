"""Step 2: each distinct call is executed once; calls without a result are dropped with a reason. Results are cut as at inference."""

from collections.abc import Sequence
from dataclasses import replace

from toolformer.annotation.candidates import SCORED, Candidate
from toolformer.annotation.select import looks_ahead
from toolformer.data import Document
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.results import with_result
from toolformer.tools.base import Tool

LOOK_AHEAD = "input occurs only after the call"


def execute(candidates: Sequence[Candidate], tool: Tool, drop_look_ahead: bool = False) -> list[Candidate]:
    """The candidates, all of one tool, with their calls' results.

    Calls are distinct by input and document: a tool may use the document's date or exclude its article.
    """
    done = list(candidates)
    calls: dict[tuple[str, str], tuple[Document, list[int]]] = {}
    for n, candidate in enumerate(candidates):
        document, call = candidate.window.document, candidate.call
        if candidate.status != SCORED or call is None:
            continue
        # Appendix A.1: at inference a model could not call for a translation of later text.
        if drop_look_ahead and looks_ahead(document.text, candidate.position, call.input):
            done[n] = replace(candidate, status=LOOK_AHEAD)
            continue
        calls.setdefault((call.input, document.doc_id), (document, []))[1].append(n)
    if not calls:
        return done
    documents = [document for document, _ in calls.values()]
    results = tool.run([text for text, _ in calls], documents)
    for result, (_, indices) in zip(results, calls.values(), strict=True):
        for n in indices:
            call = candidates[n].call
            assert call
            if result.text is None:
                done[n] = replace(candidates[n], status=result.reason or "no result")
                continue
            call = call.with_result(result.text)
            done[n] = replace(candidates[n], call=call, status=SCORED if call.result else "empty result")
    return done


def cut_results(
    language_model: LanguageModel, candidates: Sequence[Candidate], limit: int
) -> tuple[list[Candidate], int]:
    """The candidates with at most `limit` tokens of each result, and how many were cut."""
    kept = list(candidates)
    for n, candidate in enumerate(candidates):
        if candidate.status == SCORED and candidate.call and candidate.call.result:
            call = with_result(language_model, candidate.call, candidate.call.result, limit)
            kept[n] = replace(candidate, call=call)
    return kept, sum(old.call != new.call for old, new in zip(candidates, kept, strict=True))
