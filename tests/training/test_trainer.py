"""A training: what it leaves, the paper's recipe and what it can be told beyond it, and what it refuses in one line."""

import json
import math
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.training.build import (
    ANNOTATED,
    HELDOUT,
    ROOT,
    SETTINGS,
    TEXTS,
    build_tokenizer,
    interrupted,
    perplexity,
    run,
    same_end,
    save_model,
)
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.training import checkpoints
from toolformer.training.loop import PackedTrainer
from toolformer.training.settings import Recipe
from toolformer.training.tokens import CALL, RESULT, TEXT, tokenize
from toolformer.training.trainer import scaled_learning_rate, with_batch_size


def test_a_finished_run_leaves_one_model_folder(gpt2_folder: Path, tmp_path: Path) -> None:
    """Its perplexity is that of the held-out documents."""
    settings = replace(SETTINGS, sequence_length=64)
    result, logs = run(gpt2_folder, tmp_path, settings)
    files = {path.name: path for path in result.model_path.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "training.json"} <= set(files)
    assert not [name for name in files if name.endswith((".bin", ".pt", ".partial"))]
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o644}
    assert [path.name for path in result.model_path.parent.iterdir()] == ["model"]
    assert json.loads(files["config.json"].read_text()).get("use_cache", True) is True
    assert result.initial_heldout_perplexity == pytest.approx(perplexity(gpt2_folder, HELDOUT), rel=1e-5)
    assert result.heldout_perplexity == pytest.approx(perplexity(result.model_path, HELDOUT), rel=1e-5)
    assert result.heldout_perplexity < result.initial_heldout_perplexity
    assert list(logs.of("heldout_perplexity")) == [0, 4, 8]
    assert list(logs.of("loss")) == list(range(1, 9)) and logs.of("loss")[8] < logs.of("loss")[1]
    assert set(logs.of("learning_rate").values()) == {SETTINGS.learning_rate}
    for name in ("tokens_per_second", "grad_norm", "memory_gib"):
        assert all(value > 0 for value in logs.of(name).values())
    assert (result.steps, result.tokens) == (8, 8 * 4 * 64) and result.seconds > 0
    again, logs = run(gpt2_folder, tmp_path, replace(settings, log_every=5))
    assert again == result and logs == []


@pytest.mark.parametrize("adds_bos", [False, True])
@pytest.mark.parametrize("calls", [False, True])
def test_the_heldout_perplexity_is_that_of_an_evaluation(adds_bos: bool, calls: bool, tmp_path: Path) -> None:
    """Which disables calls for a model that was trained on them."""
    folder = save_model("llama", tmp_path / "model")
    build_tokenizer(adds_bos=adds_bos).save_pretrained(folder)
    settings = replace(SETTINGS, sequence_length=64)
    result, _ = run(folder, tmp_path / "out", settings, texts=ANNOTATED * 4 if calls else TEXTS)
    model = LanguageModel.from_pretrained(result.model_path, "float32", "cpu")
    nats, tokens = zip(*model.rolling_log_likelihoods(HELDOUT, calls=not calls), strict=True)
    assert result.heldout_perplexity == pytest.approx(math.exp(-sum(nats) / sum(tokens)), rel=1e-5)
    assert sum(nats) != pytest.approx(sum(n for n, _ in model.rolling_log_likelihoods(HELDOUT, calls)))


def test_the_learning_rate_warms_up(gpt2_folder: Path, tmp_path: Path) -> None:
    last = {"constant": 1.0, "linear": 1 / 36, "cosine": (1 + math.cos(math.pi * 35 / 36)) / 2}
    for schedule, end in last.items():
        settings = replace(SETTINGS, schedule=schedule, warmup_ratio=0.1)
        factors = [settings.learning_rate_factor(step, 40) for step in range(40)]
        assert factors[:5] == [0.25, 0.5, 0.75, 1.0, 1.0] and factors[-1] == pytest.approx(end)
    settings = replace(SETTINGS, learning_rate=0.004, warmup_ratio=0.5, schedule="linear", save_every=0)
    _, logs = run(gpt2_folder, tmp_path, settings)
    rates = [rate * 1000 for rate in logs.of("learning_rate").values()]
    assert rates == pytest.approx([1, 2, 3, 4, 4, 3, 2, 1])


