"""Every file of a data folder by name, and the names that choose files.

Those of benchmarks are what the task files declare, so that a data folder holds what the hub gives.
"""

import functools
from collections.abc import Iterable
from typing import Any

from toolformer.benchmarks import GROUPS, TASKS
from toolformer.benchmarks.data_folder import texts
from toolformer.benchmarks.data_folder.files import Address, DataFile, Hub
from toolformer.benchmarks.declared import Benchmark, declared, lines_file
from toolformer.benchmarks.loaders.published import Conversion, converted
from toolformer.benchmarks.loaders.sources import rows_of
from toolformer.errors import UserError, near


def _file(benchmark: Benchmark) -> DataFile:
    """The file of a benchmark in a data folder."""
    source: Hub | Address = Hub(benchmark.hub)
    convert: Conversion = functools.partial(converted, benchmark.name)
    if other := benchmark.source:
        source, convert = (
            Address(other["url"], texts.READERS[other["rows"]]),
            texts.CONVERSIONS[other["convert"]],
        )
    return DataFile(
        benchmark.name, lines_file(benchmark.file), benchmark.licence, source, convert, benchmark.fields,
        benchmark.published_rows, benchmark.measured, benchmark.note,
    )  # fmt: skip


_BENCHMARKS = tuple(_file(declared(task)) for task in TASKS if declared(task).file)


def _text(
    name: str, path: str, licence: str, source: Hub | Address, make: Conversion, *fields: str, **others: Any
) -> DataFile:
    """A file that `scripts/headline.py` makes texts or an index of."""
    return DataFile(name, lines_file(path), licence, source, make, fields, **others)


def _github(repository: str, commit: str, path: str) -> str:
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"


_SQUAD = Address(
    "https://rajpurkar.github.io/SQuAD-explorer/dataset/train-v1.1.json",
    texts.squad_paragraphs,
    sha256="3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
)
_2WIKI = Address(
    _github(
        "OSU-NLP-Group/HippoRAG",
        "191f281122e2437743daf1dd2dae23059a14c088",
        "reproduce/dataset/2wikimultihopqa_corpus.json",
    ),
    texts.json_rows,
)
_NQ_PASSAGES = Address(
    _github(
        "nelson-liu/lost-in-the-middle",
        "dc5c20a60a52c46cce60d13c659f698c1343596e",
        "qa_data/nq-open-oracle.jsonl.gz",
    ),
    rows_of,
)
# As many as the English pages with a date that it replaces.
_NEWS = Hub(
    {
        "path": "vblagoje/cc_news",
        "split": "train",
        "first": 557,
        "revision": "81eb2ce0d2a9dad6ad16b68ef750ec290880fa36",
    }
)
_WIKIPEDIA = Hub(
    {"path": "wikimedia/wikipedia", "config": "20231101.en", "split": "train", "first": 1000,
     "revision": "b04c8d1ceb2f5cd4588862100d08de323dccfbaa"}
)  # fmt: skip
_C4 = Hub(
    {
        "path": "allenai/c4",
        "config": "en",
        "split": "validation",
        "first": 400,
        "revision": "1588ec454efa1a09f29cd18ddd04fe05fc8653a2",
    }
)
_C4_NOTE = "The measured file has other excerpts of C4, 1,480 of them, each cut to a fixed length."
_NEWS_NOTE = (
    "Replaces pages that may not be redistributed: the test sets of adbar/trafilatura, adbar/htmldate and flairNLP/fundus, "
    "which you can request from their maintainers. Our dated texts differ."
)
_WIKIPEDIA_NOTE = (
    "Replaces 1,000 articles of the Pile, which is not distributed any more; iamgroot42/mimir gives parts of it on request. The "
    "index holds other articles."
)
_EVIDENCES_NOTE = (
    "The measured file is another copy of the same 28 relations; its facts may come in another order."
)

