"""Fixtures of all tests, and the settings that the machine that runs them needs."""

import gc
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers side by side fill the cores: threads that wait for each other would take most of the time. Processes
    # that tests start inherit it, so that their sums are rounded alike.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from filelock import FileLock

from tests.build import ARCHITECTURES, Capture, Patch, Refused, smoke_words, tiny_model, tiny_tokenizer
from tests.servers.completions import Completions, served
from toolformer.decoding.completion import Request
from toolformer.decoding.decoder import Decoder
from toolformer.lm.language_model import LanguageModel
from toolformer.storage import CACHE_VARIABLE, cache_dir

os.environ.setdefault("HF_HUB_OFFLINE", "1")

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
def same_cache(monkeypatch: Patch) -> None:
    """A command with `paths.cache` moves the cache of its process: the next test has the one that was there before."""
    monkeypatch.setenv(CACHE_VARIABLE, str(cache_dir()))


@pytest.fixture(autouse=True)
def same_logging() -> Iterator[None]:
    """A command in the process of the tests sets up logging: the next test has the levels and handlers of before."""
    loggers = [logging.getLogger(name) for name in (None, "toolformer", "lm_eval")]
    before = [(list(logger.handlers), logger.level) for logger in loggers]
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        logger.handlers[:] = handlers
        logger.setLevel(level)


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


@pytest.fixture(scope="session", params=[*ARCHITECTURES, "mistral", "gemma3"])
def language_model(request: pytest.FixtureRequest) -> LanguageModel:
    """A tiny random model of each architecture, and of two with sliding windows, in fp32."""
    tokenizer = tiny_tokenizer()
    return LanguageModel(tiny_model(request.param, len(tokenizer)), tokenizer, name=f"tiny {request.param}")


@pytest.fixture(scope="session")
def tiny_gpt2() -> LanguageModel:
    tokenizer = tiny_tokenizer()
    return LanguageModel(tiny_model("gpt2", len(tokenizer)), tokenizer, name="tiny gpt2")


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
def counted(monkeypatch: Patch) -> list[str]:
    """The prompts that decoders in this process are asked."""
    prompts: list[str] = []
    original = Decoder.begin

    def begin(self: Decoder, requests: Sequence[Request], strict: bool = False) -> Any:
        prompts.extend(request.prompt for request in requests)
        return original(self, requests, strict)

    monkeypatch.setattr(Decoder, "begin", begin)
    return prompts


@pytest.fixture
def refused(capsys: Capture) -> Refused:
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
