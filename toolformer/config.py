"""The typed configuration of all four stages (Hydra; top floor).

One configuration serves every stage, so that an experiment is one file; each stage fingerprints the part that decides
its result. Hydra refuses unknown keys and wrong types against these classes, `validate` impossible values, both
before any model is loaded.
"""

from __future__ import annotations

import datetime
import difflib
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from toolformer import __version__
from toolformer.errors import UserError

CONF = Path(__file__).resolve().parent.parent / "conf"
"""Where Hydra finds the configuration."""

SYSTEMS = {
    "model": "M",
    "model_cc": "M + CC",
    "toolformer_disabled": "Toolformer (disabled)",
    "toolformer": "Toolformer",
    "baseline": "Baseline",
    "endpoint": "Endpoint",
}
PAPER_SYSTEMS = ("model", "model_cc", "toolformer_disabled", "toolformer")
"""The four that the paper compares, in its order."""


@dataclass
class LanguageModelConfig:
    """How a model is loaded."""

    dtype: str = "auto"
    """auto (bfloat16 where native, else float32), float32, bfloat16 or float16."""
    device: str = "auto"
    """auto (CUDA if there is a GPU), cpu, cuda, cuda:1, ..."""


@dataclass
class CorpusConfig:
    """Where plain texts come from."""

    source: str = MISSING
    """demo, wikipedia, jsonl, parquet, files (JSON Lines and Parquet mixed) or hub."""
    path: str | None = None
    """jsonl, parquet, files: a file or a folder; hub: the data set's name."""
    pattern: str | None = None
    """Which files of a folder, as a glob below it; null is every file with a fitting name."""
    subset: str | None = None
    """hub: the data set's configuration, where it has several."""
    split: str = "train"
    """demo: train or heldout; hub: the data set's split."""
    text_field: str = "text"
    """The field or column that holds the text."""
    url_field: str | None = "url"
    """... the URL, whose date the calendar answers with; null: none is read."""
    date_field: str | None = "date"
    """... the day of writing (YYYY-MM-DD), where the URL tells none; null: none is read."""
    id_field: str | None = "id"
    """... the document's name; null, and where a row has none: a name made from the text."""
    latest_date: str | None = None
    """Dates in URLs after this day (YYYY-MM-DD) are not believed; null is the day of the run, in UTC."""
    strict: bool = False
    """Refuse the corpus at its first bad row instead of skipping and counting it."""
    limit: int | None = None
    """Only the first documents."""


@dataclass
class ToolConfig:
    """One tool, and how its calls are proposed and kept (paper, section 2 and appendix A)."""

    name: str = MISSING
    """Its name in a call."""
    implementation: dict[str, Any] = field(default_factory=dict)
    """What answers its calls: a class and its arguments (`_target_`)."""
    inference: dict[str, Any] = field(default_factory=dict)
    """Arguments that differ at inference (a larger model, the clock)."""
    prompt: str = MISSING
    """Key of its few-shot prompt."""
    selector: str = "any"
    """Which texts are tried: any, calculator, calendar or translation."""
    start_threshold: float = 0.05
    """τ_s."""
    max_positions: int = 5
    """k."""
    samples: int = 5
    """m."""
    filter_threshold: float = 1.0
    """τ_f in nats, applied after scoring."""
    max_call_tokens: int | None = None
    """A sampled call that has not ended by then is discarded; null is propose.max_call_tokens."""


@dataclass
class ProposeConfig:
    """Sampling of calls, for all tools (paper, section 2)."""

    force_name: bool = False
    """Write the tool's name after the call token, for models too small to write it; not the paper's."""
    max_call_tokens: int = 40
    """A sampled call that has not ended by then is discarded; a tool's own max_call_tokens goes before it."""
    window_tokens: int | None = None
    """Tokens of a text that are annotated as one; null is as many as the model's context holds."""
    window_overlap: int = 0
    """Tokens that a later window of a text begins with as context only: no call is tried there a second time."""


@dataclass
class ScoreConfig:
    """Losses with and without a call's result (paper, section 2)."""

    dtype: str = "auto"
    """In which dtype log p is taken from the logits: auto (float32), float32 or bfloat16."""


@dataclass
class FilterConfig:
    """Which scored calls are kept; applied after scoring, so that a change needs no model."""

    baseline: str = "paper"
    """L⁻: paper, min(L(ε), L(e(c, ε))); or plain, L(ε) alone."""


@dataclass
class GenerateConfig:
    """Annotation."""

    shard_size: int = 8
    """Documents that are finished and written together: what an interruption can cost."""


