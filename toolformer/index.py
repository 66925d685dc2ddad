"""`toolformer index`: a corpus becomes a folder that search reads, by either backend."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from toolformer import build
from toolformer.config import Config
from toolformer.errors import UserError
from toolformer.tools.retrieval import bm25, lucene
from toolformer.tools.retrieval.index import manifest_of, write
from toolformer.tools.retrieval.passages import passages_of

log = logging.getLogger(__name__)


def index(config: Config) -> tuple[Path, int]:
    """Builds the index of the corpus, unless it is there; returns its folder and the number of its passages.

    Raises:
        UserError: no folder is named, something else is there, the corpus holds no text, or Lucene cannot be started.
    """
    wanted = config.index
    if not wanted.path:
        raise UserError("index.path is missing; name the folder that the index becomes: index.path=DIR")
    if wanted.backend == lucene.BACKEND:
        lucene.check()
    folder = Path(wanted.path).expanduser()
    about = {"corpus": asdict(config.corpus), "passage_words": wanted.passage_words}
    there = manifest_of(folder)
    if there and there.get("backend") == wanted.backend and about.items() <= there.items():
        log.info("index: %s is already there", folder)
        return folder, int(there["passages"])
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(
            f"index.path: {folder} is there and is another thing; remove it or name another folder"
        )
    corpus = build.documents(config.corpus)
    build_index = lucene.build if wanted.backend == lucene.BACKEND else bm25.build
    passages = passages_of(
        tqdm(corpus, desc="index", unit="doc", smoothing=0.1, disable=None), wanted.passage_words
    )
    count = write(folder, wanted.backend, lambda place: build_index(passages, place), about)
    return folder, count
