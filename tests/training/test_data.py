from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.build import ANNOTATED, TEXTS, build_tokenizer
from toolformer.errors import UserError
from toolformer.training.data import (
    Layout,
    document_order,
    limit_per_tool,
    one_per_sequence,
    plain_texts_needed,
    sample_texts,
    stream,
    whole,
)
from toolformer.training.tokens import tokenize


def targets_of(layout: Layout) -> Counter[tuple[int, int]]:
    """(document, token) of every target: all tokens of a piece but its first."""
    return Counter((document, token) for row in layout for document, start, end in row for token in range(start + 1, end))  # fmt: skip


def widths(layout: Layout) -> list[int]:
    return [sum(end - start for _, start, end in row) for row in layout]


def test_a_document_is_its_text_between_its_own_bos_and_eos(tokenizer: Any) -> None:
    for each in (tokenizer, build_tokenizer(adds_bos=True)):
        documents = tokenize(["", *TEXTS[:2], ""], each)  # without tokens they are left out
        assert documents.ids[documents.starts[1] :].tolist() == [*each(TEXTS[1]).input_ids, each.eos_token_id]
        assert len(documents) == 2
    with pytest.raises(UserError, match="no text to train or evaluate on"):
        tokenize(["", ""], tokenizer)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(2, 16))
def test_layouts_train_every_token_once(lengths: list[int], size: int) -> None:
    order = range(len(lengths))
    every = targets_of([[(document, 0, length)] for document, length in enumerate(lengths)])
    layouts = [stream(lengths, order, size), whole(lengths, size), one_per_sequence(lengths, order, size)]
    for layout in layouts:
        assert targets_of(layout) == every
        assert 0 < max(widths(layout)) <= size
    streamed, uncut, alone = layouts
    assert all(width == size for width in widths(streamed)[:-1]), "only the end is padded"
    pieces = Counter(document for row in uncut for document, _, _ in row)
    assert all(pieces[document] == 1 for document, length in enumerate(lengths) if length <= size)
    assert all(len(row) == 1 for row in alone)


def test_order_is_fixed_by_seed_and_shuffled_anew_in_every_pass() -> None:
    once = list(document_order(20, seed=3, passes=2))
    assert once == list(document_order(20, seed=3, passes=2))
    assert sorted(once[:20]) == sorted(once[20:]) == list(range(20))
    assert once[:20] != once[20:] != list(range(20))
    assert once != list(document_order(20, seed=4, passes=2))
    assert sorted(widths(whole([5, 5, 3, 3, 2, 2], 10))) == [10, 10], "sequences are filled"
    for layout in (stream, one_per_sequence):
        assert len(layout([7, 9], document_order(2, seed=0, passes=None), 5, limit=11)) == 11


def row(doc_id: str, *tools: str) -> dict[str, Any]:
    return {"doc_id": doc_id, "calls": [{"tool": tool} for tool in tools]}


def test_the_limit_of_examples_per_tool_spares_rare_tools() -> None:
    rows = [row(f"c{n}", "calculator") for n in range(20)]
    rows += [row(f"t{n}", "translation", "calculator") for n in range(3)]
    chosen = limit_per_tool(rows, limit=5, seed=0)
    counts = Counter(tool for chosen_row in chosen for tool in {call["tool"] for call in chosen_row["calls"]})
    assert counts == {"calculator": 5, "translation": 3}
    assert chosen == limit_per_tool(rows[::-1], limit=5, seed=0)[::-1]
    assert chosen != limit_per_tool(rows, limit=5, seed=8)
    assert chosen == [each for each in rows if each in chosen]
    twice = [row(str(n), "search", "search") for n in range(4)]
    assert limit_per_tool(twice, limit=4) == twice, "a row with two calls of a tool is one example"


def test_further_texts_are_drawn_by_the_seed_in_any_order() -> None:
    texts = [f"text {n}" for n in range(50)]
    drawn = sample_texts(texts, 10, seed=0)
    assert drawn == sample_texts([*texts[::-1], *texts], 10, seed=0) == sample_texts(texts, 20, seed=0)[:10]
    assert len(set(drawn)) == 10 and set(drawn) != set(sample_texts(texts, 10, seed=1))
    assert [plain_texts_needed(120, share) for share in (0, 0.25, 0.5, 0.75)] == [0, 40, 120, 360]


def test_a_text_without_calls_is_tokenised_like_any_other(tokenizer: Any) -> None:
    alone, mixed = tokenize([TEXTS[0]], tokenizer), tokenize([*ANNOTATED, TEXTS[0]], tokenizer)
    start, end = mixed.starts[-2:]
    assert mixed.ids[start:end].tolist() == alone.ids.tolist() and not mixed.kinds[start:end].any()
