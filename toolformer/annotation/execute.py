"""Step 2: every distinct call is executed once; calls without a result are dropped with the reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from toolformer.annotation.candidates import SCORED, Candidate
from toolformer.annotation.select import looks_ahead
from toolformer.calls import clean_result
from toolformer.data import Document
from toolformer.tools.base import Result, Tool, run_safely

LOOK_AHEAD = "input stands only after the call"


def execute(
    candidates: Sequence[Candidate],
    tools: Mapping[str, Tool],
    without_look_ahead: Collection[str] = ("translation",),
) -> list[Candidate]:
    """The candidates with their calls' results; `tools` is keyed as in configuration.

    Calls of the tools named in `without_look_ahead` are dropped when their input stands only after them.

    Calls are distinct by tool, input and document: a tool may answer from the document's date or leave its article
    out.
    """
    candidates = [
        _checked(candidate) if candidate.tool in without_look_ahead else candidate for candidate in candidates
    ]
    wanted: dict[str, dict[tuple[str, str], Document]] = {}
    for candidate in candidates:
        if candidate.status == SCORED and candidate.call:
            document = candidate.window.document
            wanted.setdefault(candidate.tool, {})[candidate.call.input, document.doc_id] = document
    results: dict[tuple[str, str, str], Result] = {}
    for tool, calls in wanted.items():
        answered = map(_usable, run_safely(tools[tool], [text for text, _ in calls], list(calls.values())))
        results.update({(tool, *call): result for call, result in zip(calls, answered, strict=True)})
    return [_with_result(candidate, results) for candidate in candidates]


def _usable(result: Result) -> Result:
    return (
        Result(reason="empty result") if result.text is not None and not clean_result(result.text) else result
    )


def _checked(candidate: Candidate) -> Candidate:
    """Appendix A.1: a translation of what stands only after the call could not be called for at inference."""
    if candidate.status != SCORED or candidate.call is None:
        return candidate
    if looks_ahead(candidate.window.document.text, candidate.position, candidate.call.input):
        return replace(candidate, status=LOOK_AHEAD)
    return candidate


def _with_result(candidate: Candidate, results: Mapping[tuple[str, str, str], Result]) -> Candidate:
    if candidate.status != SCORED or candidate.call is None:
        return candidate
    result = results[candidate.tool, candidate.call.input, candidate.window.document.doc_id]
    if result.text is None:
        return replace(candidate, status=result.reason or "no result")
    return replace(candidate, call=candidate.call.with_result(result.text))
