"""The keys of all four stages: the type and the bounds of each, its default, and below it what it means.

One configuration serves every stage, so that an experiment is one file. Each key is marked with the steps whose results it
decides (`toolformer.step`); one without a mark decides none, or its content does (the texts of a corpus, a tool's files).
OmegaConf reads the types, pydantic the bounds (`validate`). docs/keys.md is made from the docstrings.
"""

import functools
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING
from pydantic import ConfigDict, Field, TypeAdapter

from toolformer.annotation.candidates import Filtering, PreFilters, Proposing, ToolSampling
from toolformer.benchmarks import PAPER, WORDINGS
from toolformer.data import Fields
from toolformer.data.bounds import (
    Amount,
    Count,
    CountOrAuto,
    Day,
    Finite,
    Matching,
    OneOf,
    Place,
    Probability,
    Share,
)
from toolformer.decoding.settings import SYSTEMS, Decoding
from toolformer.step import NOTHING, STAGES, Decides, Private, ReadBy
from toolformer.tools.limits import Calling
from toolformer.tools.runtime import Limits, Seconds
from toolformer.training.settings import Recipe

T = TypeVar("T")
NAME = r"[A-Za-z0-9][A-Za-z0-9_ .+=-]{0,99}"
SOURCES = ("demo", "wikipedia", "jsonl", "parquet", "text", "files", "hub")


@dataclass
class LanguageModelConfig:
    """How a model is loaded."""

    dtype: Annotated[
        str, OneOf("auto", "float32", "bfloat16", "float16"), Decides("annotate", "train", "answer")
    ] = "auto"
    """auto (bfloat16 where native, else float32), float32, bfloat16 or float16."""
    device: Annotated[
        str, Matching(r"auto|cpu|cuda(:\d+)?|all|mps|xpu(:\d+)?", "auto, cpu, cuda, cuda:N or all")
    ] = "auto"
    """auto (CUDA if there is a GPU, and all GPUs if one has no room for the weights), cpu, cuda, cuda:1, ...; all: the layers of
    a model are spread over all GPUs."""
    graphs: bool = False
    """Run single-token steps as CUDA graphs on a GPU. Not yet measured on one."""


@dataclass
class CorpusConfig(Fields):
    """Where plain texts come from."""

    source: Annotated[str, OneOf(*SOURCES)] | None = None
    """demo, wikipedia, jsonl, parquet, text (a document per file), files (JSON Lines and Parquet mixed) or hub. For
    `heldout`, null means a share of the corpus (heldout_share)."""
    path: Annotated[Place | None, NOTHING, Private()] = None  # its content is an input
    """jsonl, parquet, text, files: a file or a folder; hub: the data set's name, or a folder of it."""
    pattern: Annotated[str | None, NOTHING, Private()] = None
    """Glob that chooses the files of a folder; null reads every file whose name matches the source."""
    subset: str | None = None
    """hub: the data set's configuration, if it has several."""
    split: str = "train"
    """demo: train, heldout or sums (short texts with worked sums); hub: the data set's split."""
    paragraphs: Annotated[str, OneOf("blank_line", "line"), NOTHING] = (
        "blank_line"  # an input of the annotation
    )
    """What separates paragraphs: blank_line, or line (cc_net). Translation tries paragraphs in two languages."""
    latest_date: Day | None = None
    """Ignore dates later than this day (YYYY-MM-DD), in URLs and in the date field; null means today, in UTC."""
    strict: Annotated[bool, NOTHING] = False
    """Refuse the corpus at its first bad row instead of skipping and counting it."""
    limit: Count | None = None
    """Read only the first N documents; for `heldout`, N documents drawn at random by heldout_seed."""


@dataclass
class DemonstrationConfig:
    """An example of a few-shot prompt."""

    text: str = MISSING
    """A text, in one line."""
    annotated: str = MISSING
    """The same text with calls where they help, without results."""


