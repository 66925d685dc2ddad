from typing import Any
from unittest.mock import Mock

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from tests.training.build import CONTEXT, TEXTS, WINDOW, build_model
from toolformer.errors import UserError
from toolformer.training import attention
from toolformer.training.data import IGNORED, PackedTexts, one_per_sequence, whole
from toolformer.training.document_masks import KNOWN, Probe, collator
from toolformer.training.tokens import tokenize

EXPECTED = [
    ("gpt2", "sdpa", "positions"), ("llama", "sdpa", "positions"), ("gpt_neox", "sdpa", "positions"),
    ("mistral", "sdpa", "positions"), ("gemma3_text", "sdpa", "positions"), ("llama4_text", "sdpa", "positions"),
    ("phi3", "sdpa", "positions"), ("llama", "eager", "positions"), ("gptj", "eager", "positions"),
    ("gpt_neo", "eager", "positions"), ("opt", "sdpa", "mask"), ("opt", "eager", "mask"), ("gpt_oss", "eager", "mask"),
    ("falcon_h1", "sdpa", "single"), ("mamba", "eager", "single"), ("bloom", "eager", "single"),
]  # fmt: skip
BY_DOCUMENT = [("gpt2", "sdpa"), ("qwen2", "sdpa")]
OTHERWISE = [("llama", "eager"), ("mistral", "sdpa"), ("gemma3_text", "sdpa"), ("llama4_text", "sdpa")]
"""Models that ask for more than attention by document has."""


def packed_texts(tokenizer: Any) -> tuple[PackedTexts, PackedTexts]:
    """Short texts side by side in sequences, and each alone."""
    documents = tokenize([text[:40] for text in TEXTS], tokenizer)
    packed = PackedTexts(documents, whole(documents.lengths, CONTEXT))
    assert 1 < len(packed) < len(documents), "several rows, and several documents in a row"
    return packed, PackedTexts(documents, one_per_sequence(documents.lengths, range(len(documents)), CONTEXT))


def batch_of(model: Any, tokenizer: Any, texts: PackedTexts, isolation: Any) -> dict[str, torch.Tensor]:
    batch = collator(model, tokenizer, isolation, CONTEXT)([texts[n] for n in range(len(texts))])
    del batch["kinds"], batch["targets"]
    return batch


def summed_loss(model: Any, batch: dict[str, torch.Tensor]) -> float:
    """Loss in nats of all targets, as the model itself computes it."""
    targets = int((batch["labels"][:, 1:] != IGNORED).sum())
    with torch.no_grad():
        return float(model(**batch, use_cache=False).loss) * targets


@pytest.mark.parametrize(("name", "attention", "isolation"), EXPECTED)
def test_a_packed_batch_has_the_loss_of_its_documents_alone(
    name: str, attention: str, isolation: Any, tokenizer: Any
) -> None:
    model = build_model(name, attention)
    probe = Probe(model, CONTEXT, rows=4)
    assert probe.isolation() == isolation
    assert KNOWN.get(model.config.model_type, isolation) == isolation
    assert model.config.model_type not in KNOWN or probe.has_separate_head()
    packed, separate = packed_texts(tokenizer)
    rows = [{key: value[None] for key, value in separate[n].items()} for n in range(len(separate))]
    alone = sum(summed_loss(model, {key: row[key] for key in ("input_ids", "labels")}) for row in rows)
    batch = batch_of(model, tokenizer, separate if isolation == "single" else packed, isolation)
    assert summed_loss(model, batch) == pytest.approx(alone, rel=1e-5)
    if isolation != "single":
        # The test can fail: without what keeps them apart, the documents see each other.
        leaking = {key: batch[key] for key in ("input_ids", "labels")}
        assert summed_loss(model, leaking) != pytest.approx(alone, rel=1e-4)


