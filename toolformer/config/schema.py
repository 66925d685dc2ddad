"""The keys of all four stages, with their types and what each means.

One configuration serves every stage, so that an experiment is one file; each stage fingerprints the part that decides
its result.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

STAGES = ("generate", "train", "evaluate", "report")
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
PLAIN = ("model", "model_cc", "baseline")
"""Systems that were never taught to call: decoded as they are, no token forbidden."""


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
    title_field: str | None = "title"
    """... what search shows before the text, in an index made of the corpus; null, and where a row has none: the
    text's first words."""
    latest_date: str | None = None
    """Dates in URLs after this day (YYYY-MM-DD) are not believed; null is the day of the run, in UTC."""
    strict: bool = False
    """Refuse the corpus at its first bad row instead of skipping and counting it."""
    limit: int | None = None
    """Only the first documents."""


@dataclass
class DemonstrationConfig:
    """An example of a few-shot prompt."""

    text: str = MISSING
    """A text, in one line."""
    annotated: str = MISSING
    """The same text with calls where they help, without results."""


@dataclass
class ToolConfig:
    """One tool, and how its calls are proposed and kept (paper, section 2 and appendix A)."""

    name: str = ""
    """Its name in a call; for a tool of tool_sources, nothing is the name that it has there."""
    implementation: dict[str, Any] = field(default_factory=dict)
    """What answers its calls: a class and its arguments (`_target_`)."""
    inference: dict[str, Any] = field(default_factory=dict)
    """Arguments that differ at inference (a larger model, the clock)."""
    prompt: str | None = None
    """Its few-shot prompt in the set `prompts`; null is its key."""
    instruction: str | None = None
    """With demonstrations: a few-shot prompt of its own instead, whose first line this is."""
    demonstrations: list[DemonstrationConfig] = field(default_factory=list)
    """... and whose examples these are."""
    example: str | None = None
    """A call with its result, such as `square(3) -> 9`: from it and the docstring the prompt of a tool of
    tool_sources is drafted; null takes the docstring's examples."""
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
    cache: bool = True
    """Keep its results on disk (paths.root/tools) and execute equal calls once, also in several processes."""
    timeout: float | None = 60.0
    """Seconds a call may take, calls handed over together n times as long; null: no limit, and no thread for it."""
    tries: int = 1
    """How often a call that met a fault (an exception, a server that is away) is made, with growing pauses."""
    workers: int = 1
    """Threads that call the tool side by side; above 1 only for a tool that may be called so."""
    batch_size: int | None = None
    """Calls handed to the tool at once; null: all there are, shared among its workers, but under a timeout one."""


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
    """Who annotates the shards; decides no result but for rounding."""

    kind: str = MISSING
    """local (this machine) or ray (Ray Data, on this machine or a cluster)."""
    workers: int = 1
    """Replicas of the model, each with its tools, that work side by side."""
    threads: int | None = None
    """CPU threads of a worker; null: those that the run began with, else the machine's cores shared among its workers."""
    batch_tokens: int | None = None
    """Tokens that the model is fed at once at most; what the memory needs grows with it, and a GPU is filled by more.
    Null: the number that the run began with, else 2,048."""
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
    """Training ends after this time with the best model so far; the same command with more, or null, goes on from there."""
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
    """Examples a benchmark at most, a subset chosen by the seed (not the first ones); null is all. A larger one holds most of a
    smaller one's, not always all."""
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
    """The served model's tokenizer, a folder or hub name; perplexity needs it, and cutting prompts to max_length."""
    concurrency: int = 4
    """Requests under way at once."""
    timeout: int = 300
    """Seconds a request may take."""
    tries: int = 3
    """How often a request is made before the evaluation ends."""
    max_length: int = 2048
    """Tokens the served model can read at once."""


@dataclass
class IndexConfig:
    """A search index of a corpus (toolformer index)."""

    path: str | None = None
    """The folder that the index becomes."""
    backend: str = "bm25"
    """bm25 (pure pip) or lucene (Java; for millions of passages)."""
    passage_words: int | None = 100
    """Texts are cut into passages of so many words; null: each is one passage."""


@dataclass
class PathsConfig:
    """Places on disk."""

    root: str = "runs"
    """Everything that runs write."""
    cache: str | None = None
    """Downloaded and converted assets; null is $TOOLFORMER_CACHE or ~/.cache/toolformer."""
    data_dir: str | None = None
    """Folder with benchmark data; null reads from the hub."""
    tasks_dir: str | None = None
    """Folder with lm-eval task files of your own, whose tasks `benchmarks` may name (docs/extending.md)."""


@dataclass
class TrackingConfig:
    """MLflow."""

    uri: str | None = None
    """Tracking URI; null is an SQLite file under paths.root."""


@dataclass
class RunConfig:
    """What `toolformer run` does; decides no result."""

    stages: dict[str, list[str]] = field(default_factory=dict)
    """The stages, each with the keys of hydra.sweeper.params that it is swept over."""
    experiments: list[str] = field(default_factory=list)
    """Other experiments whose stages these are, in place of stages of its own."""


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
    tool_sources: list[Any] = field(default_factory=list)
    """Where further tools come from: Python files and functions, MCP servers; a text or a mapping each
    (config/tool_sources.py has its keys)."""
    prompts: str = "paper"
    """The set of few-shot prompts: paper, paper-vi, or a folder with a file for each tool."""
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
    index: IndexConfig = field(default_factory=IndexConfig)
    """toolformer index: the search index that the corpus becomes."""
    run: RunConfig = field(default_factory=RunConfig)
    """Run: the stages of an experiment."""
    paths: PathsConfig = field(default_factory=PathsConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


@functools.cache  # once in a process: each time takes as long as a tenth of a composition
def register() -> None:
    """Makes the schemas known to Hydra, under the names that conf/ refers to."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    store.store(group="corpus", name="schema", node=CorpusConfig)
    store.store(group="heldout", name="schema", node=CorpusConfig)
    store.store(group="tool", name="schema", node=ToolConfig)
    store.store(group="tool", name="user", node=ToolConfig)
    store.store(group="engine", name="schema", node=EngineConfig)
    store.store(group="trainer", name="schema", node=TrainerConfig)
    store.store(group="decoding", name="schema", node=DecodingConfig)
