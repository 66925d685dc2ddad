"""Tiny made-up models of the architectures that matter, with a tokenizer trained on the spot. No downloads."""

import functools
import gc
import itertools
import os
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers side by side fill the cores: threads that wait for each other would take most of the time. Processes
    # that tests start inherit it, so that their sums are rounded alike.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from filelock import FileLock
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTJConfig,
    GPTJForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
)

from tests.servers.completions import Completions, served
from toolformer.decoding.completion import Task
from toolformer.decoding.decoder import Decoder
from toolformer.lm.language_model import LanguageModel
from toolformer.storage import CACHE_VARIABLE, cache_dir

os.environ.setdefault("HF_HUB_OFFLINE", "1")

Capture = pytest.CaptureFixture[str]
Log = pytest.LogCaptureFixture
Patch = pytest.MonkeyPatch

ARCHITECTURES = ("gpt2", "gptj", "llama")

TRAINING_TEXT = [
    "The number in the next term is 18 + 12 x 3 = [Calculator(18 + 12 * 3) -> 54] 54.",
    'Joe Biden was born in [QA("Where was Joe Biden born?") -> Scranton] Scranton, Pennsylvania.',
    "Today is the first [Calendar() -> Today is Monday, January 30, 2023.] Monday of the year.",
    'red is for [WikiSearch("Ghana flag red meaning") -> Flag of Ghana > Red] the blood of martyrs [MT(la tortue)] x',
    "Input: The population is 658,893 people. Output: This is 11.4% of the national average.",
] * 20


MEMORY = Path("/dev/shm")
ROOM = 8 << 30


@pytest.hookimpl(tryfirst=True)  # before the folder is made
def pytest_configure(config: pytest.Config) -> None:
    """Temporary folders in memory where there is room: databases and shards are synced, for which a disk takes its time."""
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    roomy = roomy and min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) > ROOM
    if roomy and config.option.basetemp is None:
        folder = tempfile.mkdtemp(prefix="tests-", dir=MEMORY)
        config.option.basetemp = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture(autouse=True)
