"""Step 4: the calls worth keeping go into the texts (paper, section 2, model finetuning).

Thresholds and the baseline are applied here, to losses that are already known: another τ_f needs no model. Works on the rows of
`candidates.parquet`, so that it can be repeated from the file.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolformer.annotation.candidates import SCORED, Candidate
from toolformer.annotation.shards import CANDIDATES
from toolformer.calls import ApiCall, insert, linearise, parse
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
    made = {
        "doc_id": candidate.window.document.doc_id,
        "call": linearise(replace(call, result=None)).strip() if call else candidate.text,
        "call_input": call.input if call else None,
        "result": call.result if call else None,
    }
    return {name: made[name] if name in made else getattr(candidate, name) for name in CANDIDATES.names}


def gain(entry: Mapping[str, Any], baseline: str = PAPER) -> float | None:
    """L⁻ − L⁺ of a row in nats, None without the losses it takes.

    L⁻ is min(L(ε), L(e(c, ε))) in the paper, and L(ε) alone with the baseline `plain`, which therefore also pays for
    what the call says without its result.
    """
    without = [entry["loss_none"]] if baseline == PLAIN else [entry["loss_none"], entry["loss_no_result"]]
    losses = [entry["loss_result"], *without]
    if entry["status"] != SCORED or any(loss is None or math.isnan(loss) for loss in losses):
        return None
    return float(min(without) - entry["loss_result"])


def keep(
    rows: Iterable[Mapping[str, Any]],
    thresholds: Mapping[str, float],
    baseline: str = PAPER,
    dropped: dict[str, Counter[str]] | None = None,
) -> dict[str, list[KeptCall]]:
    """The calls of each document whose gain reaches the tool's threshold, in the text's order.

    `dropped` receives, per tool, why the other scored calls are not kept.

    Of several kept calls of one tool at one position only the one with the largest gain stands in the text (the
    method writes one c_i for a position i); ties go to the earlier sample.
    """
    best: dict[tuple[str, int, str], KeptCall] = {}
    reasons = {} if dropped is None else dropped
    for entry in rows:
        tool = entry["tool"]
        if entry["status"] != SCORED or tool not in thresholds:
            continue
        counts = reasons.setdefault(tool, Counter())
        worth, most = gain(entry, baseline), gain(entry, PLAIN)
        # The gain is never above the most, and may not have been scored for it.
        if any(value is not None and value < thresholds[tool] for value in (worth, most)):
            counts[BELOW] += 1
        elif worth is None:
            counts[NO_GAIN] += 1
        else:
            call = KeptCall(entry["position"], tool, executed_call(entry), worth, entry["sample"])
            key = entry["doc_id"], call.position, tool
            counts[BEATEN] += key in best
            best[key] = max(best.get(key, call), call, key=lambda known: (known.gain, -known.sample))
    documents: dict[str, list[KeptCall]] = {}
    for key in sorted(best):
        documents.setdefault(key[0], []).append(best[key])
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
                "written": linearise(call.call).strip(),
            }
            for call in kept
        ],
        "url": document.url,
        "date": document.date.isoformat() if document.date else None,
        "doc_id": document.doc_id,
    }


def executed_call(entry: Mapping[str, Any]) -> ApiCall:
    """The executed call of a row, written as the model wrote it (quoted or not)."""
    return parse(entry["call"]).with_result(entry["result"])
