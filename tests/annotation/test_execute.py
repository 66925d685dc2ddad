"""Which calls are executed."""

from dataclasses import replace

from tests.annotation.build import DOCUMENTS, QA, Recording, candidate, whole_window, whole_windows
from tests.build import QA_PIECES, Recorder, taught_model
from toolformer.annotation.candidates import SCORED
from toolformer.annotation.execute import LOOK_AHEAD, execute
from toolformer.annotation.pipeline import Annotator
from toolformer.calls import ApiCall
from toolformer.data import Document
from toolformer.decoding.decoder import Decoder
from toolformer.jobs.config import compose
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result
from toolformer.tools.limits import Calling


def test_each_distinct_call_is_executed_once(tiny_gpt2: LanguageModel) -> None:
    first, second, _ = whole_windows(tiny_gpt2)
    tool = Recording()
    asked = [ApiCall("QA", "who", None, True), ApiCall("QA", "who"), ApiCall("QA", "")]
    candidates = [
        candidate(window, 1, call, sample=n) for window in (first, second) for n, call in enumerate(asked)
    ]
    candidates.append(candidate(first, 1, None, status="malformed call"))
    done = execute(candidates, tool)
    assert [sorted(batch) for batch in tool.batches] == [["", "", "who", "who"]]
    assert [c.status for c in done] == [SCORED, SCORED, "nothing asked"] * 2 + ["malformed call"]
    assert [c.call.result for c in done if c.status == SCORED and c.call] == ["WHO"] * 4


def test_a_translation_of_what_comes_later_is_dropped(tiny_gpt2: LanguageModel) -> None:
    window = whole_window(tiny_gpt2, Document("t", "He wrote O homem in 1967."))
    call = ApiCall("MT", "O homem")
    asked = [candidate(window, i, call) for i in (1, len(window.ids) - 1)]
    done = [execute([one], Recording(), drop_look_ahead=True)[0].status for one in asked]
    assert done == [LOOK_AHEAD, SCORED]
    assert execute(asked[:1], Recording())[0].status == SCORED


def test_both_translators_drop_calls_that_look_ahead() -> None:
    for tool in ("translation", "translation_nllb", "translation_endpoint"):
        config = compose("generate", [f"tool@tool.translation={tool}"])
        assert config.tool["translation"].drop_look_ahead and not config.tool["qa"].drop_look_ahead


def test_results_are_cut_as_decoding_cuts_them() -> None:
    model = taught_model("gpt2", *QA_PIECES, "[QA(Joe) -> eoJ]", "[QA(a) -> a]")
    answer = Recorder(lambda text: Result("It is 東京都, 日本の首都, 人口 14,047,594. " * 4), "QA")
    settings = replace(QA, force_name=True, samples=8, max_call_tokens=30, max_result_tokens=9)
    annotation = Annotator(model, settings, answer).annotate(DOCUMENTS)
    results = {row["call"]["result"] for row in annotation.rows if row["status"] == SCORED}
    decoder = Decoder(model, {"qa": answer}, {"qa": Calling(max_result_tokens=9)}, k=1000)
    completions = decoder.complete([document.text for document in DOCUMENTS], max_new_tokens=8)
    assert results == {call.result for completion in completions for call in completion.calls} != set()
    assert annotation.funnel["results_cut"] == annotation.funnel["executed"]
