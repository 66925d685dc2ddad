"""Which texts of a corpus share 13 words in a row with a benchmark, and the corpus without them.

    python scripts/overlap.py FILE corpus=jsonl corpus.path=FOLDER 'benchmarks=[svamp,mawps,lama_trex]' paths.data_dir=DIR

Prints a line a benchmark and writes the texts that overlap with none to FILE, as JSON Lines that `corpus=jsonl` reads. Words
are compared in lower case and without punctuation. A question of 8 to 12 words must occur as a whole; what is shorter is
not looked for.
"""

import dataclasses
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator

from toolformer.errors import UserError
from toolformer.evaluation import suite
from toolformer.jobs import corpora
from toolformer.jobs.config import compose, validate

WORDS = 13
FEWEST = 8


def spans(text: str, length: int = WORDS) -> Iterator[str]:
    """Every `length` words in a row, or all words where there are fewer."""
    words = re.findall(r"\w+", text.casefold())
    for start in range(max(1, len(words) - length + 1)):
        yield " ".join(words[start : start + length])


def main(path: str, *overrides: str) -> None:
    config = validate(compose("run", overrides))
    metadata = {"data_dir": config.paths.data_dir, "seed": config.seed}
    loaded = suite.load_tasks(config.benchmarks, metadata, tasks_dir=config.paths.tasks_dir)
    where: dict[str, set[tuple[str, int]]] = {}
    rows: dict[str, int] = {}
    for name in loaded.names:
        documents = loaded.tasks["tasks"][name].test_docs()
        rows[name] = len(documents)
        for number, row in enumerate(documents):
            for field in row.values():
                for span in spans(field) if isinstance(field, str) else ():
                    if span.count(" ") >= FEWEST - 1:
                        where.setdefault(span, set()).add((name, number))
    lengths = {span.count(" ") + 1 for span in where}

    texts, dropped, hit = 0, Counter[str](), set[tuple[str, int]]()
    with open(path, "w") as clean:
        for document in corpora.corpus(config.corpus):
            texts += 1
            found = {
                row
                for length in lengths
                for span in spans(document.text, length)
                for row in where.get(span, ())
            }
            hit |= found
            dropped.update({name for name, _ in found} | ({"all"} if found else set()))
            if not found:
                row = dataclasses.asdict(document)
                clean.write(json.dumps({**row, "id": row.pop("doc_id")}, default=str) + "\n")
    hits, sought = (Counter(name for name, _ in found) for found in (hit, set().union(*where.values())))
    for name, count in rows.items():
        shared = f"{dropped[name]} of {texts} texts share words with {hits[name]} of {sought[name]} rows"
        print(f"{name}: {shared}; {count - sought[name]} are too short to look for")
    print(f"{path}: {texts - dropped['all']} texts")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-") or "=" in sys.argv[1]:
        print("python scripts/overlap.py FILE [KEY=VALUE ...]", file=sys.stderr)
        sys.exit(2)
    try:
        main(*sys.argv[1:])
    except UserError as error:
        print(f"overlap: {error}", file=sys.stderr)
        sys.exit(2)
