"""From configuration to objects: documents, tools, language models (top floor, shared by the stages)."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import itertools
import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from toolformer import assets
from toolformer.config import PLAIN, Config, CorpusConfig, ToolConfig, TrackingConfig, fingerprint
from toolformer.documents import Document, Fields, FileCorpus, HubCorpus, demo_corpus
from toolformer.errors import UserError
from toolformer.tools import prompt_sets, sources
from toolformer.tools.base import Tool, check
from toolformer.tools.cache import ResultCache
from toolformer.tools.keys import HANDLING
from toolformer.tools.prompts import Prompt
from toolformer.tools.runtime import Limits, ToolRuntime

if TYPE_CHECKING:
    from toolformer.annotation.candidates import ToolSettings
    from toolformer.decoding.decoder import Decoder
    from toolformer.tracking import Tracker

log = logging.getLogger(__name__)

LIBRARIES = (
    "torch",
    "transformers",
    "tokenizers",
    "bm25s",
    "PyStemmer",
    "fasttext-predict",
    "ctranslate2",
    "pyserini",
)
"""Libraries that tools answer with."""
MODULES = ("batching", "key_values", "language_id", "language_model", "seq2seq", "text_generator", "calls")
"""Modules of this package that its tools stand on, beside those in tools/."""

MODEL_FILES = (".safetensors", ".bin", ".json", ".model", ".txt")
"""Weights, configurations, tokenizers: what a model folder answers with."""
UNDECIDING = ("concurrency", "timeout", "tries", "key_variable")
"""Arguments of implementations that change no answer."""


class Corpus:
    """The documents of a configured corpus, streamed anew at each iteration, with ids of their own.

    Everything downstream is keyed by the ids, so that of several documents with one id the first counts.
    """

    def __init__(self, config: CorpusConfig, key: str) -> None:
        self.config = config
        self.source = _source(config, key)
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


def documents(corpus: CorpusConfig, key: str = "corpus") -> Corpus:
    """The documents of a corpus, which messages call `key`.

    Raises:
        UserError: there is no such corpus; while reading, a file that cannot be read.
    """
    return Corpus(corpus, key)


def _source(corpus: CorpusConfig, key: str) -> Iterable[Document]:
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
        return HubCorpus(corpus.path, corpus.subset, corpus.split, fields, corpus.strict, latest, key)
    return FileCorpus(corpus.path, corpus.source, fields, corpus.strict, corpus.pattern, latest, key)


class _Anew:
    """What a function yields, each time from the beginning."""

    def __init__(self, make: Callable[[], Iterable[Document]]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[Document]:
        return iter(self.make())


def tools(config: Config, keys: Iterable[str] | None = None, inference: bool = False) -> dict[str, Tool]:
    """The configured tools by key, each in its runtime; with `inference`, with the arguments that differ there.

    Raises:
        UserError: arguments that a tool cannot work with, or what it needs is not there (`Tool.check`).
    """
    made: dict[str, Tool] = {}
    for key in keys if keys is not None else config.tools:
        tool = config.tool[key]
        arguments = {**tool.implementation, **(tool.inference if inference else {})}
        _check_files(f"tool.{key}.implementation", arguments)
        try:
            tool = instantiate(arguments)
        except InstantiationException as error:
            cause = error.__cause__ or error
            if isinstance(cause, UserError):
                raise cause from error
            reason = " ".join(str(cause).split())[:300]
            part = re.search(r"^full_key: (\S+)", str(error), re.MULTILINE)
            raise UserError(f"tool.{key}.implementation{'.' + part[1] if part else ''}: {reason}") from error
        try:
            check(tool)
        except UserError as error:
            raise UserError(f"tool.{key}.implementation: {error}") from error
        made[key] = _in_runtime(config, key, arguments, tool)
    return made


def _in_runtime(config: Config, key: str, arguments: Mapping[str, Any], tool: Tool) -> ToolRuntime:
    """A tool within its limits, with the cache of its results."""
    settings = config.tool[key]
    limits = Limits(settings.timeout, settings.tries, settings.workers, settings.batch_size)
    if not settings.cache:
        return ToolRuntime(tool, limits)
    decides = {
        "arguments": _deciding(arguments),
        "files": _files(arguments),
        "variables": sources.variables([arguments.get(name) for name in ("valves", "env", "headers")]),
        "source": _source_hash(arguments, tool),
        "libraries": {name: version for name in LIBRARIES if (version := _version(name))},
        "version": str(getattr(tool, "version", "")),
    }
    name = f"{key}-{fingerprint('tool', decides)}.sqlite"
    return ToolRuntime(tool, limits, ResultCache(Path(config.paths.root) / "tools" / name))


def _source_hash(arguments: Mapping[str, Any], tool: Tool) -> str:
    """What the classes that answer are written as: their modules, and for this package's tools all they stand on."""
    modules = {type(tool).__module__, *_targets(arguments)}
    package = Path(__file__).parent
    files = {
        Path(str(sys.modules[name].__file__))
        for name in modules
        if getattr(sys.modules.get(name), "__file__", None)
    }
    own = {file for file in files if file.is_relative_to(package)}
    if own:
        own |= {*package.glob("tools/**/*.py"), *(package / f"{name}.py" for name in MODULES)}
    digest = hashlib.sha256()
    for file in sorted(own):
        digest.update(file.read_bytes())
    for told in sorted(sources.told(file) for file in files - own):
        digest.update(repr(told).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _deciding(value: Any) -> Any:
    """A configuration without the keys that decide whether and how fast there is an answer, but not which."""
    if isinstance(value, list):
        return [_deciding(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    # What a user's own tool makes of a name is not known here.
    return {
        key: one if key == "valves" else _deciding(one) for key, one in value.items() if key not in UNDECIDING
    }


def _targets(value: Any) -> set[str]:
    """The modules of all classes that a configuration names."""
    if isinstance(value, list):
        return set().union(*map(_targets, value))
    if not isinstance(value, Mapping):
        return set()
    own = {str(value["_target_"]).rpartition(".")[0]} if "_target_" in value else set()
    return own.union(*map(_targets, value.values()))


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


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
    """How calls of a tool are proposed and kept.

    Raises:
        UserError: it has no few-shot prompt, or one that shows no calls of it.
    """
    from toolformer.annotation.candidates import ToolSettings

    tool = config.tool[key]
    return ToolSettings(
        key=key,
        name=tool.name,
        prompt=_prompt(config, key),
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


def _prompt(config: Config, key: str) -> Prompt:
    """The tool's own prompt if it is given one, else the one of the set."""
    tool = config.tool[key]
    place = prompt_sets.place(config.prompts, tool.prompt or key)
    prompt: Prompt | None
    if tool.instruction is not None or tool.demonstrations:
        place = f"tool.{key}.demonstrations"
        prompt = Prompt(
            tool.instruction or "", tuple((one.text, one.annotated) for one in tool.demonstrations)
        )
        if not tool.demonstrations:
            raise UserError(
                f"tool.{key}.example is missing: give a call with its result, {tool.name}(...) -> ..., or {place}"
            )
    else:
        prompt = prompt_sets.find(config.prompts, tool.prompt or key)
    if prompt is None:
        raise UserError(
            f"tool.{key}.prompt: there is no {place}; add it, give tool.{key}.instruction and demonstrations, or leave "
            "the tool out"
        )
    if reason := prompt_sets.check(prompt, tool.name):
        raise UserError(f"{place}: {reason}")
    return prompt


def tool_identity(tool: ToolConfig) -> dict[str, Any]:
    """What tells one tool from another: its configuration, and the files that it names by their content.

    Large ones (`sources.LARGEST_HASHED`) and weights count by size and time of change.
    """
    configured = {key: value for key, value in asdict(tool).items() if key not in HANDLING}
    return {**configured, "files": _files(configured)}


def _files(configured: Any) -> list[Any]:
    """The files and model folders that a configuration names, as they are now."""
    from toolformer.tools.functions import source_file

    files: list[Any] = []

    def look(value: Any) -> None:
        if isinstance(value, list):
            for one in value:
                look(one)
        if not isinstance(value, Mapping):
            return
        if "command" in value and "args" in value:
            files.extend(sources.of_server(value))
        for key, one in value.items():
            # By the name of the key: other files, a log for example, do not decide an answer.
            if isinstance(one, str) and (str(key).endswith("_path") or key == "path"):
                # Of a folder, such as a search index, the files right in it.
                files.extend(map(sources.state, sources.files_at(one, inside=key != "path")))
            elif isinstance(one, str) and key in ("model", "tokenizer") and Path(one).expanduser().is_dir():
                files.append(model_identity(one))
            if key == "function" and isinstance(one, str) and (source := source_file(one)) is not None:
                files.extend(sources.told(source))
            look(one)

    look(configured)
    return files


def model_identity(name: str) -> dict[str, Any]:
    """What tells one model from another: a folder's configuration and weights, a hub or embedded model's name.

    Weights are told by size and time of change: hashing gigabytes at each start would cost more than it saves.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return {"model": name}
    files = sorted(file for file in folder.iterdir() if file.suffix in MODEL_FILES)
    seen = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return {"model": str(folder.resolve()), "files": seen}


def decoder(config: Config, model: str, tools: Mapping[str, Tool]) -> Decoder:
    """Decoding as configured for its system, with a loaded model; without tools no call is written."""
    from toolformer.decoding.decoder import Decoder
    from toolformer.language_model import LanguageModel

    decoding = config.decoding
    return Decoder(
        LanguageModel.from_pretrained(model, config.lm.dtype, config.lm.device),
        tools,
        k=decoding.k if tools else 0,
        max_calls=decoding.max_calls,
        max_call_tokens=decoding.max_call_tokens,
        max_result_tokens=decoding.max_result_tokens,
        min_new_tokens=decoding.min_new_tokens,
        batch_size=decoding.batch_size,
        mode="plain" if config.system in PLAIN else "tools",
    )


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
