"""The documents of every task, one function a benchmark: from a data folder, the hub, or a generator.

lm-eval calls them (`custom_dataset` of a task file) with the task's metadata, into which the task manager's is mixed.
The task file gives `hub` (path, config or data_dir, split, revision) and `published_rows`; the caller may give
`data_dir` (null is the hub; not given, it is the environment variable TOOLFORMER_DATA_DIR, and without either the hub), `heldout_path`, `wikitext` ("2"
or "103"), `dateset_seed`, and `subset` with `seed` for a seeded subset. Other keys are ignored: lm-eval mixes the
model's arguments in. Each returns the split `test`. Knows nothing of prompts, models or scores.
"""

from __future__ import annotations

from benchmarks.loaders.lama import google_re as lama_google_re
from benchmarks.loaders.lama import squad as lama_squad
from benchmarks.loaders.lama import trex as lama_trex
from benchmarks.loaders.math import asdiv, mawps, numeric_answer, svamp
from benchmarks.loaders.multilingual import mlqa, xquad
from benchmarks.loaders.perplexity import articles_of, heldout, wikitext
from benchmarks.loaders.qa import nq, triviaqa, webqs
from benchmarks.loaders.temporal import dateset, templama

__all__ = [
    "articles_of",
    "asdiv",
    "dateset",
    "heldout",
    "lama_google_re",
    "lama_squad",
    "lama_trex",
    "mawps",
    "mlqa",
    "nq",
    "numeric_answer",
    "svamp",
    "templama",
    "triviaqa",
    "webqs",
    "wikitext",
    "xquad",
]
