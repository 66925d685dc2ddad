"""From configuration to objects: documents, tools, language models (top floor, shared by the stages)."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from toolformer import assets
from toolformer.config import Config, CorpusConfig, ToolConfig, TrackingConfig
from toolformer.documents import Document, Fields, FileCorpus, HubCorpus, demo_corpus
from toolformer.errors import UserError
from toolformer.tools.base import Tool

if TYPE_CHECKING:
    from toolformer.annotation.candidates import ToolSettings
    from toolformer.tracking import Tracker

log = logging.getLogger(__name__)


class Corpus:
    """The documents of a configured corpus, streamed anew at each iteration, with ids of their own.

    Everything downstream is keyed by the ids, so that of several documents with one id the first counts.
    """

    def __init__(self, config: CorpusConfig) -> None:
        self.config = config
        self.source = _source(config)
        self._repeated = 0

    def __iter__(self) -> Iterator[Document]:
        self._repeated = 0
        return itertools.islice(self._distinct(), self.config.limit)

    def _distinct(self) -> Iterator[Document]:
        # A hash of each id is remembered, and of the documents nothing.
        seen: set[int] = set()
        for document in self.source:
            digest = hashlib.blake2b(document.doc_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            name = int.from_bytes(digest, "big")
            if name in seen:
                self._repeated += 1
                continue
            seen.add(name)
            yield document

    def skipped(self) -> dict[str, int]:
        """Rows that the newest reading left out, by reason, as far as it went (`corpus.limit` ends it early)."""
        counts = dict(getattr(self.source, "skipped", {}))
        return {**counts, "repeated id or text": self._repeated} if self._repeated else counts


def documents(corpus: CorpusConfig) -> Corpus:
    """The corpus's documents.

    Raises:
        UserError: there is no such corpus; while reading, a file that cannot be read.
    """
    return Corpus(corpus)


def _source(corpus: CorpusConfig) -> Iterable[Document]:
    if corpus.source == "demo":
        return _Anew(lambda: demo_corpus(corpus.split))
    if corpus.source == "wikipedia":
        from toolformer.tools.retrieval.passages import wikipedia_documents

        return _Anew(wikipedia_documents)
    assert corpus.path is not None  # validated
    fields = Fields(
        corpus.text_field, corpus.url_field, corpus.date_field, corpus.id_field, title=corpus.title_field
    )
    latest = datetime.date.fromisoformat(corpus.latest_date) if corpus.latest_date else None
    if corpus.source == "hub":
        return HubCorpus(corpus.path, corpus.subset, corpus.split, fields, corpus.strict, latest)
    return FileCorpus(corpus.path, corpus.source, fields, corpus.strict, corpus.pattern, latest)


class _Anew:
    """What a function yields, each time from the beginning."""

    def __init__(self, make: Callable[[], Iterable[Document]]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[Document]:
        return iter(self.make())


def tools(config: Config, keys: Iterable[str] | None = None, inference: bool = False) -> dict[str, Tool]:
    """The configured tools by key; with `inference`, with the arguments that differ there."""
    made: dict[str, Tool] = {}
    for key in keys if keys is not None else config.tools:
        tool = config.tool[key]
        arguments = {**tool.implementation, **(tool.inference if inference else {})}
        _check_files(f"tool.{key}.implementation", arguments)
        try:
            made[key] = instantiate(arguments)
        except InstantiationException as error:
            cause = error.__cause__ or error
            if isinstance(cause, UserError):
                raise cause from error
            reason = " ".join(str(cause).split())[:300]
            raise UserError(f"tool.{key}.implementation: {reason}") from error
    return made


def _check_files(place: str, arguments: Mapping[str, Any]) -> None:
    """Files and model folders that a tool would open at its first call, hours after the command was given."""
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            _check_files(f"{place}.{name}", value)
        elif isinstance(value, str) and (
            name.endswith("_path")
            or (name in ("model", "tokenizer") and value.startswith(("/", "./", "../", "~")))
        ):
            if not Path(value).expanduser().exists():
                raise UserError(f"{place}.{name}: there is no file or folder {value}; name one that is there")


def tool_settings(config: Config, key: str) -> ToolSettings:
    """How calls of a tool are proposed and kept."""
    from toolformer.annotation.candidates import ToolSettings
    from toolformer.tools.prompts import PROMPTS

    tool = config.tool[key]
    if tool.prompt not in PROMPTS:
        raise UserError(f"tool.{key}.prompt is {tool.prompt!r}; known prompts are {', '.join(PROMPTS)}")
    return ToolSettings(
        key=key,
        name=tool.name,
        prompt=PROMPTS[tool.prompt],
        start_threshold=tool.start_threshold,
        max_positions=tool.max_positions,
        samples=tool.samples,
        filter_threshold=tool.filter_threshold,
        selector=tool.selector,
        max_call_tokens=tool.max_call_tokens or config.propose.max_call_tokens,
        force_name=config.propose.force_name,
        window_tokens=config.propose.window_tokens,
        window_overlap=config.propose.window_overlap,
    )


def tool_identity(tool: ToolConfig) -> dict[str, Any]:
    """What tells one tool from another: its configuration, and the files that it names by size and time of change."""
    configured = asdict(tool)
    files: list[tuple[str, int, int]] = []

    def look(value: Any) -> None:
        if isinstance(value, list):
            for one in value:
                look(one)
        if not isinstance(value, dict):
            return
        for key, one in value.items():
            # By the name of the key: other files, a log for example, do not decide an answer.
            if isinstance(one, str) and str(key).endswith("_path"):
                place = Path(one).expanduser()
                # Of a folder, such as a search index, the files right in it.
                for file in sorted(place.iterdir()) if place.is_dir() else [place]:
                    if file.is_file():
                        stat = file.stat()
                        files.append((str(file), stat.st_size, stat.st_mtime_ns))
            look(one)

    look(configured)
    return {**configured, "files": files}


def model_identity(name: str) -> dict[str, Any]:
    """What tells one model from another: a folder's configuration and weights, a hub or embedded model's name.

    Weights are told by size and time of change: hashing gigabytes at each start would cost more than it saves.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return {"model": name}
    files = sorted(folder.glob("*.safetensors")) + [folder / "config.json", folder / "tokenizer.json"]
    seen = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return {"model": str(folder.resolve()), "files": seen}


def tracker(paths_root: str, tracking: TrackingConfig) -> Tracker:
    """MLflow as configured."""
    from toolformer.tracking import Tracker

    return Tracker(tracking.uri, Path(paths_root))


def apply_paths(config: Config) -> None:
    """Makes the settings of places known to those who need them."""
    if config.paths.cache:
        assets.set_cache_dir(Path(config.paths.cache).expanduser())
    try:
        Path(config.paths.root).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"paths.root: {config.paths.root} cannot be a folder ({reason}); name another"
        ) from error


def content_hash(batch: Iterable[Document]) -> str:
    """A name for documents by everything that can change their annotation."""
    digest = hashlib.sha256()
    for document in batch:
        deciding = {key: value for key, value in asdict(document).items() if key != "title"}
        digest.update(json.dumps(deciding, sort_keys=True, default=str).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:12]
