"""Whether calls fit into the limits of their tools."""

import gzip
import json
import os
from pathlib import Path

import pytest

from toolformer.calls import ApiCall, linearise
from toolformer.errors import UserError
from toolformer.jobs.config import compose, validate
from toolformer.jobs.instantiate import tool_settings
from toolformer.lm.loading import encode_continuation, load_tokenizer


@pytest.mark.real
@pytest.mark.parametrize("language", ["es", "de", "vi", "zh", "ar", "hi"])
@pytest.mark.parametrize("model", ["smollm2", "gemma3", "openai-community/gpt2"])
def test_questions_of_other_languages_fit_into_a_call(model: str, language: str) -> None:
    path = Path(os.environ.get("TOOLFORMER_DATA_DIR", "nowhere")) / "xquad" / f"{language}.jsonl.gz"
    if not path.is_file():
        pytest.skip("$TOOLFORMER_DATA_DIR has no XQuAD")
    try:
        tokenizer = load_tokenizer(model)
    except UserError as error:
        pytest.skip(f"no tokenizer of {model}: {error}")
    limit = compose("generate", ["setting=paper"]).tool["translation"].max_call_tokens
    with gzip.open(path, "rt", encoding="utf-8") as file:
        calls = [linearise(ApiCall("MT", json.loads(line)["question"])) for line in file]
    tokens = [len(encode_continuation(tokenizer, call)) - 1 for call in calls]  # without the start token
    assert sum(count <= limit for count in tokens) >= 0.98 * len(tokens) > 1000


@pytest.mark.real
@pytest.mark.parametrize("setting", ["default", "large"])
def test_the_calls_of_the_prompts_fit(setting: str) -> None:
    config = validate(compose("generate", [f"setting={setting}"]))
    tokenizer = load_tokenizer("smollm2")
    for key in ("calculator", "calendar", "qa", "search", "translation"):
        settings = tool_settings(config, key)
        for _, annotated in settings.prompt.examples:
            call = annotated[annotated.index("[") : annotated.index("]") + 1]
            assert len(encode_continuation(tokenizer, f" {call}")) - 1 <= settings.max_call_tokens, call
