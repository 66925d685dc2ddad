"""A worker of the engine: what it has alike with those who worked on the same shards before it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from toolformer import text_generator
from toolformer.config import compose, validate
from toolformer.documents import Document
from toolformer.engine.work import Worker
from toolformer.loading import number_format


def test_whoever_goes_on_rounds_as_the_run_began(
    tmp_path: Path, tiny_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its threads, its batches and its number format, unless another is asked for in so many words."""
    before, here = torch.get_num_threads(), number_format("auto", "auto")
    elsewhere = "float32" if here == "bfloat16" else "bfloat16"
    store = tmp_path / "shards"
    words = [
        f"model={tiny_folder}", f"paths.root={tmp_path / 'runs'}", "tools=[calculator]", "tool.calculator.samples=1",
        "tool.calculator.max_positions=1", "tool.calculator.max_call_tokens=2",
    ]  # fmt: skip
    documents = [Document("d", "Today the library is closed, so read at home.")]

    def work(name: str, threads: int, *more: str) -> int:
        given = validate(compose("generate", [*words, *more]))
        assert Worker(given, store, threads)(name, documents).annotated
        return torch.get_num_threads()

    try:
        with caplog.at_level("INFO"):
            assert work("one", 2, "engine.batch_tokens=512") == 2
            model = text_generator.load(str(tiny_folder), here, "auto")
            assert model.batch_tokens == 512
            assert not [line for line in caplog.messages if "this run began" in line]
            assert work("two", 1) == 2
            assert model.batch_tokens == 512
        for said in ("engine.threads=2", "engine.batch_tokens=512"):
            assert f"generate: {said}, as this run began" in caplog.messages
        with caplog.at_level("WARNING"):
            assert work("three", 1, "engine.threads=1", "engine.batch_tokens=256") == 1
        assert model.batch_tokens == 256
        for said in ("engine.threads=1, and this run began with 2", "engine.batch_tokens=256, and this run"):
            assert f"generate: {said}" in caplog.text
        (store / "dtype").write_text(f"{elsewhere}\n")  # begun on another processor
        with caplog.at_level("INFO"):
            assert work("four", 1, "lm.dtype=auto") == 2
        assert f"generate: lm.dtype={elsewhere}, as this run began" in caplog.messages
    finally:
        torch.set_num_threads(before)