_TEXTS = (
    _text("web_excerpts", "corpus_web/c4_excerpts", "ODC-BY (copy: MIT)", _C4, texts.excerpts, "id", "prefix",
          "continuation", rows=400, note=_C4_NOTE,
          measured="fbb5a53fe97773ff4ee33f9e55c8d5bf793ddf7a0a0e905844cc838ca918d220"),
    _text("web_documents", "corpus_web/documents", "unknown; texts: their authors", _NEWS, texts.news,
          "id", "text", "date", "language", rows=557, note=_NEWS_NOTE,
          measured="2339090d6ffd8761d95dd2b0a2d8cf2df5ce23a6ab32852700dde938634d3ef0"),
    _text("squad_train", "squad/train_v1.1", "CC BY-SA 4.0", _SQUAD, texts.paragraphs, "title", "context", rows=18896,
          measured="09a21addbb3832ccca36e2fd9b1721285a1565a771e206a4ca6975d49e0e8e04"),
    _text("2wiki_passages", "corpus_wikipedia/passages_2wiki", "CC BY-SA 3.0 (copy: MIT)", _2WIKI, texts.passages,
          "title", "text", rows=6119,
          measured="3bc585dfd091ba78945189a0405ba9ce7bed2b384862d315a0bc53ca70f91c71"),
    _text("trex_evidences", "lama/trex_evidences", "CC BY-NC 4.0", Hub(declared("lama_trex").hub),
          texts.trex_evidences, "evidences", note=_EVIDENCES_NOTE,
          measured="e4dd53ab8d878fab51891592c2a2e3a42c4451dc0b28195e5a8cd742036480a1"),
    _text("nq_passages", "nq_open/oracle_passages", "CC BY-SA 3.0 (copy: MIT)", _NQ_PASSAGES, texts.gold_passages,
          "passages", rows=2655,
          measured="e518810444a86d5892d1e41d89c292e20880bee80a15ac080ea0032be43343f4"),
    _text("wikipedia_articles", "corpus_pile/wikipedia_en", "CC BY-SA 3.0", _WIKIPEDIA, texts.wikipedia, "text",
          rows=1000, note=_WIKIPEDIA_NOTE,
          measured="6611d2c8e996f54786056be87d7ba8d940f1c88227b099a96bfcac566d9810b0"),
)  # fmt: skip

FILES: dict[str, DataFile] = {file.name: file for file in (*_BENCHMARKS, *_TEXTS)}
"""Every file, by name."""
HEADLINE = "headline"
HEADLINE_TEXTS = tuple(file.name for file in _TEXTS)
"""The files that `scripts/headline.py` reads."""
_HEADLINE_TASKS = (
    "mawps", "svamp", "nq", "webqs", "triviaqa", "lama_trex", "lama_squad", "templama", "xquad_es", "wikitext_perplexity",
)  # fmt: skip
"""The benchmarks of `experiment=headline` that read files; a test compares them with the experiment."""


def files_named(names: Iterable[str]) -> list[DataFile]:
    """The files of names: of a file, a benchmark, a group of benchmarks, or `headline`. UserError for other names."""
    chosen: dict[str, DataFile] = {}
    for name in names:
        if name not in {*FILES, *TASKS, *GROUPS, HEADLINE}:
            known = [*FILES, *GROUPS, HEADLINE]
            raise UserError(
                f"data: there is no data set {name!r}{near(name, known)}; toolformer data list shows all"
            )
        chosen |= {file: FILES[file] for file in _files_of(name)}
    return list(chosen.values())


def _files_of(name: str) -> list[str]:
    if name == HEADLINE:
        return [
            *HEADLINE_TEXTS,
            *(file.name for file in FILES.values() if {*_HEADLINE_TASKS} & {*file.tasks}),
        ]
    if name in HEADLINE_TEXTS:
        return [name]
    tasks = {*GROUPS.get(name, (name,))}
    return [file.name for file in FILES.values() if tasks & {*file.tasks}]


def readers(file: DataFile) -> list[str]:
    """The benchmarks and the experiment that read a file; `mlqa_all_en` for its six columns."""
    columns = dict.fromkeys("mlqa_all_en" if task.startswith("mlqa_all_en") else task for task in file.tasks)
    return [*columns, *([HEADLINE] if file.name in _files_of(HEADLINE) else [])]
