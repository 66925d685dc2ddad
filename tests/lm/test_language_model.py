"""The language model's fast paths against plain calls of the Transformers model."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.textbook import logits, stock
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.loading import choose_dtype, load_tokenizer, native_bfloat16

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
    long = "The population is 658,893 people. " * 70
    ((total, count),) = language_model.rolling_log_likelihoods([long])  # in windows, each token once
    assert count == len(language_model.own_prefix + language_model.encode(long)) > 512 and total < 0


def test_log_likelihood_of_a_continuation(language_model: LanguageModel) -> None:
    born = "Joe Biden was born in"
    pairs = [(born, " Scranton, Pennsylvania."), (f"{born} ", "Scranton"), ("", "red")]
    scores = language_model.log_likelihoods(pairs)
    for (context, continuation), (total, greedy) in zip(pairs, scores, strict=True):
        head = language_model.encode(context.rstrip()) if context else language_model.document_start()
        tail = language_model.encode(context + continuation)[len(head) if context else 0 :]
        log_probs = logits(language_model, head + tail).log_softmax(-1)[len(head) - 1 : -1]
        expected = log_probs.gather(1, torch.tensor(tail)[:, None]).sum()
        assert total == pytest.approx(float(expected), abs=1e-3)
        assert greedy == (log_probs.argmax(-1).tolist() == tail)


def test_greedy_texts_are_those_of_stock_generate(language_model: LanguageModel) -> None:
    prompts = ["The number in the next term is", "The number in the next term is 18 + 12", "red"]
    texts = language_model.generate(prompts, max_new_tokens=8)
    assert texts == [language_model.decode(stock(language_model, prompt, 8)) for prompt in prompts]
    stop = texts[2][3]
    assert language_model.generate(["red"], 8, stop=[stop]) == [texts[2][: texts[2].index(stop)]]


def test_positions_are_between_characters_and_before_blanks(tiny_gpt2: LanguageModel) -> None:
    text = "The 北京 is<|endoftext|>\n658,893 🏳️‍🌈 é<| x<|endoftext|>"
    encoding = tiny_gpt2.encode_text(text)
    for n, position in enumerate(encoding.positions):
        if position is not None:
            assert tiny_gpt2.tokenizer.decode(encoding.ids[:n]) == text[:position]
    assert encoding.positions[0] == 0
    assert any(position is None for position in encoding.positions)
    assert text[encoding.positions[tiny_gpt2.encode("The").__len__()] or 0] == " "


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def break_the_header(file: Path) -> None:
    file.write_bytes(b"\xff" * 100)


def change_a_shape(file: Path) -> None:
    weights = load_file(file)
    name = next(name for name in weights if name.endswith("wte.weight"))
    save_file(weights | {name: weights[name][:, :-1].contiguous()}, file, {"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        *((damage, "model.safetensors") for damage in (truncate, break_the_header, change_a_shape)),
        (truncate, "tokenizer.json"),
    ],
)
def test_damaged_files_are_one_line(
    damage: Callable[[Path], None], file: str, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    assert LanguageModel.from_pretrained(folder).context_length == 1024
    damage(folder / file)
    with pytest.raises(UserError, match=f"^model: .*{folder} cannot be loaded") as caught:
        LanguageModel.from_pretrained(folder)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_brings_no_code_of_its_own(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with contextlib.suppress(UserError):
        load_tokenizer(str(folder))
    assert not (tmp_path / "ran").exists()


def test_what_is_no_model_or_device_is_one_line(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no model folder"):
        LanguageModel.from_pretrained(tmp_path)
    with pytest.raises(UserError, match="there is no folder"):
        LanguageModel.from_pretrained(tmp_path / "absent")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be loaded as a causal language model") as caught:
        LanguageModel.from_pretrained(tmp_path)
    assert "\n" not in str(caught.value)
    for device in () if torch.cuda.is_available() else ("cuda", "cuda:1"):
        with pytest.raises(UserError, match=f"^lm.device is {device}, and PyTorch finds no CUDA device here"):
            LanguageModel.from_pretrained(tiny_folder, device=device)
    # bfloat16 only where it is native
    assert choose_dtype("auto", "cpu") == (torch.bfloat16 if native_bfloat16("cpu") else torch.float32)
    assert choose_dtype("bfloat16", "cpu") == torch.bfloat16