@dataclass
class ToolConfig(ToolSampling, Calling, Limits):
    """One tool, and how its calls are proposed and kept."""

    name: Annotated[str, Decides("annotate", "answer")] = ""
    """The tool's name in a call. Empty keeps the name from tool_sources."""
    implementation: Annotated[dict[str, Any], Decides("annotate", "answer"), Private()] = field(
        default_factory=dict
    )
    """The class that answers its calls (`_target_`) and its arguments."""
    inference: Annotated[dict[str, Any], Decides("answer"), Private()] = field(default_factory=dict)
    """Arguments of the implementation that differ at inference, such as a larger model."""
    prompt: Annotated[str | None, NOTHING, Private(only_paths=True)] = None  # an input, by its content
    """Name of its few-shot prompt in the set `prompts`; null uses the tool's key."""
    instruction: Annotated[str | None, NOTHING] = None
    """First line of a custom few-shot prompt; it needs demonstrations."""
    demonstrations: Annotated[list[DemonstrationConfig], NOTHING] = field(default_factory=list)
    """Examples of the custom prompt, each with `text` and `annotated`."""
    example: Annotated[str | None, Decides("answer")] = None
    """A call with its result, such as `square(3) -> 9`, used with the docstring to draft the prompt of a tool of
    tool_sources; null takes the docstring's examples."""
    chance: Annotated[Probability | None, Decides("generate")] = None
    """Control experiment: ignore gains and keep the first scored call at each position with this probability; 1 keeps one at
    every position."""
    chance_above: Annotated[Finite | None, Decides("generate")] = None
    """With chance: draw only from calls that gain more than this, in nats; null draws from all scored calls."""
    cache: Annotated[bool, NOTHING] = True
    """Store its results on disk (paths.root/tools) and execute equal calls only once, also across processes."""
    timeout: Annotated[Seconds | None, NOTHING] = 60.0
    """Time limit of a call in seconds. A batch of n calls gets n times the limit. null: no limit."""


@dataclass
class ScoreConfig:
    """Losses with and without a call's result (paper, section 2)."""

    floor: Finite | None = None
    """Lowest filter_threshold in nats that can be used later without scoring again. Where the upper bound of the gain, L(ε) −
    L(e(c, r)), is lower, L(e(c, ε)) is not computed. null: each tool's filter_threshold."""


@dataclass
class GenerateConfig:
    """Annotation."""

    seed: Annotated[int | None, Field(ge=0, lt=2**32), NOTHING] = None  # counts as the annotation's `seed`
    """Seed for annotation; null uses `seed`. Set it to train several seeds on one annotation."""
    limit_per_tool: Annotated[Count | None, Decides("generate")] = None
    """Maximum texts with a kept call per tool, counted from the first text of the corpus. A tool that has reached it is
    sampled no further. null: no limit."""
    shard_size: Count = 8
    """Documents per shard. An interruption loses at most one shard per worker. With another size, an unfinished annotation
    starts over."""


@dataclass
class EngineConfig:
    """Processes that annotate texts and answer questions; decide no result, except for rounding."""

    workers: CountOrAuto = 1
    """Workers, each with a copy of the model and the tools; they share this machine's GPUs. auto: one per GPU, or one without
    a GPU."""
    threads: Count | None = None
    """CPU threads per worker; null divides the machine's cores among its workers."""
    batch_tokens: CountOrAuto = "auto"
    """Maximum tokens per forward pass, in annotation and evaluation; more tokens need more memory. auto: 8,192 on a GPU, 2,048
    on a CPU. Halved once if the GPU's memory is full."""
    cpus_per_worker: Amount = 0.5
    """CPUs that a worker reserves on the cluster."""
    gpus_per_worker: Amount = 0.0
    """GPUs that a worker reserves on the cluster; a fraction lets workers share one."""
    address: Annotated[str | None, Private()] = None
    """Address of a Ray cluster (host:port, or auto) whose nodes do the work (make setup EXTRA=ray); null uses this machine."""


@dataclass
class TrainerConfig(Recipe):
    """Finetuning (paper, section 4.1 and appendix B)."""

    other_tokenizer: bool = False
    """Accept texts that a model with another tokenizer annotated; they are tokenised again."""
    limit_per_tool: Count = 25_000
    """Maximum examples per tool."""
    plain_share: Share = 0.0
    """Share of texts without a kept call among the training texts, drawn at random from the same annotations. data=plain gets
    the same ones."""


@dataclass
class EvaluationConfig:
    """Benchmark runs."""

    limit: Count | None = None
    """Maximum examples per benchmark, a random subset chosen by the seed; null: all. A larger subset has most of a smaller
    one's examples, not always all."""
    perplexity_limit: Count | None = None
    """Maximum documents per perplexity benchmark, chosen in the same way."""
    samples: Annotated[Any, NOTHING, Private()] = None  # their ids are an input
    """Ask only the examples with these ids, whatever the limits: a list for all benchmarks, a mapping from benchmark to list
    (other benchmarks may be in it), or a file with either as JSON or with one id per line. null: all."""
    oracles: bool = False
    """Also ask each question under oracle conditions, to find out why answers are right or wrong (docs/ladder.md). Needs
    system=toolformer and a benchmark whose right call is known."""
    accept_faults: Annotated[bool, NOTHING] = False
    """Accept an evaluation in which a tool or server failed; false: the same command asks those questions again."""
    gold_nats: bool = False
    """Also score each gold answer in nats: −log p given the prompt and the result of the call, if there is one. Takes one more
    forward pass per example. Not for system=prompted."""


