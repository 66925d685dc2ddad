"""What training can be told beyond the paper's recipe, and what it reports of texts and calls."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.training.conftest import HELDOUT, save_model
from tests.training.test_trainer import ANNOTATED, ROOT, SETTINGS, Logs, interrupted, run, same_end
from toolformer.training.loop import PackedTrainer
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


def test_intervals_may_change_between_two_commands(gpt2_folder: Path, tmp_path: Path) -> None:
    interrupted(gpt2_folder, tmp_path, at=4)
    _, logs = run(gpt2_folder, tmp_path, replace(SETTINGS, log_every=3))
    assert sorted(logs.of("loss")) == [6, 8]


def test_a_training_that_its_time_ended_goes_on_with_more(gpt2_folder: Path, tmp_path: Path) -> None:
    straight, expected = run(gpt2_folder, tmp_path / "straight")
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
    same_end(straight, expected, whole, logs)
    assert {path.name for path in output.iterdir()} == {"model", "model-after-1"}, "the first run's stays"
    assert run(gpt2_folder, output, short)[0] == whole, "what is whole answers every command"


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_adapters_are_merged_into_a_normal_model(name: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    folder = save_model(name, tmp_path / "model")
    settings = replace(SETTINGS, lora_rank=4, learning_rate=0.01, sequence_length=64)
    result, logs = run(folder, tmp_path / "out", settings)
    assert result.heldout_perplexity < result.initial_heldout_perplexity
    assert list(logs.of("heldout_perplexity")) == [0, 4, 8], "merging leaves the adapted model as it is"
    # The folder is the adapted model: what is read from it has the perplexity that was measured.
    again, _ = run(result.model_path, tmp_path / "again", replace(ONE_STEP, sequence_length=64))
    assert again.initial_heldout_perplexity == pytest.approx(result.heldout_perplexity, rel=1e-4)
    before: Any = AutoModelForCausalLM.from_pretrained(folder)
    after: Any = AutoModelForCausalLM.from_pretrained(result.model_path)
    assert before.state_dict().keys() == after.state_dict().keys()
    assert torch.equal(before.get_input_embeddings().weight, after.get_input_embeddings().weight)


def test_the_seed_decides_a_run_with_adapters(gpt2_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    found = []
    for name, seed in (("first", 0), ("again", 0), ("other", 1)):
        torch.manual_seed(len(found))
        settings = replace(ONE_STEP, lora_rank=4, learning_rate=0.01, seed=seed)
        found.append(run(gpt2_folder, tmp_path / name, settings)[0].heldout_perplexity)
    assert found[0] == found[1] != pytest.approx(found[2], rel=1e-6)


COMPILED = """
import json, sys
from dataclasses import replace
from pathlib import Path
from tests.training.test_trainer import SETTINGS, run

for compiled in (False, True):
    settings = replace(SETTINGS, max_steps=2, eval_every=2, save_every=0, compile=compiled)
    _, logs = run(Path(sys.argv[1]), Path(sys.argv[2]) / str(compiled), settings)
    print(json.dumps(list(logs.of("loss").values())))
"""


@pytest.mark.chaos
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_a_compiled_run_has_the_same_losses(gpt2_folder: Path, tmp_path: Path) -> None:
    # A process of its own, as users have it: the compiler imports setuptools late, which other tests' modules break.
    command = [sys.executable, "-c", COMPILED, str(gpt2_folder), str(tmp_path)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True).stdout
    plain, compiled = (json.loads(line) for line in output.splitlines()[-2:])
    assert len(plain) == 2 and compiled == pytest.approx(plain, rel=1e-3)


def test_gradient_checkpointing_changes_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_model("llama", tmp_path / "model")
    recomputed: set[bool] = set()
    compute_loss = PackedTrainer.compute_loss

    def seen(of: PackedTrainer, model: Any, *given: Any, **options: Any) -> Any:
        recomputed.add(model.training and model.is_activation_checkpointing)
        return compute_loss(of, model, *given, **options)

    monkeypatch.setattr(PackedTrainer, "compute_loss", seen)
    losses = []
    for on in (False, True):
        recomputed.clear()
        settings = replace(SETTINGS, max_steps=3, eval_every=3, save_every=0, gradient_checkpointing=on)
        _, logs = run(folder, tmp_path / str(on), settings)
        assert recomputed == {on}
        losses.append(list(logs.of("loss").values()))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
