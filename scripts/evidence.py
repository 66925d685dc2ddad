"""The texts and the index of `experiment=evidence`, from the data folder.

    toolformer data get evidence DIR
    python scripts/evidence.py DIR DIR/evidence [PASSAGES]

PASSAGES (5400, of 35,043) is how many passages of Wikipedia are searched for pairs: ten minutes or so for 5,400.

index       all Wikipedia text of the data folder and the embedded summaries; index.bm25 is the index of it
texts       1.jsonl, what is annotated in a first round, one of each kind in turn:
            250 sums: the 138 texts of the embedded corpus with worked sums, then GSM8K's training set as prose;
            174 excerpts that name their own month or day of the week: 32 of the embedded corpus, 142 of English web pages;
            420 pairs of sentences of Wikipedia with a name that occurs in another passage, which BM25 finds for the words
            before the name.
            2.jsonl, for a second round, the others in turn: 7,361 sums and 1,648 pairs
            glosses.jsonl, for translation: sentences of Wikipedia with words of another language and their English in brackets

`scripts/sums.py` makes 1_open.jsonl and 2_open.jsonl of them, with made-up sums in place of GSM8K. docs/data.md says what DIR must
hold. `scripts/overlap.py` compares a corpus with the benchmarks.
"""

import datetime
import itertools
import json
import random
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from toolformer.benchmarks.data_folder.table import EVIDENCE_TEXTS, FILES
from toolformer.benchmarks.loaders.sources import rows_of
from toolformer.data import Document, demo_corpus
from toolformer.errors import UserError
from toolformer.lm.language_id import LanguageIdentifier
from toolformer.storage import atomic_write
from toolformer.tools.retrieval import bm25, index
from toolformer.tools.retrieval.passages import Passage, articles, passages_of

Row = dict[str, Any]

EXCERPT = 700
"""Characters of an excerpt of a web page, at most."""
SHOWN = 60
"""Words of a passage that search shows."""
_SENTENCE = re.compile(r"[^.!?]+(?:[.!?](?!\s+[A-Z\"])[^.!?]*)*[.!?]?")
_CAPITALISED = r"[A-ZÀ-ÖØ-Þ]\w*"
_GLOSS = re.compile(
    r"""\(\s?(?:[\w ]{0,20}[:,] |literally |meaning |or )?["“'‘]([^"“”()]{4,90})["”'’]"""
    r"""|(?<=["”])\s?\(([^"“”():;\d]{6,90})\)"""
)
_NAME = re.compile(rf"(?<!\w){_CAPITALISED}(?:[ -]{_CAPITALISED})*")


def read_rows(data: Path, name: str) -> Iterator[Row]:
    path = FILES[name].find(data)
    return (row for _, row in rows_of(path)) if path else iter(())


