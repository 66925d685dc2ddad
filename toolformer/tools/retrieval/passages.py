"""Passages, the interface of all retrievers, and the exclusion of a document's own article.

A document that is an article, or nearly the same text as one, never gets that article: it would be its own continuation.
"""

import hashlib
import html
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from toolformer.data import Document, assets
from toolformer.errors import UserError
from toolformer.tools.base import Part, encodable
from toolformer.tools.retrieval.words import overlap_words, word_starts

K1, B = 0.9, 0.4
"""BM25's parameters in both backends: Anserini's defaults, with which the KILT baselines were made."""
LONGEST_QUERY = 2000
"""Characters of a query that are used."""
SHINGLE = 8
SPARE = 3
"""Extra passages to retrieve, since a document's own article is removed afterwards; more if needed."""
TITLE_WORDS = 8
_TAGS = (
    "a abbr b bdi bdo big blockquote body caption center cite code col colgroup del dfn div dl em figcaption figure font footer "
    "h1 h2 h3 h4 h5 h6 head header html i ins kbd main mark nav ol pre q rp rt ruby s samp script section small span strike "
    "strong style sub sup svg table tbody tfoot thead time title tt u ul var video gallery math noinclude nowiki onlyinclude "
    "poem ref references syntaxhighlight timeline br dd dt hr img li link meta p source td th tr wbr"
).split()
_BREAKS = ("br", "hr", "wbr")
_CODE = r"```.*?```|`[^`\n]+`"
_TAG = re.compile(
    rf"{_CODE}|<(/?)({'|'.join(_TAGS)})"
    r"((?:\s+[\w:-]{1,40}\s*=\s*(?:\"[^\"<>]{0,500}\"|'[^'<>]{0,500}'|[^\s\"'<>]{1,200}))*)\s*(/?)>",
    re.IGNORECASE | re.DOTALL,
)
"""A tag, or code between backquotes."""
_ENTITY = re.compile(r"&(?:[A-Za-z]\w{1,30}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
"""With its semicolon: without one, `&copy=` is part of an address."""
_HEADING = re.compile(rf"{_CODE}|^(={{2,6}})([^=\n]+)\1[ \t]*$", re.MULTILINE | re.DOTALL)
_BOLD = re.compile(r"(?:^|\}\}|>)(?:(?:The|An?) )?'''\w[^'\n]*'''(?=[,;]? \S*\w)", re.MULTILINE)
_LINK = re.compile(r"(?<![\w)\]])\[\[[^\W\d_][^\[\]\n]*\]\]")
"""In a wiki's source text: a subject in bold, with which a sentence begins, and a link. A program may have something like one of them."""
_LITERAL = rf"{_CODE}|<(?P<tag>nowiki|pre|code|math|source|syntaxhighlight)\b[^<>]{{0,500}}>(?:(?!<(?P=tag)\b).)*?</(?P=tag)>"
"""What a wiki shows as it is written."""
_WIKI_MARKS = re.compile(
    rf"(?P<literal>{_LITERAL})|\{{\{{[^{{}}]{{0,500}}\}}\}}|'{{2,}}", re.IGNORECASE | re.DOTALL
)
_KILT_MARKS = re.compile(r"^[ \t]*(?:Section|BULLET)::::-?", re.MULTILINE)


@dataclass(frozen=True)
class Passage:
    """A piece of an encyclopedia."""

    passage_id: str
    title: str
    text: str
    score: float = 0.0
    article: str | None = None
    """The article that the passage is a piece of; None for a whole article."""


class Retriever(Part, ABC):
    """Finds passages for search and question answering."""

    @abstractmethod
    def retrieve(self, queries: Sequence[str], k: int, documents: Sequence[Document]) -> list[list[Passage]]:
        """At most `k` passages for each query, best first, without the article of `documents[n]`.

        `Fault` if a server is away.
        """


def clean(text: str) -> str:
    """Plain text on one line: HTML's tags, KILT's marks and, of a wiki's source text, its marks removed; blanks collapsed.

    A tag is one with attributes or a closing slash, one of a pair that are both in the text, or a line break. A heading on
    a line of its own is a wiki's; templates and quotes are where a sentence begins with its subject in bold and the text has
    a heading or a link. All else is text, as is all between backquotes: `List<String>`, `a <x and x> b`, `x[[1]]`.
    """
    tags = [tag for tag in _TAG.finditer(text) if tag[2]]
    opened = {tag[2].lower() for tag in tags if not tag[1]}
    paired = {tag[2].lower() for tag in tags if tag[1]} & opened

    def blank(tag: re.Match[str]) -> str:
        _, name, attributes, ending = tag.groups()
        is_tag = name and (attributes or ending or name.lower() in paired or name.lower() in _BREAKS)
        return " " if is_tag else tag[0]

    prose = re.sub(_CODE, " ", text, flags=re.DOTALL)
    if _BOLD.search(prose) and (_HEADING.search(prose) or _LINK.search(prose)):
        text = _WIKI_MARKS.sub(lambda mark: mark["literal"] or " ", text)
    text = _KILT_MARKS.sub(" ", _TAG.sub(blank, text))
    text = _HEADING.sub(lambda heading: heading[2] or heading[0], text)
    return plain_line(_ENTITY.sub(lambda entity: html.unescape(entity[0]), text))


def plain_line(text: str) -> str:
    """Blanks collapsed, lone surrogates replaced."""
    return " ".join(encodable(text).split())


def articles(path: Path | str | None = None) -> list[Passage]:
    """The articles of a JSON file of summaries (`title`, `extract`); the bundled vital articles by default."""
    file = Path(path).expanduser() if path else assets.ensure("wikipedia")
    try:
        rows = json.loads(file.read_bytes())
        rows = list(rows.values()) if isinstance(rows, dict) else rows
        pairs = [(plain_line(str(row["title"])), clean(str(row["extract"] or ""))) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"search: {file} is not a list of articles with title and extract ({error})"
        ) from error
    passages = [Passage(title, title, text) for title, text in pairs if text]
    if not passages:
        raise UserError(f"search: {file} has no article with text; give a list with title and extract")
    return passages


def wikipedia_documents() -> Iterator[Document]:
    """The bundled articles as a corpus (`corpus=wikipedia`)."""
    for passage in articles():
        digest = hashlib.sha256(passage.passage_id.encode()).hexdigest()[:12]
        yield Document(f"wikipedia-{digest}", passage.text, source_id=passage.passage_id, title=passage.title)


def passages_of(documents: Iterable[Document], words: int | None) -> Iterator[Passage]:
    """Documents as passages of at most `words` words each (None: whole), in their order.

    The title of a document without one is the first words of its first line.
    """
    for document in documents:
        article = document.source_id or document.doc_id
        heading = document.title or document.text.strip().partition("\n")[0]
        title = clean(heading) if document.title else " ".join(clean(heading).split()[:TITLE_WORDS])
        pieces = list(cut(clean(document.text), words))
        if len(pieces) == 1:
            yield Passage(article, title, pieces[0])
            continue
        for n, text in enumerate(pieces, start=1):
            yield Passage(f"{article}#{n}", title, text, article=article)


def passage_of_row(row: Mapping[str, Any], passage_id: str, score: float) -> Passage:
    """The passage of a row with `title` and `text`, or with `contents`, whose first line is the title."""
    head, _, rest = str(row.get("contents", "")).partition("\n")
    title = row.get("title") or row.get("wikipedia_title") or head.strip('" ')
    text = row.get("text") or rest or head
    return Passage(passage_id, plain_line(str(title)), clean(str(text)), score, row.get("article"))


def cut(text: str, words: int | None) -> Iterator[str]:
    """A text in pieces of `words` words, the last one possibly shorter; in scripts without blanks a character is a word."""
    line = " ".join(text.split())
    starts = word_starts(line)
    size = words or max(1, len(starts))
    bounds = [*starts[::size], len(line)]
    for start, end in pairwise(bounds):
        yield line[start:end].rstrip()


def best_piece(passage: Passage, query: str, words: int | None) -> Passage:
    """A passage narrowed to its piece with the most distinct words of the query; the first one in a tie."""
    pieces = list(cut(passage.text, words))
    if len(pieces) < 2:
        return passage
    query_words = set(overlap_words(query))
    shared = [len(query_words & set(overlap_words(piece))) for piece in pieces]
    return replace(passage, text=pieces[shared.index(max(shared))])


def retrieve_excluding_self(
    documents: Sequence[Document],
    queries: Sequence[int],
    k: int,
    total: int,
    search: Callable[[Sequence[int], int], Sequence[Sequence[Passage]]],
) -> list[list[Passage]]:
    """The `k` best passages for each document's query that are not the document itself; none for those not in `queries`.

    Args:
        queries: the indices of the documents that have a query.
        total: passages in the index.
        search: called with indices and a count: the best passages for each of these queries, best first.
    """
    # By the document, not its id: examples of a benchmark may share one.
    shingles = {documents[n]: _shingled(documents[n].text) for n in queries}
    best: list[list[Passage]] = [[] for _ in documents]
    count = k + SPARE
    while queries:
        count = min(count, total)
        left: list[int] = []
        for n, ranked in zip(queries, search(queries, count), strict=True):
            kept = [
                passage for passage in ranked if not _is_from(documents[n], shingles[documents[n]], passage)
            ]
            best[n] = kept[:k]
            if len(kept) < k and len(ranked) == count < total:
                left.append(n)
        queries = left
        count *= 4
    return best


def own_article(document: Document) -> str:
    """Everything that decides which passages a document does not get (see `_is_from`)."""
    return json.dumps([document.source_id, document.text])


def _is_from(document: Document, shingles: set[int], passage: Passage) -> bool:
    """Whether a document is that article: by id, or by more than half of the shorter one's word 8-grams."""
    if document.source_id is not None and document.source_id in (passage.passage_id, passage.article):
        return True
    theirs = _shingled(passage.text) if shingles else set()
    return len(shingles & theirs) * 2 > min(len(shingles), len(theirs))


def _shingled(text: str) -> set[int]:
    words = overlap_words(text)
    return {hash(tuple(words[n : n + SHINGLE])) for n in range(len(words) - SHINGLE + 1)}
