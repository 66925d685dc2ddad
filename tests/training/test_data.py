from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.conftest import TEXTS
from toolformer.errors import UserError
from toolformer.training.data import (
    IGNORED,
    Layout,
    PackedTexts,
    document_order,
    limit_per_tool,
    single,
    stream,
    whole,
)
from toolformer.training.tokens import tokenize

lengths_of_documents = st.lists(st.integers(1, 40), min_size=1, max_size=12)
sizes = st.integers(2, 16)


def targets_of(layout: Layout) -> Counter[tuple[int, int]]:
    """(document, token) of every target: all tokens of a piece but its first."""
    return Counter(
        (document, token) for row in layout for document, start, end in row for token in range(start + 1, end)
    )


def every_token_but_the_first(lengths: list[int]) -> Counter[tuple[int, int]]:
    return Counter((document, token) for document, length in enumerate(lengths) for token in range(1, length))


def widths(layout: Layout) -> list[int]:
    return [sum(end - start for _, start, end in row) for row in layout]


def test_a_document_is_its_text_and_eos(tokenizer: Any) -> None:
    documents = tokenize(TEXTS[:2], tokenizer)
    first = documents.ids[: documents.starts[1]].tolist()
    assert first == tokenizer(TEXTS[0]).input_ids + [tokenizer.eos_token_id]
    assert len(documents) == 2


def test_a_tokenizer_that_adds_a_bos_keeps_it(bos_tokenizer: Any) -> None:
    documents = tokenize(TEXTS[:2], bos_tokenizer)
    second = documents.ids[documents.starts[1] :].tolist()
    assert second == [0] + bos_tokenizer(TEXTS[1], add_special_tokens=False).input_ids + [1]


def test_texts_without_tokens_are_left_out(tokenizer: Any) -> None:
    assert len(tokenize(["", TEXTS[0], ""], tokenizer)) == 1
    with pytest.raises(UserError, match="no text to train or evaluate on"):
        tokenize(["", ""], tokenizer)


def test_the_result_of_a_call_is_among_the_trained_labels(tokenizer: Any) -> None:
    """Earlier implementations trained on texts whose results were missing or masked."""
    for text, result in (
        (TEXTS[1], "0.29"),
        (TEXTS[3], "Today is Monday, January 30, 2023."),
        (TEXTS[5], "the Steel City"),
    ):
        documents = tokenize([text], tokenizer)
        packed = PackedTexts(documents, stream(documents.lengths, [0], 1024))[0]
        trained = tokenizer.decode([label for label in packed["labels"].tolist() if label != IGNORED])
        assert f"-> {result}]" in trained
        # Position for position: every label is the token itself, the first one apart.
        assert packed["labels"][1:].tolist() == packed["input_ids"][1:].tolist()
        assert packed["labels"][0] == IGNORED


@given(lengths_of_documents, sizes)
def test_a_stream_trains_every_token_once_and_pads_only_its_end(lengths: list[int], size: int) -> None:
    layout = stream(lengths, range(len(lengths)), size)
    assert targets_of(layout) == every_token_but_the_first(lengths)
    assert all(width == size for width in widths(layout)[:-1])
    assert 0 < widths(layout)[-1] <= size


@given(lengths_of_documents, sizes)
def test_whole_cuts_no_document_that_fits(lengths: list[int], size: int) -> None:
    layout = whole(lengths, size)
    assert targets_of(layout) == every_token_but_the_first(lengths)
    assert max(widths(layout)) <= size
    pieces = Counter(document for row in layout for document, _, _ in row)
    assert all(pieces[document] == 1 for document, length in enumerate(lengths) if length <= size)


@given(lengths_of_documents, sizes)
def test_single_puts_nothing_side_by_side(lengths: list[int], size: int) -> None:
    layout = single(lengths, range(len(lengths)), size)
    assert targets_of(layout) == every_token_but_the_first(lengths)
    assert all(len(row) == 1 for row in layout)


def test_whole_fills_sequences() -> None:
    assert sorted(widths(whole([5, 5, 3, 3, 2, 2], 10))) == [10, 10]


def test_limits_end_an_endless_order() -> None:
    assert len(stream([7, 9], document_order(2, seed=0, passes=None), 5, limit=11)) == 11
    assert len(single([7, 9], document_order(2, seed=0, passes=None), 5, limit=11)) == 11


def test_order_is_fixed_by_seed_and_shuffled_anew_in_every_pass() -> None:
    once = list(document_order(20, seed=3, passes=2))
    assert once == list(document_order(20, seed=3, passes=2))
    assert sorted(once[:20]) == sorted(once[20:]) == list(range(20))
    assert once[:20] != once[20:] != list(range(20))
    assert once != list(document_order(20, seed=4, passes=2))


def test_c_star_and_c_come_in_the_same_order(tokenizer: Any) -> None:
    augmented = tokenize(TEXTS, tokenizer)
    plain = tokenize([f"Text {n}." for n in range(len(TEXTS))], tokenizer)

    def documents(lengths: list[int]) -> list[int]:
        layout = stream(lengths, document_order(len(TEXTS), seed=1), 16)
        return list(dict.fromkeys(document for row in layout for document, _, _ in row))

    assert documents(augmented.lengths) == documents(plain.lengths)


def test_positions_restart_at_every_piece(tokenizer: Any) -> None:
    documents = tokenize(TEXTS, tokenizer)
    packed = PackedTexts(documents, stream(documents.lengths, range(len(documents)), 48))
    for index in range(len(packed)):
        pieces = packed.pieces[packed.bounds[index] : packed.bounds[index + 1]]
        expected = [position for _, start, end in pieces for position in range(end - start)]
        assert packed[index]["position_ids"].tolist() == expected
    assert packed.tokens == sum(len(packed[index]["input_ids"]) for index in range(len(packed)))
    assert packed.targets == sum(
        int((packed[index]["labels"] != IGNORED).sum()) for index in range(len(packed))
    )
    assert packed.targets == documents.ids.size - len(documents)


def row(doc_id: str, *tools: str) -> dict[str, Any]:
    return {"doc_id": doc_id, "calls": [{"tool": tool} for tool in tools]}


def test_no_tool_has_more_examples_than_the_limit_and_rare_tools_keep_theirs() -> None:
    rows = [row(f"c{n}", "calculator") for n in range(20)]
    rows += [row(f"t{n}", "translation", "calculator") for n in range(3)]
    chosen = limit_per_tool(rows, limit=5, seed=0)
    counts = Counter(tool for chosen_row in chosen for tool in {call["tool"] for call in chosen_row["calls"]})
    assert counts == {"calculator": 5, "translation": 3}


def test_a_row_with_two_calls_of_a_tool_is_one_example() -> None:
    rows = [row(str(n), "search", "search") for n in range(4)]
    assert limit_per_tool(rows, limit=4) == rows


def test_which_rows_are_chosen_does_not_depend_on_their_order() -> None:
    rows = [row(f"d{n}", "qa") for n in range(30)]
    chosen = {r["doc_id"] for r in limit_per_tool(rows, limit=10, seed=7)}
    assert chosen == {r["doc_id"] for r in limit_per_tool(rows[::-1], limit=10, seed=7)}
    assert chosen != {r["doc_id"] for r in limit_per_tool(rows, limit=10, seed=8)}
    assert [r["doc_id"] for r in limit_per_tool(rows, limit=10, seed=7)] == sorted(
        chosen, key=lambda d: int(d[1:])
    )
