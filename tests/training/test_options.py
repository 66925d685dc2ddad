"""What training can be told beyond the paper's recipe, what it reports, and what it refuses in one line."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.training.conftest import (
    ANNOTATED,
    HELDOUT,
    SETTINGS,
    Logs,
    build_tokenizer,
    perplexity,
    run,
    same_end,
    save_model,
)
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.training.loop import PackedTrainer
from toolformer.training.settings import Recipe
from toolformer.training.tokens import CALL, RESULT, TEXT, tokenize

ONE_STEP = replace(SETTINGS, max_steps=1, batch_size=2, micro_batch_size=2, eval_every=1, save_every=0)


def losses_by_kind(folder: Path) -> dict[int, tuple[float, int]]:
    """Summed loss and count of each kind of token, document by document, as the definition has it."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    documents = tokenize(ANNOTATED, AutoTokenizer.from_pretrained(folder))
    found = dict.fromkeys((TEXT, CALL, RESULT), (0.0, 0))
    for start, end in zip(documents.starts[:-1], documents.starts[1:], strict=True):
        ids = torch.from_numpy(documents.ids[start:end].astype("int64"))
        with torch.no_grad():
            log_probs = model(ids[None]).logits[0, :-1].log_softmax(-1)
        for n, kind in enumerate(documents.kinds[start + 1 : end].tolist()):
            total, count = found[kind]
            found[kind] = (total - float(log_probs[n, ids[n + 1]]), count + 1)
    return found


@pytest.mark.parametrize("train_on_results", [True, False])
def test_loss_and_perplexities_are_those_of_their_tokens(
    train_on_results: bool, gpt2_folder: Path, tmp_path: Path
) -> None:
    whole = replace(ONE_STEP, max_steps=None, epochs=1, sequence_length=64)
    settings = replace(whole, train_on_results=train_on_results)
    _, logs = run(gpt2_folder, tmp_path, settings, texts=ANNOTATED)
    kinds = losses_by_kind(gpt2_folder)
    assert sum(count for _, count in kinds.values()) < 62, "both texts must fit into a sequence uncut"
    calls = [kinds[CALL], kinds[RESULT]] if train_on_results else [kinds[CALL]]

    def mean(parts: list[tuple[float, int]]) -> float:
        return sum(total for total, _ in parts) / sum(count for _, count in parts)

    assert logs.of("loss")[1] == pytest.approx(mean([kinds[TEXT], *calls]), rel=1e-4)
    assert logs.of("perplexity_texts")[1] == pytest.approx(math.exp(mean([kinds[TEXT]])), rel=1e-4)
    assert logs.of("perplexity_calls")[1] == pytest.approx(math.exp(mean(calls)), rel=1e-4)


def test_training_ends_when_nothing_gets_better_and_does_not_go_on(
    gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(
        SETTINGS, learning_rate=0.05, max_steps=40, eval_every=2, save_every=2, early_stopping=2
    )

    def train(name: str) -> tuple[Any, Logs]:
        return run(gpt2_folder, tmp_path / name, settings, heldout=HELDOUT[:1])

    straight, expected = train("straight")
    assert straight.best_step + 4 == straight.steps < 40
    assert max(expected.of("heldout_perplexity")) == straight.steps

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(PackedTrainer, "_finish", killed)
        train("killed")
    resumed, logs = train("killed")
    assert logs.of("loss") == {}
    same_end(straight, expected, resumed, logs)


def test_a_training_that_its_time_ended_goes_on_with_more(
    straight: tuple[Any, Logs], gpt2_folder: Path, tmp_path: Path
) -> None:
    output, short = tmp_path / "short", replace(SETTINGS, max_hours=1e-9)
    first, _ = run(gpt2_folder, output, short)
    assert (first.steps, first.ended_by_max_hours) == (1, 1e-9)
    assert first.tokens == SETTINGS.batch_size * SETTINGS.sequence_length, "tokens that were not trained on"
    assert first.model_path == output / "model-after-1"
    for hours in (1e-9, 1e-10):
        again, logs = run(gpt2_folder, output, replace(SETTINGS, max_hours=hours))
        assert again == first and not logs, "no more time is given"
    whole, logs = run(gpt2_folder, output)
    assert list(logs.of("loss")) == [2, 3, 4, 5, 6, 7, 8] and whole.ended_by_max_hours is None
    same_end(*straight, whole, logs)
    assert {path.name for path in output.iterdir()} == {"model", "model-after-1"}, "the first run's stays"
    assert run(gpt2_folder, output, short)[0] == whole, "what is whole answers every command"


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_adapters_are_merged_into_a_normal_model_and_the_seed_decides_them(name: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
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


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"max_steps": None}, {}, "trainer.max_steps and trainer.epochs are both null"),
        ({"dtype": "int8"}, {}, "lm.dtype is 'int8'"),
        ({"device": "cuda:1"}, {}, "lm.device is cuda:1; training takes the first GPU that it sees"),
        ({"deepspeed": "/no/such/file.json"}, {}, "trainer.deepspeed is /no/such/file.json; it must be one of"),
        ({"sequence_length": 65}, {}, "is 65, more than the model's context; choose at most 64"),
        ({}, {"heldout": [""]}, "there is no text to train or evaluate on"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(
    changes: dict[str, Any], options: dict[str, Any], message: str, gpt2_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        run(gpt2_folder, tmp_path, replace(SETTINGS, **changes), **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_bounds_are_those_of_the_types_and_a_batch_is_divided_over_processes(
    monkeypatch: pytest.MonkeyPatch, gpt2_folder: Path, tmp_path: Path
) -> None:
    bounds = {"learning_rate": 0.0, "warmup_ratio": 10, "sequence_length": 1, "schedule": "step"}
    for name, value in bounds.items():
        with pytest.raises(ValidationError, match=name):
            TypeAdapter(Recipe).validate_python({name: value})
    assert replace(SETTINGS, batch_size=128, micro_batch_size=4).accumulation(processes=8) == 4
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UserError, match="2 x 3; set trainer.batch_size to a multiple of 6, or lower"):
        run(gpt2_folder, tmp_path)


def test_a_tokenizer_that_decoding_refuses_is_refused_before_training(tmp_path: Path) -> None:
    folder = save_model("gpt2", tmp_path / "model")
    build_tokenizer(tokens=270).save_pretrained(folder)
    with pytest.raises(UserError, match=r"has no single token for ' \['; choose another model$") as decoding:
        LanguageModel.from_pretrained(folder, device="cpu")
    with pytest.raises(UserError) as training:
        run(folder, tmp_path / "out", SETTINGS, texts=ANNOTATED)
    assert str(training.value) == str(decoding.value)
    plain = replace(SETTINGS, max_steps=1, save_every=0)
    run(folder, tmp_path / "plain", plain)  # texts without calls need none
