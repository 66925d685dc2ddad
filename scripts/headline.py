"""The texts, the indexes and the questions of `experiment=headline`, from the data folder.

    toolformer data get headline DIR
    python scripts/headline.py DIR

Writes to DIR/headline, in ten minutes or so:

texts.jsonl      350 texts to annotate, one of each kind in turn: 150 with worked sums, 60 of the embedded corpus and 90 made up
                 (`scripts/sums.py`); 80 excerpts that name their own month or day of the week; 120 pairs of sentences of Wikipedia
                 with a name that occurs in another passage, which BM25 finds for the words before the name. None shares 13 words
                 in a row with a question of the registration, or two neighbouring numbers with a question of mathematics
heldout.jsonl    50 excerpts of web pages, and 30 further texts of those kinds
index            all Wikipedia text of the data folder and the embedded summaries; index.bm25 is the index of it
without.bm25     the index without the two sources that were chosen for Natural Questions and T-REx

The questions are drawn by a seed, and their ids are written to docs/results/registration/ (dev.json and test.json) unless they
are there: what was registered is not changed.
"""

import datetime
import itertools
import json
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import sums
from scripts.overlap import FEWEST, spans
from toolformer.benchmarks.data_folder.table import FILES, HEADLINE_TEXTS
from toolformer.benchmarks.loaders.sources import rows_of
from toolformer.data import Document, demo_corpus
from toolformer.errors import UserError
from toolformer.evaluation import suite
from toolformer.storage import atomic_write
from toolformer.tools.retrieval import bm25, index
from toolformer.tools.retrieval.passages import Passage, articles, passages_of

Row = dict[str, Any]

REGISTRATION = Path(__file__).resolve().parents[1] / "docs" / "results" / "registration"
MATHS = ("arithmetic", "mawps", "svamp")
TASKS = (
    *MATHS, "dateset", "nq", "webqs", "triviaqa", "lama_trex", "lama_squad", "templama", "xquad_es", "wikitext_perplexity",
)  # fmt: skip
DEVELOPMENT, TEST, RESERVE = 100, 200, 100
"""Questions of each benchmark; the reserve is not asked, and no text shares words with it."""
ARTICLES = 20
"""Test articles of WikiText."""

EXCERPT = 700
"""Characters of an excerpt of a web page, at most."""
SHOWN = 60
"""Words of a passage that search shows."""
_SENTENCE = re.compile(r"[^.!?]+(?:[.!?](?!\s+[A-Z\"])[^.!?]*)*[.!?]?")
_CAPITALISED = r"[A-ZÀ-ÖØ-Þ]\w*"
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


def sums_of(form_seed: int) -> Iterator[Row]:
    """Made-up texts in forms that hold no wording of a benchmark."""
    texts = enumerate(sums.texts(form_seed))
    return (
        {"id": f"forms/{number}", "text": each.text}
        for number, each in texts
        if "What is" not in each.pattern
    )


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


def indexed(texts: Path, folder: Path, without: Sequence[str] = ()) -> bm25.BM25:
    """The index of a folder of texts but for these sources, as `toolformer index` makes it."""
    files = (file for file in sorted(texts.glob("*.jsonl")) if file.stem not in without)
    rows = (json.loads(line) for file in files for line in open(file, encoding="utf-8"))
    documents = (Document(row["id"], row["text"], title=row["title"]) for row in rows)
    index.write(folder, bm25.BACKEND, lambda path: bm25.build(passages_of(documents, words=100), path))
    return bm25.BM25(index_path=str(folder))


def sentences(texts: Path, search: bm25.BM25) -> Iterator[Row]:
    """A sentence with a name that BM25's best passage for the words before it shows, and the sentence before that."""
    sources = (texts / f"{name}.jsonl" for name in ("squad_train", "2wiki", "summaries"))
    rows = [json.loads(line) for file in sources for line in open(file, encoding="utf-8")]
    random.Random(1).shuffle(rows)
    for row in rows:
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


def questions(data: Path, tasks: Sequence[str]) -> dict[str, list[Row]]:
    """The rows of each benchmark."""
    loaded = suite.load_tasks(tasks, {"data_dir": str(data)})
    return {name: [*loaded.tasks["tasks"][name].test_docs()] for name in loaded.names}


def order(task: str, rows: Sequence[Row]) -> list[str]:
    """The ids of a benchmark's questions in the order in which they are drawn; of arithmetic as many of each family."""
    draws = random.Random(f"headline/{task}")
    families: dict[str, list[str]] = {}
    for row in rows:
        families.setdefault(str(row.get("family") if task == "arithmetic" else ""), []).append(str(row["id"]))
    for ids in families.values():
        draws.shuffle(ids)
    return [*itertools.chain.from_iterable(zip(*families.values(), strict=True))]


