"""`toolformer index`: a corpus becomes a folder that search reads, by either backend."""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import asdict
from pathlib import Path

from toolformer import build
from toolformer.bars import Bar
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
    there = manifest_of(folder)
    if there and there.get("backend") == wanted.backend and about.items() <= there.items():
        # One without a word on its texts (an older one, or of a corpus without files) is taken at its own.
        if there.get("contents", "") not in ("", _told(corpus)):
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
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"index.path: {folder} cannot be a folder ({error.strerror or error}); name another"
        ) from error
    build_index = lucene.build if wanted.backend == lucene.BACKEND else bm25.build
    told = {"contents": _told(corpus)}
    passages = passages_of(Bar(corpus, desc="index", unit="doc", smoothing=0.1), wanted.passage_words)
    count = write(folder, wanted.backend, lambda place: build_index(passages, place), about | told)
    return folder, count


def _told(corpus: build.Corpus) -> str:
    """A name for the texts of a corpus: its files by name and content; empty where it has no files."""
    if not isinstance(corpus.source, FileCorpus):
        return ""
    files = corpus.source.files()
    # Not by place or time: a copy of the corpus is the same corpus.
    root = Path(os.path.commonpath([file.parent for file in files]))
    digest = hashlib.sha256()
    for file in Bar(files, desc="texts", unit="file", leave=False):
        with file.open("rb") as data:
            content = hashlib.file_digest(data, "sha256").hexdigest()
        digest.update(f"{file.relative_to(root)}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]
