"""Held-out texts, for the perplexity of trainings and evaluations: chosen here for the keys of both and for their work.

They are those of `heldout`; else those that the annotations held out of their corpora; where there is no annotation, those of
the configured corpus.
"""

import logging
from typing import Any

from toolformer.data import Document
from toolformer.data.heldout import MOST, parts, split
from toolformer.errors import UserError
from toolformer.jobs import instantiate
from toolformer.jobs.config import Config
from toolformer.jobs.job import Sources
from toolformer.jobs.outputs import read_heldout
from toolformer.jobs.versions import VERSIONS
from toolformer.results import Results
from toolformer.step import Step, settings_of

log = logging.getLogger(__name__)

TASK = "heldout_perplexity"
"""The benchmark that measures it."""


def documents(config: Config, key: str = "corpus") -> Step:
    """The texts of a corpus, `corpus` or `heldout`: what its files hold, and how they are read. Reads no text."""
    settings = settings_of(config, "documents" if key == "corpus" else "heldout").get(key, {})
    source = instantiate.corpus(getattr(config, key), key)
    return Step("documents", VERSIONS["documents"], settings, {"content": source.digest()})


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
        documents = instantiate.heldout(config)
    elif sources.annotations:
        runs = [results.get(step.key()) for step in sources.annotations]
        documents = read_heldout(results, runs)
        names = " and ".join(run.id[:8] for run in runs)
        log.info("heldout: %d texts that generate run %s held out of its corpus", len(documents), names)
    else:
        documents = split_off(config)
        log.info("heldout: %d texts held out of %s", len(documents), instantiate.corpus_name(config.corpus))
    return parts(documents, config.heldout_seed)


def split_off(config: Config) -> list[Document]:
    """The documents that are held out of the configured corpus."""
    return [
        document
        for document, is_held_out in split(
            instantiate.corpus(config.corpus), config.heldout_share, config.heldout_limit
        )
        if is_held_out
    ]
