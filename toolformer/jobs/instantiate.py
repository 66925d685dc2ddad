"""From configuration to objects: documents, tools, prompts, decoders."""

from __future__ import annotations

import datetime
import functools
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from toolformer.annotation.candidates import ToolSettings
from toolformer.calls import CallSyntaxError
from toolformer.data import Bundled, Corpus, Document, FileCorpus, HubCorpus, assets, demo_corpus
from toolformer.data.files import demo_file
from toolformer.data.heldout import draw
from toolformer.decoding import examples
from toolformer.decoding.settings import SYSTEMS
from toolformer.errors import UserError, one_line
from toolformer.jobs.config import Config, CorpusConfig
from toolformer.jobs.config.schema import ToolConfig
from toolformer.jobs.config.tool_sources import FUNCTION, MCP
from toolformer.jobs.versions import VERSIONS
from toolformer.results import Dataset, Results
from toolformer.step import Step
from toolformer.storage import content_digest
from toolformer.tools import prompt_sets
from toolformer.tools.base import Tool
from toolformer.tools.cache import ResultCache
from toolformer.tools.identity import cache_key, check_files, class_named
from toolformer.tools.needs import check_needs, described
from toolformer.tools.prompt_sets import Prompt
from toolformer.tools.runtime import Limits, ToolRuntime
from toolformer.tools.user.describe import Description, instruction
from toolformer.tracking import MlflowLogger

if TYPE_CHECKING:
    from toolformer.annotation.results import KeepRules
    from toolformer.decoding.decoder import Decoder

log = logging.getLogger(__name__)


def corpus(config: CorpusConfig, key: str = "corpus") -> Corpus:
    """The documents of a configured corpus; messages name it by `key`."""
    return Corpus(_source(config, key), config.limit, key)


def heldout(config: Config) -> list[Document]:
    """The held-out texts that `heldout` names, drawn by `heldout_seed`; logs how many rows were kept."""
    corpus_ = corpus(replace(config.heldout, limit=None), "heldout")
    documents = draw(corpus_, config.heldout.limit, config.heldout_seed)
    skipped = corpus_.skipped()
    log.info("heldout: %d texts drawn, rows dropped: %s", len(documents), skipped or "none")
    return documents


