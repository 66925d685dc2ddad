"""The questions of `experiment=positions`, and ordinary web pages to annotate, from the data folder.

    python scripts/positions.py DIR

DIR is prepared as conf/setting/headline.yaml says. Writes

docs/results/registration/positions.json  of each benchmark the questions that `scripts/headline.py` draws after its own: its
                                          reserve of 100, and 50 further ones but for arithmetic. Questions that share words or numbers with a text
                                          that is annotated are left out, and those that were asked under another id. Below `mawps_choice` and `svamp_choice`, the problems
                                          among them that need a choice. What was registered is not changed
docs/results/registration/kinds.json      of each text the places after an equals sign, and before a name or number
DIR/headline/web.jsonl                    the beginnings of 300 English web pages, drawn by a seed
"""

import itertools
import json
import random
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts import headline
from toolformer.annotation.positions import equals_spans, name_spans
from toolformer.data.numbers import numbers
from toolformer.errors import UserError
from toolformer.evaluation.ladder.gold import golds
from toolformer.storage import atomic_write

Row = dict[str, Any]

FILE = headline.REGISTRATION / "positions.json"
KINDS = headline.REGISTRATION / "kinds.json"
QUESTIONS = {"arithmetic": 100, "mawps": 150, "svamp": 150, "nq": 150}
PROBLEMS = ("mawps", "svamp")
PAGES = 300


def needs_choice(problem: str, expression: str) -> bool:
    """Whether a solver has to choose what to compute: the published expression has more than one operation, or the problem states a
    number in digits that it lacks.

    >>> needs_choice("Ann has 3 pens and buys 4.", "3 + 4"), needs_choice("Of 3 pens and 4 cups, 2 pens go.", "3 - 2")
    (False, True)
    >>> needs_choice("3 bags of 4 pens and 2 more", "3 * 4 + 2"), needs_choice("It is -3 and 4.", "(-3) + 4")
    (True, False)
    """
    operations = re.findall(r"(?<=[\d)])\s*[-+*/]", expression)
    return len(operations) > 1 or bool(_values(problem) - _values(re.sub(r"[-+*/()]", " ", expression)))


def _values(text: str) -> set[Any]:
    return {abs(number.value) for number in numbers(text)}


def choices(task: str, rows: Sequence[Row], data: Path) -> list[str]:
    """The ids of the problems that need a choice; one without a published expression does not count."""
    calls = golds(task, rows, {"data_dir": str(data)})
    return [
        str(row["id"])
        for row, gold in zip(rows, calls, strict=True)
        if gold.input and needs_choice(f"{row['context']} {row['question']}", gold.input)
    ]


def unshared(task: str, rows: Iterable[Row], texts: Sequence[str]) -> Iterator[Row]:
    """The questions that share neither words nor numbers with a text, as `scripts/headline.py` has it."""
    for row in rows:
        shares = headline.shared_with({task: [row]})
        if not any(map(shares, texts)):
            yield row


def _asked(row: Row) -> str:
    return " ".join(f"{row.get('context', '')} {row['question']}".casefold().split())


def pages(data: Path) -> Iterator[Row]:
    """The first sentences of web pages, as many as an excerpt of the experiment has characters."""
    rows = [row for row in headline.read_rows(data, "web_documents") if row["language"] == "en"]
    random.Random("positions/web").shuffle(rows)
    for row in rows:
        text = row["text"].strip()
        ends = [match.end() for match in re.finditer(r"[.!?](?=\s)", text[: headline.EXCERPT + 1])]
        if ends and ends[-1] >= headline.EXCERPT // 2:
            yield {"id": row["id"], "text": text[: ends[-1]], "url": row["url"], "date": row["date"]}


def main(data: Path) -> None:
    with open(data / "headline" / "texts.jsonl", encoding="utf-8") as lines:
        annotated = [json.loads(line) for line in lines]
    texts, web = [row["text"] for row in annotated], [*itertools.islice(pages(data), PAGES)]
    asked: dict[str, list[str]] = {}
    for task, rows in headline.questions(data, [*QUESTIONS]).items():
        by_id = {str(row["id"]): row for row in rows}
        used = [by_id[identity] for identity in itertools.chain(*headline.drawn(task, rows)[:2])]
        known = {*map(_asked, used)}
        ordered = (by_id[identity] for identity in headline.order(task, rows))
        further = (row for row in ordered if _asked(row) not in known)
        chosen = [*itertools.islice(unshared(task, further, texts), QUESTIONS[task])]
        asked[task] = sorted(str(row["id"]) for row in chosen)
        if task in PROBLEMS:
            asked[f"{task}_choice"] = sorted(choices(task, chosen, data))
    headline.register(FILE, asked)
    kinds = {
        row["id"]: {"equals": equals_spans(row["text"]), "name": name_spans(row["text"])}
        for row in [*annotated, *web]
    }
    if not KINDS.exists():
        atomic_write(KINDS, (json.dumps(kinds, separators=(",", ":")) + "\n").encode())
    headline.write(data / "headline", "web", web)
    print(", ".join(f"{len(ids)} of {name}" for name, ids in asked.items()))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("python scripts/positions.py DATA", file=sys.stderr)
        sys.exit(2)
    try:
        main(Path(sys.argv[1]))
    except (OSError, UserError) as error:
        print(f"positions: {error}", file=sys.stderr)
        sys.exit(2)
