"""Encoder-decoder models behind a tool's text generator: the same text as one prompt alone, by stock `generate`."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import T5ForConditionalGeneration

from tests.t5 import t5_folder, t5_tokenizer, textbook
from toolformer.errors import UserError
from toolformer.lm import text_generator
from toolformer.lm.seq2seq import Seq2SeqModel, is_encoder_decoder
from toolformer.lm.text_generator import ModelGenerator
from toolformer.tools.base import TextGenerator

PROMPTS = ["Who discovered radium?", "a", "The population is 658,893 people. " * 6, "the compass shows north"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return t5_folder(tmp_path_factory.mktemp("models") / "tiny-t5")


def test_it_writes_what_the_textbook_writes_in_any_batch(folder: Path) -> None:
    generate = ModelGenerator(str(folder), "float32", "cpu")
    assert isinstance(generate, TextGenerator)
    model = T5ForConditionalGeneration.from_pretrained(folder).eval()
    expected = [textbook(model, t5_tokenizer(), [prompt], 8) for prompt in PROMPTS]
    assert generate(PROMPTS, 8) == expected
    assert [generate([prompt], 8)[0] for prompt in PROMPTS] == expected
    assert len(set(expected)) == len(PROMPTS), "a model that heeds its prompt"
    assert generate([], 8) == []
    stop = expected[0][2:4]
    assert generate(PROMPTS[:1], 8, ("never", stop)) == [expected[0][: expected[0].find(stop)]]

    model = Seq2SeqModel(str(folder), "float32", "cpu")  # a long prompt loses its beginning
    tail = "x" + " north" * 600
    kept = model.tokenizer(tail, truncation=True, max_length=model.longest).input_ids
    assert len(kept) == model.longest == 512
    assert kept[-1] == 1 and kept[0] != model.tokenizer("x").input_ids[0]
    assert model.generate(["y" + tail[1:]], 4) == model.generate([tail], 4)


def test_the_kind_of_a_model_is_told_by_its_configuration(
    folder: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    """Only safetensors are loaded."""
    assert is_encoder_decoder(str(folder))
    assert not is_encoder_decoder(str(tiny_folder)) and not is_encoder_decoder("smollm2")
    text_generator.load.cache_clear()
    assert len(ModelGenerator(str(tiny_folder), "float32", "cpu")(["a", "b"], 3)) == 2
    assert text_generator.load.cache_info().currsize == 1
    with pytest.raises(UserError, match="no config.json"):
        is_encoder_decoder(str(tmp_path))
    shutil.copytree(folder, tmp_path / "pickled")
    torch.save(load_file(folder / "model.safetensors"), tmp_path / "pickled" / "pytorch_model.bin")
    (tmp_path / "pickled" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="cannot be loaded"):
        ModelGenerator(str(tmp_path / "pickled"))(["a"], 2)