def check_files_differ(config: Config) -> None:
    """UserError for held-out texts of files that the corpus has, too, by content."""
    sources = [
        _source(corpus, key) for corpus, key in ((config.corpus, "corpus"), (config.heldout, "heldout"))
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


def _source(corpus: CorpusConfig, key: str) -> Iterable[Document]:
    if corpus.source == "demo":
        return Bundled(functools.partial(demo_corpus, corpus.split), demo_file)
    if corpus.source == "wikipedia":
        from toolformer.tools.retrieval.passages import wikipedia_documents

        return Bundled(wikipedia_documents, functools.partial(assets.ensure, "wikipedia"))
    assert corpus.path is not None and corpus.source is not None  # validated
    latest = datetime.date.fromisoformat(corpus.latest_date) if corpus.latest_date else None
    common: dict[str, Any] = {"fields": corpus, "strict": corpus.strict, "latest_date": latest, "key": key}
    if corpus.source == "hub":
        return HubCorpus(corpus.path, corpus.subset, corpus.split, **common)
    return FileCorpus(corpus.path, corpus.source, corpus.pattern, **common)


def tools(config: Config, keys: Iterable[str] | None = None, inference: bool = False) -> dict[str, Tool]:
    """The configured tools by key, each in its runtime; with `inference`, with the arguments that differ there.

    UserError for arguments that a tool cannot work with, or if what it needs is not there.
    """
    made: dict[str, Tool] = {}
    for key in keys if keys is not None else config.tools:
        tool = config.tool[key]
        arguments = {**tool.implementation, **(tool.inference if inference else {})}
        key_path = f"tool.{key}.implementation"
        check_needs(arguments, key_path)
        check_files(arguments, key_path)
        try:
            implementation = instantiate(arguments)
            if not isinstance(implementation, Tool):
                raise UserError(
                    f"{arguments.get('_target_')} is not a Tool; derive it from toolformer.tools.base.Tool"
                )
            implementation.check()
        except InstantiationException as error:
            if isinstance(error.__cause__, UserError):
                raise error.__cause__ from error
            part = re.search(r"^full_key: (\S+)", str(error), re.MULTILINE)
            reason = one_line(error.__cause__ or error)
            raise UserError(f"{key_path}{'.' + part[1] if part else ''}: {reason}") from error
        except UserError as error:
            raise UserError(f"{key_path}: {error}") from error
        identity = cache_key(implementation, arguments) if tool.cache else None
        cache: ResultCache | None = None
        if identity is not None:
            cache = ResultCache(
                Path(config.paths.root) / "tools" / f"{key}-{Step('tool', 2, identity).key()}.sqlite"
            )
        limits = Limits(tool.timeout, tool.tries, tool.workers, tool.batch_size)
        made[key] = ToolRuntime(implementation, limits, cache, key)
    return made


def tool_settings(config: Config, key: str) -> ToolSettings:
    """How calls of a tool are proposed and kept."""
    given = {name: value for name, value in vars(config.tool[key]).items() if value is not None}
    values = {
        **vars(config.propose),
        "filter_threshold": config.filter_threshold,
        "result_ahead": None,
        **given,
    }
    values |= {"key": key, "prompt": _prompt(config, key)}
    return ToolSettings(**{field.name: values[field.name] for field in fields(ToolSettings)})


def check_tools(config: Config) -> None:
    """`UserError` for the first thing that the tools in use lack here, while annotating or at inference; makes none."""
    for key in config.tools:
        tool = config.tool[key]
        for arguments in (tool.implementation, {**tool.implementation, **tool.inference}):
            check_needs(arguments, f"tool.{key}.implementation")


def implementations(config: Config, inference: bool = False) -> dict[str, str]:
    """Implementations behind the tools in use, in words; tools with only one, such as the calculator, are left out."""
    texts = {
        key: described({**tool.implementation, **(tool.inference if inference else {})})
        for key, tool in ((key, config.tool[key]) for key in config.tools)
    }
    return {key: text for key, text in texts.items() if text}


def log_departures(config: Config) -> None:
    """Logs what a user's tools have by default and the paper's have not."""
    for key in config.tools:
        settings = tool_settings(config, key)
        departures = [
            "positions ranked by lift" if settings.rank == "lift" else "",
            f"calls sampled at temperature {settings.temperature:g}" if settings.temperature != 1 else "",
            f"scored only if the result follows within {settings.result_ahead} tokens"
            if settings.result_ahead
            else "",
        ]
        if config.tool[key].implementation.get("_target_") in (FUNCTION, MCP) and any(departures):
            log.info("%s, unlike the paper (tool_default): %s", key, "; ".join(filter(None, departures)))


def _prompt(config: Config, key: str) -> Prompt:
    """The tool's own prompt if it is given one, else the one of the set, else one of its class's description and examples."""
    if config.prompts == prompt_sets.NO_SET:
        if "lift" in (config.propose.rank, config.tool[key].rank):
            raise UserError(
                "propose.rank=lift needs a prompt, but prompts=none leaves it out; add propose.rank=probability"
            )
        return prompt_sets.UNPROMPTED
    tool = config.tool[key]
    prompt: Prompt | None
    if tool.demonstrations:
        label = f"tool.{key}.demonstrations"
        prompt = Prompt(
            tool.instruction or "", tuple((pair.text, pair.annotated) for pair in tool.demonstrations)
        )
    elif tool.instruction is not None:
        raise UserError(
            f"tool.{key}.example is missing: give a call with its result, {tool.name}(...) -> ..."
        )
    else:
        label = str(prompt_sets.prompt_path(config.prompts, tool.prompt or key))
        prompt = prompt_sets.find_prompt(config.prompts, tool.prompt or key) or _prompt_of_class(tool)
    if prompt is None:
        raise UserError(f"tool.{key}.prompt: there is no {label}; give one, or leave the tool out")
    if reason := prompt_sets.check_prompt(prompt, tool.name):
        raise UserError(f"{label}: {reason}")
    return prompt


def _prompt_of_class(tool: ToolConfig) -> Prompt | None:
    """The prompt of a tool that no set has: its class's description, and its examples without their results."""
    description = getattr(class_named(str(tool.implementation.get("_target_", ""))), "description", None)
    sentences = examples.of_tool(tool.implementation, tool.name)
    if not isinstance(description, Description) or not sentences:
        return None
    return Prompt(instruction(tool.name, description), tuple(examples.demonstrations(sentences)))


def decoder(config: Config, model: str) -> Decoder:
    """Decoding by an effective configuration, with a model that is loaded when it is needed.

    UserError for a tool that cannot work here, or that has no examples to show.
    """
    from toolformer.decoding.decoder import Decoder
    from toolformer.decoding.prompted import PromptedDecoder
    from toolformer.lm.lazy import LazyLanguageModel

    made, settings = tools(config, inference=True), asdict(config.decoding)
    calling = {key: config.tool[key] for key in made}
    tokens = config.engine.batch_tokens
    sizes = {} if tokens == "auto" else {"batch_tokens": tokens}
    language_model = LazyLanguageModel(
        model, config.lm.dtype, config.lm.device, graphs=config.lm.graphs, **sizes
    )
    if config.system == "prompted":
        examples = _examples(config, made)
        return PromptedDecoder(language_model, made, calling, examples=examples, **settings)
    mode = "tools" if SYSTEMS[config.system].knows_calls else "plain"
    return Decoder(language_model, made, calling, mode=mode, **settings)


def _examples(config: Config, tools: Mapping[str, Tool]) -> dict[str, list[str]]:
    """The sentences that show calls of each tool: its own, else made of the calls that its author gives as examples."""
    sentences: dict[str, list[str]] = {}
    for key, tool in tools.items():
        description = tool.description or Description(tool.name)
        example = config.tool[key].example
        try:
            sentences[key] = examples.with_name(tool.examples, tool.name) or examples.described(
                tool.name, description.summary, [example] if example else description.examples
            )
        except CallSyntaxError as error:
            raise UserError(f"tool.{key}.example: {error}") from error
        if not sentences[key]:
            raise UserError(
                f"tool.{key}.example is missing: give a call with its result, {tool.name}(...) -> ..."
            )
    return sentences


def results(config: Config) -> Results:
    """The results below `paths.root`, which is made if it is missing, logged to MLflow as configured."""
    root = Path(config.paths.root)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"paths.root: {root} cannot be a folder ({error.strerror or error}); name another"
        ) from error
    if config.tracking.uri is None and os.environ.get("MLFLOW_TRACKING_URI"):
        _log_once(
            "tracking: MLFLOW_TRACKING_URI is not read; add tracking.uri=$MLFLOW_TRACKING_URI to log there"
        )
    return Results(root, MlflowLogger(**vars(config.tracking), root=root), VERSIONS)


