"""`toolformer index`: a corpus becomes a folder that search reads, by either backend."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from toolformer import build
from toolformer.config import Config
from toolformer.documents import FileCorpus
from toolformer.errors import UserError
from toolformer.tools.retrieval import bm25, lucene
from toolformer.tools.retrieval.index import manifest_of, write
from toolformer.tools.retrieval.passages import passages_of

log = logging.getLogger(__name__)


def index(config: Config) -> tuple[Path, int]:
    """Builds the index of the corpus, unless it is there; returns its folder and the number of its passages.

    Raises:
        UserError: no folder is named, something else is there or an index of texts that have changed since, the corpus holds no text, or Lucene cannot be started.
    """
    wanted = config.index
    if not wanted.path:
        raise UserError("index.path is missing; name the folder that the index becomes: index.path=DIR")
    if wanted.backend == lucene.BACKEND:
        lucene.check()
    folder = Path(wanted.path).expanduser()
    corpus = build.documents(config.corpus)
    about = {"corpus": asdict(config.corpus), "passage_words": wanted.passage_words}
    texts = {"texts": _told(corpus)}
    there = manifest_of(folder)
    if there and there.get("backend") == wanted.backend and about.items() <= there.items():
        if not texts.items() <= there.items():
            raise UserError(
                f"index.path: {folder} was built of other texts: the corpus's files have changed since; remove it or "
                "name another folder"
            )
        log.info("index: %s is already there", folder)
        return folder, int(there["passages"])
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(
            f"index.path: {folder} is there and is another thing; remove it or name another folder"
        )
    build_index = lucene.build if wanted.backend == lucene.BACKEND else bm25.build
    passages = passages_of(
        tqdm(corpus, desc="index", unit="doc", smoothing=0.1, disable=None), wanted.passage_words
    )
    count = write(folder, wanted.backend, lambda place: build_index(passages, place), about | texts)
    return folder, count


def _told(corpus: build.Corpus) -> str:
    """A name for the texts of a corpus: its files by place, size and time of change; empty where it has no files."""
    if not isinstance(corpus.source, FileCorpus):
        return ""
    digest = hashlib.sha256()
    for file in corpus.source.files():
        stat = file.stat()
        digest.update(
            f"{file.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode("utf-8", "surrogateescape")
        )
    return digest.hexdigest()[:16]
