"""Preferences between calls, for trainers such as TRL's: what to write at a position where an annotation tried calls.

A prompt is the text before the position, with the calls that were kept there, as in C*. A completion is a call with its
result, or no call, followed by the tokens on which the gain is measured (paper, section 2).

| at the position | chosen | rejected |
| --- | --- | --- |
| a call was kept | the kept call with the largest gain | the text without a call |
| a call was kept, another one harms | the kept call with the largest gain | the harmful call |
| no call was kept, one harms | the text without a call | the harmful call |

A call harms if the text's next tokens have a higher loss after the call and its result than without a call, by a margin. The
paper's gain does not decide this: it is negative too where the call alone helps more than with its result. Of several
harmful calls the least harmful is rejected, since it is the hardest to distinguish from a good one.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolformer.annotation.score import HORIZON
from toolformer.calls import ApiCall, insert, linearise
from toolformer.errors import UserError
from toolformer.jobs.outputs import read_dataset
from toolformer.lm.loading import token_positions, tokens_of
from toolformer.results import Results, Run

MARGIN = 0.1
"""Nats by which a harmful call raises the loss."""
_TEXTS = ("dataset_plain.parquet", "documents_without_calls.parquet")
"""The plain texts with a kept call, and those without (of a large corpus a sample of these)."""


@dataclass(frozen=True)
class Preference:
    """Two ways to continue a text at a position; None is the text without a call."""

    text: str
    """The plain text."""
    before: tuple[tuple[int, ApiCall], ...]
    """The kept calls with their results before the position, by character position."""
    position: int
    """Character offset in the plain text."""
    chosen: ApiCall | None
    rejected: ApiCall | None


def read_preferences(results: Results, run: Run) -> list[Preference]:
    """The preferences of a finished annotation. UserError if there are none, or its files are gone or damaged."""
    texts = {row["doc_id"]: row["text"] for name in _TEXTS for row in read_dataset(results, run, name)}
    preferences = find_preferences(texts, read_dataset(results, run, "candidates.parquet"))
    if not preferences:
        raise UserError(
            f"export: run {run.id[:8]} kept no call and rejected no harmful one; annotate more texts"
        )
    return preferences


def find_preferences(
    texts: Mapping[str, str], candidates: Iterable[Mapping[str, Any]], margin: float = MARGIN
) -> list[Preference]:
    """The preferences of one annotation, in the order of its candidates.

    Args:
        texts: plain texts by `doc_id`; positions of other documents are left out.
        candidates: rows of `candidates.parquet`.
        margin: nats by which a harmful call raises the loss.
    """
    positions: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    kept: dict[str, list[tuple[int, ApiCall]]] = {}
    for row in candidates:
        if row["doc_id"] in texts and row["filter_gain"] is not None:
            positions.setdefault((row["doc_id"], row["position"]), []).append(row)
            if row["kept"]:
                call = ApiCall.of_row(row["call"])
                kept.setdefault(row["doc_id"], []).append((row["position"], call))
    preferences: list[Preference] = []
    for (doc_id, position), rows in positions.items():
        calls = sorted(kept.get(doc_id, ()), key=lambda item: item[0])
        before = tuple(calls[: bisect_right(calls, position - 1, key=lambda item: item[0])])
        preferences += [
            Preference(texts[doc_id], before, position, chosen, rejected)
            for chosen, rejected in _choose(rows, margin)
        ]
    return preferences


def _choose(
    rows: Sequence[Mapping[str, Any]], margin: float
) -> Iterator[tuple[ApiCall | None, ApiCall | None]]:
    """Chosen and rejected of each preference at one position."""
    best = max((row for row in rows if row["kept"]), key=lambda row: float(row["filter_gain"]), default=None)
    harmful = [row for row in rows if not row["kept"] and 0 < _harm(row) >= margin]
    least_harmful = min(harmful, key=_harm, default=None)
    chosen = ApiCall.of_row(best["call"]) if best else None
    if chosen:
        yield chosen, None
    if least_harmful:
        yield chosen, ApiCall.of_row(least_harmful["call"])


def _harm(row: Mapping[str, Any]) -> float:
    """Nats by which a call with its result raises the loss of the text without a call."""
    return float(row["loss_result"] - row["loss_none"])


def paired_rows(preferences: Sequence[Preference], tokenizer: Any) -> list[dict[str, str]]:
    """`prompt`, `chosen` and `rejected` of each preference, as texts: the columns of TRL's DPOTrainer.

    Args:
        tokenizer: of the model that annotated; its tokens decide where a completion ends.
    """
    texts = list(dict.fromkeys(preference.text for preference in preferences))
    offsets = tokens_of(tokenizer, texts, offsets=True).offset_mapping if texts else []
    starts = {
        text: token_positions(text, offset) for text, offset in zip(texts, offsets, strict=True)
    }  # None for a token that begins inside a character
    rows = []
    for preference in preferences:
        text, position = preference.text, preference.position
        if position not in starts[text]:
            continue
        later = starts[text][starts[text].index(position) + HORIZON :]
        end = next((start for start in later if start is not None), len(text))
        chosen, rejected = (
            (linearise(call) if call else "") + text[position:end]
            for call in (preference.chosen, preference.rejected)
        )
        prompt = insert(text[:position], preference.before)
        rows.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
    return rows


def labelled_rows(preferences: Sequence[Preference], tokenizer: Any) -> list[dict[str, Any]]:
    """`prompt`, `completion` and `label` (whether it was chosen), each once: the columns of TRL's KTOTrainer."""
    rows = dict.fromkeys(
        (row["prompt"], row[side], side == "chosen")
        for row in paired_rows(preferences, tokenizer)
        for side in ("chosen", "rejected")
    )
    return [dict(zip(("prompt", "completion", "label"), row, strict=True)) for row in rows]
