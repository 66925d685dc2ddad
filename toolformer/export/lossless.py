"""C* as the tokens and labels of our own training: as ids with a mask, or as segments that are tokenised one by one."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from toolformer.stages.train import annotated_text
from toolformer.training.data import IGNORED, PackedTexts
from toolformer.training.tokens import tokenize

Segment = dict[str, Any]
"""`label` (whether it is in the loss) and `text`."""
_AHEAD = 4
"""Tokens that show whether a segment may begin at the first of them."""


def examples(
    rows: Sequence[Mapping[str, Any]], tokenizer: Any, train_on_results: bool
) -> Iterator[tuple[list[int], list[int]]]:
    """Token ids and labels of each row, unpacked, as our training makes them: a label is the token's id, or -100."""
    documents = tokenize([annotated_text(row) for row in rows], tokenizer)
    whole = [[(index, 0, length)] for index, length in enumerate(documents.lengths)]
    packed = PackedTexts(documents, whole, train_on_results)
    for index in range(len(packed)):
        example = packed[index]
        yield example["input_ids"].tolist(), example["labels"].tolist()


def masked(ids: Sequence[int], labels: Sequence[int]) -> dict[str, list[int]]:
    """The row that TRL reads: token ids, and 1 where a token is in the loss."""
    return {"input_ids": list(ids), "assistant_masks": [int(label != IGNORED) for label in labels]}


def segments(ids: Sequence[int], labels: Sequence[int], tokenizer: Any) -> list[Segment] | None:
    """Segments of text whose tokens, one segment after another, are `ids`; None if no cut gives them.

    Each is verified with the tokenizer. The first token is never predicted: where it cannot be a segment (half of an emoji),
    it joins the next one.
    """
    in_loss = [label != IGNORED for label in labels]
    for flags in (in_loss, [*(in_loss[1:2] or in_loss), *in_loss[1:]]):
        made: list[Segment] = []
        for label, group in groupby(zip(flags, ids, strict=True), key=lambda pair: pair[0]):
            texts = _texts([token for _, token in group], tokenizer)
            if texts is None:
                break
            made += [{"label": label, "text": text} for text in texts]
        else:
            return made
    return None


def read(text: str, tokenizer: Any) -> list[int]:
    """The tokens of a segment as trainers read it: none added, special tokens by their names."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    return ids


def _texts(ids: list[int], tokenizer: Any) -> list[str] | None:
    """Texts whose tokens, one after another, are `ids`: one if that is enough, else the ids are halved."""
    if whole := _halved(ids, [], tokenizer):
        return whole
    ahead = [_decode(ids[index : index + _AHEAD], tokenizer) for index in range(len(ids))]
    begun = tokenizer(ahead, add_special_tokens=False, verbose=False).input_ids
    starts = [index for index, tokens in enumerate(begun) if index and tokens[:1] == ids[index : index + 1]]
    return _halved(ids, starts, tokenizer)


def _halved(ids: list[int], starts: list[int], tokenizer: Any) -> list[str] | None:
    """`_texts` of a part, where `starts` are the places that a text may begin at, in order."""
    text = _decode(ids, tokenizer)
    if read(text, tokenizer) == ids:
        return [text]
    if not starts:
        return None
    cut = min(starts, key=lambda index: abs(index - len(ids) // 2))
    first = _halved(ids[:cut], [index for index in starts if index < cut], tokenizer)
    rest = [index - cut for index in starts if index > cut]
    second = _halved(ids[cut:], rest, tokenizer) if first else None
    return [*first, *second] if first and second else None


def _decode(ids: list[int], tokenizer: Any) -> str:
    text: str = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text