@dataclass
class EngineConfig:
    """Who annotates the shards; decides no result."""

    kind: str = MISSING
    """local (this machine) or ray (Ray Data, on this machine or a cluster)."""
    workers: int = 1
    """Replicas of the model, each with its tools, that work side by side."""
    threads: int | None = None
    """CPU threads of a worker; null: the machine's cores shared among its workers."""
    cpus_per_worker: float = 0.5
    """ray: CPUs that a worker reserves; those of all workers must leave some for the reader."""
    gpus_per_worker: float = 0.0
    """ray: GPUs that a worker reserves; a fraction lets workers share one."""
    address: str | None = None
    """ray: the cluster (host:port, or auto); null starts a Ray on this machine for the run."""


@dataclass
class TrainerConfig:
    """Finetuning (paper, section 4.1 and appendix B)."""

    learning_rate: float = 1e-5
    warmup_ratio: float = 0.1
    schedule: str = "constant"
    """After the warm-up: constant, linear or cosine."""
    max_steps: int | None = 2000
    """Optimizer steps at most; null: as many as epochs take."""
    epochs: int | None = None
    """Passes over the data at most; null: as many as max_steps take."""
    batch_size: int = 128
    """Sequences an optimizer step, over all devices."""
    micro_batch_size: int = 8
    """Sequences a forward pass on one device."""
    sequence_length: int = 1024
    """Tokens a packed sequence."""
    eval_every: int = 500
    """Steps between two held-out perplexities."""
    save_every: int | None = None
    """Steps between two checkpoints to resume from; null as eval_every, 0 none."""
    log_every: int = 10
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    gradient_checkpointing: bool = False
    compile: bool = False
    """torch.compile."""
    train_on_results: bool = True
    """Whether results, which decoding inserts, are targets too (the paper's loss is that of all tokens)."""
    early_stopping: int | None = None
    """Held-out perplexities without a better one after which training ends."""
    max_hours: float | None = None
    """Training ends after this time with the best model so far."""
    lora_rank: int | None = None
    """Rank of LoRA adapters that are trained instead of all weights, and merged into the model that is kept."""
    lora_alpha: int | None = None
    """Scale of the adapters times their rank; null: twice the rank."""
    deepspeed: str | None = None
    """zero2, zero3, zero3_offload, or a DeepSpeed configuration file (JSON)."""
    other_tokenizer: bool = False
    """Train on texts that a model with another tokenizer annotated: they are tokenised anew."""
    limit_per_tool: int = 25_000
    """Examples a tool at most."""


@dataclass
class DecodingConfig:
    """Top-k API decoding (paper, section 4.2)."""

    k: int = 10
    """<API> is started when it is among the k likeliest tokens; 1 is plain greedy, 0 disables calls."""
    max_calls: int = 1
    """Calls an input at most."""
    max_call_tokens: int = 40
    max_result_tokens: int = 64
    min_new_tokens: int = 0
    """No end of text before so many tokens: chat models end at once where a plain language model writes on."""
    batch_size: int = 32


@dataclass
class EvaluationConfig:
    """Benchmark runs."""

    limit: int | None = None
    """Examples a benchmark at most, a subset chosen by the seed (not the first ones); null is all."""
    perplexity_limit: int | None = None
    """Documents a perplexity benchmark at most, chosen likewise."""
    samples: Any = None
    """Only the examples with these ids: a list for all benchmarks, a mapping from benchmark to list, or a file
    with either in JSON or with an id a line; null is all."""
    bootstrap: int = 1000
    """Resamples behind an interval."""


@dataclass
class EndpointConfig:
    """A completions endpoint that speaks OpenAI's protocol (system=endpoint)."""

    url: str | None = None
    """The whole address, such as http://127.0.0.1:8000/v1/completions."""
    model: str | None = None
    """The model's name there."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; a server that wants none needs none."""
    tokenizer: str | None = None
    """The served model's tokenizer, a folder or hub name; perplexity needs it."""
    concurrency: int = 4
    """Requests under way at once."""
    timeout: int = 300
    """Seconds a request may take."""
    tries: int = 3
    """How often a request is made before the evaluation ends."""
    max_length: int = 2048
    """Tokens the served model can read at once."""


@dataclass
class PathsConfig:
    """Places on disk."""

    root: str = "runs"
    """Everything that runs write."""
    cache: str | None = None
    """Downloaded and converted assets; null is $TOOLFORMER_CACHE or ~/.cache/toolformer."""
    data_dir: str | None = None
    """Folder with benchmark data; null reads from the hub."""


@dataclass
class TrackingConfig:
    """MLflow."""

    uri: str | None = None
    """Tracking URI; null is an SQLite file under paths.root."""


