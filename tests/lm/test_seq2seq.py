"""Encoder-decoder models give what plain calls of Transformers give, and a tool's model is loaded by its kind."""

from pathlib import Path

import pytest
from transformers import T5ForConditionalGeneration

from tests.build import Log, full_gpu, t5_tokenizer, tiny_t5
from tests.reference import fused_text
from toolformer.errors import UserError
from toolformer.lm import text_generator
from toolformer.lm.seq2seq import Seq2SeqModel, is_encoder_decoder
from toolformer.lm.text_generator import ModelGenerator
from toolformer.tools.base import TextGenerator

PROMPTS = ["Who discovered radium?", "a", "The population is 658,893 people. " * 6, "the compass shows north"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny T5 saved as a model folder."""
    path, tokenizer = tmp_path_factory.mktemp("models") / "tiny-t5", t5_tokenizer()
    tiny_t5(len(tokenizer)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_an_encoder_decoder_is_the_reference_in_any_batch(folder: Path) -> None:
    generate = ModelGenerator(str(folder), "float32", "cpu")
    assert isinstance(generate, TextGenerator)
    model = T5ForConditionalGeneration.from_pretrained(folder).eval()
    expected = [fused_text(model, t5_tokenizer(), [prompt], 8) for prompt in PROMPTS]
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


def test_the_kind_of_a_model_is_read_from_its_configuration(
    folder: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    assert is_encoder_decoder(str(folder))
    assert not is_encoder_decoder(str(tiny_folder)) and not is_encoder_decoder("smollm2")
    text_generator.load_model.cache_clear()
    assert len(ModelGenerator(str(tiny_folder), "float32", "cpu")(["a", "b"], 3)) == 2
    assert text_generator.load_model.cache_info().currsize == 1
    with pytest.raises(UserError, match="no config.json"):
        is_encoder_decoder(str(tmp_path))


@pytest.mark.parametrize("kind", ["folder", "tiny_folder"])
def test_a_full_gpu_halves_the_passes_of_a_tools_own_model(
    kind: str, request: pytest.FixtureRequest, caplog: Log
) -> None:
    """Also where the model that asks is the same one, whose passes stay as they are."""
    path = str(request.getfixturevalue(kind))
    generate = ModelGenerator(path, "float32", "cpu", batch_tokens=64)
    loaded = (text_generator.load_seq2seq if kind == "folder" else text_generator.load_model)(
        path, "float32", "cpu"
    )
    expected = generate(PROMPTS, 3)
    before = getattr(loaded, "batch_tokens", None)
    with full_gpu(loaded, {2}):
        assert generate(PROMPTS, 3) == expected
    full = f"the GPU's memory is full in {path}, a tool's model; going on with generate.batch_tokens=32"
    assert caplog.messages[-1] == full
    assert getattr(loaded, "batch_tokens", None) == before