@pytest.mark.parametrize("name", ["llama", "bloom"])  # the latter trains on one document at a time
def test_micro_batches_add_up(name: str, tmp_path: Path) -> None:
    folder = save_model(name, tmp_path / "model")
    losses = []
    for size in (1, 4):
        settings = replace(SETTINGS, max_steps=3, micro_batch_size=size, eval_every=3, save_every=0)
        _, logs = run(folder, tmp_path / str(size), settings)
        losses.append(list(logs.of("loss").values()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_the_best_checkpoint_is_kept_not_the_last(gpt2_folder: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, learning_rate=0.05, max_steps=12, eval_every=2, save_every=0)
    result, logs = run(gpt2_folder, tmp_path, settings, texts=TEXTS[:1], heldout=HELDOUT[:1])
    perplexities = logs.of("heldout_perplexity")
    assert list(perplexities) == [0, 2, 4, 6, 8, 10, 12]
    best = min((step for step in perplexities if step), key=lambda step: perplexities[step])
    assert (result.best_step, result.heldout_perplexity) == (best, perplexities[best])
    assert best < 12, "the run does not overfit: it proves nothing"
    # Sequences of 32 tokens window a held-out text; one that fits says what is in the folder.
    again, _ = run(result.model_path, tmp_path / "again", settings, texts=TEXTS[:1], heldout=HELDOUT[:1])
    assert again.initial_heldout_perplexity == pytest.approx(perplexities[best], rel=1e-5)


KILLED = """
import os, sys
from pathlib import Path
from tests.training.build import run

def on_log(metrics, step):
    if "loss" in metrics and step == 5:
        os._exit(9)

run(Path(sys.argv[1]), Path(sys.argv[2]), on_log=on_log)
"""


@pytest.mark.chaos
def test_a_killed_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    # Dropout is on: the states of the random generators must come back too.
    model = save_model("gpt2-dropout", tmp_path / "model")
    straight, expected = run(model, tmp_path / "straight")
    output = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, str(model), str(output)]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert killed.returncode == 9, killed.stderr
    assert not (output / "model").exists()
    checkpoints = output / "checkpoints"
    assert sorted(path.name for path in checkpoints.glob("checkpoint-*")) == ["checkpoint-3", "checkpoint-4"]
    (checkpoints / "checkpoint-6").mkdir()  # what a kill in the middle of a later save leaves
    (checkpoints / "checkpoint-6" / "trainer_state.json").write_text("{")
    resumed, logs = run(model, output)
    assert list(logs.of("loss")) == [5, 6, 7, 8]
    same_end(straight, expected, resumed, logs)


def test_a_full_disk_is_one_line_and_leaves_the_last_checkpoint(gpt2_folder: Path, tmp_path: Path) -> None:
    """Writes beyond a size limit fail as writes to a full disk do, inside the libraries that make them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def fill(metrics: dict[str, float], step: int) -> None:
        if step == 4:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))

    try:
        # 4,096 bytes let no weights through; 64,000 let the weights through, not the optimizer.
        for limit, settings in ((4096, SETTINGS), (64_000, replace(SETTINGS, eval_every=100))):
            output = tmp_path / str(limit)
            with pytest.raises(
                UserError, match=r"cannot write .*: make room or name another folder"
            ) as caught:
                run(gpt2_folder, output, settings, on_log=fill)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert "\n" not in str(caught.value) and str(output) in str(caught.value)
            assert [path.name for path in (output / "checkpoints").glob("checkpoint-*")] == ["checkpoint-3"]
            result, logs = run(gpt2_folder, output, settings)
            assert next(iter(logs.of("loss"))) == 4 and result.steps == 8
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_an_error_of_a_callback_is_no_failed_write(gpt2_folder: Path, tmp_path: Path) -> None:
    def refuse(metrics: dict[str, float], step: int) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(ConnectionRefusedError):
        run(gpt2_folder, tmp_path, on_log=refuse)


def test_a_tokenizer_that_cannot_be_written_is_one_line(gpt2_folder: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        with (
            pytest.raises(
                UserError,
                match=r"cannot write model .*; finished work is kept: make room or name another folder",
            ),
            checkpoints.saving(tmp_path / "model", shutil.rmtree),
        ):
            tokenizer.save_pretrained(tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_epochs_end_a_run(gpt2_folder: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_steps=100, epochs=2, batch_size=2, micro_batch_size=1, save_every=0)
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    tokens = 2 * sum(len(tokenizer(text).input_ids) + 1 for text in TEXTS[:3])
    result, _ = run(gpt2_folder, tmp_path, settings, texts=TEXTS[:3])
    # A cut repeats one token as context of what follows it.
    assert tokens <= result.tokens <= tokens + math.ceil(tokens / 31)
    assert result.steps == math.ceil(result.tokens / 32 / 2)


@pytest.mark.parametrize(
    ("copies", "size", "advice"),
    [(4, 1, "give more texts, or trainer.epochs=7"), (140, 2, ""), (300, 4, "")],
    ids=["few texts", "more", "many"],
)
def test_an_automatic_batch_leaves_steps_to_learn_in(
    copies: int, size: int, advice: str, gpt2_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And is the same for the texts with their calls, which are longer, and without."""
    caplog.set_level("INFO", "toolformer")
    settings = replace(SETTINGS, batch_size="auto", epochs=1, max_steps=None)
    for texts in (ANNOTATED, [text.plain for text in ANNOTATED]):
        chosen = with_batch_size(settings, copies * texts, str(gpt2_folder))
        assert chosen == replace(settings, batch_size=size, micro_batch_size=min(2, size))
    assert f"trainer.batch_size=auto is {size}, because" in caplog.text
    assert (advice in caplog.text) if advice else "more texts" not in caplog.text


def test_max_steps_alone_take_the_largest_automatic_batch(gpt2_folder: Path) -> None:
    settings = replace(SETTINGS, batch_size="auto", epochs=None, max_steps=8)
    assert with_batch_size(settings, TEXTS, str(gpt2_folder)).batch_size == 4


def test_steps_between_log_lines_are_free(gpt2_folder: Path, tmp_path: Path) -> None:
    """The Trainer's own default for saving, 500 steps, does not have to be a multiple of them."""
    result, _ = run(gpt2_folder, tmp_path, replace(SETTINGS, log_every=7))
    assert result.model_path.is_dir()


def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path) -> None:
    folder = save_model("gpt2", tmp_path / "model")
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    model.transformer.ln_f.weight.data.fill_(1e38)  # the logits are differences of infinities
    model.save_pretrained(folder)
    with pytest.raises(UserError, match="training: the loss is nan at step 1; lower trainer.learning_rate"):
        run(folder, tmp_path / "out")


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
    once = {"max_steps": None, "epochs": 1, "batch_size": 2, "sequence_length": 64}
    settings = replace(SETTINGS, **once, eval_every=1, save_every=0, train_on_results=train_on_results)
    _, logs = run(gpt2_folder, tmp_path, settings, texts=ANNOTATED)
    kinds = losses_by_kind(gpt2_folder)
    assert sum(count for _, count in kinds.values()) < 62, "both texts must fit into a sequence uncut"
    targets = [kinds[TEXT], kinds[CALL], *([kinds[RESULT]] if train_on_results else [])]

    def mean(parts: list[tuple[float, int]]) -> float:
        return sum(total for total, _ in parts) / sum(count for _, count in parts)

    assert logs.of("loss")[1] == pytest.approx(mean(targets), rel=1e-4)
    for kind, name in ((TEXT, "texts"), (CALL, "calls"), (RESULT, "results")):
        assert logs.of(f"perplexity_{name}")[1] == pytest.approx(math.exp(mean([kinds[kind]])), rel=1e-4)


