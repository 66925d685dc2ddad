"""What training can be told beyond the paper's recipe, and what it reports of texts and calls."""

from __future__ import annotations

import math
import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.training.conftest import HELDOUT, TEXTS, build_tokenizer, save_model
from tests.training.test_trainer import SETTINGS, Logs, run
from toolformer.calls import ApiCall
from toolformer.errors import UserError
from toolformer.language_model import LanguageModel
from toolformer.training import lora
from toolformer.training.data import IGNORED, PackedTexts, stream
from toolformer.training.loop import PackedTrainer
from toolformer.training.settings import TrainingSettings
from toolformer.training.tokens import CALL, RESULT, TEXT, AnnotatedText, tokenize
from toolformer.training.trainer import train

CALC = ApiCall("Calculator", "400 / 1400", "0.29")
ANNOTATED = [
    AnnotatedText("Of 1400, 400 passed.", ((12, CALC),)),
    AnnotatedText("It is closed."),
]
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
    settings = replace(
        ONE_STEP, max_steps=None, epochs=1, sequence_length=64, train_on_results=train_on_results
    )
    _, logs = run(gpt2_folder, tmp_path, settings, texts=ANNOTATED)
    kinds = losses_by_kind(gpt2_folder)
    assert sum(count for _, count in kinds.values()) < 62, "both texts must fit into a sequence uncut"
    calls = [kinds[CALL], kinds[RESULT]] if train_on_results else [kinds[CALL]]
    trained = [kinds[TEXT], *calls]

    def mean(parts: list[tuple[float, int]]) -> float:
        return sum(total for total, _ in parts) / sum(count for _, count in parts)

    assert logs.of("loss")[1] == pytest.approx(mean(trained), rel=1e-4)
    assert logs.of("perplexity_texts")[1] == pytest.approx(math.exp(mean([kinds[TEXT]])), rel=1e-4)
    assert logs.of("perplexity_calls")[1] == pytest.approx(math.exp(mean(calls)), rel=1e-4)
    assert logs.of("memory_gib")[1] > 0