@dataclass
class Config:
    """Everything that decides a result."""

    name: str = "default"
    """The experiment's name; runs carry it as a tag."""
    seed: int = 0
    model: str = "smollm2"
    """The language model M: an embedded one (smollm2), a folder, or a hub name."""
    lm: LanguageModelConfig = field(default_factory=LanguageModelConfig)
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    heldout: CorpusConfig = field(default_factory=CorpusConfig)
    """Texts for the held-out perplexity."""
    tools: list[str] = field(default_factory=list)
    """Tools in use."""
    tool: dict[str, ToolConfig] = field(default_factory=dict)
    """Every tool that is known, by key."""
    propose: ProposeConfig = field(default_factory=ProposeConfig)
    score: ScoreConfig = field(default_factory=ScoreConfig)
    filter: FilterConfig = field(default_factory=FilterConfig)
    generate: GenerateConfig = field(default_factory=GenerateConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    dataset: str = "latest"
    """Train: the generate run to read, `latest` or a run id."""
    data: str = "augmented"
    """Train: augmented (C*, makes Toolformer) or plain (C, makes M + CC)."""
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    system: str = "toolformer"
    """Evaluate: model, model_cc, toolformer_disabled or toolformer; or a larger model to compare with, baseline
    (any `model`, untrained) or endpoint (served elsewhere)."""
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    """Evaluate: where the system `endpoint` is served."""
    checkpoint: str = "latest"
    """Evaluate: the train run to read, `latest` or a run id; only systems that were trained take one."""
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    benchmarks: list[str] = field(default_factory=list)
    """Evaluate: tasks to run."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    paths: PathsConfig = field(default_factory=PathsConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


def register() -> None:
    """Makes the schemas known to Hydra, under the names that conf/ refers to."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    store.store(group="corpus", name="schema", node=CorpusConfig)
    store.store(group="heldout", name="schema", node=CorpusConfig)
    store.store(group="tool", name="schema", node=ToolConfig)
    store.store(group="engine", name="schema", node=EngineConfig)
    store.store(group="trainer", name="schema", node=TrainerConfig)
    store.store(group="decoding", name="schema", node=DecodingConfig)


def compose(stage: str, overrides: Sequence[str]) -> DictConfig:
    """The configuration of a stage.

    Raises:
        UserError: an unknown key, a wrong type or a broken override, in one line.
    """
    register()
    for override in overrides:
        key, _, name = override.partition("=")
        if key.lstrip("+") == "experiment":
            _check_experiment(name)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
            return hydra_compose(stage, overrides=list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        unknown = re.search(r"Could not override '([\w.@]+)'", str(error))
        if unknown:
            raise UserError(_unknown_key(stage, unknown[1])) from error
        raise UserError(f"{one_line(error)}; see toolformer {stage} --help") from error
    finally:
        GlobalHydra.instance().clear()


def _unknown_key(stage: str, key: str) -> str:
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        known = _keys(hydra_compose(stage))
    return f"there is no key {key!r}{_near(key, known)}; see toolformer {stage} --help"


def _keys(config: DictConfig, above: str = "") -> list[str]:
    """Every key of a configuration, written out."""
    found: list[str] = []
    for key in map(str, config):
        name = f"{above}{key}"
        found.append(name)
        if OmegaConf.is_dict(config._get_node(key)) and not OmegaConf.is_missing(config, key):
            found += _keys(config[key], f"{name}.") if config[key] is not None else []
    return found


def _check_experiment(name: str) -> None:
    """Hydra takes an experiment that is not there for none, since base.yaml has none."""
    known = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
    for one in name.split(","):
        if one not in ("", "null"):
            _one_of("experiment", one.strip(), known)


def one_line(error: Exception) -> str:
    """Hydra's and OmegaConf's messages run over several lines; the key and the reason are what is wanted."""
    causes = [error, *([error.__cause__] if error.__cause__ else [])]
    lines = [line.strip() for one in causes for line in str(one).splitlines() if line.strip()]
    noise = ("object_type", "reference_type", "Set the environment", "Config search path", "provider=")
    lines = [line for line in dict.fromkeys(lines) if not line.startswith(noise)]
    key = next((line.removeprefix("full_key:").strip() for line in lines if line.startswith("full_key:")), "")
    text = " ".join(line for line in lines if not line.startswith("full_key:"))
    return f"{key}: {text}" if key and key not in text else text


def validate(config: DictConfig) -> Config:
    """The configuration as typed objects.

    Raises:
        UserError: an impossible value, named by its key.
    """
    repeated = next((key for key in config.tools if list(config.tools).count(key) > 1), None)
    if repeated:
        raise UserError(f"tools: {repeated} is named twice; name each tool once")
    unknown = sorted(set(config.tools) - set(config.tool))
    if unknown:
        raise UserError(
            f"tools: there is no tool {unknown[0]!r}; known are {', '.join(sorted(config.tool))}{_near(unknown[0], config.tool)}"
        )
    made = OmegaConf.to_object(config)
    assert isinstance(made, Config)
    _one_of("system", made.system, SYSTEMS)
    _one_of("data", made.data, ("augmented", "plain"))
    _one_of("lm.dtype", made.lm.dtype, ("auto", "float32", "bfloat16", "float16"))
    for key, corpus in (("corpus", made.corpus), ("heldout", made.heldout)):
        _check_corpus(key, corpus)
    if not made.tools:
        raise UserError("tools: the list is empty; name at least one tool, for example tools=[calculator]")
    for key in made.tools:
        tool = made.tool[key]
        _one_of(f"tool.{key}.selector", tool.selector, ("any", "calculator", "calendar", "translation"))
        for name in ("max_positions", "samples", "max_call_tokens"):
            _at_least(f"tool.{key}.{name}", getattr(tool, name), 1)
        if not math.isfinite(tool.filter_threshold):
            raise UserError(
                f"tool.{key}.filter_threshold is {tool.filter_threshold}; it must be a number (nats)"
            )
        if not re.fullmatch(r"[A-Za-z_]\w*", tool.name):
            raise UserError(
                f"tool.{key}.name is {tool.name!r}; a name has letters, digits and underscores only"
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
    _at_least("seed", made.seed, 0)
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
    if made.system == "endpoint":
        _check_endpoint(made.endpoint)
    if made.paths.data_dir and not Path(made.paths.data_dir).expanduser().is_dir():
        raise UserError(f"paths.data_dir: there is no folder {made.paths.data_dir}")
    return made


def _check_corpus(key: str, corpus: CorpusConfig) -> None:
    _one_of(f"{key}.source", corpus.source, ("demo", "wikipedia", "jsonl", "parquet", "files", "hub"))
    if corpus.source == "demo":
        _one_of(f"{key}.split", corpus.split, ("train", "heldout"))
    elif corpus.source != "wikipedia" and not corpus.path:
        wanted = "a data set's name" if corpus.source == "hub" else "a file or a folder"
        raise UserError(f"{key}.path: the {corpus.source} corpus needs {wanted}; add {key}.path=...")
    if not corpus.text_field:
        raise UserError(f"{key}.text_field is empty; name the field that holds the text")
    if corpus.latest_date is not None:
        try:
            datetime.date.fromisoformat(corpus.latest_date)
        except ValueError:
            raise UserError(f"{key}.latest_date is {corpus.latest_date!r}; write YYYY-MM-DD") from None
    _at_least(f"{key}.limit", corpus.limit, 1)


def _check_annotation(config: Config) -> None:
    _one_of("filter.baseline", config.filter.baseline, ("paper", "plain"))
    _one_of("score.dtype", config.score.dtype, ("auto", "float32", "bfloat16"))
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
    if not re.match(r"https?://[^/]", str(endpoint.url)):
        raise UserError(
            "endpoint.url must begin with http:// or https://, for example http://127.0.0.1:8000/v1/completions"
        )
    # Not shown: somebody may have put the key itself there.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", endpoint.key_variable) or endpoint.key_variable.startswith(
        "sk_"
    ):
        raise UserError(
            "endpoint.key_variable must be the name of an environment variable, not the key itself"
        )
    for key in ("concurrency", "timeout", "tries"):
        _at_least(f"endpoint.{key}", getattr(endpoint, key), 1)
    _at_least("endpoint.max_length", endpoint.max_length, 8)


def _check_engine(engine: EngineConfig) -> None:
    _one_of("engine.kind", engine.kind, ("local", "ray"))
    _at_least("engine.workers", engine.workers, 1)
    _at_least("engine.threads", engine.threads, 1)
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


def fingerprint(*parts: Any) -> str:
    """A name for a result by what decides it."""
    text = json.dumps([__version__, *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _one_of(key: str, value: str, known: Any) -> None:
    if value not in known:
        raise UserError(f"{key} is {value!r}; it must be one of {', '.join(known)}{_near(value, known)}")


def _at_least(key: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise UserError(f"{key} is {value}; it must be at least {least}")


def _near(value: str, known: Any) -> str:
    close = difflib.get_close_matches(value, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
