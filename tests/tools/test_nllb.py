"""NLLB: the table of languages, and the translator on a tiny model of its architecture."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.nn.utils.rnn import pad_sequence
from transformers import M2M100Config, M2M100ForConditionalGeneration, NllbTokenizer
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

from tests.tools.build import Hostile
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.tools import nllb
from toolformer.tools.base import Result
from toolformer.tools.nllb import NllbTranslator
from toolformer.tools.nllb_languages import ENGLISH, NLLB_LANGUAGES
from toolformer.tools.translation import Translation

DICTIONARY = {
    ("spa_Latn", "pan"): "bread",
    ("pol_Latn", "pan"): "mister",
    ("deu_Latn", "guten Morgen"): "good morning",
    ("spa_Latn", "buenas noches, amigo"): "good night, friend",
    ("fra_Latn", "la tortue"): "the turtle",
    ("zho_Hans", "喝茶"): "to drink tea",
}
"""(language, text) -> English. Of one text in two languages only the language's code tells which is meant."""


def tiny_tokenizer() -> Any:
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    texts = [*(text for _, text in DICTIONARY), *DICTIONARY.values()]
    trainer = trainers.BpeTrainer(vocab_size=150, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    learnt = json.loads(tokenizer.to_str())["model"]
    return NllbTokenizer(vocab=learnt["vocab"], merges=[tuple(pair) for pair in learnt["merges"]])


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt the dictionary, encoder `<language> text </s>`, decoder `</s> eng_Latn English </s>`."""
    folder, tokenizer = tmp_path_factory.mktemp("models") / "taught", tiny_tokenizer()
    torch.manual_seed(0)
    config = M2M100Config(
        vocab_size=len(tokenizer) + 2,  # NLLB's vocabulary is larger than its tokenizer's
        max_position_embeddings=128, d_model=32, encoder_layers=1, decoder_layers=1,
        encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_attention_heads=4, decoder_attention_heads=4,
        dropout=0.0, attention_dropout=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0,
        bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
    )  # fmt: skip
    model = M2M100ForConditionalGeneration(config).eval()
    target = tokenizer.convert_tokens_to_ids(ENGLISH)
    sources = [nllb.encode(tokenizer, text, code) for code, text in DICTIONARY]
    written = [
        [target, *tokenizer(text, add_special_tokens=False).input_ids, 2] for text in DICTIONARY.values()
    ]
    ids, labels, heads = (
        pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=filling)
        for rows, filling in ((sources, 1), (written, -100), ([[2, *row[:-1]] for row in written], 1))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        mask = (ids != 1).long()
        model(input_ids=ids, attention_mask=mask, decoder_input_ids=heads, labels=labels).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


LABELS = {code: label for label, code in NLLB_LANGUAGES.items()}
TEXTS = [text for _, text in DICTIONARY]
LANGUAGES = [LABELS[code] for code, _ in DICTIONARY]
FLOAT32: Any = {"dtype": "float32"}


def test_every_code_of_the_table_is_one_of_nllbs() -> None:
    assert len(NLLB_LANGUAGES) == 117  # docs/bundled-tools.md says so
    assert set(NLLB_LANGUAGES.values()) <= set(FAIRSEQ_LANGUAGE_CODES)
    codes = list(NLLB_LANGUAGES.values())
    assert {label for label, code in NLLB_LANGUAGES.items() if codes.count(code) > 1} == {"sh", "hr"}


def test_what_was_learnt_is_translated_in_any_batch_and_thread(taught: Path) -> None:
    expected = list(DICTIONARY.values())
    for beams in (1, 4):
        translator = NllbTranslator(str(taught), **FLOAT32, beam_size=beams)
        assert translator.translate(TEXTS, LANGUAGES) == expected
    alone = NllbTranslator(str(taught), **FLOAT32, batch_tokens=1)
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda _: alone.translate(TEXTS[::-1], LANGUAGES[::-1]), range(4))
        assert list(answers) == [expected[::-1]] * 4
    short = NllbTranslator(str(taught), **FLOAT32, max_input_tokens=40, max_new_tokens=2)
    texts = ["pan", "lingua latina", "pan " * 40, "guten Morgen", "pan"]
    reasons = ["unknown language", "text too long", "translation too long", "unknown language"]
    answers = short.translate(texts, ["es", "la", "es", "de", "und"])
    assert answers == ["bread", *(Result(reason=reason) for reason in reasons)]


def test_hostile_texts_cost_nobody_a_result(taught: Path) -> None:
    identifier: Any = SimpleNamespace(identify=lambda text: ("es", 1.0))
    tool = Translation(NllbTranslator(str(taught), **FLOAT32), identifier)
    texts = [
        "p\ud800an", "\x00", "a" * 10**6, "\x00 pan", "\ufdfa" * 500, "</s> eng_Latn <pad>", "ﷺ😀\u202e\x1b[31m", "pan",
    ]  # fmt: skip
    results = tool.run(texts, [Document("d", "")] * len(texts))
    assert [one.reason for one in results[1:3]] == ["nothing to translate", "text too long"]
    assert [results[3].text, results[7].text] == ["bread", "bread"]
    assert all(len(one.text or "") < 2000 and "\n" not in (one.text or "") for one in results)
    _, tokenizer = nllb.load_nllb(str(taught), "float32", "auto")
    ids = nllb.encode(tokenizer, "pan </s> pol_Latn <pad>", "spa_Latn")
    assert not set(ids[1:-1]) & set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}, "text is text"


def test_other_models_are_refused(taught: Path, tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not an NLLB model .its architecture is gpt2"):
        NllbTranslator(str(tiny_folder)).check()
    with pytest.raises(UserError, match="there is no folder ./absent"):
        NllbTranslator("./absent").translate(["pan"], ["es"])
    # As Transformers makes one from a SentencePiece file alone.
    shutil.copytree(taught, tmp_path / "codeless")
    learnt = tiny_tokenizer()
    codeless = type(learnt)(vocab=learnt._vocab, merges=learnt._merges, extra_special_tokens=[])
    codeless.save_pretrained(tmp_path / "codeless")
    with pytest.raises(UserError, match="no language codes such as eng_Latn"):
        NllbTranslator(str(tmp_path / "codeless")).translate(["pan"], ["es"])


def test_no_code_of_pickled_weights_is_run(taught: Path, tmp_path: Path) -> None:
    """As the published models have them; `tests/lm` holds the same of a tokenizer."""
    folder = tmp_path / "pickled"
    shutil.copytree(taught, folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    assert NllbTranslator(str(folder), **FLOAT32).translate(["pan"], ["es"]) == ["bread"]
    nllb.load_nllb.cache_clear()
    torch.save({**weights, "opened": Hostile(tmp_path / "owned")}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be loaded") as error:
        NllbTranslator(str(folder), **FLOAT32).translate(["pan"], ["es"])
    assert "\n" not in str(error.value) and not (tmp_path / "owned").exists()