def test_early_stopping_ends_a_training_which_is_not_continued(
    gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the command is killed before the model is published."""
    settings = replace(SETTINGS, learning_rate=0.05, max_steps=40, eval_every=2, early_stopping=2)
    straight, expected = run(gpt2_folder, tmp_path / "straight", settings, heldout=HELDOUT[:1])
    assert straight.best_step + 4 == straight.steps < 40
    assert max(expected.of("heldout_perplexity")) == straight.steps

    def kill(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(PackedTrainer, "_publish", kill)
        run(gpt2_folder, tmp_path / "killed", settings, heldout=HELDOUT[:1])
    resumed, logs = run(gpt2_folder, tmp_path / "killed", settings, heldout=HELDOUT[:1])
    assert logs == []
    same_end(straight, expected, resumed, logs)


def test_early_stopping_counts_over_an_interruption(gpt2_folder: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, learning_rate=0.05, max_steps=40, eval_every=2, early_stopping=3)
    straight, expected = run(gpt2_folder, tmp_path / "straight", settings, heldout=HELDOUT[:1])
    interrupted(gpt2_folder, tmp_path / "killed", straight.steps - 1, settings, heldout=HELDOUT[:1])
    resumed, logs = run(gpt2_folder, tmp_path / "killed", settings, heldout=HELDOUT[:1])
    assert min(logs.of("loss")) > straight.best_step, "it counts from the beginning: it proves nothing"
    same_end(straight, expected, resumed, logs)


def test_a_saved_model_that_is_not_the_trained_one_is_refused(
    gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(trainer: PackedTrainer, folder: Path) -> None:
        trainer.model.save_pretrained(folder, state_dict=weights)

    weights: Any = AutoModelForCausalLM.from_pretrained(gpt2_folder).state_dict()
    monkeypatch.setattr(PackedTrainer, "_save_weights", save)
    with pytest.raises(
        UserError, match="model.partial is not the trained one of step 8 .a token's loss differs by"
    ):
        run(gpt2_folder, tmp_path)
    assert not list(tmp_path.glob("model*"))


def test_a_missing_package_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"lora_rank": 8, "deepspeed": "zero2"}
    for (key, value), package in zip(settings.items(), ("peft", "deepspeed"), strict=True):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UserError, match=f"trainer.{key} needs {package}, .* make setup EXTRA=[a-z]+$"):
            Recipe(**{key: value})


def test_a_pad_token_beyond_the_embedding_is_one_line(tmp_path: Path) -> None:
    folder = save_model("llama", tmp_path / "model")
    tokenizer = build_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(folder)
    with pytest.raises(
        UserError, match=r"gives '\[PAD\]' the id 300, but its embedding has only 300 rows; remove the"
    ):
        run(folder, tmp_path / "out")


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


def test_settings_are_bounded_and_batches_divided_by_processes(
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


def test_training_refuses_the_tokenizers_that_decoding_does(tmp_path: Path) -> None:
    folder = save_model("gpt2", tmp_path / "model")
    build_tokenizer(tokens=270).save_pretrained(folder)
    with pytest.raises(UserError, match=r"has no single token for ' \[', .*name a model") as decoding:
        LanguageModel.from_pretrained(folder, device="cpu")
    with pytest.raises(UserError) as training:
        run(folder, tmp_path / "out", SETTINGS, texts=ANNOTATED)
    assert str(training.value) == str(decoding.value)
    plain = replace(SETTINGS, max_steps=1, save_every=0)
    run(folder, tmp_path / "plain", plain)  # texts without calls need none


@pytest.mark.parametrize(
    ("parameters", "is_lora", "rate"),
    [
        (6_053_381_344, False, 1e-5),
        (1_500_000_000, False, 2e-5),
        (10_000_000, False, 1e-4),
        (6_053_381_344, True, 1e-4),
    ],
)
def test_a_learning_rate_that_fits_the_model(parameters: int, is_lora: bool, rate: float) -> None:
    assert scaled_learning_rate(parameters, is_lora) == pytest.approx(rate)


def test_without_a_learning_rate_the_models_size_decides(gpt2_folder: Path, tmp_path: Path) -> None:
    _, logs = run(gpt2_folder, tmp_path, replace(SETTINGS, learning_rate=None))
    assert set(logs.of("learning_rate").values()) == {1e-4}
