"""Which calls are executed."""

from dataclasses import replace

from tests.annotation.build import QA, Recording, candidate, whole_window, whole_windows
from toolformer.annotation.candidates import SCORED
from toolformer.annotation.execute import LOOK_AHEAD, execute
from toolformer.annotation.pipeline import Annotator
from toolformer.calls import ApiCall
from toolformer.data import Document
from toolformer.lm.language_model import LanguageModel


def test_each_distinct_call_is_executed_once(tiny_gpt2: LanguageModel) -> None:
    first, second, _ = whole_windows(tiny_gpt2)
    tool = Recording()
    asked = [ApiCall("QA", "who", None, True), ApiCall("QA", "who"), ApiCall("QA", "")]
    candidates = [
        candidate(window, 1, call, sample=n) for window in (first, second) for n, call in enumerate(asked)
    ]
    candidates.append(candidate(first, 1, None, status="malformed call"))
    done = execute(candidates, {"qa": tool})
    assert [sorted(batch) for batch in tool.batches] == [["", "", "who", "who"]]
    assert [c.status for c in done] == [SCORED, SCORED, "nothing asked"] * 2 + ["malformed call"]
    assert [c.call.result for c in done if c.status == SCORED and c.call] == ["WHO"] * 4


def test_a_translation_of_what_comes_later_is_dropped(tiny_gpt2: LanguageModel) -> None:
    window = whole_window(tiny_gpt2, Document("t", "He wrote O homem in 1967."))
    call = ApiCall("MT", "O homem")
    asked = [candidate(window, i, call, tool="translation") for i in (1, len(window.ids) - 1)]
    done = [execute([one], {"translation": Recording()})[0].status for one in asked]
    assert done == [LOOK_AHEAD, SCORED]

    for key, selector in (("translation", "any"), ("mine", "translation"), ("mine", "any")):
        settings = replace(QA, key=key, selector=selector)
        annotator = Annotator(tiny_gpt2, [settings], {key: Recording()})
        (one,) = annotator._execute([candidate(window, 1, call, tool=key)])
        assert (one.status == LOOK_AHEAD) == (key == "translation" or selector == "translation")
