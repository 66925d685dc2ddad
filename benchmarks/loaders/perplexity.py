"""WikiText and held-out texts (paper, section 4.3): `id, text`, a document per row."""

from collections.abc import Iterable
from typing import Any

from toolformer.benchmarks.loaders.published import published
from toolformer.benchmarks.loaders.sources import Splits, collect, text_of
from toolformer.data import Document, FileCorpus, demo_corpus


def heldout(
    heldout: Iterable[Document] | None = None, heldout_path: str | None = None, **metadata: Any
) -> Splits:
    """Held-out texts: those given; `id, text` of a JSON Lines file, read as a corpus is; or the held-out part of the demo corpus."""
    corpus: Iterable[Document] = demo_corpus(split="heldout") if heldout is None else heldout
    if heldout_path is not None:
        corpus = FileCorpus(path=heldout_path, format="jsonl", key="heldout")
    rows = (("", {"id": document.doc_id, "text": document.text}) for document in corpus)
    return collect("heldout_perplexity", rows, lambda row, _: row, metadata)


def wikitext(**metadata: Any) -> Splits:
    """WikiText's raw test part, an article per row: `id, text` (as published) and `page`, which lm-eval's detokenizer reads."""
    texts = (text_of(row, "text", location) for location, row in published("wikitext_perplexity", metadata))
    made = [("", {"id": str(n), "text": text, "page": text}) for n, text in enumerate(texts)]
    return collect("wikitext_perplexity", made, lambda row, _: row, metadata)
