"""WikiText and held-out texts (paper, section 4.3): `id, text`, a document a row."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import lines_file
from benchmarks.loaders.sources import (
    Placed,
    Row,
    Splits,
    collect,
    data_folder,
    find_file,
    from_hub,
    rows_of,
    text_of,
)
from toolformer.data import demo_corpus
from toolformer.data.document import content_id
from toolformer.errors import UserError


def heldout(heldout_path: str | None = None, **metadata: Any) -> Splits:
    """Held-out texts: `id, text` of a JSON Lines file, or the held-out part of the demo corpus.

    In cc_net's files the text is `raw_content`. A text without an id is named by its content, as in a corpus.
    """
    rows: Iterable[Placed]
    if heldout_path is not None:
        path = Path(str(heldout_path)).expanduser()
        if not path.is_file():
            raise UserError(f"heldout_path: there is no file {path}; name a JSON Lines file")
        rows = rows_of(path)
    else:
        rows = [("", {"id": d.doc_id, "text": d.text}) for d in demo_corpus(split="heldout")]

    def make(row: Row, place: str) -> Row | str:
        name = "raw_content" if "raw_content" in row and "text" not in row else "text"
        text = text_of(row, name, place)
        if not text.strip():
            return "empty text"
        identity = row.get("id")
        return {"id": content_id(text) if identity in (None, "") else identity, "text": text}

    return collect("heldout_perplexity", rows, make, metadata)


def wikitext(wikitext: str | int = "2", hub: Row | None = None, **metadata: Any) -> Splits:
    """WikiText's raw test part, an article a row: `id, text` (as published) and `page`, the same text.

    `wikitext` is 2 or 103 (their test parts are the same articles). `page` is what lm-eval's detokenizer
    reads.
    """
    if str(wikitext) not in ("2", "103"):
        raise UserError(f"wikitext is {wikitext!r}; it must be 2 or 103")
    folder = data_folder(metadata)
    if folder:
        file = lines_file(f"wikitext{wikitext}/test_raw")
        rows = rows_of(find_file(folder, "wikitext_perplexity", file))
        articles = [text_of(row, "text", place) for place, row in rows]
    else:
        lines = from_hub("wikitext", {**hub, "config": f"wikitext-{wikitext}-raw-v1"} if hub else None)
        articles = articles_of(text_of(row, "text", place) for place, row in lines)
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
