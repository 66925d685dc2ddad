"""Atlas: its published checkpoints, converted and read safely, and fusion in decoder against the textbook."""

from __future__ import annotations

import argparse
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import T5ForConditionalGeneration

from tests.t5 import t5_tokenizer, tiny_t5
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.tools import atlas
from toolformer.tools.atlas import Atlas, converted, load_reader, reader_input, reader_weights, t5_config
from toolformer.tools.base import Tool
from toolformer.tools.fusion_in_decoder import FusionInDecoder
from toolformer.tools.question_answering import short_answer
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.retrieval.passages import Passage

ELSEWHERE = Document("d", "An unrelated text.")
TEXTS = [
    ["question: north? title: Compass context: A compass shows north.", "question: north? title: Bee"],
    ["question: honey?"],
    ["a", "ships and rocks " * 12, "question: what answer: <extra_id_0> title: x context: y"],
    ["windmill", "sundial"],
    ["harbour of the south " * 3, "b", "c", "d"],
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLFORMER_CACHE", str(tmp_path / "cache"))
    load_reader.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def tokenizer_folder(tmp_path: Path) -> Path:
    t5_tokenizer().save_pretrained(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def save(path: Path, weights: Mapping[str, torch.Tensor], prefix: str = "reader.") -> Path:
    """A file laid out as Atlas saves it: reader and retriever, the training's settings and the states it went on with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {f"{prefix}{name}": tensor for name, tensor in weights.items()}
    # Saved by a library that did not yet know that it is of no use.
    state[f"{prefix}decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.zeros(
        16, 4
    )
    state["retriever.contriever.embeddings.word_embeddings.weight"] = torch.zeros(5, 4)
    settings = argparse.Namespace(
        reader_model_type="google/t5-large-lm-adapt",
        n_context=40,
        device=torch.device("cpu"),
        train_data=["a"],
    )
    scheduler = {"base_lrs": [1e-4], "last_epoch": 3, "lr_lambdas": [{}]}
    torch.save(
        {
            "step": 3,
            "model": state,
            "optimizer": None,
            "retr_optimizer": None,
            "scheduler": scheduler,
            "retr_scheduler": None,
            "opt": settings,
        },
        path,
    )
    return path


def logits(model: Any) -> torch.Tensor:
    ids = torch.tensor([[5, 9, 40, 7, 1], [8, 8, 200, 3, 1]])
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=ids, decoder_input_ids=ids[:, :3]).logits
    return found


# -------------------------------------------------------------------- conversion


@pytest.mark.parametrize("first", [False, True], ids=["T5 1.1", "first T5"])
def test_a_checkpoint_becomes_the_same_t5(tmp_path: Path, first: bool) -> None:
    model = tiny_t5(300, first=first)
    folder = converted(save(tmp_path / "model.pth.tar", model.state_dict()))
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".json", ".safetensors"]
    again = T5ForConditionalGeneration.from_pretrained(folder, use_safetensors=True).eval()
    assert torch.equal(logits(again), logits(model))
    assert torch.equal(again.lm_head.weight, again.shared.weight) == first
    ours, theirs = again.config.to_dict(), model.config.to_dict()
    for name in (
        "d_model",
        "d_kv",
        "d_ff",
        "num_layers",
        "num_decoder_layers",
        "num_heads",
        "scale_decoder_outputs",
    ):
        assert ours[name] == theirs[name], name


@pytest.mark.parametrize("prefix", ["reader.module.", "module.reader."])
def test_wrapped_readers(tmp_path: Path, prefix: str) -> None:
    weights = tiny_t5(300).state_dict()
    assert reader_weights(save(tmp_path / "a", weights, prefix)).keys() == weights.keys()


def test_wrapped_encoders(tmp_path: Path) -> None:
    """The encoder in a wrapper of its own, its blocks each in one that saves memory."""
    weights = tiny_t5(300).state_dict()
    wrapped = {
        (
            name.replace("encoder.", "encoder.encoder.", 1).replace(".layer.", ".module.layer.")
            if name.startswith("encoder.")
            else name
        ): tensor
        for name, tensor in weights.items()
    }
    found = reader_weights(save(tmp_path / "a", wrapped))
    assert found.keys() == weights.keys() and all(torch.equal(found[name], weights[name]) for name in weights)


def test_the_published_sizes_are_told_by_their_shapes() -> None:
    """Atlas-large stands on T5 1.1 large: width 1024, 24 layers, 16 heads of 64, 2816 wide."""
    with torch.device("meta"):
        block = {
            "0.SelfAttention.q.weight": torch.empty(1024, 1024),
            "0.SelfAttention.relative_attention_bias.weight": torch.empty(32, 16),
            "1.DenseReluDense.wi_0.weight": torch.empty(2816, 1024),
        }
    weights = {f"encoder.block.0.layer.{name}": tensor for name, tensor in block.items()}
    weights |= {
        f"{part}.block.23.layer.0.layer_norm.weight": torch.empty(1024) for part in ("encoder", "decoder")
    }
    weights |= {"shared.weight": torch.zeros(4, 1024), "lm_head.weight": torch.ones(4, 1024)}
    config = t5_config(weights)
    assert (config.d_model, config.num_layers, config.num_decoder_layers) == (1024, 24, 24)
    assert (config.num_heads, config.d_kv, config.d_ff) == (16, 64, 2816)
    assert config.dense_act_fn == "gelu_new" and not config.scale_decoder_outputs


def test_it_is_converted_once_and_anew_when_the_file_changes(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "model.pth.tar", tiny_t5(300).state_dict())
    folder = converted(path)
    with monkeypatch.context() as patched:
        patched.setattr(torch, "load", lambda *args, **kwargs: pytest.fail("read again"))
        assert converted(path) == folder
    os.utime(path, ns=(1, 1))
    other = converted(path)
    assert other != folder
    assert {one.name for one in (cache / "atlas").iterdir() if one.is_dir()} == {folder.name, other.name}


class Hostile:
    """What an attacker puts into a pickle."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.target),))


def test_a_hostile_checkpoint_runs_nothing(tmp_path: Path, cache: Path) -> None:
    path, target = tmp_path / "model.pth.tar", tmp_path / "owned"
    torch.save({"model": {}, "opt": Hostile(target)}, path)
    with pytest.raises(UserError, match="no checkpoint of Atlas") as caught:
        converted(path)
    assert "\n" not in str(caught.value) and not target.exists()
    assert not list((cache / "atlas").glob("*")) and not list(cache.glob(".making-*")), "nothing half made"


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"not one", pickle.dumps([1, 2]), pickle.dumps({"model": 3})]
)
def test_a_file_that_is_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.pth.tar"
    path.write_bytes(content)
    with pytest.raises(UserError, match="no checkpoint of Atlas") as caught:
        converted(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_checkpoints_without_a_t5(tmp_path: Path) -> None:
    torch.save({"model": {"retriever.x": torch.zeros(1)}}, tmp_path / "a")
    with pytest.raises(UserError, match="holds no reader"):
        converted(tmp_path / "a")
    weights = tiny_t5(300).state_dict()
    del weights["decoder.block.1.layer.0.SelfAttention.q.weight"]
    with pytest.raises(UserError, match="no T5"):
        converted(save(tmp_path / "b", weights))
    with pytest.raises(UserError, match="no T5"):
        converted(save(tmp_path / "c", {"shared.weight": torch.zeros(3, 2)}))


# -------------------------------------------------------------- fusion in decoder


def textbook(model: Any, tokenizer: Any, texts: list[str], tokens: int) -> str:
    """Each text through the encoder alone; all states in a row; one token after the other, no cache."""
    with torch.no_grad():
        states = [model.encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state for text in texts]
        fused = torch.cat(states, dim=1)
        written = [0]
        while len(written) <= tokens and written[-1] != 1:
            out = model(encoder_outputs=(fused,), decoder_input_ids=torch.tensor([written]))
            written.append(int(out.logits[0, -1].argmax()))
    return str(tokenizer.decode(written, skip_special_tokens=True))


@pytest.mark.parametrize("first", [False, True], ids=["T5 1.1", "first T5"])
def test_it_writes_what_the_textbook_writes(first: bool) -> None:
    tokenizer = t5_tokenizer()
    model = tiny_t5(len(tokenizer), first=first, seed=1)
    expected = [textbook(model, tokenizer, texts, 6) for texts in TEXTS]
    reader = FusionInDecoder(model, tokenizer)
    assert reader.read(TEXTS, 512, 6) == expected
    assert [reader.read([texts], 512, 6)[0] for texts in TEXTS] == expected
    assert len(set(expected)) > 2, "a model that heeds what it reads"


def test_the_states_are_each_texts_own() -> None:
    tokenizer = t5_tokenizer()
    model = tiny_t5(len(tokenizer))
    flat = [text for texts in TEXTS for text in texts]
    for text, state in zip(flat, FusionInDecoder(model, tokenizer).encode(flat, 512), strict=True):
        with torch.no_grad():
            alone = model.encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        torch.testing.assert_close(state, alone, atol=1e-4, rtol=1e-3)


def test_a_long_text_is_cut_at_its_end() -> None:
    tokenizer = t5_tokenizer()
    (state,) = FusionInDecoder(tiny_t5(len(tokenizer)), tokenizer).encode(["north " * 100], 12)
    assert state.shape == (12, 32)


# ----------------------------------------------------------------------- the tool


def test_the_input_is_the_one_that_atlas_was_trained_on() -> None:
    text = reader_input("Who?", Passage("1", "Marie Curie", "She discovered radium."))
    assert text == "question: Who? answer: <extra_id_0> title: Marie Curie context: She discovered radium."


def test_the_tool_answers_from_its_passages(tmp_path: Path, tokenizer_folder: Path, retriever: BM25) -> None:
    tokenizer = t5_tokenizer()
    model = tiny_t5(len(tokenizer), seed=1)
    save(tmp_path / "large" / "model.pth.tar", model.state_dict())
    tool = Atlas(
        retriever, str(tmp_path / "large"), str(tokenizer_folder), 2, max_new_tokens=6, dtype="float32"
    )
    assert isinstance(tool, Tool) and tool.name == "QA"
    questions = ["What shows north?", "", "Who takes wax from hives?", "What shows  north?", "Zzyzx?"]
    results = tool.run(questions, [ELSEWHERE] * 5)
    for n in (0, 2, 3):
        (found,) = retriever.retrieve([questions[n]], 2, [ELSEWHERE])
        texts = [reader_input(" ".join(questions[n].split()), passage) for passage in found]
        assert results[n] == short_answer(textbook(model, tokenizer, texts, 6))
    assert results[0] == results[3]
    assert [results[n].reason for n in (1, 4)] == ["empty question", "no passage found"]


def test_equal_questions_are_read_once(
    tmp_path: Path, retriever: BM25, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []

    class Reader:
        def read(self, texts: list[tuple[str, ...]], max_tokens: int, max_new_tokens: int) -> list[str]:
            batches.append(len(texts))
            return [" Paris.\nAnd more" for _ in texts]

    monkeypatch.setattr(atlas, "load_reader", lambda *args: Reader())
    path = save(tmp_path / "model.pth.tar", {})
    results = Atlas(retriever, str(path)).run(
        ["What shows north?", "honey?", "What shows north?"], [ELSEWHERE] * 3
    )
    assert [one.text for one in results] == ["Paris"] * 3 and batches == [2]


def test_a_missing_checkpoint_is_told_at_once(tmp_path: Path, retriever: BM25) -> None:
    for path in (None, str(tmp_path), str(tmp_path / "x.pth.tar")):
        with pytest.raises(UserError, match="checkpoint_path") as caught:
            Atlas(retriever, path)
        assert "\n" not in str(caught.value)


def test_another_models_tokenizer_is_refused(tmp_path: Path, tokenizer_folder: Path, retriever: BM25) -> None:
    path = save(tmp_path / "model.pth.tar", tiny_t5(300).state_dict())
    with pytest.raises(UserError, match="name T5's"):
        Atlas(retriever, str(path), str(tokenizer_folder)).run(["What shows north?"], [ELSEWHERE])


def test_large_while_annotating_and_xxl_at_inference_by_configuration(tmp_path: Path) -> None:
    from toolformer import build
    from toolformer.config import compose, validate

    large, xxl = (save(tmp_path / size / "model.pth.tar", {}) for size in ("large", "xxl"))
    keys = ["tools=[qa]", "tool@tool.qa=qa_atlas", f"tool.qa.implementation.checkpoint_path={large}"]

    def checkpoints(*overrides: str) -> list[Path]:
        config = validate(compose("evaluate", [*keys, *overrides]))
        made: list[Any] = [build.tools(config, inference=one)["qa"] for one in (False, True)]
        return [runtime.tool.checkpoint for runtime in made]

    assert checkpoints() == [large, large]
    assert checkpoints(f"tool.qa.inference.checkpoint_path={xxl}") == [large, xxl]
