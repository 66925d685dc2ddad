"""Step 2: each distinct call is executed once; calls without a result are dropped with a reason."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from toolformer.annotation.candidates import SCORED, Candidate
from toolformer.annotation.select import looks_ahead
from toolformer.data import Document
from toolformer.tools.base import Result, Tool

LOOK_AHEAD = "input occurs only after the call"


def execute(
    candidates: Sequence[Candidate],
    tools: Mapping[str, Tool],
    without_look_ahead: Collection[str] = ("translation",),
) -> list[Candidate]:
    """The candidates with their calls' results; `tools` is keyed as in configuration.

    Calls of the tools in `without_look_ahead` are dropped if their input occurs only after them.

    Calls are distinct by tool, input and document: a tool may use the document's date or exclude its article.
    """
    done = list(candidates)
    requests: dict[str, dict[tuple[str, str], tuple[Document, list[int]]]] = {}
    for n, candidate in enumerate(candidates):
        document, call = candidate.window.document, candidate.call
        if candidate.status != SCORED or call is None:
            continue
        # Appendix A.1: at inference a model could not call for a translation of later text.
        if candidate.tool in without_look_ahead and looks_ahead(
            document.text, candidate.position, call.input
        ):
            done[n] = replace(candidate, status=LOOK_AHEAD)
            continue
        calls = requests.setdefault(candidate.tool, {})
        calls.setdefault((call.input, document.doc_id), (document, []))[1].append(n)
    for tool, calls in requests.items():
        documents = [document for document, _ in calls.values()]
        results = tools[tool].run([text for text, _ in calls], documents)
        for result, (_, indices) in zip(results, calls.values(), strict=True):
            for n in indices:
                done[n] = _with_result(candidates[n], result)
    return done


def _with_result(candidate: Candidate, result: Result) -> Candidate:
    assert candidate.call
    if result.text is None:
        return replace(candidate, status=result.reason or "no result")
    call = candidate.call.with_result(result.text)
    return replace(candidate, call=call) if call.result else replace(candidate, status="empty result")