def test_only_what_decoding_inserts_is_left_out_of_the_targets(gpt2_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    documents = tokenize(ANNOTATED, tokenizer)
    layout = stream(documents.lengths, [0], 256)
    every, some = (PackedTexts(documents, layout, on)[0] for on in (True, False))
    left_out = every["input_ids"][(every["labels"] != IGNORED) & (some["labels"] == IGNORED)]
    assert tokenizer.decode(left_out) == " 0.29]"


def test_training_ends_when_nothing_gets_better(gpt2_folder: Path, tmp_path: Path) -> None:
    settings = replace(
        SETTINGS, learning_rate=0.05, max_steps=40, eval_every=2, save_every=0, early_stopping=2
    )
    result, logs = run(gpt2_folder, tmp_path, settings, heldout=HELDOUT[:1])
    assert result.best_step + 4 == result.steps < 40
    assert max(logs.of("heldout_perplexity")) == result.steps


def test_a_run_that_was_killed_where_it_stopped_does_not_go_on(
    gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(
        SETTINGS, learning_rate=0.05, max_steps=40, eval_every=2, save_every=2, early_stopping=2
    )
    straight, _ = run(gpt2_folder, tmp_path / "straight", settings, heldout=HELDOUT[:1])

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(PackedTrainer, "finish", killed)
        run(gpt2_folder, tmp_path / "killed", settings, heldout=HELDOUT[:1])
    resumed, logs = run(gpt2_folder, tmp_path / "killed", settings, heldout=HELDOUT[:1])
    assert logs.of("loss") == {}
    assert (resumed.steps, resumed.best_step) == (straight.steps, straight.best_step)
    assert resumed.heldout_perplexity == pytest.approx(straight.heldout_perplexity, rel=1e-5)


def test_intervals_may_change_between_two_commands(gpt2_folder: Path, tmp_path: Path) -> None:
    def kill(_: dict[str, float], step: int) -> None:
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(gpt2_folder, TEXTS, HELDOUT, SETTINGS, tmp_path, kill, progress=False)
    _, logs = run(gpt2_folder, tmp_path, replace(SETTINGS, log_every=3))
    assert sorted(logs.of("loss")) == [6, 8]


def test_training_ends_when_its_time_is_over(gpt2_folder: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_steps=1000, eval_every=500, save_every=0, max_hours=1e-9)
    result, logs = run(gpt2_folder, tmp_path, settings)
    assert (result.steps, result.best_step) == (1, 1)
    assert result.tokens == settings.batch_size * settings.sequence_length, "tokens that were not trained on"
    assert list(logs.of("heldout_perplexity")) == [0, 1]


def test_a_training_that_its_time_ended_goes_on_with_more(
    gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, expected = run(gpt2_folder, tmp_path / "straight")
    output, short = tmp_path / "short", replace(SETTINGS, max_hours=1e-9)
    first, _ = run(gpt2_folder, output, short)
    assert (first.steps, first.ended_by_max_hours) == (1, 1e-9)
    assert first.model_path == output / "model-after-1"
    for hours in (1e-9, 1e-10):
        again, logs = run(gpt2_folder, output, replace(SETTINGS, max_hours=hours))
        assert again == first and not logs, "no more time is given"
    with (
        monkeypatch.context() as patch,
        pytest.raises(UserError, match="begun with 1 process; start 1 again"),
    ):
        patch.setenv("WORLD_SIZE", "2")
        run(gpt2_folder, output)
    whole, logs = run(gpt2_folder, output)
    assert list(logs.of("loss")) == [2, 3, 4, 5, 6, 7, 8]
    for step, loss in logs.of("loss").items():
        assert loss == pytest.approx(expected.of("loss")[step], abs=1e-5)
    assert (whole.steps, whole.tokens, whole.ended_by_max_hours) == (8, straight.tokens, None)
    assert whole.heldout_perplexity == pytest.approx(straight.heldout_perplexity, rel=1e-5)
    assert whole.initial_heldout_perplexity == pytest.approx(straight.initial_heldout_perplexity, rel=1e-6)
    assert {path.name for path in output.iterdir()} == {"model", "model-after-1"}, "the first run's stays"
    assert run(gpt2_folder, output, short)[0] == whole, "what is whole answers every command"


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_adapters_are_merged_into_a_normal_model(name: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    folder = save_model(name, tmp_path / "model")
    settings = replace(SETTINGS, lora_rank=4, learning_rate=0.01, sequence_length=64)
    result, logs = run(folder, tmp_path / "out", settings)
    assert result.heldout_perplexity < result.initial_heldout_perplexity
    assert logs.of("loss")[8] < logs.of("loss")[1]
    assert {path.name for path in result.model_path.iterdir()} >= {"model.safetensors", "config.json"}
    # The folder is the adapted model: what is read from it has the perplexity that was measured.
    again, _ = run(result.model_path, tmp_path / "again", replace(ONE_STEP, sequence_length=64))
    assert again.initial_heldout_perplexity == pytest.approx(result.heldout_perplexity, rel=1e-4)
    before: Any = AutoModelForCausalLM.from_pretrained(folder)
    after: Any = AutoModelForCausalLM.from_pretrained(result.model_path)
    assert before.state_dict().keys() == after.state_dict().keys()
    assert torch.equal(before.get_input_embeddings().weight, after.get_input_embeddings().weight)


def test_the_seed_decides_a_run_with_adapters(gpt2_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    settings = replace(ONE_STEP, lora_rank=4, learning_rate=0.01)

    def perplexity(name: str, seed: int) -> float:
        result, _ = run(gpt2_folder, tmp_path / name, replace(settings, seed=seed))
        return float(result.heldout_perplexity)

    torch.manual_seed(1)
    first = perplexity("first", seed=0)
    torch.manual_seed(2)
    assert perplexity("again", seed=0) == first
    assert perplexity("other", seed=1) != pytest.approx(first, rel=1e-6)


def test_weights_that_a_folder_lacks_begin_as_the_seed_says(tmp_path: Path) -> None:
    folder = save_model("llama", tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file(
        {key: one for key, one in weights.items() if "down_proj" not in key},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    found = []
    for number, seed in enumerate((0, 0, 1)):
        torch.manual_seed(number)
        result, _ = run(folder, tmp_path / str(number), replace(ONE_STEP, seed=seed))
        found.append(result.initial_heldout_perplexity)
    assert found[0] == found[1] != found[2]


def test_a_tokenizer_that_decoding_refuses_is_refused_before_training(tmp_path: Path) -> None:
    folder = save_model("gpt2", tmp_path / "model")
    build_tokenizer(tokens=270).save_pretrained(folder)
    with pytest.raises(UserError, match=r"has no single token for ' \['; choose another model$") as decoding:
        LanguageModel.from_pretrained(folder, device="cpu")
    logs = Logs()
    with pytest.raises(UserError) as training:
        run(folder, tmp_path / "out", ONE_STEP, texts=ANNOTATED, on_log=logs)
    assert str(training.value) == str(decoding.value) and not logs
    run(folder, tmp_path / "plain", ONE_STEP)  # texts without calls need none


def test_merging_leaves_the_adapted_model_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from tests.training.conftest import build_model

    model = lora.with_adapters(build_model("gpt2"), rank=2, alpha=None)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_()
    ids = torch.arange(6)[None]
    with torch.no_grad():
        before = model(ids).logits
        inner, weights = lora.merged(model)
        torch.testing.assert_close(model(ids).logits, before)
        plain = build_model("gpt2")
        plain.load_state_dict(weights, strict=False)
        torch.testing.assert_close(plain(ids).logits, before, atol=1e-4, rtol=1e-4)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_a_compiled_run_has_the_same_losses(gpt2_folder: Path, tmp_path: Path) -> None:
    settings: TrainingSettings = replace(SETTINGS, max_steps=2, eval_every=2, save_every=0)
    # As `toolformer train` has it: a process of its own. The compiler imports setuptools late, which fails where
    # the modules of other tests came first.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        losses = [
            fresh.submit(
                losses_of, gpt2_folder, tmp_path / str(compiled), replace(settings, compile=compiled)
            )
            for compiled in (False, True)
        ]
        plain, compiled = (future.result() for future in losses)
    assert len(plain) == 2
    assert compiled == pytest.approx(plain, rel=1e-3)


def losses_of(folder: Path, output: Path, settings: TrainingSettings) -> list[float]:
    return list(run(folder, output, settings)[1].of("loss").values())


def test_gradient_checkpointing_changes_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_model("llama", tmp_path / "model")
    settings = replace(SETTINGS, max_steps=3, eval_every=3, save_every=0)
    recomputed: list[bool] = []
    compute_loss = PackedTrainer.compute_loss

    def seen(of: PackedTrainer, model: Any, *given: Any, **options: Any) -> Any:
        recomputed.append(model.training and model.is_activation_checkpointing)
        return compute_loss(of, model, *given, **options)

    monkeypatch.setattr(PackedTrainer, "compute_loss", seen)
    _, plain = run(folder, tmp_path / "plain", settings)
    assert recomputed and not any(recomputed)
    recomputed.clear()
    _, checkpointed = run(folder, tmp_path / "less", replace(settings, gradient_checkpointing=True))
    assert recomputed and all(recomputed)
    assert list(checkpointed.of("loss").values()) == pytest.approx(list(plain.of("loss").values()), rel=1e-5)