@functools.cache
def _log_once(line: str) -> None:
    log.info(line)


def finished_results(config: Config) -> Results:
    """The results below `paths.root`, to read; writes nothing."""
    return Results(Path(config.paths.root), versions=VERSIONS)


def corpus_name(corpus: CorpusConfig) -> str:
    """A corpus in names: its file, its split of the demo's texts, or its place on the hub."""
    name = f"demo/{corpus.split}" if corpus.source == "demo" else corpus.path or str(corpus.source)
    return name if corpus.source in ("demo", "hub") else Path(name).name


def dataset(corpus: CorpusConfig, digest: str, context: str, rows: int) -> Dataset:
    """A corpus as an input of a run."""
    return Dataset(corpus_name(corpus), digest, context, corpus.path or str(corpus.source), rows)


def clocks(config: Config) -> list[str]:
    """The tools, by key, that answer with today's date where an example has none."""
    tools = {key: config.tool[key] for key in config.tools}
    return [key for key, tool in tools.items() if {**tool.implementation, **tool.inference}.get("use_clock")]


def keep_rules(config: Config) -> KeepRules:
    """How scored calls are filtered. UserError for a limit on calls that are not drawn."""
    from toolformer.annotation.merge import Chance  # PyTorch, which a tool alone does not need
    from toolformer.annotation.results import KeepRules

    shares = {key: share for key in config.tools if (share := config.tool[key].chance) is not None}
    above = {key: least for key in config.tools if (least := config.tool[key].chance_above) is not None}
    if alone := sorted(above.keys() - shares.keys()):
        raise UserError(
            f"tool.{alone[0]}.chance_above: its calls are kept by gain; give tool.{alone[0]}.chance, too, or leave it out"
        )
    chance = Chance(shares, config.seed, above)
    settings = [tool_settings(config, key) for key in config.tools]
    examples = {tool.key: tool.prompt.inputs(tool.name) for tool in settings}
    limit = config.generate.limit_per_tool
    thresholds = {tool.key: tool.filter_threshold for tool in settings}
    return KeepRules(thresholds, config.filter, chance, examples, limit)
