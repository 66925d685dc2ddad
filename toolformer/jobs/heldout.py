"""Held-out texts, for the perplexity of trainings and evaluations: chosen here for the keys of both and for their work.

They are those of `heldout`; else those that the annotations held out of their corpora; where there is no annotation, those of
the configured corpus.
"""

import logging
from collections import Counter
from dataclasses import replace
from typing import Any

from toolformer.data import Document, FileCorpus
from toolformer.data.heldout import MOST, draw, held_out, parts
from toolformer.errors import UserError
from toolformer.jobs.config import Config
from toolformer.jobs.corpora import corpus, corpus_name, documents, source
from toolformer.jobs.job import Sources
from toolformer.jobs.outputs import read_heldout
from toolformer.results import Results
from toolformer.step import Step
from toolformer.storage import content_digest

log = logging.getLogger(__name__)

TASK = "heldout_perplexity"
"""The benchmark that measures it."""


def digest(config: Config, sources: Sources) -> Any:
    """Identity of the held-out texts, for a step's key. UserError if an annotation held out none."""
    if config.heldout.source:
        return documents(config, "heldout")
    for step in sources.annotations:
        if "heldout" not in step.inputs:
            raise UserError(
                f"heldout: generate run {step.key()[:8]} held no text out of its corpus; name held-out texts: corpus@heldout=jsonl "
                "heldout.path=FILE"
            )
    if sources.annotations:
        return [_held_out_of(step.inputs["corpus"], step.inputs["heldout"]) for step in sources.annotations]
    return [_held_out_of(documents(config), share(config))]


def share(config: Config) -> Any:
    """How many texts are held out of the corpus, as an input of a step."""
    is_default = config.heldout_limit == MOST
    return config.heldout_share if is_default else [config.heldout_share, config.heldout_limit]


def _held_out_of(corpus: Step, share: Any) -> str:
    return Step("heldout", corpus.version, {"share": share}, {"corpus": corpus}).key()


def texts(config: Config, sources: Sources, results: Results) -> tuple[list[Document], list[Document]]:
    """The held-out texts that choose a checkpoint, and those that are reported; logs where they come from.

    UserError if they are gone or damaged.
    """
    if config.heldout.source:
        named = corpus(replace(config.heldout, limit=None), "heldout")
        documents = draw(named, config.heldout.limit, config.heldout_seed)
        origin = f"drawn, rows dropped: {named.skipped() or 'none'}"
    elif sources.annotations:
        runs = [results.get(step.key()) for step in sources.annotations]
        documents = read_heldout(results, runs)
        names = " and ".join(run.id[:8] for run in runs)
        origin = f"that generate run {names} held out of its corpus"
    else:
        documents = held_out(corpus(config.corpus), config.heldout_share, config.heldout_limit)
        origin = f"held out of {corpus_name(config.corpus)}"
    log.info("heldout: %d texts %s", len(documents), origin)
    return parts(documents, config.heldout_seed)


def check_files_differ(config: Config) -> None:
    """UserError for held-out texts of files that the corpus has, too, by content."""
    sources = [
        source(corpus, key) for corpus, key in ((config.corpus, "corpus"), (config.heldout, "heldout"))
    ]
    files = [source.files() if isinstance(source, FileCorpus) else [] for source in sources]
    of_corpus, of_heldout = (Counter(map(content_digest, paths)) for paths in files)
    if shared := (of_corpus & of_heldout).total():
        raise UserError(
            f"heldout: {shared} of its {of_heldout.total()} files are also in corpus.path; name other texts, or leave heldout out "
            "to hold out a share of the corpus (heldout_share)"
        )
    theirs = [(text.source, text.path, text.subset, text.split) for text in (config.corpus, config.heldout)]
    if theirs[0] == theirs[1]:
        raise UserError(
            "heldout: it is the corpus itself; name other texts, or leave heldout out to hold out a share of the corpus "
            "(heldout_share)"
        )
