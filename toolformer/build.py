"""From configuration to objects: documents, tools, language models (top floor, shared by the stages)."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from toolformer import assets
from toolformer.config import Config, CorpusConfig, TrackingConfig
from toolformer.documents import Document, JsonlCorpus, demo_corpus
from toolformer.errors import UserError
from toolformer.tools.base import Tool

if TYPE_CHECKING:
    from toolformer.annotation.candidates import ToolSettings
    from toolformer.tracking import Tracker

log = logging.getLogger(__name__)


def documents(corpus: CorpusConfig) -> Iterator[Document]:
    """The corpus's documents, streamed, those without text left out."""
    source: Iterable[Document]
    if corpus.source == "demo":
        source = demo_corpus(corpus.split)
    elif corpus.source == "wikipedia":
        from toolformer.tools.search import wikipedia_documents

        source = wikipedia_documents()
    else:
        assert corpus.path is not None  # validated
        source = JsonlCorpus(corpus.path, strict=corpus.strict, text_field=corpus.text_field)
    return itertools.islice(_distinct(source), corpus.limit)


def _distinct(source: Iterable[Document]) -> Iterator[Document]:
    """Documents with ids of their own: everything downstream is keyed by them."""
    seen: set[str] = set()
    repeated = 0
    for document in source:
        if document.doc_id in seen:
            repeated += 1
            continue
        seen.add(document.doc_id)
        yield document
    if repeated:
        log.warning("%d documents left out whose id (or text) another document already has", repeated)


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
            raise UserError(f"tool.{key}.implementation: {str(cause).splitlines()[0]}") from error
    return made


def _check_files(place: str, arguments: Mapping[str, Any]) -> None:
    """Files and model folders that a tool would open at its first call, hours after the command was given."""
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            _check_files(f"{place}.{name}", value)
        elif isinstance(value, str) and (
            name.endswith("_path") or (name == "model" and value.startswith(("/", "./", "../", "~")))
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
        max_call_tokens=tool.max_call_tokens,
        force_name=config.generate.force_name,
    )


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
        digest.update(
            json.dumps(asdict(document), sort_keys=True, default=str).encode("utf-8", "surrogatepass")
        )
    return digest.hexdigest()[:12]
