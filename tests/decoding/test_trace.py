"""A traced decode against separate runs under every policy."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest

from tests.conftest import taught_model
from tests.decoding.test_decoder import CALLING, DOCUMENTS, PIECES, tools
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.trace import Trace, TracingDecoder
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel

REACH = {"topk": 20, "bias": 8.0, "threshold": 0.001}
VALUES: dict[str, Sequence[float]] = {
    "topk": (0, 1, 3, 10, 20),
    "bias": (-2.0, 0.0, 1.5, 8.0),
    "threshold": (0.7, 0.2, 0.02, 0.001),
}
WRITING = {"max_new_tokens": 12, "stop": ["e The"]}


@pytest.fixture(scope="module", params=[PIECES, (*PIECES[:3], "[ZZ(ab) -> AB 1]")], ids=["QA", "ZZ"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    """A model that calls a tool, and one that calls a tool that there is not."""
    return taught_model("gpt2", *request.param)


@pytest.mark.parametrize("more", [{}, {"min_new_tokens": 6}, {"max_call_tokens": 3}])
def test_a_trace_holds_what_every_policy_writes(model: LanguageModel, more: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"max_call_tokens": 20, "constrain_tool_name": False, "batch_size": 3} | more
    traced = TracingDecoder(model, tools(), reach=REACH, **settings)
    batches: list[int] = []
    found = traced.trace(CALLING, DOCUMENTS, on_batch=lambda batch, _: batches.extend(batch), **WRITING)
    assert sorted(batches) == list(range(len(CALLING)))
    found = [Trace.read(json.loads(json.dumps(asdict(trace)))) for trace in found]
    for policy, values in VALUES.items():
        key = "k" if policy == "topk" else policy
        for value in values:
            decoder = Decoder(model, tools(), **settings, **{"policy": policy, key: value})
            expected = decoder.complete(CALLING, DOCUMENTS, **WRITING)
            assert [trace.under(policy, value) for trace in found] == expected, (policy, value)


def test_what_a_trace_does_not_reach_is_refused(model: LanguageModel) -> None:
    (nothing,) = TracingDecoder(model, tools(), reach={"topk": 0}).trace(CALLING[:1], max_new_tokens=12)
    assert nothing.called == {} and nothing.under("topk", 0) == nothing.without
    with pytest.raises(ValueError, match="out of the trace's reach"):
        nothing.under("topk", 20)
    (trace,) = TracingDecoder(model, tools()).trace(CALLING[:1], max_new_tokens=4, allowed=[])
    assert trace.called == trace.measures == {} and trace.under("topk", 10) == trace.without
    with pytest.raises(UserError, match="decoding.max_calls is 2"):
        TracingDecoder(model, tools(), max_calls=2)
