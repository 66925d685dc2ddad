"""Where the tasks' documents come from: generated, a data folder, or the Hugging Face hub.

lm-eval calls the public functions (`custom_dataset` of a task file) with the task manager's metadata.
Understood are `data_dir` (else the environment variable TOOLFORMER_DATA_DIR; without either, the hub),
`heldout_path`, `wikitext` ("2" or "103"), `dateset_seed`, and `subset` with `seed` for a seeded subset;
other keys are ignored, since lm-eval mixes the model's arguments in. Knows nothing of prompts, models or
scores.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import datasets

from benchmarks import dateset as dateset_generator
from benchmarks.metrics import as_number
from toolformer.documents import JsonlCorpus, demo_corpus
from toolformer.errors import UserError

log = logging.getLogger(__name__)

Row = dict[str, Any]
Splits = dict[str, datasets.Dataset]
DATA_DIR_VARIABLE = "TOOLFORMER_DATA_DIR"

HUB: dict[str, dict[str, Any]] = {
    # Two splits that together are the 1,000 problems.
    "svamp": {"path": "ChilleD/SVAMP", "revision": "5e0bf1e5e7c0e9c4bc39180d224f41f3f801b7ef"},
    "asdiv": {"path": "EleutherAI/asdiv", "revision": "main"},
    "mawps": {"path": "mwpt5/MAWPS", "revision": "5769dc9a31ea36eaeaab1f1e0aa1a54b6c08d804"},
    "wikitext": {"path": "Salesforce/wikitext", "revision": "b08601e04326c79dfdd32d625aee71d232d685c3"},
}
"""Hub name and revision of each benchmark; of ASDiv no commit is pinned, its main branch is Parquet."""


# ------------------------------------------------------------------ tasks


def dateset(dateset_seed: int = 0, **metadata: Any) -> Splits:
    """Dateset, generated: `id, family, question, answers, current_date` (see benchmarks/dateset.py)."""
    return _splits("dateset", dateset_generator.generate(int(dateset_seed)), metadata, by="family")


def svamp(**metadata: Any) -> Splits:
    """SVAMP, 1,000 problems: `id, context, question, answer` (as are ASDiv and MAWPS)."""
    folder = _data_dir(metadata)
    if folder:
        rows = _numeric("svamp", _read(folder, "svamp", "svamp"), _svamp_row)
    else:
        rows = _numeric("svamp", _from_hub("svamp", "train", "test"), _svamp_hub_row)
    return _splits("svamp", rows, metadata)


def asdiv(**metadata: Any) -> Splits:
    """ASDiv, 2,305 problems, of which those with one number for an answer are kept."""
    folder = _data_dir(metadata)
    rows = _read(folder, "asdiv", "asdiv") if folder else _from_hub("asdiv", "validation")
    return _splits("asdiv", _numeric("asdiv", rows, _asdiv_row), metadata)


def mawps(**metadata: Any) -> Splits:
    """MAWPS: 2,373 problems of a data folder, or 1,772 of the hub copy, with its masked numbers put back."""
    folder = _data_dir(metadata)
    if folder:
        rows = _numeric("mawps", _read(folder, "mawps", "mawps_full"), _mawps_row)
    else:
        rows = _numeric("mawps", _from_hub("mawps", "train"), _mawps_hub_row)
    return _splits("mawps", rows, metadata)


def heldout(heldout_path: str | None = None, **metadata: Any) -> Splits:
    """Held-out texts: `id, text` of a JSON Lines file, or the held-out part of the demo corpus."""
    documents = JsonlCorpus(heldout_path) if heldout_path else demo_corpus(split="heldout")
    return _splits("heldout_perplexity", [{"id": d.doc_id, "text": d.text} for d in documents], metadata)


def wikitext(wikitext: str | int = "2", **metadata: Any) -> Splits:
    """WikiText's raw test part, an article a row: `id, text` (as published) and `page`, the same text.

    `wikitext` is 2 or 103 (their test parts are the same articles). `page` is what lm-eval's detokenizer
    reads.
    """
    if str(wikitext) not in ("2", "103"):
        raise UserError(f"wikitext is {wikitext!r}; it must be 2 or 103")
    folder = _data_dir(metadata)
    if folder:
        articles = [
            _field(row, "text", place) for place, row in _read(folder, f"wikitext{wikitext}", "test_raw")
        ]
    else:
        lines = _from_hub("wikitext", "test", name=f"wikitext-{wikitext}-raw-v1")
        articles = articles_of(_field(row, "text", place) for place, row in lines)
    rows = [{"id": str(n), "text": text, "page": text} for n, text in enumerate(articles)]
    return _splits("wikitext_perplexity", rows, metadata)


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


# ---------------------------------------------------------- rows of sources

Problem = tuple[str, str, Any]
"""Context x, question q, answer as published."""


def _svamp_row(row: Row, place: str) -> Problem:
    return _field(row, "body", place), _field(row, "question", place), row.get("answer")


def _svamp_hub_row(row: Row, place: str) -> Problem:
    return _field(row, "Body", place), _field(row, "Question", place), row.get("Answer")


def _asdiv_row(row: Row, place: str) -> Problem:
    return _field(row, "body", place), _field(row, "question", place), row.get("answer")


def _mawps_row(row: Row, place: str) -> Problem:
    return "", _field(row, "question", place), row.get("solutions")


def _mawps_hub_row(row: Row, place: str) -> Problem:
    """`Question` with N_00, N_01, ... for the values of `Numbers` (separated by blanks)."""
    numbers = _field(row, "Numbers", place).split()

    def value(match: re.Match[str]) -> str:
        index = int(match[1])
        # 8.0 is how the copy writes an 8.
        return re.sub(r"\.0+$", "", numbers[index]) if index < len(numbers) else match[0]

    question = re.sub(r"\bN_(\d+)\b", value, _field(row, "Question", place))
    return "", question, None if re.search(r"\bN_\d", question) else row.get("Answer")


def numeric_answer(answer: Any) -> tuple[str | None, str]:
    """An answer as published to one number, or (None, the reason why it is none).

    Numbers stay as they are written. A text may have its unit behind it: "9 (apples)", "$5", "1/2 (pizza)",
    "30%".

    >>> numeric_answer("9 (apples)"), numeric_answer([98.0]), numeric_answer("2:1 (ratio)")
    (('9', ''), ('98.0', ''), (None, 'ratio or time'))
    """
    if isinstance(answer, list | tuple):
        if len(answer) != 1:
            return None, "several answers" if answer else "no answer"
        return numeric_answer(answer[0])
    if answer is None or isinstance(answer, bool) or not str(answer).strip():
        return None, "no answer"
    text = re.sub(r"\([^)]*\)", " ", str(answer)).strip()
    if ";" in text or re.search(r"\d\s*,\s+[-$\d]", text):
        return None, "several answers"
    if re.search(r"\d\s*:\s*\d", text):
        return None, "ratio or time"
    # A unit without parentheses: letters only, so that no second number is lost.
    text = re.sub(r"(?<=[\d.%])\s*[^\W\d_]+[.]?(?:\s+[^\W\d_]+)*$", "", text)
    try:
        as_number(text)
    except ValueError:
        return None, "not a number"
    return text, ""


# ----------------------------------------------------------------- sources


def _data_dir(metadata: Row) -> Path | None:
    given = metadata.get("data_dir") or os.environ.get(DATA_DIR_VARIABLE)
    if not given:
        return None
    folder = Path(str(given)).expanduser()
    if not folder.is_dir():
        raise UserError(f"data_dir: there is no folder {folder}; leave data_dir out to read from the hub")
    return folder


def _read(folder: Path, benchmark: str, name: str) -> Iterator[tuple[str, Row]]:
    """Rows of data_dir/<benchmark>/<name>.jsonl.gz (or .jsonl), each with its place for messages."""
    packed, plain = folder / benchmark / f"{name}.jsonl.gz", folder / benchmark / f"{name}.jsonl"
    path = plain if plain.is_file() and not packed.is_file() else packed
    if not path.is_file():
        raise UserError(f"data_dir: {folder} has no {benchmark}; expected the file {packed}")
    opener: Callable[..., Any] = gzip.open if path == packed else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                place = f"{path}, line {number}"
                try:
                    row = json.loads(line)
                except ValueError:
                    raise UserError(f"{place}: malformed JSON; mend the row") from None
                if not isinstance(row, dict):
                    raise UserError(f"{place}: not a JSON object; mend the row")
                yield place, row
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise UserError(f"{path}: the file cannot be read ({error}); write it again") from error


def _from_hub(benchmark: str, *splits: str, **options: Any) -> Iterator[tuple[str, Row]]:
    source = HUB[benchmark]
    for split in splits:
        try:
            loaded = datasets.load_dataset(**source, split=split, **options)
        # The hub client raises a dozen types, from its own to those of the HTTP library, for "not there".
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0][:160]
            raise UserError(
                f"{benchmark}: {source['path']} cannot be read from the hub ({reason}); "
                f"set data_dir to a folder that holds the benchmark"
            ) from error
        for number, row in enumerate(loaded):
            yield f"{source['path']}, {split}, row {number}", dict(row)


def _field(row: Row, name: str, place: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise UserError(f"{place}: no text in field `{name}`; mend the row")
    return value


# --------------------------------------------------------------- documents


def _numeric(name: str, rows: Iterable[tuple[str, Row]], read: Callable[[Row, str], Problem]) -> list[Row]:
    """The problems whose answer is one number; what is dropped is counted by reason and logged."""
    kept: list[Row] = []
    dropped: Counter[str] = Counter()
    total = 0
    for place, row in rows:
        total += 1
        context, question, published = read(row, place)
        answer, reason = numeric_answer(published)
        if answer is None:
            dropped[reason] += 1
            continue
        kept.append(
            {
                "id": str(row.get("id", row.get("ID", total))),
                "context": context.strip(),
                "question": question.strip(),
                "answer": answer,
            }
        )
    log.info("%s: %d rows read, %d kept, dropped: %s", name, total, len(kept), dict(dropped) or "none")
    return kept


def _splits(name: str, rows: list[Row], metadata: Row, by: str | None = None) -> Splits:
    """The rows, or their seeded subset, as the split `test`."""
    key = (
        "perplexity_subset" if name.endswith("_perplexity") and "perplexity_subset" in metadata else "subset"
    )
    size = metadata.get(key)
    if size is not None:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise UserError(f"benchmarks: {key} is {size!r}; it must be a whole number of at least 1")
        chosen = dateset_generator.subset(rows, size, int(metadata.get("seed") or 0), by)
        log.info("%s: %d of %d rows (subset)", name, len(chosen), len(rows))
        rows = chosen
    if not rows:
        raise UserError(
            f"{name}: no documents are left to evaluate; check data_dir or the file it is read from"
        )
    return {"test": datasets.Dataset.from_list(rows)}
