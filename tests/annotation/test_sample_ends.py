"""A sample ends with the token that completes its call, whatever pieces a tokenizer has: held to the reference."""

from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from tests import reference
from tests.annotation.build import QA, whole_windows
from tests.build import Recorder, tiny_model, tiny_tokenizer
from toolformer.annotation.propose import propose
from toolformer.data import Document
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result
from toolformer.tools.prompt_sets import UNPROMPTED

TEXT = "a x is a QA x."
WORDS = ["a", "x", "is", "A", "Q", "QA", "(", ")", '"', "-", ">", "->", ".", "["]


def sentence_pieces() -> PreTrainedTokenizerFast:
    """An end is written as its byte, also among the bytes of other characters."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *'▁asixAQ()"->.[', "▁[", '")', "▁->"]
    merges = [("▁", "["), ('"', ")")]
    vocabulary = {piece: n for n, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


TOKENIZERS = {"bytes": tiny_tokenizer, "sentences": sentence_pieces}
LIKELY = ("]", "<0x5D>", "<0xC3>", "<0xA9>", "ł", ")", '"', "->")


@pytest.fixture(scope="module", params=TOKENIZERS)
def writing_model(request: pytest.FixtureRequest) -> LanguageModel:
    """A random model that writes mostly ends of calls, and parts of characters."""
    tokenizer = TOKENIZERS[request.param]()
    model = tiny_model("gptj", len(tokenizer))
    likely = [n for piece, n in tokenizer.get_vocab().items() if any(sign in piece for sign in LIKELY)]
    with torch.no_grad():
        model.lm_head.bias[likely] += 4.0
    return LanguageModel(model, tokenizer, request.param)


@pytest.mark.parametrize("prompt", [QA.prompt, UNPROMPTED])
def test_samples_end_as_the_references(writing_model: LanguageModel, prompt: object) -> None:
    settings = replace(QA, prompt=prompt, force_name=True, samples=8, max_positions=2)
    document = Document("d", TEXT)
    (proposal,) = propose(writing_model, settings, whole_windows(writing_model, [document]), seed=5)
    tool = Recorder(lambda text: Result(reason="none"), "QA")
    expected = reference.annotate(writing_model, settings, tool, document, seed=5)
    texts = [candidate.text for candidate in proposal.candidates]
    assert texts == [sample.text for sample in expected]
    ended = [text.endswith("]") for text in texts]
    assert any(ended) and len(set(texts)) > 8
