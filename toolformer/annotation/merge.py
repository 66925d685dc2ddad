"""Step 4: the calls worth keeping go into the texts (paper, section 2, model finetuning).

Thresholds and the baseline are applied here, to losses that are already known: another τ_f needs no model. Works on the rows of
`candidates.parquet`, so that it can be repeated from the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from toolformer.annotation.candidates import SCORED, Candidate
from toolformer.calls import ApiCall, CallSyntaxError, insert, linearise, parse
from toolformer.data import Document

PAPER, PLAIN = "paper", "plain"
BELOW = "gain below the threshold"
BEATEN = "another sample at the position gains more"
NO_GAIN = "loss is not a number"


@dataclass(frozen=True)
class KeptCall:
    """A call that passed the filter, with its place in the plain text."""

    position: int
    tool: str
    call: ApiCall
    gain: float
    sample: int


def row(candidate: Candidate) -> dict[str, object]:
    """The candidate as a row of `candidates.parquet`."""
    call = candidate.call
    return {
        "doc_id": candidate.window.document.doc_id,
        "tool": candidate.tool,
        "position": candidate.position,
        "token_position": candidate.token_position,
        "start_probability": candidate.start_probability,
        "sample": candidate.sample,
        "call": linearise(ApiCall(call.tool, call.input, None, call.quoted)).strip()
        if call
        else candidate.text,
        "call_input": call.input if call else None,
        "result": call.result if call else None,
        "status": candidate.status,
        "loss_result": candidate.loss_result,
        "loss_no_result": candidate.loss_no_result,
        "loss_none": candidate.loss_none,
        "gain": candidate.gain,
        "gain_at_most": candidate.gain_at_most,
        "start_lift": candidate.start_lift,
    }


def gain(entry: Mapping[str, object], baseline: str = PAPER) -> float | None:
    """L⁻ − L⁺ of a row in nats, None without the losses it takes.

    L⁻ is min(L(ε), L(e(c, ε))) in the paper, and L(ε) alone with the baseline `plain`, which therefore also pays for
    what the call says without its result.
    """
    names = (
        ("loss_result", "loss_none") if baseline == PLAIN else ("loss_result", "loss_none", "loss_no_result")
    )
    losses = [entry[name] for name in names]
    if entry["status"] != SCORED or not all(isinstance(loss, float) and loss == loss for loss in losses):
        return None
    result, *without = (cast(float, loss) for loss in losses)
    return min(without) - result


def keep(
    rows: Iterable[Mapping[str, object]],
    thresholds: Mapping[str, float],
    baseline: str = PAPER,
    dropped: dict[str, Counter[str]] | None = None,
) -> dict[str, list[KeptCall]]:
    """The calls of each document whose gain reaches the tool's threshold, in the text's order.

    `dropped` receives, per tool, why the other scored calls are not kept.

    Of several kept calls of one tool at one position only the one with the largest gain stands in the text (the
    method writes one c_i for a position i); ties go to the earlier sample.
    """
    best: dict[tuple[str, str, int], tuple[float, int, KeptCall]] = {}
    reasons = {} if dropped is None else dropped
    for entry in rows:
        tool, doc_id, position, sample = (entry[name] for name in ("tool", "doc_id", "position", "sample"))
        assert isinstance(tool, str) and isinstance(doc_id, str) and isinstance(position, int)
        assert isinstance(sample, int)
        if entry["status"] != SCORED or tool not in thresholds:
            continue
        counts = reasons.setdefault(tool, Counter())
        worth, most = gain(entry, baseline), gain(entry, PLAIN)
        if most is not None and most < thresholds[tool]:
            counts[BELOW] += 1  # the gain is never above this bound, and may not have been scored for it
            continue
        if worth is None:
            counts[NO_GAIN] += 1
            continue
        if worth < thresholds[tool]:
            counts[BELOW] += 1
            continue
        known = best.get((doc_id, tool, position))
        counts[BEATEN] += known is not None
        if known is None or (worth, -sample) > (known[0], -known[1]):
            kept = KeptCall(position, tool, executed_call(entry), worth, sample)
            best[doc_id, tool, position] = (worth, sample, kept)
    documents: dict[str, list[KeptCall]] = {}
    for (doc_id, _, _), (_, _, kept) in sorted(
        best.items(), key=lambda item: (item[0][0], item[0][2], item[0][1])
    ):
        documents.setdefault(doc_id, []).append(kept)
    return documents


def merge(document: Document, kept: Sequence[KeptCall]) -> dict[str, object]:
    """The row of C* of a document: its text with the calls in place, everything else unchanged."""
    return {
        "text": insert(document.text, [(call.position, call.call) for call in kept]),
        "calls": [
            {
                "position": call.position,
                "tool": call.tool,
                "input": call.call.input,
                "result": call.call.result,
                "gain": call.gain,
            }
            for call in kept
        ],
        "url": document.url,
        "date": document.date.isoformat() if document.date else None,
        "doc_id": document.doc_id,
    }


def executed_call(entry: Mapping[str, object]) -> ApiCall:
    """The executed call of a row, written as the model wrote it (quoted or not)."""
    written, result = entry["call"], entry["result"]
    if not isinstance(written, str) or not isinstance(result, str):
        raise CallSyntaxError("a scored candidate has a call and a result")
    return parse(written).with_result(result)