def same_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command with `paths.cache` moves the cache of its process: the next test has the one that was there before."""
    monkeypatch.setenv(CACHE_VARIABLE, str(cache_dir()))


@pytest.fixture(scope="session", autouse=True)
def migrated_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """MLflow's migrations take seconds for each new database: they run for the first, of which further ones are copies."""
    from mlflow.store.db import utils

    real, first = utils._initialize_tables, tmp_path_factory.mktemp("migrated") / "mlflow.db"

    def copied(engine: Any) -> None:
        path = engine.url.database if engine.url.get_backend_name() == "sqlite" else None
        if not path or not first.exists():
            real(engine)
        engine.dispose()
        if path:
            shutil.copy(*((first, path) if first.exists() else (path, first)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "_initialize_tables", copied)
        yield


@pytest.fixture(scope="session", autouse=True)
def frozen_imports(migrated_once: None) -> None:
    """Stages collect garbage between models: the million objects of libraries and tests are not looked through each time."""
    gc.collect()
    gc.freeze()


def byte_level(texts: Iterable[str], tokens: int, special: list[str], **model: Any) -> Tokenizer:
    """A byte-level BPE of so many tokens, special ones included, trained on the spot."""
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=tokens, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = byte_level(TRAINING_TEXT, 420, ["<|endoftext|>"])
    special = dict.fromkeys(("eos_token", "bos_token", "pad_token"), "<|endoftext|>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def tiny_model(architecture: str, vocabulary: int, context: int = 512) -> Any:
    """Wide initial weights: a tiny model whose predictions differ visibly from uniform."""
    torch.manual_seed(0)
    shared = {"vocab_size": vocabulary, "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 0}
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": context}
    if architecture == "llama":
        return LlamaForCausalLM(LlamaConfig(**shared, **sizes, **heads))
    if architecture == "mistral":
        return MistralForCausalLM(MistralConfig(**shared, **sizes, **heads, sliding_window=4))
    if architecture == "gemma3":
        sliding = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4, "head_dim": 8}
        return Gemma3ForCausalLM(Gemma3TextConfig(**shared, **sizes, **heads, **sliding))
    shared |= {"n_positions": context, "n_embd": 32, "n_layer": 2, "n_head": 4}
    if architecture == "gpt2":
        return GPT2LMHeadModel(GPT2Config(**shared))
    return GPTJForCausalLM(GPTJConfig(**shared, rotary_dim=4))


def teach(model: Any, tokenizer: Any, texts: Iterable[str]) -> None:
    """Trains a tiny model, a step a text; a GPT-2 learns what stands next wherever it stands."""
    if hasattr(model, "transformer") and hasattr(model.transformer, "wpe"):
        model.transformer.wpe.weight.requires_grad_(False).zero_()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for text in texts:
        ids = tokenizer(text, return_tensors="pt").input_ids
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimizer.step()
    model.eval()


@functools.cache
def taught_model(architecture: str, *pieces: str) -> LanguageModel:
    """A tiny model that has learnt to write these pieces of text in any order, unlike a random one."""
    tokenizer = tiny_tokenizer()
    model = tiny_model(architecture, len(tokenizer))
    chance = random.Random(0)
    teach(model, tokenizer, (" ".join(chance.choice(pieces) for _ in range(30)) for _ in range(200)))
    return LanguageModel(model, tokenizer, name=f"taught {architecture}")


@pytest.fixture(scope="session", params=[*ARCHITECTURES, "mistral", "gemma3"])
def language_model(request: pytest.FixtureRequest) -> LanguageModel:
    """A tiny random model of each architecture, and of two with sliding windows, in fp32."""
    tokenizer = tiny_tokenizer()
    return LanguageModel(tiny_model(request.param, len(tokenizer)), tokenizer, name=f"tiny {request.param}")


@pytest.fixture(scope="session")
def tiny_gpt2() -> LanguageModel:
    tokenizer = tiny_tokenizer()
    return LanguageModel(tiny_model("gpt2", len(tokenizer)), tokenizer, name="tiny gpt2")


@contextmanager
def full_gpu(language_model: LanguageModel, passes: Container[int]) -> Iterator[None]:
    """The forward passes of these numbers find a GPU's memory full."""
    numbers = itertools.count(1)

    def begin(*_: Any) -> None:
        if next(numbers) in passes:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    hook = language_model.model.register_forward_pre_hook(begin)
    try:
        yield
    finally:
        hook.remove()


@pytest.fixture
def server(tiny_gpt2: LanguageModel) -> Iterator[Completions]:
    """An endpoint on this machine that serves a tiny model."""
    with served(tiny_gpt2) as running:
        yield running


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny GPT-2 saved as a model folder."""
    folder = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    tokenizer = tiny_tokenizer()
    tiny_model("gpt2", len(tokenizer), context=1024).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prompts that decoders in this process are asked."""
    prompts: list[str] = []
    original = Decoder.begin

    def begin(self: Decoder, task: Task) -> Any:
        prompts.extend(task.prompts)
        return original(self, task)

    monkeypatch.setattr(Decoder, "begin", begin)
    return prompts


class Terminal(StringIO):
    """A stream that is a terminal's."""

    def isatty(self) -> bool:
        return True


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Until it holds; a test that waits for longer has failed."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Gives a command that ends with exit code 2, before any work; returns the one line that says why."""
    from toolformer.cli import main

    def given(*words: str) -> str:
        capsys.readouterr()
        assert main(words) == 2
        shown = capsys.readouterr().err
        (line,) = [line for line in shown.splitlines() if line.startswith("toolformer:")]
        assert "Traceback" not in shown
        return line

    return given


GOLDEN = Path(__file__).parent / "golden" / "model"


def smoke_words(root: Path) -> list[str]:
    """The smallest experiment, with a tiny model that calls two tools."""
    words = [f"model={GOLDEN}", f"paths.root={root}", "tools=[calendar,calculator]", "lm.dtype=float32"]
    return ["experiment=smoke", *words]


@pytest.fixture(scope="session")
def smoke_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs of the smallest experiment: four stages, four systems. For tests that only read it."""
    from toolformer.cli import main

    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "smoke"  # one of all workers
    with FileLock(f"{root}.lock"):
        done = root / "done"
        if not done.exists():
            assert main(["run", *smoke_words(root)]) == 0
            done.touch()
    return root


@pytest.fixture(scope="session")
def calling_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that has learnt to write the calendar's call."""
    from tests.processes import save_calling_model

    folder = tmp_path_factory.mktemp("calling") / "model"
    save_calling_model(folder)
    return folder


# A crowded machine is slow at drawing examples, which is no fault of theirs.
hypothesis.settings.register_profile(
    "crowded", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("crowded")
