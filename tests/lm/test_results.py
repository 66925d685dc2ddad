"""A tool's result in a text: clean, also where it is cut."""

from toolformer.calls import ApiCall, clean_result
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.results import with_result


def test_a_cut_result_does_not_end_in_a_joiner(tiny_gpt2: LanguageModel) -> None:
    for limit in range(1, 30):
        cut = with_result(tiny_gpt2, ApiCall("MT", "x"), "می\u200cخواهم", limit).result
        assert cut is not None and clean_result(cut) == cut
