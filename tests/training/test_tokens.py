"""The tokens that are trained are those that decoding reads and writes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tests.build import TRAINING_TEXT, tiny_model, tiny_tokenizer
from toolformer.annotation.merge import KeptCall, merge
from toolformer.calls import ApiCall, insert
from toolformer.data import Document
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.loading import tokens_of
from toolformer.training.tokens import CALL, RESULT, TEXT, AnnotatedText, tokenize, tokenizers_agree

CALC = ApiCall("Calculator", "400 / 1400", "0.29")
QA = ApiCall("QA", 'Who said "so"?', "he did", quoted=True)
CALENDAR = ApiCall("Calendar", "", "Today is Monday, January 30, 2023.")


def sentencepiece_like(metaspace: bool = False) -> PreTrainedTokenizerFast:
    """As Llama's: blanks are written ▁, one is put before a text, and a BOS; by a normalizer (Llama 2) or Metaspace."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=False))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        back = [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        tokenizer.decoder = decoders.Sequence(back)
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    shape = {"vocab_size": 300, "special_tokens": [*special.values()], "max_token_length": 12}
    trainer = trainers.BpeTrainer(**shape, show_progress=False, initial_alphabet=["]"])
    # Without a pre-tokenizer a text is one word: words are given one by one, and "▁[" often enough to be a token.
    words = [word.strip("[]") for text in TRAINING_TEXT for word in text.split()]
    tokenizer.train_from_iterator([*words, *["["] * 5000], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


MODELS = {
    name: LanguageModel(tiny_model(name.partition(",")[0], len(tokenizer)), tokenizer, name)
    for name, tokenizer in (
        ("gpt2", tiny_tokenizer()),
        ("gptj", tiny_tokenizer()),
        ("llama", tiny_tokenizer()),
        ("llama, sentencepiece", sentencepiece_like()),
    )
}


@pytest.mark.parametrize("name", MODELS)
def test_text_that_reads_like_a_special_token_is_plain_text(name: str) -> None:
    model = MODELS[name]
    known = set(model.tokenizer.all_special_ids) - {model.tokenizer.unk_token_id}
    end = model.tokenizer.eos_token_id
    text = f" red {model.tokenizer.eos_token} is{model.tokenizer.eos_token}"
    assert known & set(model.tokenizer(text, add_special_tokens=False).input_ids)  # what it was before
    for ids in (model.encode(text), model.encode_continuation(text), model.encode_text(text).ids):
        assert not known & set(ids)
    assert model.encode_text(text).ids == model.encode(text)
    if model.tokenizer.unk_token is None:  # the other one has no token for the signs
        assert model.decode(model.encode_continuation(text)) == text
    ids = tokenize([AnnotatedText(text, ((4, CALC),))], model.tokenizer).ids.tolist()
    assert ids.count(end) == 1 and ids[-1] == end  # the document's own


@pytest.mark.parametrize("name", ["gpt2", "llama, sentencepiece"])
@given(st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_ordinary_texts_keep_their_tokens(name: str, text: str) -> None:
    model = MODELS[name]
    if any(token in text for token in model.tokenizer.all_special_tokens):
        return
    usual = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    assert model.encode(text) == model.encode_text(text).ids == usual.input_ids
    assert tokens_of(model.tokenizer, text, offsets=True).offset_mapping == usual.offset_mapping


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("Out of 1400 people, 400 passed.", 23), ("The first Monday", 9), ("The first Monday", 0),
        ("Prices rose, and rents", 12), ("One line\nand another", 9), ("The end", 7),
    ],
    ids=["number", "word", "beginning", "punctuation", "newline", "end"],
)  # fmt: skip
def test_training_and_decoding_share_the_start_token(name: str, text: str, position: int) -> None:
    model = MODELS[name]
    documents = tokenize([AnnotatedText(text, ((position, CALC),))], model.tokenizer)
    ids, kinds = documents.ids.tolist(), documents.kinds.tolist()
    start = kinds.index(CALL)
    assert ids[start] == model.start_id
    # It is followed by the tokens that decoding offers for the name, and ends with those that it inserts.
    offered = model.encode_after_start("Calculator")
    assert ids[start + 1 : start + 1 + len(offered)] == offered
    inserted = model.encode_continuation(" 0.29]")
    first = kinds.index(RESULT)
    assert ids[first : first + len(inserted)] == inserted
    # Without the call the text has the tokens that it has alone.
    alone = tokenize([text], model.tokenizer).ids.tolist()
    assert [token for token, kind in zip(ids, kinds, strict=True) if kind == TEXT] == alone


@pytest.mark.parametrize(
    "tokenizer",
    [tiny_tokenizer(), sentencepiece_like(), sentencepiece_like(metaspace=True)],
    ids=["byte level", "prepend", "metaspace"],
)
def test_a_call_inside_a_token_splits_the_text_there(tokenizer: Any) -> None:
    call = ApiCall("Calendar", "", "a")
    for places in [(), *((place,) for place in range(1, 18)), (2, 6, 6, 9)]:
        text = AnnotatedText("The population is", tuple((place, call) for place in places))
        ids = tokenize([text], tokenizer).ids.tolist()[:-1]
        assert tokenizer.decode(ids, skip_special_tokens=True) == insert(text.plain, text.calls)


plain_texts = st.text(alphabet="ab 1.,\n[]", max_size=30)


@settings(max_examples=100, deadline=None)
@given(plain_texts, st.lists(st.integers(0, 30), max_size=4))
def test_a_row_of_c_star_is_trained_on_as_it_is_written(plain: str, places: list[int]) -> None:
    kept = [
        KeptCall(min(place, len(plain)), "any", (CALC, QA, CALENDAR)[n % 3], 1.0)
        for n, place in enumerate(sorted(places))
    ]
    row: Any = merge(Document("d", plain), kept)
    text = AnnotatedText(plain, tuple((call["position"], ApiCall.of_row(call)) for call in row["calls"]))
    assert insert(text.plain, text.calls) == row["text"]
    if plain:
        tokenizer: Any = MODELS["gpt2"].tokenizer
        ids = tokenize([text], tokenizer).ids.tolist()
        assert tokenizer.decode(ids[:-1]) == row["text"]


def test_tokenizers_are_distinguished() -> None:
    assert tokenizers_agree(tiny_tokenizer(), tiny_tokenizer())
    assert not tokenizers_agree(tiny_tokenizer(), sentencepiece_like())
