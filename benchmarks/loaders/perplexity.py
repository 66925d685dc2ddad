"""WikiText and held-out texts (paper, section 4.3): `id, text`, a document a row."""

import re
from collections.abc import Iterable
from typing import Any

from toolformer.benchmarks.loaders.sources import Splits, collect, published, text_of
from toolformer.data import Document, FileCorpus, demo_corpus


def heldout(heldout_path: str | None = None, **metadata: Any) -> Splits:
    """Held-out texts: `id, text` of a JSON Lines file, read as a corpus is, or the held-out part of the demo corpus."""
    corpus: Iterable[Document] = demo_corpus(split="heldout")
    if heldout_path is not None:
        corpus = FileCorpus(path=heldout_path, format="jsonl", key="heldout")
    rows = (("", {"id": document.doc_id, "text": document.text}) for document in corpus)
    return collect("heldout_perplexity", rows, lambda row, _: row, metadata)


def wikitext(**metadata: Any) -> Splits:
    """WikiText's raw test part, an article a row: `id, text` (as published) and `page`, which lm-eval's detokenizer reads."""
    from_file, rows = published("wikitext_perplexity", metadata)
    texts = (text_of(row, "text", place) for place, row in rows)
    articles = texts if from_file else articles_of(texts)
    made = [("", {"id": str(n), "text": text, "page": text}) for n, text in enumerate(articles)]
    return collect("wikitext_perplexity", made, lambda row, _: row, metadata)


def articles_of(lines: Iterable[str]) -> list[str]:
    """WikiText's lines as articles: one begins at a heading of the first level between blank lines.

    Without the blank lines, broken formulas (" = 1 henry = ") would begin articles too.
    """
    whole = [line if line.endswith("\n") else line + "\n" for line in lines]
    starts = [
        n
        for n, line in enumerate(whole)
        if re.fullmatch(r" = [^=].* = \n", line)
        and (n == 0 or not whole[n - 1].strip())
        and (n + 1 == len(whole) or not whole[n + 1].strip())
    ]
    ends = [*starts[1:], len(whole)]
    return [
        "".join(whole[0 if n == 0 else start : end])
        for n, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
