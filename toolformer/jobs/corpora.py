"""Corpora as they are configured: their documents, their names in runs, and the step that identifies their texts."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from toolformer.data import Bundled, Corpus, Document, FileCorpus, HubCorpus, assets, demo_corpus
from toolformer.data.files import demo_file
from toolformer.jobs.config import Config, CorpusConfig
from toolformer.jobs.versions import VERSIONS
from toolformer.results import Dataset
from toolformer.step import Step, settings_of


def corpus(config: CorpusConfig, key: str = "corpus") -> Corpus:
    """The documents of a configured corpus; messages name it by `key`."""
    return Corpus(source(config, key), config.limit, key)


def source(config: CorpusConfig, key: str) -> Iterable[Document]:
    """Where a corpus's documents come from, repeated ones too."""
    if config.source == "demo":
        return Bundled(functools.partial(demo_corpus, config.split), demo_file)
    if config.source == "wikipedia":
        from toolformer.tools.retrieval.passages import wikipedia_documents

        return Bundled(wikipedia_documents, functools.partial(assets.ensure, "wikipedia"))
    assert config.path is not None and config.source is not None  # validated
    latest = datetime.date.fromisoformat(config.latest_date) if config.latest_date else None
    common: dict[str, Any] = {"fields": config, "strict": config.strict, "latest_date": latest, "key": key}
    if config.source == "hub":
        return HubCorpus(config.path, config.subset, config.split, **common)
    return FileCorpus(config.path, config.source, config.pattern, **common)


def documents(config: Config, key: str = "corpus") -> Step:
    """The step of a corpus's texts, `corpus` or `heldout`: what its files hold, and how they are read. Reads no text."""
    settings = settings_of(config, "documents" if key == "corpus" else "heldout").get(key, {})
    content = corpus(getattr(config, key), key).digest()
    return Step("documents", VERSIONS["documents"], settings, {"content": content})


def corpus_name(config: CorpusConfig) -> str:
    """A corpus in names: its file, its split of the demo's texts, or its place on the hub."""
    name = f"demo/{config.split}" if config.source == "demo" else config.path or str(config.source)
    return name if config.source in ("demo", "hub") else Path(name).name


def dataset(config: CorpusConfig, digest: str, context: str, rows: int) -> Dataset:
    """A corpus as an input of a run."""
    return Dataset(corpus_name(config), digest, context, config.path or str(config.source), rows)
