from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.training.conftest import CONTEXT, TEXTS, build_model
from toolformer.training import attention
from toolformer.training.data import IGNORED, PackedTexts, single, whole
from toolformer.training.isolation import (
    KNOWN,
    Collator,
    attend_by_document,
    choose_isolation,
    collator,
)
from toolformer.training.tokens import tokenize

EXPECTED = [
    ("gpt2", "sdpa", "positions"),
    ("gpt2", "eager", "positions"),
    ("llama", "sdpa", "positions"),
    ("llama", "eager", "positions"),
    ("gptj", "eager", "positions"),
    ("gpt_neo", "eager", "positions"),
    ("gpt_neox", "sdpa", "positions"),
    ("mistral", "sdpa", "positions"),
    ("qwen2", "sdpa", "positions"),
    ("gemma3_text", "sdpa", "positions"),
    ("opt", "sdpa", "mask"),
    ("opt", "eager", "mask"),
    ("bloom", "eager", "single"),
]


def summed_loss(model: Any, batch: dict[str, torch.Tensor]) -> float:
    """Loss in nats of all targets, as the model itself computes it."""
    targets = int((batch["labels"][:, 1:] != IGNORED).sum())
    with torch.no_grad():
        return float(model(**batch, use_cache=False).loss) * targets


@pytest.mark.parametrize(("name", "attention", "isolation"), EXPECTED)
def test_the_way_is_found_by_trying(name: str, attention: str, isolation: str) -> None:
    model = build_model(name, attention)
    assert choose_isolation(model) == isolation
    assert KNOWN.get(model.config.model_type, "single") == isolation
    assert not model.training


@pytest.mark.parametrize(("name", "attention", "isolation"), EXPECTED)
def test_a_packed_batch_has_the_loss_of_its_documents_alone(
    name: str, attention: str, isolation: Any, tokenizer: Any
) -> None:
    model = build_model(name, attention)
    documents = tokenize([text[:40] for text in TEXTS], tokenizer)
    layout = (
        single(documents.lengths, range(len(documents)), CONTEXT)
        if isolation == "single"
        else whole(documents.lengths, CONTEXT)
    )
    packed = PackedTexts(documents, layout)
    assert isolation == "single" or len(packed) < len(documents), "nothing is packed"
    batch = collator(model, tokenizer, isolation, CONTEXT)([packed[n] for n in range(len(packed))])

    alone = 0.0
    for number in range(len(documents)):
        ids = torch.from_numpy(
            documents.ids[documents.starts[number] : documents.starts[number + 1]].astype("int64")
        )[None]
        with torch.no_grad():
            alone += float(model(input_ids=ids, labels=ids, use_cache=False).loss) * (ids.shape[1] - 1)

    assert summed_loss(model, batch) == pytest.approx(alone, rel=1e-5)
    if isolation != "single":
        # The test can fail: without what keeps them apart, the documents see each other.
        leaking = {key: batch[key] for key in ("input_ids", "labels")}
        assert summed_loss(model, leaking) != pytest.approx(alone, rel=1e-4)


def test_gradients_are_those_of_the_documents_alone(tokenizer: Any) -> None:
    documents = tokenize([text[:40] for text in TEXTS[:4]], tokenizer)
    packed = PackedTexts(documents, whole(documents.lengths, CONTEXT))
    separate = PackedTexts(documents, single(documents.lengths, range(4), CONTEXT))
    gradients = []
    for texts, isolation in ((packed, "positions"), (separate, "single")):
        model = build_model("llama")
        model.config.use_cache = False
        batch = collator(model, tokenizer, isolation, CONTEXT)([texts[n] for n in range(len(texts))])  # type: ignore[arg-type]
        model(**batch).loss.backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)


def test_padding_is_no_target_and_a_document_of_its_own() -> None:
    sequence = {
        "input_ids": torch.tensor([5, 6, 7]),
        "position_ids": torch.arange(3),
        "labels": torch.tensor([IGNORED, 6, 7]),
        "kinds": torch.tensor([0, 0, 1]),
    }
    batch = Collator(pad_id=1, isolation="positions", size=6)([sequence])
    assert batch["input_ids"].tolist() == [[5, 6, 7, 1, 1, 1]]
    assert batch["labels"].tolist() == [[IGNORED, 6, 7, IGNORED, IGNORED, IGNORED]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2]]
    assert "attention_mask" not in batch


def test_a_mask_is_block_diagonal_and_causal() -> None:
    sequence = {
        "input_ids": torch.tensor([5, 6, 7]),
        "position_ids": torch.tensor([0, 1, 0]),
        "labels": torch.tensor([IGNORED] * 3),
        "kinds": torch.zeros(3, dtype=torch.long),
    }
    mask = Collator(pad_id=1, isolation="mask", size=4)([sequence])["attention_mask"]
    assert mask[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    additive = Collator(pad_id=1, isolation="mask", size=4, additive=True)([sequence])["attention_mask"]
    assert ((additive == 0) == mask).all()


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2", "gpt_neox"])
def test_attention_by_document_changes_neither_loss_nor_gradient(name: str, tokenizer: Any) -> None:
    documents = tokenize([text[:40] for text in TEXTS], tokenizer)
    packed = PackedTexts(documents, whole(documents.lengths, CONTEXT))
    found = []
    for by_document in (False, True):
        model = build_model(name, "sdpa")
        batch = collator(model, tokenizer, "positions", CONTEXT)([packed[n] for n in range(len(packed))])
        assert len(batch["input_ids"]) > 1, "one row proves nothing about the next"
        if by_document:
            assert attend_by_document(model, "cpu") and model.config._attn_implementation == attention.NAME
        batch.pop("kinds", None)
        loss = model(**batch, use_cache=False).loss
        loss.backward()
        found.append((float(loss.detach()), {key: one.grad for key, one in model.named_parameters()}))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    for key, gradient in found[0][1].items():
        torch.testing.assert_close(found[1][1][key], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "way"), [("mistral", "sdpa"), ("gemma3_text", "sdpa"), ("llama", "eager")])
def test_a_model_that_asks_for_more_keeps_its_own_attention(name: str, way: str) -> None:
    model = build_model(name, way)
    assert model.config._attn_implementation == way
    if name == "mistral":
        model.config.sliding_window = 4
        for module in model.modules():
            if hasattr(module, "sliding_window"):
                module.sliding_window = 4
    assert not attend_by_document(model, "cpu")
    assert model.config._attn_implementation == way


def test_a_mask_of_the_callers_own_is_refused() -> None:
    one = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match="attention by document"):
        attention.attend(
            torch.nn.Identity(), one, one, one, torch.ones(1, 1, 3, 3), position_ids=torch.zeros(1, 3)
        )
    with pytest.raises(ValueError, match="attention by document"):
        attention.attend(torch.nn.Identity(), one, one, one, None)
