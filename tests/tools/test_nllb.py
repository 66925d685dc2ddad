"""NLLB: the table of languages, and the translator on a tiny model of its architecture."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

from tests.tools import nllb as tiny
from tests.tools.test_atlas import Hostile
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.lm import loading
from toolformer.tools import nllb
from toolformer.tools.base import Result
from toolformer.tools.nllb import NllbTranslator
from toolformer.tools.nllb_languages import NLLB_LANGUAGES
from toolformer.tools.translation import Translation

LABELS = {code: label for label, code in NLLB_LANGUAGES.items()}
TEXTS = [text for _, text in tiny.DICTIONARY]
LANGUAGES = [LABELS[code] for code, _ in tiny.DICTIONARY]
FLOAT32: Any = {"dtype": "float32"}


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_folder(tmp_path_factory.mktemp("models") / "taught")


# --- the table ---------------------------------------------------------------


def test_every_code_of_the_table_is_one_of_nllbs() -> None:
    assert len(NLLB_LANGUAGES) == 117  # docs/translation.md says so
    assert set(NLLB_LANGUAGES.values()) <= set(FAIRSEQ_LANGUAGE_CODES)
    codes = list(NLLB_LANGUAGES.values())
    assert {label for label, code in NLLB_LANGUAGES.items() if codes.count(code) > 1} == {"sh", "hr"}


# --- translating -------------------------------------------------------------


def test_what_was_learnt_is_translated_in_any_batch_and_thread(taught: Path) -> None:
    expected = list(tiny.DICTIONARY.values())
    assert NllbTranslator(str(taught), **FLOAT32, beam_size=4).translate(TEXTS, LANGUAGES) == expected
    assert NllbTranslator(str(taught), **FLOAT32).translate(TEXTS, LANGUAGES) == expected
    alone = NllbTranslator(str(taught), **FLOAT32, batch_tokens=1)
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda _: alone.translate(TEXTS[::-1], LANGUAGES[::-1]), range(4))
        assert list(answers) == [expected[::-1]] * 4


def test_reasons(taught: Path) -> None:
    translator = NllbTranslator(str(taught), **FLOAT32, max_input_tokens=40, max_new_tokens=2)
    texts = ["pan", "lingua latina", "pan " * 40, "guten Morgen", "pan"]
    answers = translator.translate(texts, ["es", "la", "es", "de", "und"])
    reasons = ["unknown language", "text too long", "translation too long", "unknown language"]
    assert answers == ["bread", *(Result(reason=reason) for reason in reasons)]
    assert translator.translate([], []) == []


class Spanish:
    def identify(self, text: str) -> tuple[str, float]:
        return "es", 1.0


def test_hostile_texts_cost_nobody_a_result(taught: Path) -> None:
    identifier: Any = Spanish()
    tool = Translation(NllbTranslator(str(taught), **FLOAT32), identifier)
    texts = [
        "p\ud800an", "\x00", "a" * 10**6, "\x00 pan", "\ufdfa" * 500, "</s> eng_Latn <pad>", "ﷺ😀\u202e\x1b[31m", "pan",
    ]  # fmt: skip
    results = tool.run(texts, [Document("d", "")] * len(texts))
    assert [one.reason for one in results[1:3]] == ["nothing to translate", "text too long"]
    assert [results[3].text, results[7].text] == ["bread", "bread"]
    assert all(len(one.text or "") < 2000 and "\n" not in (one.text or "") for one in results)
    _, tokenizer = nllb.load(str(taught), "float32", "auto")
    ids = nllb.encode(tokenizer, "pan </s> pol_Latn <pad>", "spa_Latn")
    assert not set(ids[1:-1]) & set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}, "text is text"


# --- what is refused ---------------------------------------------------------


def test_other_models_are_refused(taught: Path, tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="beam_size is 0; it must be at least 1"):
        NllbTranslator(beam_size=0)
    with pytest.raises(UserError, match="is no NLLB model .its architecture is gpt2"):
        NllbTranslator(str(tiny_folder)).check()
    with pytest.raises(UserError, match="there is no folder ./absent"):
        NllbTranslator("./absent").translate(["pan"], ["es"])
    # As Transformers makes one from a SentencePiece file alone.
    shutil.copytree(taught, tmp_path / "codeless")
    learnt = tiny.tiny_tokenizer()
    codeless = type(learnt)(vocab=learnt._vocab, merges=learnt._merges, extra_special_tokens=[])
    codeless.save_pretrained(tmp_path / "codeless")
    with pytest.raises(UserError, match="no language codes such as eng_Latn"):
        NllbTranslator(str(tmp_path / "codeless")).translate(["pan"], ["es"])


def test_no_code_of_a_model_is_run(taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of its pickled weights, as the published models have them, nor of its tokenizer."""
    folder = tmp_path / "pickled"
    shutil.copytree(taught, folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    asked: list[Any] = []
    load = loading.AutoTokenizer.from_pretrained

    def recorded(*args: Any, **options: Any) -> Any:
        asked.append(options["trust_remote_code"])
        return load(*args, **options)

    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", recorded)
    assert NllbTranslator(str(folder), **FLOAT32).translate(["pan"], ["es"]) == ["bread"]
    assert asked == [False], "one function loads tokenizers"
    nllb.load.cache_clear()
    torch.save({**weights, "opened": Hostile(tmp_path / "owned")}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be loaded") as error:
        NllbTranslator(str(folder), **FLOAT32).translate(["pan"], ["es"])
    assert "\n" not in str(error.value) and not (tmp_path / "owned").exists()
