"""NLLB: the table of languages, and both backends on a tiny model of its architecture."""

from __future__ import annotations

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

from tests.tools import nllb as tiny
from toolformer import assets
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.language_id import LanguageIdentifier
from toolformer.tools import nllb, nllb_ctranslate2
from toolformer.tools.base import Result
from toolformer.tools.nllb import NllbTranslator
from toolformer.tools.nllb_languages import ENGLISH, NLLB_LANGUAGES
from toolformer.tools.translation import Translation

LABELS = {code: label for label, code in NLLB_LANGUAGES.items()}
TEXTS = [text for _, text in tiny.DICTIONARY]
LANGUAGES = [LABELS[code] for code, _ in tiny.DICTIONARY]
FLOAT32: dict[str, dict[str, Any]] = {
    "transformers": {"backend": "transformers", "dtype": "float32"},
    "ctranslate2": {"backend": "ctranslate2", "quantization": "float32"},
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Conversions go where the tests may write."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv(assets.CACHE_VARIABLE, str(folder))
        yield folder
    nllb.load.cache_clear()


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_folder(tmp_path_factory.mktemp("models") / "taught")


# --- the table ---------------------------------------------------------------


def test_every_code_of_the_table_is_one_of_nllbs() -> None:
    assert len(set(FAIRSEQ_LANGUAGE_CODES)) == 202
    assert len(NLLB_LANGUAGES) == 117  # docs/translation.md says so
    assert set(NLLB_LANGUAGES.values()) <= set(FAIRSEQ_LANGUAGE_CODES)


def test_no_language_but_serbo_croatian_shares_its_code_with_another() -> None:
    shared = {
        label for label, code in NLLB_LANGUAGES.items() if list(NLLB_LANGUAGES.values()).count(code) > 1
    }
    assert shared == {"sh", "hr"}


@pytest.mark.real
def test_the_table_has_every_language_that_both_know() -> None:
    # Outside the fixture's cache, where the identifier would have to be fetched again.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(assets.CACHE_VARIABLE)
        identifier = LanguageIdentifier()
    known = {label.removeprefix("__label__") for _, label in identifier._predict("x\n", -1, -1.0, "strict")}
    assert len(known) == 176
    assert set(NLLB_LANGUAGES) <= known
    # What is left out is no language of NLLB's by its ISO 639-3 code; fastText's "als" is Alemannic (gsw).
    three = {
        "als": "gsw", "an": "arg", "av": "ava", "br": "bre", "ce": "che", "co": "cos", "cv": "chv", "dv": "div",
        "fy": "fry", "gv": "glv", "ia": "ina", "ie": "ile", "io": "ido", "kv": "kom", "kw": "cor", "la": "lat",
        "os": "oss", "rm": "roh", "vo": "vol", "wa": "wln",
    }  # fmt: skip
    left = {three.get(label, label) for label in known - set(NLLB_LANGUAGES)}
    assert {len(code) for code in left} == {3}
    assert not left & {code[:3] for code in FAIRSEQ_LANGUAGE_CODES}


# --- both backends -----------------------------------------------------------


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("backend", FLOAT32)
def test_what_was_learnt_is_translated(taught: Path, backend: str, beam_size: int) -> None:
    translator = NllbTranslator(str(taught), **FLOAT32[backend], beam_size=beam_size)
    assert translator.translate(TEXTS, LANGUAGES) == list(tiny.DICTIONARY.values())


def test_int8_is_the_default_and_runs(taught: Path, cache: Path) -> None:
    answers = NllbTranslator(str(taught)).translate(TEXTS, LANGUAGES)
    # Rounding to 8 bits costs a model of this size more than one of NLLB's.
    assert sum(one == english for one, english in zip(answers, tiny.DICTIONARY.values(), strict=True)) >= 5
    (folder,) = (cache / "ctranslate2").glob("taught-int8-*")
    generator = nllb.load(str(taught), "auto", "int8", "auto", "auto").generator
    assert isinstance(generator, nllb_ctranslate2.CTranslate2Model)
    assert generator.model.compute_type.startswith("int8")
    assert (folder / "model.bin").stat().st_size < (taught / "model.safetensors").stat().st_size / 2


def test_without_ctranslate2_transformers_is_the_default(
    taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nllb_ctranslate2, "installed", lambda: False)
    loaded = nllb.load(str(taught), "auto", "float16", "float32", "cpu")  # words that no other test has
    assert isinstance(loaded.generator, nllb.TransformersModel)
    with pytest.raises(UserError, match="pip install ctranslate2"):
        NllbTranslator(str(taught), backend="ctranslate2")


@pytest.mark.parametrize("spread", [0.3, 0.5])
def test_ctranslate2_writes_the_tokens_that_transformers_writes(tmp_path: Path, spread: float) -> None:
    """Random weights, greedy and beams; that texts end, and how a beam search ends, is in the taught model's test."""
    folder = tiny.tiny_folder(tmp_path / "random", spread)
    chance = random.Random(0)
    words = " ".join([*TEXTS, *tiny.DICTIONARY.values()]).split()
    one, two = (
        nllb.load(str(folder), backend, "float32", "float32", "cpu")
        for backend in ("transformers", "ctranslate2")
    )
    sources = [
        nllb.encode(one.tokenizer, " ".join(chance.choices(words, k=chance.randint(1, 12))), code)
        for code, _ in tiny.DICTIONARY
        for _ in range(3)
    ]
    target = one.tokenizer.convert_tokens_to_ids(ENGLISH)
    for beam_size in (1, 4):
        written = one.generator.generate(sources, target, beam_size, 20)
        assert len({tuple(ids) for ids in written}) > 5
        assert two.generator.generate(sources, target, beam_size, 20) == written


@pytest.mark.parametrize("backend", FLOAT32)
def test_batches_and_threads_change_nothing(taught: Path, backend: str) -> None:
    small = NllbTranslator(str(taught), **FLOAT32[backend], batch_tokens=1)
    assert [len(batch) for batch in small._batches({n: [0] * n for n in range(1, 9)})] == [1] * 8
    expected = list(tiny.DICTIONARY.values())
    assert small.translate(TEXTS, LANGUAGES) == expected
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda _: small.translate(TEXTS[::-1], LANGUAGES[::-1]), range(4))
        assert list(answers) == [expected[::-1]] * 4


