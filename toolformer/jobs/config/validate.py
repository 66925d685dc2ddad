"""From a composed configuration to typed objects; impossible values are refused by key, before any model is loaded."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from toolformer.annotation.candidates import scoring_floor
from toolformer.data import assets
from toolformer.data.files import DEMO_SPLITS
from toolformer.decoding.settings import check_calling
from toolformer.errors import UserError, near
from toolformer.jobs.config.effective import effective
from toolformer.jobs.config.keys import all_keys
from toolformer.jobs.config.messages import first_error, one_line
from toolformer.jobs.config.schema import Config, CorpusConfig, adapter
from toolformer.step import all_settings
from toolformer.tools import prompt_sets


def validate(config: DictConfig, stage: str = "") -> Config:
    """The configuration as typed objects, with absolute paths to write to; its cache of assets is this process's from here on.

    For the stage `report` alone, which only reads finished runs, corpora and benchmark data may be missing.
    UserError for an impossible value, named by its key.
    """
    try:
        values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(one_line(error)) from error
    assert isinstance(values, dict)
    values.pop("hydra", None)
    if "explain" in values["run"]["stages"]:
        raise UserError(
            "run.stages.explain: an evaluation explains its answers itself: set evaluation.oracles=true, and leave explain out"
        )
    try:
        (typed,) = adapter(Config).validate_python([values])
    except ValidationError as error:
        raise UserError(first_error(error, [key.name for key in all_keys()])) from error
    # A tool may change the working directory; what is written stays in one place.
    typed.paths.root = os.path.abspath(Path(typed.paths.root).expanduser())
    apply_cache(typed)
    prompt_sets.check_set(typed.prompts)
    if typed.tool_sources:
        from toolformer.jobs.config.tool_sources import add_tools

        add_tools(typed)
    _check_tools(typed)
    if stage != "report":
        _check_data(typed)
    _check_together(typed)
    return typed


def apply_cache(config: Config) -> None:
    """Sets the folder of cached assets for this process, as configured."""
    if config.paths.cache:
        assets.set_cache_dir(Path(config.paths.cache).expanduser())


def _check_tools(config: Config) -> None:
    if not config.tools:
        raise UserError("tools: the list is empty; name at least one tool, for example tools=[calculator]")
    known = sorted(key for key, tool in config.tool.items() if tool.implementation)
    names: dict[str, str] = {}
    for key in config.tools:
        if key not in known:
            raise UserError(f"tools: there is no tool {key!r}{near(key, known)}; known: {', '.join(known)}")
        if key in names.values():
            raise UserError(f"tools: {key} is named twice; name each tool once")
        name = config.tool[key].name
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise UserError(f"tool.{key}.name is {name!r}; it must have letters (a-z), digits or _ only")
        if name in names:
            raise UserError(f"tool.{key}.name: {names[name]} and {key} are both called {name}; rename one")
        names[name] = key


def _check_data(config: Config) -> None:
    """Checks inputs that work needs, and a report of finished work does not."""
    _check_corpus("corpus", config.corpus)
    if config.heldout.source is not None:
        _check_corpus("heldout", config.heldout)
    elif changed := [setting for setting in all_settings(config.heldout) if not setting.is_default]:
        raise UserError(
            f"heldout.{changed[0].key} needs heldout.source; add corpus@heldout=jsonl (or another "
            f"file of the group corpus); or hold out a share of the corpus, with heldout.{changed[0].key}=null"
        )
    for key in config.tools:
        _check_below_data_dir(f"tool.{key}.implementation", config.tool[key].implementation)
        _check_below_data_dir(f"tool.{key}.inference", config.tool[key].inference)
    for key in ("data_dir", "tasks_dir"):
        folder = getattr(config.paths, key)
        if folder and not Path(folder).expanduser().is_dir():
            raise UserError(f"paths.{key}: there is no folder {folder}")


def _check_corpus(key: str, corpus: CorpusConfig) -> None:
    if corpus.source is None:
        raise UserError(f"{key}.source is missing; name a file of the group corpus, for example {key}=jsonl")
    if corpus.source == "demo" and corpus.split not in DEMO_SPLITS:
        raise UserError(f"{key}.split is {corpus.split!r}; it must be one of {', '.join(DEMO_SPLITS)}")
    if corpus.source in ("demo", "wikipedia"):
        if corpus.path:
            raise UserError(f"{key}.path: {key}.source={corpus.source} reads no file; leave one of them out")
    _check_below_data_dir(f"{key}.path", corpus.path)
    if corpus.source not in ("demo", "wikipedia") and not corpus.path:
        expected = "a data set's name" if corpus.source == "hub" else "a file or a folder"
        # cc_net's files are the paper's setting, in which the experiments of its tables are.
        bundled = ", or add setting=small for the bundled model and corpus" * (
            corpus.text_field == "raw_content"
        )
        raise UserError(f"{key}.path is missing; name {expected}: {key}.path=...{bundled}")


def _check_below_data_dir(key: str, value: Any) -> None:
    """UserError for a path below `${paths.data_dir}`, which is null."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            _check_below_data_dir(f"{key}.{name}", part)
    elif str(value).startswith("None/"):
        raise UserError(f"{key} needs paths.data_dir; add paths.data_dir=DIR")


def _check_together(config: Config) -> None:
    """Values that are possible alone and not beside each other."""
    propose, engine = config.propose, config.engine
    if propose.window_tokens is not None and propose.window_overlap >= propose.window_tokens:
        raise UserError("propose.window_overlap must be less than propose.window_tokens")
    if config.evaluation.samples is not None:
        config.evaluation.limit = config.evaluation.perplexity_limit = None
    if engine.gpus_per_worker and engine.address is None:
        raise UserError(
            "engine.gpus_per_worker needs engine.address, a cluster; on one machine leave it out: the workers share the GPUs"
        )
    if engine.workers != 1 or engine.address is not None:
        _settle_workers(config)
    config.trainer.accumulation(processes=1)
    thresholds = {key: tool.filter_threshold for key, tool in effective(config, "generate").tool.items()}
    scoring_floor({key: value for key, value in thresholds.items() if value is not None}, config.score.floor)
    check_calling(config.decoding, config.tool)
    if config.evaluation.oracles and (config.system != "toolformer" or not config.decoding.k):
        raise UserError(
            "evaluation.oracles needs system=toolformer and decoding.k of 1 or more; leave it out"
        )


def _settle_workers(config: Config) -> None:
    """Replaces `workers=auto` by a number; workers that share a GPU, get the small batches of a CPU."""
    from toolformer.lm import memory
    from toolformer.lm.devices import gpus

    engine, decoding = config.engine, config.decoding
    if engine.address is not None:
        if engine.workers == "auto":
            raise UserError(
                "engine.workers=auto counts this machine's GPUs; with engine.address give a number"
            )
        is_shared = engine.gpus_per_worker < 1
    else:
        count = max(1, gpus(config.lm.device))
        engine.workers = count if engine.workers == "auto" else engine.workers
        is_shared = engine.workers > count
    if is_shared and engine.batch_tokens == "auto":
        engine.batch_tokens = memory.batch_tokens("cpu")
    if is_shared and decoding.batch_size == "auto":
        decoding.batch_size = memory.batch_rows("cpu")