def write(folder: Path, name: str, rows: Iterable[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    atomic_write(folder / f"{name}.jsonl", "".join(lines).encode())
    print(f"{folder / name}.jsonl: {len(lines)} texts")


def in_turn(*kinds: Iterable[Row]) -> Iterator[Row]:
    return (row for rows in itertools.zip_longest(*kinds) for row in rows if row)


def maths(data: Path) -> Iterator[Row]:
    yield from ({"id": document.doc_id, "text": document.text} for document in demo_corpus("sums"))
    yield from read_rows(data, "gsm8k_train")


def dates(data: Path) -> Iterator[Row]:
    """The sentence of each page that first names the page's own month or day, and its neighbours; equal texts once."""
    pages = ((row["id"], row["text"], row["date"]) for row in _pages(data))
    bundled = ((document.doc_id, document.text, document.date) for document in demo_corpus("train"))
    seen = set()
    for name, text, date in itertools.chain(bundled, pages):
        excerpt = _dated(text, datetime.date.fromisoformat(str(date))) if date else None
        if excerpt and excerpt not in seen:
            seen.add(excerpt)
            yield {"id": name, "text": excerpt, "date": str(date)}


def _pages(data: Path) -> Iterator[Row]:
    rows = read_rows(data, "web_documents")
    return (row for row in rows if row["language"] == "en")


def _dated(text: str, day: datetime.date) -> str | None:
    name_of_day = re.compile(rf"\b(?:{day:%A}|{day:%B}|{day:%b}\.? {day.day})\b")
    spans = [match.span() for match in _SENTENCE.finditer(text)]
    for number, (start, end) in enumerate(spans):
        if name_of_day.search(text, start, end) and end - start < EXCERPT:
            first, last = max(0, number - 1), number + 1
            while last < len(spans) and spans[last][1] - spans[first][0] <= EXCERPT:
                last += 1
            start = spans[first][0] if spans[last - 1][1] - spans[first][0] <= EXCERPT else start
            return text[start : spans[last - 1][1]].strip()
    return None


def glosses(data: Path) -> Iterator[Row]:
    """The first sentence of each text with foreign words and their English in brackets, and the one before."""
    identify = LanguageIdentifier().identify
    for source, texts in wikipedia(data):
        if source in ("trex", "nq"):  # the benchmarks' own
            continue
        for row in titled(source, texts):
            text = row["text"]
            spans = [match.span() for match in _SENTENCE.finditer(text)]
            for gloss in _GLOSS.finditer(text):
                words = text[: gloss.start()].rstrip(' "”').split()[-10:]
                ends = (" ".join(words[n:]) for n in range(len(words) - 1))
                foreign = any(label != "en" and surely > 0.7 for label, surely in map(identify, ends))
                if foreign and identify(gloss[1] or gloss[2])[0] == "en":
                    last = next(n for n, span in enumerate(spans) if span[1] >= gloss.end())
                    excerpt = text[spans[max(0, last - 1)][0] : spans[last][1]].strip()
                    if len(excerpt) <= EXCERPT:
                        yield {"id": row["id"], "source_id": row["id"], "text": excerpt}
                        break


def titled(name: str, texts: Iterable[tuple[str, str]]) -> Iterator[Row]:
    """Rows of pairs of title and text; equal texts once."""
    seen = set()
    for number, (title, text) in enumerate(texts):
        if text and text not in seen:
            seen.add(text)
            yield {"id": f"{name}/{number}", "title": title, "text": text}


def wikipedia(data: Path) -> Iterator[tuple[str, Iterator[tuple[str, str]]]]:
    """Every source of Wikipedia text by name: pairs of title and text."""
    squad = read_rows(data, "squad_train")
    yield "squad_train", ((row["title"].replace("_", " "), row["context"]) for row in squad)
    leads = read_rows(data, "2wiki_passages")
    yield "2wiki", ((row["title"], row["text"]) for row in leads)
    facts = read_rows(data, "trex_evidences")
    yield "trex", (
        (sentence["sub_surface"], sentence["masked_sentence"].replace("[MASK]", sentence["obj_surface"]))
        for fact in facts
        for sentence in fact["evidences"]
    )  # fmt: skip
    questions = read_rows(data, "nq_passages")
    yield "nq", ((each["title"], each["text"]) for question in questions for each in question["passages"])
    pages = (row["text"].partition("\n") for row in read_rows(data, "wikipedia_articles"))
    yield "pile_wiki", ((title, text) for title, _, text in pages)
    yield "summaries", ((article.title, article.text) for article in articles())


def indexed(texts: Path, folder: Path) -> bm25.BM25:
    """The index of a folder of texts, as `toolformer index` makes it."""
    rows = (
        json.loads(line) for file in sorted(texts.glob("*.jsonl")) for line in open(file, encoding="utf-8")
    )
    documents = (Document(row["id"], row["text"], title=row["title"]) for row in rows)
    index.write(folder, bm25.BACKEND, lambda path: bm25.build(passages_of(documents, words=100), path))
    return bm25.BM25(index_path=str(folder))


def sentences(texts: Path, search: bm25.BM25, passages: int) -> Iterator[Row]:
    """A sentence with a name that BM25's best passage for the words before it shows, and the sentence before that."""
    sources = (texts / f"{name}.jsonl" for name in ("squad_train", "2wiki", "summaries"))
    rows = [json.loads(line) for file in sources for line in open(file, encoding="utf-8")]
    random.Random(1).shuffle(rows)
    for row in rows[:passages]:
        spans = [match.span() for match in _SENTENCE.finditer(row["text"])]
        document = Document(row["id"], row["text"], source_id=row["id"])
        for before, (start, end) in zip([(0, 0), *spans], spans, strict=False):
            text = row["text"][before[0] : end].strip()
            queries = _names(row["text"], start, end)
            passages_of_queries = search.retrieve(list(queries), 1, [document] * len(queries))
            shown = (_shown(passages) for passages in passages_of_queries)
            hit = any(name.lower() in passage for name, passage in zip(queries.values(), shown, strict=True))
            if hit and 12 <= len(text.split()) <= 60:
                yield {"id": f"{row['id']}/{before[0]}", "source_id": row["id"], "text": text}
                break


def _names(text: str, start: int, end: int) -> dict[str, str]:
    """Names of a sentence that the text before does not hold, by what comes before each in the sentence."""
    sentence = text[start:end]
    names = (match for match in _NAME.finditer(sentence) if len(match[0]) >= 4 and len(sentence.split()) >= 8)
    return {
        sentence[: match.start()].strip(): match[0]
        for match in names
        if len(sentence[: match.start()].split()) >= 5 and match[0] not in text[: start + match.start()]
    }


def _shown(passages: Sequence[Passage]) -> str:
    return " ".join(f"{each.title} > {' '.join(each.text.split()[:SHOWN])}".lower() for each in passages)


def main(data: Path, folder: Path, passages: int) -> None:
    files = [FILES[name] for name in EVIDENCE_TEXTS]
    if missing := [f"{file.path} ({', '.join(file.fields)})" for file in files if not file.find(data)]:
        lacking = f"{data} lacks {len(missing)} of {len(files)} files: {'; '.join(missing)}"
        raise FileNotFoundError(f"{lacking}. `toolformer data get evidence {data}` fetches them")
    for name, texts in wikipedia(data):
        write(folder / "index", name, titled(name, texts))
    search = indexed(folder / "index", folder / "index.bm25")
    sums, pairs = maths(data), sentences(folder / "index", search, passages)
    first = (itertools.islice(sums, 250), dates(data), itertools.islice(pairs, 420))
    write(folder / "texts", "1", in_turn(*first))
    write(folder / "texts", "2", in_turn(sums, pairs))
    write(folder / "texts", "glosses", glosses(data))


if __name__ == "__main__":
    passages = sys.argv[3] if len(sys.argv) == 4 else "5400"
    if len(sys.argv) not in (3, 4) or not re.fullmatch("[1-9][0-9]*", passages):
        print("python scripts/evidence.py DATA FOLDER [PASSAGES], a number from 1", file=sys.stderr)
        sys.exit(2)
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(passages))
    except (OSError, UserError) as error:
        print(f"evidence: {error}", file=sys.stderr)
        sys.exit(2)
