"""Preferences from gains: what a model should rather write at a position where an annotation tried calls. Beyond the paper.

A prompt is the text before the position, with the calls that were kept there, as C* has it. A completion is a call with its
result, or no call, and then the next five tokens of the text, those which the gain is measured on (paper, section 2).

| at the position | chosen | rejected |
| --- | --- | --- |
| a call was kept | the kept call with the largest gain | the text without a call |
| a call was kept, another one harms | the kept call with the largest gain | the harmful call |
| no call was kept, one harms | the text without a call | the harmful call |

A call harms if its gain is below zero by a margin. Of several the one that harms least is taken, which is hardest to tell from a
good one.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toolformer.calls import ApiCall, insert, linearise, parse
from toolformer.lm.loading import bos_ids, token_positions, tokens_of
from toolformer.training.tokens import RESULT, TEXT, call_tokens

FOLLOWING = 5
"""Tokens of the text after the position: those that have a weight in the gain."""


@dataclass(frozen=True)
class Preference:
    """Two ways to continue a text at a position; None is the text without a call."""

    doc_id: str
    text: str
    """The plain text."""
    before: tuple[tuple[int, ApiCall], ...]
    """The kept calls with their results before the position, by character position."""
    position: int
    """Character offset in the plain text."""
    tool: str
    """Key of the tool that was tried."""
    chosen: ApiCall | None
    rejected: ApiCall | None


def find_preferences(
    texts: Mapping[str, str], candidates: Iterable[Mapping[str, Any]], margin: float = 0.1
) -> list[Preference]:
    """The preferences of an annotation, in the order of its candidates.

    Args:
        texts: plain texts by `doc_id`; positions of other documents are left out.
        candidates: rows of `candidates.parquet`.
        margin: nats below zero at which a gain counts as harm.
    """
    positions: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    kept: dict[str, list[tuple[int, ApiCall]]] = {}
    for row in candidates:
        if row["doc_id"] in texts and row["filter_gain"] is not None:
            positions.setdefault((row["doc_id"], row["position"]), []).append(row)
            if row["kept"]:
                kept.setdefault(row["doc_id"], []).append((row["position"], _executed(row)))
    found: list[Preference] = []
    for (doc_id, position), rows in positions.items():
        calls = sorted(kept.get(doc_id, ()), key=lambda item: item[0])
        before = tuple(calls[: bisect_right(calls, position - 1, key=lambda item: item[0])])
        found += [
            Preference(doc_id, texts[doc_id], before, position, tool, chosen, rejected)
            for tool, chosen, rejected in _choose(rows, margin)
        ]
    return found


def _choose(
    rows: Sequence[Mapping[str, Any]], margin: float
) -> Iterator[tuple[str, ApiCall | None, ApiCall | None]]:
    """Tool, chosen and rejected of each preference at one position."""
    best = max((row for row in rows if row["kept"]), key=_gain, default=None)
    harmful = [row for row in rows if not row["kept"] and _over_text(row) < 0 and _over_text(row) <= -margin]
    rejected = max(harmful, key=_over_text, default=None)
    if best:
        yield best["tool"], _executed(best), None
    if rejected:
        yield rejected["tool"], _executed(best) if best else None, _executed(rejected)


def _gain(row: Mapping[str, Any]) -> float:
    """In nats under the run's baseline; an upper bound where nothing more was scored."""
    return float(row["filter_gain"])


def _over_text(row: Mapping[str, Any]) -> float:
    """In nats, how much a call with its result lowers the loss against the text without a call, whatever the run's baseline.

    The paper's gain is smaller where the call alone helps too: a call that it drops may still be better than none.
    """
    return float(row["loss_none"] - row["loss_result"])


def _executed(row: Mapping[str, Any]) -> ApiCall:
    return parse(row["call"]).with_result(row["result"])


@dataclass(frozen=True)
class Tokens:
    """A text's tokens."""

    ids: list[int]
    positions: list[int | None]
    """The character position of each, None for one that begins inside a character."""

    @cached_property
    def first(self) -> dict[int | None, int]:
        """The first token at a character position."""
        first: dict[int | None, int] = {}
        for index, position in enumerate(self.positions):
            first.setdefault(position, index)
        return first