@dataclass
class IndexConfig:
    """A search index of a corpus (toolformer index)."""

    path: Place | None = None
    """Folder to write the index to."""
    backend: Annotated[str, OneOf("bm25", "lucene")] = "bm25"
    """bm25 (pure pip) or lucene (Java; for millions of passages)."""
    passage_words: Count | None = 100
    """Words per passage; null makes each text one passage."""


@dataclass
class PathsConfig:
    """Places on disk."""

    root: Annotated[Place, Private()] = "runs"
    """Folder for all runs."""
    cache: Annotated[Place | None, Private()] = None
    """Folder for downloaded and converted assets; null: $TOOLFORMER_CACHE or ~/.cache/toolformer."""
    data_dir: Annotated[Place | None, Private()] = None
    """Folder with benchmark data; null reads from the hub."""
    tasks_dir: Annotated[Place | None, Private()] = None
    """Folder with your lm-eval task files, whose tasks `benchmarks` may name (docs/extending.md)."""


@dataclass
class TrackingConfig:
    """MLflow."""

    uri: Annotated[str | None, Private()] = None
    """Address of the MLflow server that runs are logged to; null is a database below `paths.root`."""
    system_metrics: bool = False
    """Log the use of CPU, memory, disk, network and GPU every ten seconds, as MLflow's system metrics."""
    traces: bool = True
    """Log samples of evaluations, 40 of each benchmark, also as MLflow's traces: question, call, result and answer."""


@dataclass
class RunConfig:
    """Work of `toolformer run`; decides no result."""

    stages: dict[Annotated[str, OneOf(*STAGES)], dict[str, list[Any]]] = field(default_factory=dict)
    """Stages to run, each with the keys to sweep over and their values: {evaluate: {decoding.k: [0, 10]}}."""
    experiments: list[str] = field(default_factory=list)
    """Experiments to run in place of this one."""
    minutes: dict[str, Amount] = field(default_factory=dict)
    """How long it was measured to take on two CPU cores, by dtype (float32, bfloat16); logged at its start."""


