"""A small encyclopedia of our own and a cache of its own; no downloads."""

import json
from pathlib import Path

import pytest

from tests.build import ARTICLES
from toolformer.tools.retrieval.bm25 import BM25


@pytest.fixture
def articles_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLFORMER_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "articles.json"
    rows = [{"title": title, "extract": text} for title, text in ARTICLES.items()]
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


@pytest.fixture
def retriever(articles_file: Path) -> BM25:
    return BM25(str(articles_file))
