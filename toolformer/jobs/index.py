"""`toolformer index`: a corpus becomes a folder that search reads, by either backend."""

import logging
from dataclasses import asdict
from pathlib import Path

from toolformer.errors import UserError
from toolformer.jobs import corpora
from toolformer.jobs.config import Config
from toolformer.progress import Bar
from toolformer.storage import writing
from toolformer.tools.retrieval import bm25, java, lucene
from toolformer.tools.retrieval.index import (
    MANIFEST,
    VERSIONS,
    has_damaged_manifest,
    is_intact,
    manifest_of,
    write,
)
from toolformer.tools.retrieval.passages import passages_of

log = logging.getLogger(__name__)


def index(config: Config) -> tuple[Path, int]:
    """Builds the index of the corpus, unless it is there and intact; returns its folder and the number of its passages.

    UserError if the folder holds something else, or cannot be written.
    """
    settings = config.index
    if not settings.path:
        raise UserError("index.path is missing; name a folder for the index: index.path=DIR")
    if settings.backend == lucene.BACKEND:
        java.jar()  # before the corpus is read
    folder = Path(settings.path).expanduser()
    corpus = corpora.corpus(config.corpus)
    # What parts paragraphs matters to annotation only.
    described = {key: value for key, value in asdict(config.corpus).items() if key != "paragraphs"}
    entries = {"corpus": described, "passage_words": settings.passage_words, "contents": corpus.digest()[:16]}
    manifest = manifest_of(folder)
    made = {"backend": settings.backend, "version": VERSIONS[settings.backend]}
    is_ours = manifest is not None and {**entries, **made}.items() <= manifest.items()
    if manifest and is_ours:
        if is_intact(folder):
            log.info("index: %s is already there", folder)
            return folder, int(manifest["passages"])
        log.warning("index: %s is damaged; it is built again", folder)
    if has_damaged_manifest(folder):
        raise UserError(
            f"index.path: {folder} is damaged: its {MANIFEST} cannot be read; remove the folder and give this command again"
        )
    try:
        if not is_ours and folder.exists() and any(folder.iterdir()):
            raise UserError(
                f"index.path: {folder} holds something else, or an index of other texts or of another version of "
                "toolformer; name another folder"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"index.path: {folder} cannot be a folder ({error.strerror or error}); name another"
        ) from error
    build = lucene.build if settings.backend == lucene.BACKEND else bm25.build
    passages = passages_of(Bar(corpus, desc="index", unit="documents", smoothing=0.1), settings.passage_words)
    with writing(folder / MANIFEST):
        return folder, write(
            folder, settings.backend, lambda path: build(passages, path), entries, replace=is_ours
        )