def test_a_batch_stays_within_its_tokens() -> None:
    translator = NllbTranslator(max_new_tokens=16, batch_tokens=400, beam_size=2)
    lengths = [random.Random(n).randint(1, 90) for n in range(200)]
    batches = list(translator._batches({n: [0] * length for n, length in enumerate(lengths)}))
    assert sorted(n for batch in batches for n in batch) == list(range(200))
    assert all(len(batch) * 2 * (max(lengths[n] for n in batch) + 16) <= 400 for batch in batches)
    assert len(batches) < 100


# --- what has no result ------------------------------------------------------


@pytest.mark.parametrize("backend", FLOAT32)
def test_reasons(taught: Path, backend: str) -> None:
    translator = NllbTranslator(str(taught), **FLOAT32[backend], max_input_tokens=40, max_new_tokens=2)
    texts = ["pan", "lingua latina", "pan " * 40, "guten Morgen", "pan"]
    answers = translator.translate(texts, ["es", "la", "es", "de", "und"])
    assert answers == [
        "bread",
        Result(reason="unknown language"),
        Result(reason="text too long"),
        Result(reason="translation too long"),
        Result(reason="unknown language"),
    ]
    assert translator.translate([], []) == []


class Spanish:
    def identify(self, text: str) -> tuple[str, float]:
        return "es", 1.0


@pytest.mark.parametrize("backend", FLOAT32)
def test_hostile_texts_cost_nobody_a_result(taught: Path, backend: str) -> None:
    identifier: Any = Spanish()
    tool = Translation(NllbTranslator(str(taught), **FLOAT32[backend]), identifier)
    texts = [
        "p\ud800an", "\x00", "a" * 10**6, "\x00 pan", "\ufdfa" * 500, "</s> eng_Latn <pad>", "ﷺ😀\u202e\x1b[31m", "pan",
    ]  # fmt: skip
    results = tool.run(texts, [Document("d", "")] * len(texts))
    assert [one.reason for one in results[1:3]] == ["nothing to translate", "text too long"]
    assert [results[3].text, results[7].text] == ["bread", "bread"]
    assert all(len(one.text or "") < 2000 and "\n" not in (one.text or "") for one in results)


