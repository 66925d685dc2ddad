"""Atlas: its published checkpoints, converted and read safely, and fusion in decoder compared with the reference."""

import io
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import T5ForConditionalGeneration

from tests.build import OTHER_DOCUMENT, save_atlas, t5_tokenizer, tiny_t5
from tests.reference import fused_text
from tests.tools.build import Hostile
from toolformer.errors import UserError
from toolformer.tools.atlas import Atlas, FusionInDecoder, converted, load_reader, reader_weights
from toolformer.tools.question_answering import short_answer
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.retrieval.passages import Passage

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


def logits(model: Any) -> torch.Tensor:
    ids = torch.tensor([[5, 9, 40, 7, 1], [8, 8, 200, 3, 1]])
    with torch.no_grad():
        scores: torch.Tensor = model(input_ids=ids, decoder_input_ids=ids[:, :3]).logits
    return scores


@pytest.mark.parametrize("first", [False, True], ids=["T5 1.1", "first T5"])
def test_a_checkpoint_becomes_the_same_t5_once(tmp_path: Path, first: bool) -> None:
    model, path = tiny_t5(300, first=first), tmp_path / "model.pth.tar"
    folder = converted(save_atlas(path, model.state_dict()))
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".json", ".safetensors"]
    again = T5ForConditionalGeneration.from_pretrained(folder, use_safetensors=True).eval()
    assert torch.equal(logits(again), logits(model))
    assert torch.equal(again.lm_head.weight, again.shared.weight) == first
    ours, theirs = again.config.to_dict(), model.config.to_dict()
    for name in "d_model d_kv d_ff num_layers num_decoder_layers num_heads scale_decoder_outputs".split():
        assert ours[name] == theirs[name]
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert converted(path) == folder and (folder / "model.safetensors").stat().st_mtime_ns == written
    os.utime(path, ns=(1, 1))
    assert converted(path) != folder, "another file"
    # Wrapped: all of it, or the encoder with its blocks each in a wrapper that saves memory.
    weights = model.state_dict()
    blocks = {re.sub(r"^(encoder.*)\.layer\.", r"\1.module.layer.", name): w for name, w in weights.items()}
    wrapped = {re.sub(r"^encoder\.", "encoder.encoder.", name): weight for name, weight in blocks.items()}
    for stored, prefix in (
        (weights, "reader.module."), (weights, "module.reader."), (wrapped, "reader.")
    ):  # fmt: skip
        reader = reader_weights(save_atlas(path, stored, prefix))
        assert reader.keys() == weights.keys()
        assert all(torch.equal(reader[name], weights[name]) for name in weights)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_hostile_checkpoint_runs_nothing(tmp_path: Path, cache: Path) -> None:
    path, target = tmp_path / "model.pth.tar", tmp_path / "owned"
    hostile = io.BytesIO()
    torch.save({"model": {}, "opt": Hostile(target)}, hostile)
    for content in (hostile.getvalue(), b"", b"PK\x03\x04", b"not one", pickle.dumps({"model": 3})):
        path.write_bytes(content)
        with pytest.raises(UserError, match="not a checkpoint of Atlas") as caught:
            converted(path)
        assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    assert not target.exists()
    assert not list((cache / "atlas").glob("*")) and not list(cache.glob(".making-*")), "nothing half made"
    torch.save({"model": {"retriever.x": torch.zeros(1)}}, tmp_path / "a")
    with pytest.raises(UserError, match="has no reader"):
        converted(tmp_path / "a")
    weights = tiny_t5(300).state_dict()
    del weights["decoder.block.1.layer.0.SelfAttention.q.weight"]
    for name, incomplete in (("b", weights), ("c", {"shared.weight": torch.zeros(3, 2)})):
        with pytest.raises(UserError, match="not a T5"):
            converted(save_atlas(tmp_path / name, incomplete))


@pytest.mark.parametrize("first", [False, True], ids=["T5 1.1", "first T5"])
def test_it_writes_what_the_stock_model_writes(first: bool) -> None:
    tokenizer = t5_tokenizer()
    model = tiny_t5(len(tokenizer), first=first, seed=1)
    expected = [fused_text(model, tokenizer, texts, 6) for texts in TEXTS]
    reader = FusionInDecoder(model, tokenizer)
    assert reader.read(TEXTS, 512, 6) == expected
    assert [reader.read([texts], 512, 6)[0] for texts in TEXTS] == expected
    assert len(set(expected)) > 2, "a model that heeds what it reads"


def test_the_tool_answers_from_its_passages(tmp_path: Path, retriever: BM25) -> None:
    tokenizer = t5_tokenizer()
    tokenizer.save_pretrained(tmp_path / "t5")
    model = tiny_t5(len(tokenizer), seed=1)
    save_atlas(tmp_path / "large" / "model.pth.tar", model.state_dict())
    tool = Atlas(
        retriever, str(tmp_path / "large"), str(tmp_path / "t5"), 2, max_new_tokens=6, dtype="float32"
    )
    assert tool.prompt("Who?", [Passage("1", "Marie Curie", "She discovered radium.")]) == (
        "question: Who? answer: <extra_id_0> title: Marie Curie context: She discovered radium.",
    )
    questions = ["What shows north?", "", "Who takes wax from hives?", "What shows  north?", "Zzyzx?"]
    results = tool.run(questions, [OTHER_DOCUMENT] * 5)
    for n in (0, 2, 3):
        (passages,) = retriever.retrieve([questions[n]], 2, [OTHER_DOCUMENT])
        texts = tool.prompt(" ".join(questions[n].split()), passages)
        assert results[n] == short_answer(fused_text(model, tokenizer, list(texts), 6))
    assert [results[n].reason for n in (1, 4)] == ["empty question", "no passage found"]

    other = save_atlas(tmp_path / "model.pth.tar", tiny_t5(300).state_dict())
    with pytest.raises(UserError, match="name T5's"):
        Atlas(retriever, str(other), str(tmp_path / "t5")).run(["What shows north?"], [OTHER_DOCUMENT])


def test_a_missing_checkpoint_is_refused(tmp_path: Path, retriever: BM25) -> None:
    for path in (None, str(tmp_path), str(tmp_path / "x.pth.tar")):
        with pytest.raises(UserError, match="checkpoint_path") as caught:
            Atlas(retriever, path)
        assert "\n" not in str(caught.value)
