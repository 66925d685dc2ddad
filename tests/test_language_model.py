"""The language model's fast paths against plain calls of the Transformers model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.textbook import logits
from toolformer.errors import UserError
from toolformer.language_model import LanguageModel
from toolformer.loading import choose_dtype, native_bfloat16

TEXTS = [
    "The population is 658,893 people.",
    "x",
    "Where was Joe Biden born? red is for the blood of martyrs 北京",
]


def test_rolling_log_likelihood_is_a_direct_sum(language_model: LanguageModel) -> None:
    for text, (total, count) in zip(TEXTS, language_model.rolling_log_likelihoods(TEXTS), strict=True):
        ids = language_model.document_start() + language_model.encode(text)
        log_probs = logits(language_model, ids).log_softmax(-1)
        expected = sum(float(log_probs[n, token]) for n, token in enumerate(ids[1:]))
        assert total == pytest.approx(expected, abs=1e-3)
        assert count == len(ids) - 1


def test_a_long_text_is_scored_in_windows_each_token_once(tiny_gpt2: LanguageModel) -> None:
    text = "The population is 658,893 people. " * 70
    ((total, count),) = tiny_gpt2.rolling_log_likelihoods([text])
    ids = tiny_gpt2.encode(text)
    assert count == len(ids) > tiny_gpt2.context_length
    assert total < 0


def test_log_likelihood_of_a_continuation(language_model: LanguageModel) -> None:
    pairs = [
        ("Joe Biden was born in", " Scranton, Pennsylvania."),
        ("Joe Biden was born in ", "Scranton"),
        ("", "red"),
    ]
    for (context, continuation), (total, greedy) in zip(
        pairs, language_model.log_likelihoods(pairs), strict=True
    ):
        head = language_model.encode(context.rstrip()) if context else language_model.document_start()
        tail = language_model.encode(context + continuation)[len(head) if context else 0 :]
        log_probs = logits(language_model, head + tail).log_softmax(-1)[len(head) - 1 : -1]
        assert total == pytest.approx(
            sum(float(row[token]) for row, token in zip(log_probs, tail, strict=True)), abs=1e-3
        )
        assert greedy == all(int(row.argmax()) == token for row, token in zip(log_probs, tail, strict=True))


def test_greedy_texts_are_those_of_stock_generate(language_model: LanguageModel) -> None:
    prompts = ["The number in the next term is", "The number in the next term is 18 + 12", "red"]
    for prompt, text in zip(prompts, language_model.generate(prompts, max_new_tokens=8), strict=True):
        ids = torch.tensor([language_model.encode(prompt)])
        stock = language_model.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False, pad_token_id=0
        )
        assert text == language_model.decode(stock[0, ids.shape[1] :].tolist())


def test_generation_stops_at_a_stop_text(tiny_gpt2: LanguageModel) -> None:
    (free,) = tiny_gpt2.generate(["The number"], max_new_tokens=10)
    stop = free[3]
    assert tiny_gpt2.generate(["The number"], max_new_tokens=10, stop=[stop]) == [free[: free.index(stop)]]


def test_positions_are_between_characters_and_before_blanks(tiny_gpt2: LanguageModel) -> None:
    text = "The 北京 is\n658,893 🏳️‍🌈 x"
    encoding = tiny_gpt2.encode_text(text)
    for n, position in enumerate(encoding.positions):
        if position is not None:
            assert tiny_gpt2.tokenizer.decode(encoding.ids[:n]) == text[:position]
    assert encoding.positions[0] == 0
    assert any(position is None for position in encoding.positions)
    assert text[encoding.positions[tiny_gpt2.encode("The").__len__()] or 0] == " "


def test_the_start_token_is_the_one_before_a_name(language_model: LanguageModel) -> None:
    assert language_model.decode([language_model.start_id]) == " ["
    for before in ("born in", "a,", "x)"):
        ids = language_model.encode(before + " [QA(")
        assert language_model.start_id in ids[len(language_model.encode(before)) :]


def test_a_model_is_loaded_from_a_folder(tiny_folder: Path) -> None:
    assert LanguageModel.from_pretrained(tiny_folder).context_length == 1024


def test_what_is_no_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no model folder"):
        LanguageModel.from_pretrained(tmp_path)
    with pytest.raises(UserError, match="there is no folder"):
        LanguageModel.from_pretrained(tmp_path / "absent")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be loaded as a causal language model") as caught:
        LanguageModel.from_pretrained(tmp_path)
    assert "\n" not in str(caught.value)


def test_bfloat16_only_where_it_is_native() -> None:
    assert choose_dtype("auto", "cpu") == (torch.bfloat16 if native_bfloat16("cpu") else torch.float32)
    assert choose_dtype("bfloat16", "cpu") == torch.bfloat16
