"""Step 4: the calls that help are kept and inserted into the texts (paper, section 2, model finetuning).

Thresholds and the baseline are applied here, to stored losses: another τ_f needs no model. Works on the rows of
`candidates.parquet`, so that it can be repeated from the file.
"""

import hashlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolformer.annotation.candidates import SCORED, Candidate, Filtering
from toolformer.annotation.score import PAPER, gain
from toolformer.annotation.shards import CANDIDATES
from toolformer.calls import ApiCall, insert
from toolformer.data import Document
from toolformer.errors import UserError

BELOW = "gain below the threshold"
BEATEN = "another sample at the position gains more"
NO_GAIN = "loss is not a number"
LEAKS = "holds what appears only after it"
NOT_DRAWN = "not drawn"
ENOUGH = "after the last example of its tool"


_PAPERS = Filtering()


@dataclass(frozen=True)
class KeptCall:
    """A call that passed the filter, with its position in the plain text."""

    position: int
    tool: str
    call: ApiCall
    gain: float


def row(candidate: Candidate) -> dict[str, object]:
    """The candidate as a row of `candidates.parquet`."""
    values = {
        "doc_id": candidate.window.document.doc_id,
        "written": candidate.text,
        "call": candidate.call.as_row() if candidate.call else None,
    }
    return {name: values[name] if name in values else getattr(candidate, name) for name in CANDIDATES.names}


@dataclass(frozen=True)
class Decision:
    """The filter's decision on a candidate."""

    gain: float | None
    """L⁻ − L⁺ in nats (`gain`)."""
    reason: str = ""
    """Why the candidate is not kept; empty if it is."""
    threshold: float | None = None
    """The gain in nats that it had to reach; None if its gain decided nothing."""


@dataclass(frozen=True)
class Chance:
    """A control of the filter: calls of these tools are kept by chance, whatever their gain."""

    shares: Mapping[str, float] = field(default_factory=dict)
    """By tool, with which probability the first scored call of a place is kept."""
    seed: int = 0
    above: Mapping[str, float] = field(default_factory=dict)
    """By tool, the gain in nats above which calls may be drawn; of a tool that is not named all may be, whatever their gain."""

    def draws(self, entry: Mapping[str, Any]) -> bool:
        """Whether a row's place is drawn; independent of the other rows."""
        draw_key = f"{self.seed}|{entry['doc_id']}|{entry['tool']}|{entry['position']}|kept"
        number = int.from_bytes(hashlib.sha256(draw_key.encode()).digest()[:8], "big")
        return number < self.shares[entry["tool"]] * 2**64


def decide(
    rows: Sequence[Mapping[str, Any]],
    thresholds: Mapping[str, float],
    filtering: Filtering = _PAPERS,
    leaking: Collection[int] = (),
    chance: Chance = Chance(),
) -> list[Decision]:
    """Which candidates are kept: those whose gain reaches the tool's threshold, and why the others are not.

    Of several calls of one tool at one position only the one with the largest gain is kept (the method writes one c_i
    for a position i); ties go to the earlier sample. UserError for a threshold below the floor of the scoring.

    Args:
        leaking: the indices of rows to drop, whatever they gain.
        chance: the tools whose calls are kept by chance.
    """
    decisions: list[Decision] = []
    best: dict[tuple[str, str, int], tuple[float, int, int]] = {}
    for n, entry in enumerate(rows):
        worth, by_chance = gain(entry, filtering.baseline), entry["tool"] in chance.shares
        threshold = chance.above.get(entry["tool"]) if by_chance else thresholds[entry["tool"]]
        if entry["status"] != SCORED:
            decisions.append(Decision(None, entry["status"]))
        elif worth is None:
            decisions.append(Decision(None, NO_GAIN))
        elif n in leaking:
            decisions.append(Decision(worth, LEAKS))
        elif threshold is not None and (worth <= threshold if by_chance else worth < threshold):
            decisions.append(Decision(worth, BELOW, threshold))
        elif threshold is not None and filtering.baseline == PAPER and entry["loss_no_result"] is None:
            key = f"tool.{entry['tool']}.chance_above" if by_chance else "filter_threshold"
            raise UserError(
                f"{key}: {threshold:g} is below the score.floor with which tool {entry['tool']} was scored; "
                f"annotate again with score.floor={threshold:g}"
            )
        elif by_chance and not chance.draws(entry):
            decisions.append(Decision(worth, NOT_DRAWN, threshold))
        else:
            decisions.append(Decision(worth, BEATEN, threshold))
            place = entry["doc_id"], entry["tool"], entry["position"]
            rank = 0.0 if by_chance else worth, -entry["sample"], n
            best[place] = max(best.get(place, rank), rank)
    for _, _, n in best.values():
        decisions[n] = replace(decisions[n], reason="")
    return decisions


def kept_calls(rows: Sequence[Mapping[str, Any]], decisions: Sequence[Decision]) -> dict[str, list[KeptCall]]:
    """The kept calls of each document, in the order of its text."""
    documents: dict[str, list[KeptCall]] = {}
    for entry, decision in zip(rows, decisions, strict=True):
        if not decision.reason and decision.gain is not None:
            call = KeptCall(entry["position"], entry["tool"], ApiCall.of_row(entry["call"]), decision.gain)
            documents.setdefault(entry["doc_id"], []).append(call)
    return {
        doc_id: sorted(calls, key=lambda call: (call.position, call.tool))
        for doc_id, calls in documents.items()
    }


def merge(document: Document, kept: Sequence[KeptCall]) -> dict[str, object]:
    """The row of C* of a document: its text with the calls inserted, everything else unchanged."""
    return {
        "text": insert(document.text, [(call.position, call.call) for call in kept]),
        "calls": [
            {"position": call.position, "tool": call.tool, **call.call.as_row(), "gain": call.gain}
            for call in kept
        ],
        "url": document.url,
        "date": document.date.isoformat() if document.date else None,
        "doc_id": document.doc_id,
    }


def united(datasets: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The rows of several C*, each with its `plain` text: a text that several annotated once, with the calls of all.

    Of several calls of one tool at one position the one that gains most stays, of equals the first.
    """
    if len(datasets) == 1:
        return [*map(dict, datasets[0])]
    texts: dict[str, list[Mapping[str, Any]]] = {}
    for row in itertools.chain.from_iterable(datasets):
        texts.setdefault(row["plain"], []).append(row)
    return [_united(rows) if len(rows) > 1 else dict(rows[0]) for rows in texts.values()]


def _united(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    best: dict[tuple[int, str], Mapping[str, Any]] = {}
    for call in itertools.chain.from_iterable(row["calls"] for row in rows):
        place = call["position"], call["tool"]
        if place not in best or call["gain"] > best[place]["gain"]:
            best[place] = call
    calls = [best[place] for place in sorted(best)]
    written = [(call["position"], ApiCall.of_row(call)) for call in calls]
    return {**rows[0], "text": insert(rows[0]["plain"], written), "calls": calls}
