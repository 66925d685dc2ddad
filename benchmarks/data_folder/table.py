"""Every file of a data folder by name, and the names that choose files.

The pins of benchmarks are those of their task files (`metadata.hub`), so that a data folder holds what the hub gives.
"""

from collections.abc import Iterable
from typing import Any

import yaml

from toolformer.benchmarks import DATA_FILES, GROUPS, MLQA_LANGUAGES, TASKS, TASKS_DIR, lines_file
from toolformer.benchmarks.data_folder import texts
from toolformer.benchmarks.data_folder.files import Address, DataFile, Hub
from toolformer.benchmarks.data_folder.measured import MEASURED
from toolformer.benchmarks.loaders.published import Conversion, conversion
from toolformer.benchmarks.loaders.sources import rows_of
from toolformer.errors import UserError, near


class _TaskFile(yaml.SafeLoader):
    """A task file, whose functions stay names."""


_TaskFile.add_constructor("!function", lambda _, node: str(node.value))


def _metadata(task: str) -> dict[str, Any]:
    (path,) = TASKS_DIR.glob(f"*/{task}.yaml")
    metadata: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_TaskFile)["metadata"]
    return metadata


def _benchmark(task: str, licence: str, *fields: str, **others: Any) -> DataFile:
    """The file of a benchmark, from the pin of its task."""
    metadata = _metadata(task)
    options: dict[str, Any] = {
        "source": Hub(metadata["hub"]), "paths": DATA_FILES[task][0], "convert": conversion(task)
    } | others  # fmt: skip
    return DataFile(
        name=task, licence=licence, fields=fields, rows=metadata["published_rows"],
        measured=MEASURED.get(task, ""), **options,
    )  # fmt: skip


def _text(
    name: str, path: str, licence: str, source: Hub | Address, make: Conversion, *fields: str, **others: Any
) -> DataFile:
    """A file that `scripts/headline.py` makes texts or an index of."""
    return DataFile(
        name, lines_file(path), licence, source, make, fields, measured=MEASURED.get(name, ""), **others
    )


def _github(repository: str, commit: str, path: str) -> str:
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"


# The hub's copy, which the pin of the task names, lacks 601 problems.
_MAWPS = Address(
    _github(
        "LYH-YF/MWPToolkit",
        "a21ca1a659f11273f70fac226053f063b6783cc5",
        "dataset/mawps-single/mawps_source.json",
    ),
    texts.json_rows,
)
_ALIASES = "The measured file has the aliases in another order and form; the questions are the same."
_FACTS = "The measured file may have the facts in another order, and therefore another draw of questions."
_PASSAGE = ("id", "context", "question", "answers")

_BENCHMARKS = (
    _benchmark("svamp", "MIT", "body", "question", "answer"),
    _benchmark("asdiv", "CC BY-NC 4.0", "body", "question", "answer"),
    _benchmark(
        "mawps", "none stated (copy: MIT)", "question", "solutions", source=_MAWPS, convert=texts.mwptoolkit
    ),
    _benchmark("webqs", "CC BY 4.0", "question", "answers"),
    _benchmark("nq", "CC BY-SA 3.0", "question", "answers"),
    _benchmark("triviaqa", "Apache-2.0", "question", "answers", note=_ALIASES),
    _benchmark("lama_squad", "CC BY-NC 4.0", "obj_label", "masked_sentences"),
    _benchmark("lama_google_re", "CC BY-NC 4.0", "pred", "sub_label", "obj_label"),
    _benchmark(
        "lama_trex",
        "CC BY-NC 4.0",
        "relation",
        "template",
        "sub_label",
        "obj_label",
        note=_FACTS,
    ),
    _benchmark("templama", "Apache-2.0", "id", "query", "answer", "date", "relation"),
    _benchmark("wikitext_perplexity", "CC BY-SA 3.0", "text"),
    *(_benchmark(f"mlqa_{language}", "CC BY-SA 3.0", *_PASSAGE) for language in ("en", *MLQA_LANGUAGES)),
    *(_benchmark(f"xquad_{language}", "CC BY-SA 4.0", *_PASSAGE) for language in ("en", *MLQA_LANGUAGES)),
)

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
    "Replaces pages that may not be redistributed: the test sets of adbar/trafilatura, adbar/htmldate and flairNLP/fundus; ask "
    "there. The texts with dates are others."
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
          "continuation", rows=400, note=_C4_NOTE),
    _text("web_documents", "corpus_web/documents", "unknown; texts: their authors", _NEWS, texts.news,
          "id", "text", "date", "language", rows=557, note=_NEWS_NOTE),
    _text("squad_train", "squad/train_v1.1", "CC BY-SA 4.0", _SQUAD, texts.paragraphs, "title", "context", rows=18896),
    _text("2wiki_passages", "corpus_wikipedia/passages_2wiki", "CC BY-SA 3.0 (copy: MIT)", _2WIKI, texts.passages,
          "title", "text", rows=6119),
    _text("trex_evidences", "lama/trex_evidences", "CC BY-NC 4.0", Hub(_metadata("lama_trex")["hub"]),
          texts.trex_evidences, "evidences", note=_EVIDENCES_NOTE),
    _text("nq_passages", "nq_open/oracle_passages", "CC BY-SA 3.0 (copy: MIT)", _NQ_PASSAGES, texts.gold_passages,
          "passages", rows=2655),
    _text("wikipedia_articles", "corpus_pile/wikipedia_en", "CC BY-SA 3.0", _WIKIPEDIA, texts.wikipedia, "text",
          rows=1000, note=_WIKIPEDIA_NOTE),
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
        if name not in {*FILES, *TASKS, *DATA_FILES, *GROUPS, HEADLINE}:
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