def drawn(task: str, rows: Sequence[Row]) -> tuple[list[str], list[str], list[str]]:
    """The ids of a benchmark's development questions, test questions and reserve.

    Where there are fewer questions, a third are for development and the rest are the test.
    """
    mixed = order(task, rows)
    first = min(DEVELOPMENT, len(mixed) // 3)
    second = first + (ARTICLES if task == "wikitext_perplexity" else TEST)
    return sorted(mixed[:first]), sorted(mixed[first:second]), sorted(mixed[second : second + RESERVE])


def register(path: Path, ids: Mapping[str, Sequence[str]]) -> None:
    """Writes the ids of questions; what was registered before stays, and a line says if these data have other questions."""
    if not path.exists():
        atomic_write(path, (json.dumps(ids, indent=0) + "\n").encode())
        return
    registered = json.loads(path.read_text(encoding="utf-8"))
    if other := sorted(task for task in {*registered, *ids} if registered.get(task) != ids.get(task)):
        print(f"{path} stays as it is: with these data other questions of {', '.join(other)} are drawn")


def shared_with(asked: Mapping[str, Sequence[Row]]) -> Callable[[str], bool]:
    """Whether a text shares 13 words in a row, or all of a question of 8 to 12, with a question; or two neighbouring numbers of
    at least two digits with one of mathematics."""
    phrases: dict[int, set[str]] = {}
    pairs = set[tuple[str, str]]()
    for task, rows in asked.items():
        for field in (value for row in rows for value in row.values() if isinstance(value, str)):
            for phrase in spans(field):
                if phrase.count(" ") >= FEWEST - 1:
                    phrases.setdefault(phrase.count(" ") + 1, set()).add(phrase)
            pairs |= _pairs(field) if task in MATHS else set()

    def shares(text: str) -> bool:
        found = any(phrase in known for length, known in phrases.items() for phrase in spans(text, length))
        return found or bool(pairs & _pairs(text))

    return shares


def _pairs(text: str) -> set[tuple[str, str]]:
    numbers = re.findall(r"\d+(?:,\d{3})*", text)
    plain = [number.replace(",", "") for number in numbers]
    return {pair for pair in itertools.pairwise(plain) if min(map(len, pair)) > 1}


def main(data: Path) -> None:
    needed = [FILES[name] for name in HEADLINE_TEXTS]
    if missing := [f"{file.path} ({', '.join(file.fields)})" for file in needed if not file.find(data)]:
        lacking = f"{data} lacks {len(missing)} of {len(needed)} files: {'; '.join(missing)}"
        raise FileNotFoundError(f"{lacking}. `toolformer data get headline {data}` fetches them")
    by_task = questions(data, TASKS)
    ids = {task: drawn(task, rows) for task, rows in by_task.items()}
    asked = {
        task: [row for row in rows if str(row["id"]) in {*itertools.chain(*ids[task])}]
        for task, rows in by_task.items()
    }
    shares = shared_with(asked)
    folder, dropped = data / "headline", 0

    def clean(rows: Iterable[Row]) -> Iterator[Row]:
        nonlocal dropped
        for row in rows:
            if shares(row["text"]):
                dropped += 1
            else:
                yield row

    for name, texts in wikipedia(data):
        write(folder / "index", name, titled(name, texts))
    indexed(folder / "index", folder / "without.bm25", without=("nq", "trex"))
    search = indexed(folder / "index", folder / "index.bm25")
    bundled = clean({"id": each.doc_id, "text": each.text} for each in demo_corpus("sums"))
    forms, dated, pairs = clean(sums_of(1)), clean(dates(data)), clean(sentences(folder / "index", search))
    worked = [*itertools.islice(bundled, 60), *itertools.islice(forms, 90)]
    random.Random(0).shuffle(worked)
    write(folder, "texts", in_turn(worked, itertools.islice(dated, 80), itertools.islice(pairs, 120)))
    further = in_turn(*(itertools.islice(rows, 10) for rows in (forms, dated, pairs)))
    web = itertools.islice(read_rows(data, "web_excerpts"), 50)
    excerpts = ({"id": f"web/{row['id']}", "text": row["prefix"] + row["continuation"]} for row in web)
    heldout = [*excerpts, *further]
    write(folder, "heldout", heldout)
    everything = sorted(row["id"] for row in heldout)
    REGISTRATION.mkdir(parents=True, exist_ok=True)
    for name, number in (("dev", 0), ("test", 1)):
        chosen = {task: parts[number] for task, parts in ids.items()} | {"heldout_perplexity": everything}
        register(REGISTRATION / f"{name}.json", chosen)
    print(f"{dropped} texts left out, which share words or numbers with a question")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("python scripts/headline.py DATA", file=sys.stderr)
        sys.exit(2)
    try:
        main(Path(sys.argv[1]))
    except (OSError, UserError) as error:
        print(f"headline: {error}", file=sys.stderr)
        sys.exit(2)
