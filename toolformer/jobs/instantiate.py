"""From configuration to objects: tools with their prompts, decoders, rules, the results below a root."""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from toolformer.annotation.candidates import ToolSettings
from toolformer.decoding.settings import SYSTEMS
from toolformer.errors import UserError, one_line
from toolformer.jobs.config import Config
from toolformer.jobs.config.tool_sources import FUNCTION, MCP
from toolformer.jobs.versions import VERSIONS
from toolformer.results import Results
from toolformer.step import Step
from toolformer.tools import examples, prompt_sets
from toolformer.tools.base import Tool
from toolformer.tools.cache import ResultCache
from toolformer.tools.identity import cache_key
from toolformer.tools.needs import check_needs, described
from toolformer.tools.prompt_sets import Prompt
from toolformer.tools.runtime import Limits, ToolRuntime
from toolformer.tracking import MlflowLogger

if TYPE_CHECKING:
    from toolformer.annotation.results import KeepRules
    from toolformer.decoding.decoder import Decoder
    from toolformer.lm.placement import Placement

log = logging.getLogger(__name__)


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
        check_needs(tool.implementation, f"tool.{key}.implementation")
        check_needs({**tool.implementation, **tool.inference}, f"tool.{key}.inference")


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
        prompt = prompt_sets.find_prompt(config.prompts, tool.prompt or key)
        prompt = prompt or examples.prompt_of_class(tool.implementation, tool.name)
    if prompt is None:
        raise UserError(f"tool.{key}.prompt: there is no {label}; give one, or leave the tool out")
    if reason := prompt_sets.check_prompt(prompt, tool.name):
        raise UserError(f"{label}: {reason}")
    return prompt


def placement(config: Config, model: str) -> Placement:
    """A model on the configured device, not loaded yet. UserError for a missing device, or if there is no such model."""
    from toolformer.lm.placement import place

    return place(model, config.lm.dtype, config.lm.device)


def decoder(config: Config, model: Placement) -> Decoder:
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
    language_model = LazyLanguageModel(model, graphs=config.lm.graphs, **sizes)
    if config.system == "prompted":
        sentences = {
            key: examples.sentences_of(tool, config.tool[key].example, key) for key, tool in made.items()
        }
        return PromptedDecoder(language_model, made, calling, examples=sentences, **settings)
    mode = "tools" if SYSTEMS[config.system].knows_calls else "plain"
    return Decoder(language_model, made, calling, mode=mode, **settings)


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
