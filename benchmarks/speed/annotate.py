"""Speed of annotation against the reference implementation, in one run on the same documents and the same model.

    python -m benchmarks.speed.annotate [documents=4] [model=smollm2] [tools=calculator,calendar,search] [k=10] [m=5]
        [dtype=auto] [batch_tokens=2048] [bound=on] [reference=4]

Run it in the repository's folder: the reference implementation is that of the tests (tests/reference.py). It reads the method
literally with stock Transformers: `generate` for one sample at a time, every call executed as it comes, three losses of each
call one at a time. Both sides use the default settings. `batch_tokens=2048,16384` measures the product once for each
(`engine.batch_tokens`): a GPU needs more than the default to be busy.

Prints a table, and its ratios as one JSON object on the last line: `speedup_vs_reference` (documents per second),
`score_share_of_matmul_peak` (model FLOPs of the tokens that have to be scored, over the time of scoring, as a share of the
matrix-multiply rate measured in the same run), both at the first `batch_tokens`; `scoring_passes_share` (sequences scored, of
those that all three losses take; `bound=off` scores all); `peak_memory_gib`, and on a GPU `gpu_busy`, of the product at the
last `batch_tokens` (on a CPU beyond the loaded model, tools and libraries); and, of several `batch_tokens`,
`filled_vs_first` (documents per second, the best against the first). If there are more documents than the corpus has, its
documents are repeated under other ids.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.benchmark import Timer
from tqdm import tqdm

from tests import reference
from toolformer.annotation import pipeline
from toolformer.annotation.candidates import Candidate, ToolSettings
from toolformer.annotation.select import SELECTORS, Corpus
from toolformer.benchmarks.speed.script import (
    measured_usage,
    print_timings,
    repeated,
    run_script,
    stock_layers,
)
from toolformer.data import Document
from toolformer.jobs import corpora, instantiate
from toolformer.jobs.config import Config, compose, validate
from toolformer.lm.language_id import LanguageIdentifier
from toolformer.lm.language_model import LanguageModel, TokenScores
from toolformer.lm.memory import TOKENS
from toolformer.tools.base import Tool

SHARD = 8
"""Documents that are annotated together at the default `batch_tokens`."""


@dataclass
class Options:
    """Options of the measured annotation."""

    documents: int = 4
    model: str = "smollm2"
    tools: str = "calculator,calendar,search"
    k: int = 10
    m: int = 5
    dtype: str = "auto"
    batch_tokens: str = str(TOKENS["cpu"])
    bound: bool = True
    reference: int = 4
    """Documents that the reference implementation annotates, at most; its time is scaled to all."""


@dataclass
class Timing:
    """Seconds and counts of one side."""

    seconds: float = 0.0
    scoring: float = 0.0
    candidates: int = 0
    scored: int = 0
    flops: float = 0.0
    """Model FLOPs of the tokens that have to be scored: padding and repetitions not counted."""
    passes: int = 0
    """Sequences that were scored."""
    skipped: int = 0
    """Sequences that the bound on the gain made unnecessary."""


def matmul_peak(dtype: torch.dtype, device: torch.device) -> float:
    """FLOPs per second of this machine on square matrices, the best of five products."""
    size = 2048 if device.type == "cpu" else 8192  # a GPU needs larger ones
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    timer = Timer("a @ b", globals={"a": a, "b": b}, num_threads=torch.get_num_threads())
    return 2 * size**3 / min(timer.timeit(1).mean for _ in range(5))


def model_flops(language_model: LanguageModel, tokens: int, rows: int) -> float:
    """FLOPs of a causal pass over `tokens` tokens of which `rows` are projected to the vocabulary."""
    model = language_model.model
    head = model.get_output_embeddings().weight.numel()
    embeddings = model.get_input_embeddings().weight.numel()
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    body = sum(p.numel() for p in model.parameters()) - embeddings - (0 if tied else head)
    # A token's query meets on average half of the tokens, in two products.
    attention = 2 * model.config.num_hidden_layers * model.config.hidden_size * tokens**2
    return 2.0 * body * tokens + 2.0 * head * rows + attention


def time_reference(
    language_model: LanguageModel,
    settings: Sequence[ToolSettings],
    tools: dict[str, Tool],
    documents: Sequence[Document],
) -> Timing:
    """The method read literally, on stock Transformers."""
    timing, started = Timing(), time.perf_counter()
    work = [(document, tool) for document in documents for tool in settings]
    corpus = Corpus(seed=0, paragraphs="blank_line", identify=LanguageIdentifier().identify)
    for document, tool in tqdm(work, desc="reference", unit="text"):
        if SELECTORS[tool.selector](document, corpus):
            sampled = reference.annotate(language_model, tool, tools[tool.key], document, seed=0)
            timing.candidates += len(sampled)
            timing.scored += sum(sample.losses is not None for sample in sampled)
    timing.seconds = time.perf_counter() - started
    return timing


def product(
    language_model: LanguageModel,
    settings: Sequence[ToolSettings],
    tools: dict[str, Tool],
    documents: Sequence[Document],
    batch_tokens: int = TOKENS["cpu"],
    bound: bool = True,
) -> Timing:
    """This project, one shard and tool at a time as in the generate stage; larger batches have larger shards."""
    timing = Timing()
    language_model.batch_tokens = batch_tokens
    size = max(1, SHARD * batch_tokens // TOKENS["cpu"])
    score, scores = pipeline.score, language_model.score

    def timed(*arguments: Any, **options: Any) -> list[Candidate]:
        started = time.perf_counter()
        scored = score(*arguments, **options)
        timing.scoring += time.perf_counter() - started
        timing.candidates += len(scored)
        bounded = [c for c in scored if c.loss_none is not None]
        timing.scored += len(bounded)
        exact = _without_result(c for c in bounded if c.loss_no_result is not None)
        timing.skipped += len(_without_result(bounded) - exact)
        return scored

    def counted(sequences: Any, targets: Any, *arguments: Any, **options: Any) -> list[TokenScores]:
        timing.passes += len(sequences)
        timing.flops += sum(model_flops(language_model, indices[-1], len(indices)) for indices in targets)
        return scores(sequences, targets, *arguments, **options)

    floor = min(tool.filter_threshold for tool in settings) if bound else None
    annotators = [pipeline.Annotator(language_model, tool, tools[tool.key], floor=floor) for tool in settings]
    with patch.object(pipeline, "score", timed), patch.object(language_model, "score", counted):
        started = time.perf_counter()
        for shard in range(0, len(documents), size):
            for annotator in annotators:
                annotator.annotate(documents[shard : shard + size])
        timing.seconds = time.perf_counter() - started
    return timing


def _without_result(candidates: Iterable[Candidate]) -> set[object]:
    """The calls with an empty result, each of which is scored once."""
    return {(c.window.document.doc_id, c.window.start, c.call.with_result("")) for c in candidates if c.call}


def configured(options: Options) -> tuple[Config, list[ToolSettings], list[Document]]:
    """The small setting, its tools' settings, and texts that every tool has work in (the calculator's)."""
    tools = options.tools.split(",")
    overrides = [
        "setting=small",
        f"model={options.model}",
        f"lm.dtype={options.dtype}",
        f"tools=[{options.tools}]",
        *(f"tool.{tool}.max_positions={options.k}" for tool in tools),
        *(f"tool.{tool}.samples={options.m}" for tool in tools),
    ]
    config = validate(compose("generate", overrides))
    settings = [instantiate.tool_settings(config, key) for key in config.tools]
    documents = [d for d in corpora.corpus(config.corpus) if pipeline.select.calculator(d)]
    return config, settings, repeated(documents, options.documents)


def main(options: Options) -> None:
    budgets = [int(budget) for budget in options.batch_tokens.split(",")]
    config, settings, documents = configured(options)
    language_model = LanguageModel.from_pretrained(config.model, config.lm.dtype, config.lm.device)
    tools = instantiate.tools(config)
    peak = matmul_peak(language_model.dtype, language_model.device)
    for tool in tools.values():
        tool.run(["1 + 1"], documents[:1])  # loads a tool's index before the clock starts
    # A GPU's first pass over each shape chooses kernels and captures graphs.
    warm_up = documents if language_model.device.type == "cuda" else documents[:1]
    timings, usages = [], []
    for budget in budgets:
        product(language_model, settings, tools, warm_up, budget, options.bound)
        with measured_usage() as usage:
            timings.append(product(language_model, settings, tools, documents, budget, options.bound))
        usages.append(usage)
    with stock_layers():
        slow = time_reference(language_model, settings, tools, documents[: options.reference])
    slow.seconds *= len(documents) / len(documents[: options.reference])
    names = [f"toolformer, batches of {budget}" for budget in budgets]
    sides = dict(zip(["reference", *names], [slow, *timings], strict=True))
    print_timings(
        f"{len(documents)} documents, {options.tools}, {config.model}, {language_model.dtype}, matmul peak "
        f"{peak / 1e9:.0f} GFLOP/s",
        {name: vars(side) | {"documents/s": len(documents) / side.seconds} for name, side in sides.items()},
        _ratios(slow, timings, peak) | usages[-1].results(),
    )


def _ratios(slow: Timing, timings: Sequence[Timing], peak: float) -> dict[str, float]:
    fast = timings[0]
    ratios = {
        "speedup_vs_reference": round(slow.seconds / fast.seconds, 2),
        "score_share_of_matmul_peak": round(fast.flops / fast.scoring / peak, 3) if fast.scoring else 0.0,
        "scoring_passes_share": round(fast.passes / (fast.passes + fast.skipped), 3) if fast.passes else 1.0,
    }
    if len(timings) > 1:
        ratios["filled_vs_first"] = round(fast.seconds / min(timing.seconds for timing in timings), 2)
    return ratios


if __name__ == "__main__":
    run_script(Options, main)
