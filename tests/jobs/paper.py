"""The paper's setting in small: models of its architectures, texts as cc_net writes them, files of all its benchmarks and its tools,
all made up."""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.build import (
    ARTICLES,
    save_atlas,
    t5_tokenizer,
    teach,
    tiny_model,
    tiny_t5,
    tiny_tokenizer,
    write,
    write_math,
)
from toolformer.benchmarks import MLQA_LANGUAGES

CALLS = (
    "[Calculator(3 + 4)]", '[QA("Who lit the lamp?")]', "[WikiSearch(lighthouse)]", "[Calendar()]", "[MT(la tortue)]",
)  # fmt: skip
PIECES = ("the keeper", "of ships is", "3 + 4 = 7", *CALLS)
SPANISH = "el molino convierte la fuerza del viento en trabajo para los campesinos del valle"


def save_model(folder: Path, architecture: str, width: int = 32) -> Path:
    """A model that has learnt to write the five tools' calls, in any order."""
    tokenizer, chance = tiny_tokenizer(), random.Random(0)
    model = tiny_model(architecture, len(tokenizer), context=2048, width=width)
    teach(model, tokenizer, (" ".join(chance.choices(PIECES, k=12)) for _ in range(400)))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def texts(count: int, first: int = 0) -> Iterator[dict[str, Any]]:
    """Rows with the fields of cc_net and RedPajama-V2, each a text that every tool tries."""
    titles = [*ARTICLES]
    for n in range(first, first + count):
        sums = f"The keeper of {titles[n % 6]} {n} counted {n + 3} ships and {n + 4} ships, which is {2 * n + 7} ships in all."
        foreign = f"The keeper often said to all of the ships: {SPANISH}, and then he would say it again in plain English words."
        day = f"https://example.org/2019/05/{n % 28 + 1:02}/harbour-{n}"
        yield {
            "url": day, "date_download": "2023-02-09T12:31:41Z", "digest": f"sha1:{n}", "length": 300, "nlines": 2,
            "source_domain": "example.org", "title": f"Harbour {n}", "raw_content": f"{sums}\n{foreign}",
            "cc_segment": "crawl-data/CC-MAIN-2023-06/x.warc.wet.gz", "original_nlines": 9, "original_length": 900,
            "line_ids": [1, 2], "language": "en", "language_score": 0.9, "perplexity": 300.1, "bucket": "head",
        }  # fmt: skip


def save_texts(folder: Path, count: int, first: int = 0) -> Path:
    """A shard of cc_net's."""
    folder.mkdir(parents=True)
    with gzip.open(folder / "en_head_0000.json.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in texts(count, first))
    return folder


def save_benchmarks(folder: Path) -> Path:
    """A data folder with some questions of every benchmark of Tables 3 to 8."""
    write_math(folder)
    person = {"pred": "/people/person/place_of_birth", "sub_label": "Ada Bell", "obj_label": "Ulm"}
    fact = {"relation": "P36", "template": "The capital of [X] is [Y] .", "obj_label": "Ulm"}
    player = {
        "query": "Ada Bell plays for _X_.",
        "answer": [{"name": "FC Ulm"}],
        "date": "2014",
        "relation": "P54",
    }
    passage = {
        "context": "The keeper lit the lamp in 1815.",
        "question": "When?",
        "answers": [{"text": "1815"}],
    }
    question = {"question": "who lit the lamp", "answers": ["the keeper"]}
    rows: dict[str, dict[str, Any]] = {
        "lama/squad": {"masked_sentences": ["The sea is [MASK] ."], "obj_label": "blue"},
        "lama/google_re": person, "lama/trex": fact, "templama/test": player,
        **dict.fromkeys(("webquestions/test", "nq_open/dev", "triviaqa/unfiltered_dev"), question),
        **{f"mlqa/{language}": passage for language in ("en", *MLQA_LANGUAGES)},
    }  # fmt: skip
    for name, row in rows.items():
        write(
            folder, name, [{"id": str(n), "uuid": str(n), **row, "sub_label": f"Bell {n}"} for n in range(3)]
        )
    write(
        folder,
        "wikitext2/test_raw",
        [{"text": f" = Ulm {n} = \n\n The keeper lit the lamp . \n"} for n in range(3)],
    )
    return folder


def save_articles(path: Path) -> Path:
    """The small encyclopedia, as the bundled retriever reads it."""
    path.write_text(json.dumps([{"title": title, "extract": text} for title, text in ARTICLES.items()]))
    return path


def save_reader(folder: Path) -> Path:
    """Atlas's checkpoints of two sizes, and T5's tokenizer."""
    tokenizer = t5_tokenizer()
    tokenizer.save_pretrained(folder / "t5")
    for seed, size in enumerate(("large", "xxl")):
        save_atlas(folder / size / "model.pth.tar", tiny_t5(len(tokenizer), seed=seed).state_dict())
    return folder
