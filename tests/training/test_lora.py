"""LoRA: what is trained, and what merging writes, against peft's own merging of a float32 copy."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.training.build import HELDOUT, SETTINGS, build_model, perplexity, run, save_model
from toolformer.errors import UserError
from toolformer.lm.loading import load_causal
from toolformer.training import lora

pytest.importorskip("peft")


def adapted(name: str, dtype: torch.dtype) -> Any:
    """A model whose adapters have an effect."""
    model = build_model(name)
    for parameter in model.parameters():
        parameter.data = parameter.to(dtype)
    model = lora.with_adapters(model, 4, None)
    torch.manual_seed(1)
    for parameter_name, parameter in model.named_parameters():
        if ".lora_B." in parameter_name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral"])
def test_the_saved_model_has_the_logits_of_the_adapted_one(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """In float32: the frozen weights may be bfloat16, and lose nothing."""
    model = adapted(name, dtype)
    ids = torch.arange(2, 40)[None]
    with torch.no_grad():
        expected = copy.deepcopy(model).float()(input_ids=ids).logits
        lora.save_merged(model, tmp_path)
        saved: Any = AutoModelForCausalLM.from_pretrained(tmp_path)
        torch.testing.assert_close(saved(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-4)
    assert saved.dtype == torch.float32


@pytest.mark.parametrize("name", ["gpt2", "mixtral"])
def test_frozen_weights_are_bfloat16_and_adapters_float32(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtypes: dict[bool, set[torch.dtype]] = {}
    real = lora.save_merged

    def save(model: Any, folder: Path) -> None:
        for parameter in model.parameters():
            dtypes.setdefault(parameter.requires_grad, set()).add(parameter.dtype)
        real(model, folder)

    monkeypatch.setattr(lora, "save_merged", save)
    settings = replace(SETTINGS, lora_rank=4, learning_rate=0.01, dtype="bfloat16", sequence_length=64)
    result, _ = run(save_model(name, tmp_path / "model"), tmp_path / "out", settings)
    assert dtypes == {True: {torch.float32}, False: {torch.bfloat16}}
    saved = AutoModelForCausalLM.from_pretrained(result.model_path)
    assert saved.dtype == torch.float32
    assert result.heldout_perplexity < result.initial_heldout_perplexity
    assert perplexity(result.model_path, HELDOUT) == pytest.approx(result.heldout_perplexity, rel=0.03)


@pytest.mark.parametrize(
    ("name", "dtype", "pinned"),
    [("gpt2", "float32", 379.90), ("gpt2", "bfloat16", 378.13), ("mixtral", "float32", 527.43)],
)
def test_a_training_of_adapters_is_as_pinned(name: str, dtype: str, pinned: float, tmp_path: Path) -> None:
    """A change here needs a new VERSION of the train step."""
    settings = replace(SETTINGS, lora_rank=4, learning_rate=0.01, dtype=dtype)
    result, _ = run(save_model(name, tmp_path / "model"), tmp_path / "out", settings)
    close = 1e-3 if dtype == "float32" else 1e-2
    assert result.best_step == 8 and result.heldout_perplexity == pytest.approx(pinned, rel=close)


@pytest.mark.parametrize("name", ["gpt2", "mixtral"])
def test_the_folder_is_an_ordinary_model_and_the_seed_decides_it(name: str, tmp_path: Path) -> None:
    folder = save_model(name, tmp_path / "model")
    settings = replace(SETTINGS, lora_rank=4, learning_rate=0.01, sequence_length=64)
    result, logs = run(folder, tmp_path / "out", settings)
    assert result.heldout_perplexity < result.initial_heldout_perplexity
    assert list(logs.of("heldout_perplexity")) == [0, 4, 8], "merging leaves the adapted model as it is"
    # The folder is the adapted model: what is read from it has the perplexity that was measured.
    assert perplexity(result.model_path, HELDOUT) == pytest.approx(result.heldout_perplexity, rel=1e-4)
    before: Any = AutoModelForCausalLM.from_pretrained(folder)
    after: Any = AutoModelForCausalLM.from_pretrained(result.model_path)
    assert before.state_dict().keys() == after.state_dict().keys()
    assert torch.equal(before.get_input_embeddings().weight, after.get_input_embeddings().weight)
    torch.manual_seed(7)
    again, other = (run(folder, tmp_path / str(seed), replace(settings, seed=seed))[0] for seed in (0, 1))
    assert again.heldout_perplexity == result.heldout_perplexity
    assert other.heldout_perplexity != pytest.approx(result.heldout_perplexity, rel=1e-6)


def test_adapters_lost_on_the_way_to_the_folder_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where they have hardly changed the mean loss."""

    def drop(model: Any, folder: Path) -> None:
        model.unload().save_pretrained(folder)

    monkeypatch.setattr(lora, "save_merged", drop)
    settings = replace(SETTINGS, lora_rank=4, learning_rate=1e-4, save_every=0)
    with pytest.raises(UserError, match="is not the trained one .* leave trainer.lora_rank out"):
        run(save_model("gpt2", tmp_path / "model"), tmp_path / "out", settings)
    assert not list((tmp_path / "out").glob("model*"))


@pytest.mark.real
def test_a_real_model_in_bfloat16_takes_adapters() -> None:
    """Rounding in 30 layers is not mistaken for adapters that merging loses."""
    model, _ = load_causal("smollm2", torch.bfloat16)
    torch.manual_seed(1)
    lora.with_adapters(model, 4, None)
    assert all(not weight.any() for name, weight in model.named_parameters() if ".lora_B." in name)


def test_adapters_that_cannot_be_merged_are_refused(tmp_path: Path) -> None:
    folder = save_model("llama4_text", tmp_path / "model")
    with pytest.raises(
        UserError, match="^trainer.lora_rank: .*takes no adapters .*; leave trainer.lora_rank out"
    ):
        run(folder, tmp_path / "out", replace(SETTINGS, lora_rank=4))
