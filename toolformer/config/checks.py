"""Values that the types allow and that nothing could be done with: refused by key, before any model is loaded."""

from __future__ import annotations

import datetime
import difflib
import math
import re
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from toolformer import credentials
from toolformer.config.schema import STAGES, SYSTEMS, Config, CorpusConfig, EndpointConfig, EngineConfig
from toolformer.errors import UserError
from toolformer.tools import prompt_sets


def validate(config: DictConfig, stage: str = "") -> Config:
    """The configuration as typed objects.

    For the stage `report` alone, which reads finished runs only, nothing is asked of corpora and benchmark data.

    Raises:
        UserError: an impossible value, named by its key.
    """
    repeated = next((key for key in config.tools if list(config.tools).count(key) > 1), None)
    if repeated:
        raise UserError(f"tools: {repeated} is named twice; name each tool once")
    made = OmegaConf.to_object(config)
    assert isinstance(made, Config)
    prompt_sets.check_set(made.prompts)
    if made.tool_sources:
        from toolformer.config.tool_sources import add_tools

        add_tools(made)
    known = sorted(key for key, tool in made.tool.items() if tool.implementation)
    unknown = sorted({*made.tools} - {*known})
    if unknown:
        raise UserError(
            f"tools: there is no tool {unknown[0]!r}; known are {', '.join(known)}{near(unknown[0], known)}"
        )
    one_of("system", made.system, SYSTEMS)
    one_of("data", made.data, ("augmented", "plain"))
    one_of("lm.dtype", made.lm.dtype, ("auto", "float32", "bfloat16", "float16"))
    if stage != "report":
        _check_data(made)
    for key in ("checkpoint", "dataset"):
        _check_id(key, getattr(made, key))
    if not made.tools:
        raise UserError("tools: the list is empty; name at least one tool, for example tools=[calculator]")
    for key in made.tools:
        tool = made.tool[key]
        one_of(f"tool.{key}.selector", tool.selector, ("any", "calculator", "calendar", "translation"))
        for name in ("max_positions", "samples", "max_call_tokens", "tries", "workers", "batch_size"):
            _at_least(f"tool.{key}.{name}", getattr(tool, name), 1)
        if tool.timeout is not None and not 0 < tool.timeout < math.inf:
            raise UserError(
                f"tool.{key}.timeout is {tool.timeout}; it must be a number of seconds above 0, or null"
            )
        if not math.isfinite(tool.filter_threshold):
            raise UserError(
                f"tool.{key}.filter_threshold is {tool.filter_threshold}; it must be a number (nats)"
            )
        if not re.fullmatch(r"[A-Za-z_]\w*", tool.name, re.ASCII):
            raise UserError(
                f"tool.{key}.name is {tool.name!r}; a name has letters (a-z), digits and underscores only"
            )
        if not 0 <= tool.start_threshold < 1:
            raise UserError(
                f"tool.{key}.start_threshold is {tool.start_threshold}; a probability must be in [0, 1)"
            )
    names = [made.tool[key].name for key in made.tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UserError(f"tool.<key>.name: two tools are called {twice}; give each a name of its own")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?|mps|xpu(:\d+)?", made.lm.device):
        raise UserError(f"lm.device is {made.lm.device!r}; it must be auto, cpu, cuda or cuda:N")
    if not 0 <= made.seed < 2**32:
        raise UserError(f"seed is {made.seed}; it must be from 0 to {2**32 - 1}")
    _at_least("trainer.limit_per_tool", made.trainer.limit_per_tool, 1)
    _check_annotation(made)
    _at_least("generate.shard_size", made.generate.shard_size, 1)
    _check_engine(made.engine)
    _at_least("decoding.k", made.decoding.k, 0)
    _at_least("decoding.max_calls", made.decoding.max_calls, 0)
    _at_least("decoding.max_call_tokens", made.decoding.max_call_tokens, 1)
    _at_least("decoding.max_result_tokens", made.decoding.max_result_tokens, 1)
    _at_least("decoding.min_new_tokens", made.decoding.min_new_tokens, 0)
    _at_least("decoding.batch_size", made.decoding.batch_size, 1)
    _at_least("evaluation.limit", made.evaluation.limit, 1)
    _at_least("evaluation.perplexity_limit", made.evaluation.perplexity_limit, 1)
    _at_least("evaluation.bootstrap", made.evaluation.bootstrap, 1)
    for key in ("limit", "perplexity_limit"):
        if made.evaluation.samples is not None and getattr(made.evaluation, key) is not None:
            raise UserError(
                f"evaluation.samples names the examples: leave evaluation.{key} out (set it to null)"
            )
    one_of("index.backend", made.index.backend, ("bm25", "lucene"))
    _at_least("index.passage_words", made.index.passage_words, 1)
    for stage in made.run.stages:
        one_of("run.stages", stage, STAGES)
    if made.system == "endpoint":
        _check_endpoint(made.endpoint)
    return made


def _check_data(config: Config) -> None:
    for key, corpus in (("corpus", config.corpus), ("heldout", config.heldout)):
        _check_corpus(key, corpus)
    for key in ("data_dir", "tasks_dir"):
        folder = getattr(config.paths, key)
        if folder and not Path(folder).expanduser().is_dir():
            raise UserError(f"paths.{key}: there is no folder {folder}")


def _check_id(key: str, value: str) -> None:
    """The first characters of an id may be those of a number, and then are read as one."""
    is_number = re.fullmatch(r"[+-]?(inf|nan|\d+\.?\d*(e[+-]?\d+)?)", value, re.IGNORECASE)
    if is_number and not re.fullmatch(r"[0-9a-f]+", value):
        raise UserError(
            f"{key} is the number {value}: the id of a run that is digits around an e is read as a number; quote it "
            f"twice, as in '{key}=\"5123e678\"', or give more of it"
        )


def _check_corpus(key: str, corpus: CorpusConfig) -> None:
    one_of(f"{key}.source", corpus.source, ("demo", "wikipedia", "jsonl", "parquet", "files", "hub"))
    if corpus.source == "demo":
        one_of(f"{key}.split", corpus.split, ("train", "heldout"))
    if corpus.source in ("demo", "wikipedia"):
        if corpus.path:
            raise UserError(
                f"{key}.path is {corpus.path}, and {key}.source is {corpus.source}, which reads none; say what it is, "
                f"for example {key}=jsonl, or leave it out"
            )
    elif not corpus.path:
        wanted = "a data set's name" if corpus.source == "hub" else "a file or a folder"
        raise UserError(f"{key}.path is missing; name {wanted}: {key}.path=...")
    if not corpus.text_field:
        raise UserError(f"{key}.text_field is empty; name the field that holds the text")
    if corpus.latest_date is not None:
        try:
            datetime.date.fromisoformat(corpus.latest_date)
        except ValueError:
            raise UserError(f"{key}.latest_date is {corpus.latest_date!r}; write YYYY-MM-DD") from None
    _at_least(f"{key}.limit", corpus.limit, 1)


def _check_annotation(config: Config) -> None:
    one_of("filter.baseline", config.filter.baseline, ("paper", "plain"))
    one_of("score.dtype", config.score.dtype, ("auto", "float32", "bfloat16"))
    propose = config.propose
    _at_least("propose.max_call_tokens", propose.max_call_tokens, 1)
    _at_least("propose.window_tokens", propose.window_tokens, 16)
    _at_least("propose.window_overlap", propose.window_overlap, 0)
    if propose.window_tokens is not None and propose.window_overlap >= propose.window_tokens:
        raise UserError(
            f"propose.window_overlap is {propose.window_overlap}; it must be less than propose.window_tokens "
            f"({propose.window_tokens})"
        )


def _check_endpoint(endpoint: EndpointConfig) -> None:
    for key in ("url", "model"):
        if not getattr(endpoint, key):
            raise UserError(
                f"endpoint.{key} is missing: system=endpoint needs endpoint.url=URL endpoint.model=NAME"
            )
    if not credentials.is_address(endpoint.url):
        raise UserError(
            "endpoint.url must begin with http:// or https://, for example http://127.0.0.1:8000/v1/completions"
        )
    # Not shown: somebody may have put the key itself there.
    if not credentials.is_variable(endpoint.key_variable):
        raise UserError(
            "endpoint.key_variable must be the name of an environment variable, not the key itself"
        )
    for key in ("concurrency", "timeout", "tries"):
        _at_least(f"endpoint.{key}", getattr(endpoint, key), 1)
    _at_least("endpoint.max_length", endpoint.max_length, 8)


def _check_engine(engine: EngineConfig) -> None:
    one_of("engine.kind", engine.kind, ("local", "ray"))
    _at_least("engine.workers", engine.workers, 1)
    _at_least("engine.threads", engine.threads, 1)
    _at_least("engine.batch_tokens", engine.batch_tokens, 1)
    for name in ("cpus_per_worker", "gpus_per_worker"):
        if not 0 <= getattr(engine, name) < float("inf"):
            raise UserError(f"engine.{name} is {getattr(engine, name)}; it must be a number from 0 up")
    if engine.kind == "local" and engine.gpus_per_worker:
        raise UserError(
            "engine.gpus_per_worker is for engine=ray; without Ray start a process for each GPU on the same run: "
            "CUDA_VISIBLE_DEVICES=0 toolformer generate ..."
        )
    if engine.kind == "local" and engine.address:
        raise UserError("engine.address is for engine=ray; add engine=ray or leave the address out")


def one_of(key: str, value: str, known: Any) -> None:
    if value not in known:
        raise UserError(f"{key} is {value!r}; it must be one of {', '.join(known)}{near(value, known)}")


def _at_least(key: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise UserError(f"{key} is {value}; it must be at least {least}")


def near(value: str, known: Any) -> str:
    close = difflib.get_close_matches(value, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
