"""The speed scripts that need no real model: widened models, and the host's time."""

import json
from pathlib import Path

import pytest
import torch

from tests.build import Capture, tiny_model, tiny_tokenizer
from toolformer.benchmarks.speed import overhead, widen
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel

IDS = torch.arange(1, 41).view(2, 20)


@pytest.mark.parametrize("architecture", ["llama", "mistral"])
def test_a_widened_model_computes_the_same(architecture: str, tmp_path: Path) -> None:
    narrow, tokenizer = tiny_model(architecture, 420), tiny_tokenizer()
    narrow.save_pretrained(tmp_path / "narrow")
    tokenizer.save_pretrained(tmp_path / "narrow")
    widen.main(widen.Options(str(tmp_path / "wide"), str(tmp_path / "narrow"), factor=3, layers=5))
    wide = LanguageModel.from_pretrained(tmp_path / "wide", "float32").model
    assert (wide.config.hidden_size, wide.config.num_attention_heads, len(wide.model.layers)) == (96, 12, 5)
    with torch.inference_mode():
        difference = wide(IDS).logits - narrow(IDS).logits
    assert difference.abs().max() < 1e-4


def test_only_models_that_can_be_widened_are(tmp_path: Path) -> None:
    for architecture, layers in (("gpt2", 5), ("gemma3", 5), ("llama", 1)):
        with pytest.raises(UserError, match="^widen needs a model of type llama or mistral"):
            widen.widened(tiny_model(architecture, 420), 2, layers)


def test_the_hosts_time_is_printed(capsys: Capture) -> None:
    options = overhead.Options(texts=1, k=2, m=2, call_tokens=3, prompts=2, batch=2, new_tokens=2, repeats=1)
    overhead.main(options)
    printed = capsys.readouterr().out
    results = json.loads(printed.splitlines()[-1])
    assert set(results) == {"us_per_sampled_token", "us_per_scored_call", "us_per_decoded_row"}
    assert min(results.values()) > 0