@pytest.mark.parametrize(("name", "way"), BY_DOCUMENT + OTHERWISE)
def test_loss_and_gradients_are_those_of_the_documents_alone(
    name: str, way: str, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed, and packed with attention by document."""
    attend = Mock(wraps=attention.attend)
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, attention.NAME, attend)
    packed, separate = packed_texts(tokenizer)
    results = []
    for texts, isolation, by_document in (
        (separate, "single", False), (packed, "positions", False), (packed, "positions", True),
    ):  # fmt: skip
        model = build_model(name, way)
        if by_document:
            assert Probe(model, CONTEXT, rows=4).isolation(by_document=True) == "positions"
            attend.reset_mock()
        loss = model(**batch_of(model, tokenizer, texts, isolation), use_cache=False).loss
        loss.backward()
        gradients = torch.cat([each.grad.flatten() for each in model.parameters()])
        results.append((loss.detach(), gradients))
    assert attend.called == ((name, way) in BY_DOCUMENT)
    for loss, gradients in results[1:]:
        torch.testing.assert_close(loss, results[0][0], rtol=1e-5, atol=0)
        torch.testing.assert_close(gradients, results[0][1], rtol=1e-4, atol=1e-6)


def test_documents_begin_where_positions_restart() -> None:
    positions = torch.tensor([[0, 1, 2, 0, 1], [3, 4, 0, 1, 2]])
    assert attention.document_bounds(positions, rows=2).tolist() == [0, 3, 5, 7, 10]
    shared = torch.tensor([[0, 1, 0]])
    assert attention.document_bounds(shared, rows=2).tolist() == [0, 2, 3, 5, 6]


def test_attention_by_document_takes_no_mask_of_the_callers() -> None:
    query, positions = torch.zeros(1, 2, 3, 4), torch.zeros(1, 3)
    for mask, options in ((torch.ones(1, 1, 3, 3), {"position_ids": positions}), (None, {})):
        with pytest.raises(ValueError, match="attention by document"):
            attention.attend(torch.nn.Identity(), query, query, query, mask, **options)


def test_positions_that_scale_with_the_batch_take_one_text() -> None:
    """Beyond the length of its first training Phi-3's longrope has other frequencies, for all rows of a batch."""
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "original_max_position_embeddings": 24}
    rope = {"rope_type": "longrope", "rope_theta": 10_000.0, **factors}
    model = build_model("phi3", "sdpa", rope_parameters=rope, original_max_position_embeddings=24)
    assert Probe(model, 24, rows=8).isolation() == "positions"
    assert Probe(model, 32, rows=1).isolation() == "single"
    with pytest.raises(
        UserError, match="micro_batch_size=1, or lower trainer.sequence_length to at most 24, original_max"
    ):
        Probe(model, 25, rows=2).isolation()


def test_a_small_leak_is_a_leak() -> None:
    """Llama 4 scales some layers' queries by how far a token is from the sequence's first one, whatever its position."""
    model = build_model("llama4_text", floor_scale=WINDOW, attn_scale=0.05, no_rope_layers=[1, 0])
    assert Probe(model, 32, rows=1).isolation() == "single"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_leak_into_a_few_tokens_is_a_leak(dtype: torch.dtype) -> None:
    """LFM2's convolutions read two tokens of the document before."""
    assert Probe(build_model("lfm2").to(dtype), 512, rows=1).isolation() == "single"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_is_not_a_leak(dtype: torch.dtype) -> None:
    assert Probe(build_model("mixtral").to(dtype), CONTEXT, rows=2).isolation() == "positions"


def kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: Any, *_: Any) -> torch.Tensor:
    """What the kernel of a GPU computes."""
    positions = torch.cat([torch.arange(n) for n in bounds.diff().tolist()])[None]
    return attention._one_by_one(query, key, value, positions, 0.0, None)


def without_gradient(*arguments: Any) -> torch.Tensor:
    return kernel(*arguments) * 0.5 + kernel(*arguments).detach() * 0.5


def broken(*_: Any) -> torch.Tensor:
    raise RuntimeError("no kernel image is available for execution on the device")


@pytest.mark.parametrize(
    ("replacement", "problem"),
    [
        (kernel, None), (without_gradient, "heads of 96: its gradient differs by 50%"),
        (lambda *given: kernel(*given) * 1.1, "heads of 96: its output differs by 10%"), (broken, "heads of 96: no kernel image"),
    ],
)  # fmt: skip
def test_a_kernel_is_tried_forward_and_backward(
    replacement: Any, problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_in_one_kernel", replacement)
    found = attention._kernel_problem(4, 2, 96, torch.bfloat16, torch.device("cpu"))
    assert (problem in found) if problem and found else found == problem


def test_a_kernel_is_tried_in_the_shapes_of_the_model(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With one that does not work, attention stays as it was."""
    tried: list[Any] = []

    def problem(*shape: Any) -> str:
        tried.append(shape)
        return "too old a GPU"

    monkeypatch.setattr(attention, "_kernel_problem", problem)
    monkeypatch.setattr(attention, "_has_kernel", lambda device: True)
    model = build_model("qwen2", "sdpa")
    assert Probe(model, 32, 2).isolation(by_document=True, dtype=torch.bfloat16) == "positions"
    assert tried == [(2, 1, 8, torch.bfloat16, torch.device("cpu"))]
    assert model.config._attn_implementation == "sdpa" and "too old a GPU" in caplog.text
