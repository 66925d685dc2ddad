"""Losses computed in chunks against those of the whole logits."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.build import CONTEXT, SETTINGS, build_model, run, save_model
from toolformer.training import losses
from toolformer.training.data import IGNORED

FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "llama": {},
    "opt": {},  # its head calls a part of its body
    "mamba": {},
    "falcon_h1": {"lm_head_multiplier": 0.5},
    "gemma2": {"final_logit_softcapping": 2.0},
    "cohere": {"logit_scale": 0.3},
    "granite": {"logits_scaling": 3.0},
}


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Seven tokens of the tiny vocabulary."""
    monkeypatch.setattr(losses, "CHUNK", 7 * 300)
    yield


def loss_and_gradients(
    model: Any, ids: torch.Tensor, labels: torch.Tensor, chunked: bool
) -> dict[str, torch.Tensor]:
    """What a training step needs from a model."""
    model.zero_grad()
    if chunked:
        loss = model(input_ids=ids, use_cache=False, targets=labels)["losses"]
    else:
        loss = losses.token_losses(model(input_ids=ids, use_cache=False).logits, labels)
    (loss.sum() / 10).backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return {"loss": loss.detach(), **gradients}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", FAMILIES)
def test_chunks_have_the_loss_and_gradients_of_the_whole(name: str) -> None:
    model = build_model(name, **FAMILIES[name])
    ids = torch.randint(2, 300, (2, 24), generator=torch.Generator().manual_seed(0))
    labels = ids.clone()
    labels[0, 5:9] = labels[1, 18:] = IGNORED
    expected = loss_and_gradients(model, ids, labels, chunked=False)
    losses.return_losses(model, losses.chunks(model, 48))
    sizes = []
    model.get_output_embeddings().register_forward_hook(lambda _, __, logits: sizes.append(logits.shape[-2]))
    chunked = loss_and_gradients(model, ids, labels, chunked=True)
    assert max(sizes) <= 7
    torch.testing.assert_close(chunked, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("small_chunks")
def test_no_target_has_no_gradient() -> None:
    model = build_model("llama")
    losses.return_losses(model, losses.chunks(model, CONTEXT))
    ids = torch.ones(1, CONTEXT, dtype=torch.long)
    step = loss_and_gradients(model, ids, torch.full_like(ids, IGNORED), chunked=True)
    assert not any(value.any() for value in step.values())


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("name", "warnings"), [("gpt2-dropout", 0), ("llama4_text", 1)])
def test_a_model_without_a_separate_head_trains_the_other_way(
    name: str, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = save_model(name, tmp_path / "model")
    settings = replace(SETTINGS, max_steps=2, eval_every=2, save_every=0)
    with caplog.at_level(logging.WARNING):
        chunked = run(folder, tmp_path / "chunked", settings)[1].of("loss")
    assert caplog.text.count("its output head cannot be applied in chunks") == warnings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "CHUNK", 2**24)
        whole = run(folder, tmp_path / "whole", settings)[1].of("loss")
    assert chunked == pytest.approx(whole, rel=1e-5)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    "changes", [{"lora_rank": 4}, {"gradient_checkpointing": True}, {"dtype": "bfloat16"}]
)
def test_chunks_train_as_the_whole_does(changes: dict[str, Any], tmp_path: Path) -> None:
    if "lora_rank" in changes:
        pytest.importorskip("peft")
    folder = save_model("llama", tmp_path / "model")
    settings = replace(SETTINGS, max_steps=3, eval_every=3, save_every=0, **changes)
    chunked, logs = run(folder, tmp_path / "chunked", settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "CHUNK", 2**24)
        whole, expected = run(folder, tmp_path / "whole", settings)
    close = 1e-2 if "dtype" in changes else 1e-5
    assert logs.of("loss") == pytest.approx(expected.of("loss"), rel=close)
    assert chunked.heldout_perplexity == pytest.approx(whole.heldout_perplexity, rel=close)
