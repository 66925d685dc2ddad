"""Running a model: likelihoods and greedy texts are what plain calls of Transformers give.

Likelihoods of whole texts are held to lm-eval's own in `tests/decoding/test_parity.py`.
"""

import pytest
import torch

from tests.reference import logits, stock
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel


def test_log_likelihood_of_a_continuation(language_model: LanguageModel) -> None:
    born = "Joe Biden was born in"
    pairs = [(born, " Scranton, Pennsylvania."), (f"{born} ", "Scranton"), ("", "red")]
    scores = language_model.log_likelihoods(pairs)
    for (context, continuation), (total, greedy) in zip(pairs, scores, strict=True):
        head = language_model.encode(context.rstrip()) if context else language_model.start_ids()
        tail = language_model.encode(context + continuation)[len(head) if context else 0 :]
        log_probs = logits(language_model, head + tail).log_softmax(-1)[len(head) - 1 : -1]
        expected = log_probs.gather(1, torch.tensor(tail)[:, None]).sum()
        assert total == pytest.approx(float(expected), abs=1e-3)
        assert greedy == (log_probs.argmax(-1).tolist() == tail)


def test_without_calls_the_start_token_has_probability_0(language_model: LanguageModel) -> None:
    """Paper, footnote 5: against the logits of all tokens, the start token's set to minus infinity elsewhere."""
    text = "Joe Biden [the president] was born in Scranton."
    ids = language_model.encode(text)
    assert ids.count(language_model.start_id) == 1
    rows = logits(language_model, [*language_model.start_ids(), *ids])[:-1].clone()
    rows[torch.tensor(ids) != language_model.start_id, language_model.start_id] = -torch.inf
    expected = rows.log_softmax(-1).gather(1, torch.tensor(ids)[:, None]).sum()
    ((total, count),) = language_model.rolling_log_likelihoods([text], calls=False)
    assert (total, count) == (pytest.approx(float(expected), abs=1e-3), len(ids))
    ((with_calls, _),) = language_model.rolling_log_likelihoods([text])
    assert with_calls < total - 1e-3


def test_greedy_texts_are_those_of_stock_generate(language_model: LanguageModel) -> None:
    prompts = ["The number in the next term is", "The number in the next term is 18 + 12", "red"]
    texts = language_model.generate(prompts, max_new_tokens=8)
    assert texts == [language_model.decode(stock(language_model, prompt, 8)) for prompt in prompts]
    stop = texts[2][3]
    assert language_model.generate(["red"], 8, stop=[stop]) == [texts[2][: texts[2].index(stop)]]


def test_a_prompt_that_is_cut_keeps_its_bos(tiny_gpt2: LanguageModel) -> None:
    model, read = LanguageModel(tiny_gpt2.model, tiny_gpt2.tokenizer), []
    model.bos_ids = [7]
    hook = model.model.register_forward_pre_hook(
        lambda _, __, named: read.append(named["input_ids"].tolist()), with_kwargs=True
    )
    long = "red " * 600 + "number"
    model.generate([long], max_new_tokens=4)
    hook.remove()
    assert read[0] == [[7, *model.encode(long)[-(model.context_length - 5) :]]]


def test_new_tokens_that_leave_no_room_for_a_prompt_are_refused(tiny_gpt2: LanguageModel) -> None:
    with pytest.raises(UserError, match="512 new tokens leave no room for a prompt"):
        tiny_gpt2.generate(["red"], max_new_tokens=tiny_gpt2.context_length)


def test_no_pass_has_more_tokens_than_a_batch(tiny_gpt2: LanguageModel) -> None:
    model = LanguageModel(tiny_gpt2.model, tiny_gpt2.tokenizer)
    model.batch_tokens, sizes = 64, []
    hook = model.model.register_forward_pre_hook(
        lambda _, __, named: sizes.append(named["input_ids"].numel()), with_kwargs=True
    )
    model.generate([f"red {'number ' * 6}{n}" for n in range(30)], max_new_tokens=2)
    hook.remove()
    assert max(sizes) <= 64 and len(sizes) > 2


def test_positions_are_between_characters_and_before_blanks(tiny_gpt2: LanguageModel) -> None:
    text = "The 北京 is<|endoftext|>\n658,893 🏳️‍🌈 é<| x<|endoftext|>"
    encoding = tiny_gpt2.encode_text(text)
    for n, position in enumerate(encoding.positions):
        if position is not None:
            assert tiny_gpt2.tokenizer.decode(encoding.ids[:n]) == text[:position]
    assert encoding.positions[0] == 0 and None in encoding.positions
    assert text[encoding.positions[tiny_gpt2.encode("The").__len__()] or 0] == " "
