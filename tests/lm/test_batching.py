"""Batches of similar length."""

from hypothesis import given, settings
from hypothesis import strategies as st

from toolformer.lm.batching import HEAD, by_length, rows_per_batch, shared_heads


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 1500)), min_size=1, max_size=60),
    st.sampled_from([256, 2048, 16384]),
    st.sampled_from([None, 0, 100]),
)
def test_batches_hold_every_sequence_once_within_the_budgets(
    sizes: list[tuple[int, int]], tokens: int, padding: int | None
) -> None:
    lengths, rows = [length for length, _ in sizes], [count for _, count in sizes]
    batches = list(by_length(lengths, rows, tokens, padding))
    assert sorted(n for batch in batches for n in batch) == list(range(len(sizes)))
    for batch in batches:
        if len(batch) > 1:
            assert len(batch) * max(lengths[n] for n in batch) <= tokens
            assert sum(rows[n] for n in batch) <= rows_per_batch(tokens)
            longest = max(lengths[n] for n in batch)
            assert padding is None or sum(longest - lengths[n] for n in batch) <= padding


def test_sequences_that_begin_alike_share_their_beginning() -> None:
    first, second = list(range(HEAD)), list(range(1, HEAD + 1))
    sequences = [
        [*first, 7, 8, 9],
        [*first, 7, 8],
        [*first, 7, 8, 1],
        [*second, 3],
        [*second, 3],
        [5, 5],
        first,
    ]
    assert shared_heads(sequences) == [[*first, 7], second]
