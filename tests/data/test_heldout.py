"""Which documents of a corpus are held out: a bounded share, by their texts alone."""

import random

import pytest

from toolformer.data import Document
from toolformer.data.heldout import LEAST, MOST, draw, parts, split


def documents(count: int, first: int = 0) -> list[Document]:
    return [Document(f"d{n}", f"On day {n} we met.") for n in range(first, first + count)]


def held_out(corpus: list[Document], share: float = 0.05) -> set[str]:
    return {document.text for document, is_held_out in split(corpus, share) if is_held_out}


@pytest.mark.parametrize(("count", "number"), [(0, 0), (1, 0), (2, 1), (5, 1), (6, 2), (21, 5), (60, 5)])
def test_of_few_texts_a_few_are_held_out(count: int, number: int) -> None:
    assert len(held_out(documents(count))) == number <= LEAST


def test_of_many_texts_a_share_is_held_out() -> None:
    assert 80 < len(held_out(documents(2000))) < 120


def test_of_very_many_texts_no_more_are_held_out() -> None:
    assert len(held_out(documents(2 * MOST), share=0.9)) == MOST


@pytest.mark.parametrize("count", [100, 2 * MOST])
def test_a_repetition_of_a_held_out_text_is_held_out(count: int) -> None:
    """Also beyond the start of the corpus, and beyond the bound."""
    corpus = documents(count)
    again = [Document(f"again {n}", document.text) for n, document in enumerate(corpus)]
    marks = [is_held_out for _, is_held_out in split([*corpus, *again], 0.05 if count < MOST else 0.9)]
    assert marks[:count] == marks[count:] and any(marks)


def test_nothing_is_held_out_by_a_share_of_0() -> None:
    assert not held_out(documents(100), share=0)


def test_documents_keep_their_order() -> None:
    assert [document for document, _ in split(documents(300), 0.05)] == documents(300)


def test_the_text_alone_decides() -> None:
    """Not its order, its id, or the corpus that it is in."""
    corpus = documents(600)
    shuffled = random.Random(0).sample(corpus, len(corpus))
    renamed = [Document(f"{n}", document.text, "https://example.org") for n, document in enumerate(shuffled)]
    assert held_out(renamed, 0.5) == held_out(corpus, 0.5)
    other = documents(600, first=300)
    both = {document.text for document in corpus} & {document.text for document in other}
    assert held_out(other, 0.5) & both == held_out(corpus, 0.5) & both


def test_a_draw_is_by_the_seed_and_in_order() -> None:
    corpus = documents(100)
    drawn = [draw(corpus, 10, seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and len(drawn[2]) == 10
    assert drawn[0] == [document for document in corpus if document in drawn[0]] != corpus[:10]
    assert draw(reversed(corpus), 10, 0) == drawn[0][::-1]
    assert draw(corpus, None, 0) == corpus


@pytest.mark.parametrize(("count", "chooses"), [(2, 1), (5, 2), (24, 12), (3000, 1000)])
def test_texts_that_choose_a_checkpoint_are_not_reported(count: int, chooses: int) -> None:
    corpus = documents(count)
    first, second = parts(corpus, 0)
    assert len(first) == chooses and sorted([*first, *second], key=corpus.index) == corpus


def test_equal_texts_are_in_one_part() -> None:
    corpus = [Document(doc_id=str(n), text=f"text {n // 3}") for n in range(30)]
    first, second = parts(corpus, 0)
    assert first and second and not {d.text for d in first} & {d.text for d in second}