def tokens_by_document(preferences: Sequence[Preference], tokenizer: Any) -> dict[str, Tokens]:
    """The tokens of the plain texts by `doc_id`."""
    texts = {preference.doc_id: preference.text for preference in preferences}
    encoded = tokens_of(tokenizer, [*texts.values()], offsets=True) if texts else None
    if encoded is None:
        return {}
    pairs = zip(encoded.input_ids, encoded.offset_mapping, strict=True)
    return {
        doc_id: Tokens(ids, token_positions(text, offsets))
        for (doc_id, text), (ids, offsets) in zip(texts.items(), pairs, strict=True)
    }


def dpo_rows(preferences: Sequence[Preference], tokenizer: Any) -> list[dict[str, str]]:
    """`prompt`, `chosen` and `rejected` of each preference, as texts.

    Args:
        tokenizer: of the model that annotated: it says where the five tokens end.
    """
    documents = tokens_by_document(preferences, tokenizer)
    rows = []
    for preference in preferences:
        tokens, text, position = documents[preference.doc_id], preference.text, preference.position
        if position not in tokens.first:
            continue
        later = tokens.positions[tokens.first[position] + FOLLOWING :]
        end = next((start for start in later if start is not None), len(text))
        texts = {
            "prompt": insert(text[:position], preference.before),
            "chosen": _written(preference.chosen) + text[position:end],
            "rejected": _written(preference.rejected) + text[position:end],
        }
        rows.append(texts)
    return rows


def kto_rows(preferences: Sequence[Preference], tokenizer: Any) -> list[dict[str, Any]]:
    """`prompt`, `completion` and `label` (whether it is a good one) of the preferences, as texts, each once."""
    rows = dict.fromkeys(
        (row["prompt"], row[side], side == "chosen")
        for row in dpo_rows(preferences, tokenizer)
        for side in ("chosen", "rejected")
    )
    return [dict(zip(("prompt", "completion", "label"), row, strict=True)) for row in rows]


def _written(call: ApiCall | None) -> str:
    return linearise(call) if call else ""


@dataclass(frozen=True)
class Encoder:
    """Turns preferences into tokens, the same as those of C* in training.

    Args:
        size: tokens of prompt and completion at most; a longer prompt loses its beginning.
        train_on_results: whether results count in a completion's log-probability; decoding inserts them.
    """

    tokenizer: Any
    documents: Mapping[str, Tokens]
    size: int
    train_on_results: bool

    def dpo(self, preference: Preference) -> dict[str, Any] | None:
        """`prompt_ids`, and for both sides `..._ids` with `..._mask`, 1 where a token counts.

        None if nothing precedes the position, or this tokenizer has no token that begins there.
        """
        tokens = self.documents[preference.doc_id]
        places = [*(position for position, _ in preference.before), preference.position]
        if any(place not in tokens.first for place in places):
            return None
        prompt: list[int] = []
        start = 0
        for position, call in preference.before:
            prompt += tokens.ids[start : tokens.first[position]]
            prompt += [token for token, _ in call_tokens(self.tokenizer, call)]
            start = tokens.first[position]
        index = tokens.first[preference.position]
        prompt += tokens.ids[start:index]
        following = [(token, TEXT) for token in tokens.ids[index : index + FOLLOWING]]
        row: dict[str, Any] = {}
        for side in ("chosen", "rejected"):
            call = getattr(preference, side)
            completion = [*(call_tokens(self.tokenizer, call) if call else ()), *following]
            row[f"{side}_ids"] = [token for token, _ in completion]
            row[f"{side}_mask"] = [int(kind != RESULT or self.train_on_results) for _, kind in completion]
        head = bos_ids(self.tokenizer)
        room = self.size - len(head) - max(len(row["chosen_ids"]), len(row["rejected_ids"]))
        if room < 1 or not (head or prompt):
            return None
        return {"prompt_ids": [*head, *prompt[-room:]], **row}


def unpaired(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `Encoder.dpo` as `prompt_ids`, `completion_ids`, `completion_mask` and `label`, each completion once."""
    found: dict[Any, dict[str, Any]] = {}
    for row in rows:
        for side in ("chosen", "rejected"):
            key = (*row["prompt_ids"], -1, *row[f"{side}_ids"], side)
            found[key] = {
                "prompt_ids": row["prompt_ids"],
                "completion_ids": row[f"{side}_ids"],
                "completion_mask": row[f"{side}_mask"],
                "label": side == "chosen",
            }
    return [*found.values()]
