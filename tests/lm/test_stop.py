"""Stop texts in a text that grows."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build import tiny_tokenizer
from toolformer.lm.stop import has_ended

TOKENIZER = tiny_tokenizer()
TEXTS = st.text(st.sampled_from("ab \n東é."), max_size=12)


@settings(max_examples=100, deadline=None)
@given(before=TEXTS, text=TEXTS, stop=st.lists(TEXTS.filter(bool), min_size=1, max_size=3))
def test_a_stop_text_is_found_at_its_last_token(before: str, text: str, stop: list[str]) -> None:
    """As in all of the text, which is not decoded again."""
    longest, decoded = 0, [0]

    def decode(ids: Sequence[int]) -> str:
        decoded.append(len(ids))
        return str(TOKENIZER.decode(list(ids)))

    ids = TOKENIZER(text * 20, add_special_tokens=False).input_ids
    for end in range(1, len(ids) + 1):
        is_in = any(one in before + TOKENIZER.decode(ids[:end]) for one in stop)
        if any(one in before for one in stop):
            return
        assert has_ended(ids[:end], decode, stop, before) == is_in
        if is_in:
            break
    longest = max(map(len, stop))
    assert max(decoded) <= 4 * longest + 4
