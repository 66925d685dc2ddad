"""Tiny random models and a tokenizer trained on the spot: no downloads, seconds for the whole package."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.training.build import Logs, build_tokenizer, run, save_model


@pytest.fixture(scope="package", autouse=True)
def quick() -> Iterator[None]:
    """Tiny tensors are faster on one thread, and repeatable.

    A training collects garbage at every checkpoint: most of its time, if all imported libraries were searched.
    """
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """Adds no BOS by itself, like GPT-2's."""
    return build_tokenizer()


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny GPT-2 without dropout."""
    return save_model("gpt2", tmp_path_factory.mktemp("models") / "gpt2")


@pytest.fixture(scope="session")
def straight(gpt2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Logs]:
    """An uninterrupted run. For tests that only read it."""
    return run(gpt2_folder, tmp_path_factory.mktemp("straight"))