def test_special_tokens_in_a_text_are_text(taught: Path) -> None:
    tokenizer = nllb.load(str(taught), "transformers", "float32", "float32", "cpu").tokenizer
    ids = nllb.encode(tokenizer, "pan </s> pol_Latn <pad>", "spa_Latn")
    assert [n for n, one in enumerate(ids) if one in tokenizer.all_special_ids and one != 3] == [
        0,
        len(ids) - 1,
    ]


# --- bad input ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "ct2"}, "backend is 'ct2'; it must be one of auto, ctranslate2, transformers"),
        ({"quantization": "int4"}, "quantization is 'int4'"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"beam_size": 0}, "beam_size is 0; it must be at least 1"),
        ({"batch_tokens": -1}, "batch_tokens is -1"),
    ],
)
def test_impossible_values_are_refused_before_a_model_is_loaded(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        NllbTranslator(**arguments)


def test_another_architecture_is_refused(tiny_folder: Path) -> None:
    with pytest.raises(UserError, match="cannot be loaded as an NLLB model: its architecture is gpt2"):
        NllbTranslator(str(tiny_folder)).translate(["pan"], ["es"])
    with pytest.raises(UserError, match="there is no folder ./absent"):
        NllbTranslator("./absent").translate(["pan"], ["es"])


def test_a_tokenizer_without_language_codes_is_refused(taught: Path, tmp_path: Path) -> None:
    """As Transformers makes one from a SentencePiece file alone."""
    folder = tmp_path / "codeless"
    folder.mkdir()
    for file in ("config.json", "generation_config.json", "model.safetensors"):
        (folder / file).write_bytes((taught / file).read_bytes())
    learnt = tiny.tiny_tokenizer()
    codeless = type(learnt)(vocab=learnt._vocab, merges=learnt._merges, extra_special_tokens=[])
    codeless.save_pretrained(folder)
    with pytest.raises(UserError, match="no language codes such as eng_Latn"):
        NllbTranslator(str(folder)).translate(["pan"], ["es"])


def test_a_device_or_type_that_ctranslate2_lacks_is_refused(taught: Path) -> None:
    with pytest.raises(UserError, match="cannot use mps; choose backend=transformers"):
        NllbTranslator(str(taught), backend="ctranslate2", device="mps").translate(["pan"], ["es"])
    with pytest.raises(UserError, match="cannot run float16 on cpu"):
        NllbTranslator(str(taught), backend="ctranslate2", quantization="float16", device="cpu").translate(
            ["pan"], ["es"]
        )


# --- pickled weights ---------------------------------------------------------


class Opens:
    """What a hostile pickle does when it is believed: it makes a file."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return open, (str(self.place), "w")


@pytest.mark.parametrize("backend", FLOAT32)
def test_pickled_weights_are_read_and_no_code_of_theirs_is_run(
    taught: Path, tmp_path: Path, backend: str
) -> None:
    """The published models are pickled."""
    folder = tmp_path / "pickled"
    shutil.copytree(taught, folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    # What is shared is stored once in safetensors, and in a pickle under all its names.
    torch.save(weights, folder / "pytorch_model.bin")
    text, language = TEXTS[:1], LANGUAGES[:1]
    near = NllbTranslator(str(taught), **FLOAT32[backend]).translate(text, language)
    assert NllbTranslator(str(folder), **FLOAT32[backend]).translate(text, language) == near
    nllb.load.cache_clear()
    torch.save({**weights, "opened": Opens(tmp_path / "opened")}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be (loaded|converted)") as error:
        NllbTranslator(str(folder), **FLOAT32[backend]).translate(text, language)
    assert "\n" not in str(error.value) and not (tmp_path / "opened").exists()