@dataclass
class Config:
    """The whole configuration."""

    name: Annotated[
        str, Matching(NAME, "a letter or digit, then letters, digits, blanks and _.+=- only, at most 100")
    ] = "default"
    """The experiment's name; runs carry it as a tag, and its report is written to a folder of that name."""
    seed: Annotated[int, Field(ge=0, lt=2**32), Decides("annotate", "train", "evaluate")] = 0
    """Random seed for sampling, training and choosing questions."""
    model: Annotated[str, Private(only_paths=True)] = "smollm2"  # an input, by the content of its files
    """The language model M: a bundled one (smollm2), a folder, or a hub name."""
    like: str | None = None
    """Run of this stage (`latest` or an id) whose overrides to repeat; overrides on the command line take precedence."""
    lm: LanguageModelConfig = field(default_factory=LanguageModelConfig)
    corpus: Annotated[CorpusConfig, Decides("documents"), ReadBy("generate", "index")] = field(
        default_factory=CorpusConfig
    )
    heldout: Annotated[CorpusConfig, Decides("heldout"), ReadBy("train", "evaluate")] = field(
        default_factory=CorpusConfig
    )
    """Texts for held-out perplexity; by default the texts that the annotation held back from its corpus."""
    heldout_share: Annotated[Share, NOTHING, ReadBy("generate", "evaluate")] = 0.05  # an input
    """Share of the corpus that is not annotated, to measure held-out perplexity; at most heldout_limit texts, chosen by a
    hash. Ignored if `heldout` names other texts."""
    heldout_limit: Annotated[Count, NOTHING, ReadBy("generate", "evaluate")] = 500  # an input
    """Maximum number of texts held back from annotation. Half of the held-out texts, but at most 1,000, choose the checkpoint;
    the benchmark heldout_perplexity measures the others."""
    heldout_seed: Annotated[int, Field(ge=0), Decides("train", "evaluate")] = 0
    """Random seed for drawing the texts of `heldout.limit` and the texts that choose the checkpoint."""
    tools: Annotated[list[str], ReadBy("generate", "evaluate")] = field(default_factory=list)
    """Tools in use."""
    tool: Annotated[dict[str, ToolConfig], Decides("annotate"), ReadBy("generate", "evaluate")] = field(
        default_factory=dict
    )
    """Every tool that is known, by key."""
    tool_default: Annotated[ToolSampling, ReadBy("generate", "evaluate")] = field(
        default_factory=ToolSampling
    )
    """Defaults of the tools of tool_sources."""
    tool_sources: Annotated[list[Any], Private(), ReadBy("generate", "evaluate")] = field(
        default_factory=list
    )
    """Sources of your own tools: Python files, functions and MCP servers, each as a string or a mapping (docs/tools.md)."""
    prompts: Annotated[str, Private(only_paths=True), ReadBy("generate", "evaluate")] = "paper"
    """Set of few-shot prompts: paper, paper-vi, or a folder with a file per tool. none annotates without a prompt, for a
    further self-training iteration with a `model` that was trained on calls."""
    filter_threshold: Annotated[Finite, ReadBy("generate")] = 1.0
    """τ_f: the gain in nats that a call must reach to be kept, for tools without their own. Applied after scoring, so raising
    it needs no model."""
    propose: Annotated[Proposing, Decides("annotate"), ReadBy("generate")] = field(default_factory=Proposing)
    screen: Annotated[PreFilters, Decides("annotate"), ReadBy("generate")] = field(default_factory=PreFilters)
    score: Annotated[ScoreConfig, Decides("annotate"), ReadBy("generate")] = field(
        default_factory=ScoreConfig
    )
    filter: Annotated[Filtering, ReadBy("generate")] = field(default_factory=Filtering)
    generate: Annotated[GenerateConfig, ReadBy("generate")] = field(default_factory=GenerateConfig)
    engine: Annotated[EngineConfig, ReadBy("generate", "evaluate")] = field(default_factory=EngineConfig)
    dataset: Annotated[str, ReadBy("train", "evaluate")] = "latest"
    """Train: the generate run to read, `latest` or an id; several ids joined by + are trained on together. Evaluate, for an
    untrained system: the run whose held-out texts to read."""
    data: Annotated[str, OneOf("augmented", "plain"), Decides("train"), ReadBy("train")] = "augmented"
    """Train: augmented (C*, makes Toolformer) or plain (C, makes M + CC)."""
    trainer: Annotated[TrainerConfig, Decides("train"), ReadBy("train")] = field(
        default_factory=TrainerConfig
    )
    system: Annotated[str, OneOf(*SYSTEMS), Decides("answer"), ReadBy("evaluate")] = "toolformer"
    """Evaluate: model, model_cc, toolformer_disabled or toolformer; prompted, the untrained model with examples of calls in
    its context; or baseline, another model to compare with (any `model`, untrained)."""
    checkpoint: Annotated[str, Private(only_paths=True), ReadBy("evaluate")] = "latest"
    """Evaluate: the train run to read (`latest` or an id), or the model folder of another trainer. Only for trained systems."""
    decoding: Annotated[Decoding, Decides("answer"), ReadBy("evaluate")] = field(default_factory=Decoding)
    benchmarks: Annotated[list[str], Decides("evaluate"), ReadBy("evaluate")] = field(default_factory=list)
    """Evaluate: the tasks to run."""
    wording: Annotated[str, OneOf(*WORDINGS), Decides("evaluate"), ReadBy("evaluate")] = PAPER
    """Evaluate: the wording of the benchmarks: paper (the paper's prompts), or one of the paraphrases a, b, c and d."""
    evaluation: Annotated[EvaluationConfig, Decides("evaluate"), ReadBy("evaluate")] = field(
        default_factory=EvaluationConfig
    )
    paper: Annotated[str, OneOf("measured", "full"), ReadBy("report")] = "measured"
    """Report: `measured` shows the measured tables, `full` all tables of the paper, with the paper's own numbers."""
    lm_eval: Annotated[list[Place], Private(), ReadBy("report")] = field(default_factory=list)
    """Report: files of lm-eval's results, or folders with them; their models become further rows of the tables."""
    index: Annotated[IndexConfig, ReadBy("index")] = field(default_factory=IndexConfig)
    """toolformer index: the search index that the corpus becomes."""
    run: Annotated[RunConfig, ReadBy("run")] = field(default_factory=RunConfig)
    """Run: the stages of an experiment."""
    paths: PathsConfig = field(default_factory=PathsConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)

    @property
    def sampling_seed(self) -> int:
        """The seed of an annotation's sampling."""
        return self.seed if self.generate.seed is None else self.generate.seed


@functools.cache
def adapter(cls: type[T]) -> TypeAdapter[list[T]]:
    """pydantic's view of a dataclass: of a list of them, since it takes no settings for a plain dataclass alone."""
    settings = ConfigDict(extra="forbid", use_attribute_docstrings=True)
    return TypeAdapter(list[cls], config=settings)  # type: ignore[valid-type]


@functools.cache
def register() -> None:
    """Registers the schemas with Hydra, under the names that conf/ uses."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    store.store(group="corpus", name="schema", node=CorpusConfig)
    store.store(group="tool", name="schema", node=ToolConfig)
    store.store(group="trainer", name="schema", node=TrainerConfig)
    store.store(group="decoding", name="schema", node=Decoding)
