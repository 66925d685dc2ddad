"""How much faster than the textbook the annotation is, in one run on the same documents and the same model.

    python -m benchmarks.speed.annotate [documents=4] [model=smollm2] [tools=calculator,calendar,search] [k=10] [m=5]
        [dtype=auto] [batch_tokens=2048]

The textbook reads the method literally with stock Transformers: one forward pass for the start probabilities of a
document, `generate` at each position, every call executed as it comes, three losses of each call one at a time. Both
sides use the demo's settings. `batch_tokens=2048,16384` measures the product once for each (`engine.batch_tokens`): a
GPU is filled by more than the default. Prints a table, and its ratios as one JSON object on the last line:
`speedup_vs_textbook` (documents a second), `score_share_of_matmul_peak` (model FLOPs of the tokens that have to be
scored, over the time of scoring, as a share of the matrix-multiply rate measured in the same run), both at the first
`batch_tokens`, `peak_memory_gib` (the product's, beyond the loaded model, tools and libraries) and, of several
`batch_tokens`, `filled_vs_first` (documents a second, the best against the first).
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from benchmarks.speed.arguments import given, run
from benchmarks.speed.machine import machine, peak_memory
from benchmarks.speed.stock import stock
from toolformer import build
from toolformer.annotation import pipeline
from toolformer.annotation.candidates import Candidate, ToolSettings
from toolformer.annotation.propose import choose_positions, read_sample
from toolformer.annotation.score import WEIGHTS
from toolformer.batching import TOKENS_PER_BATCH
from toolformer.calls import ApiCall, linearise
from toolformer.config import compose, validate
from toolformer.documents import Document
from toolformer.language_model import LanguageModel, TokenScores
from toolformer.tools.base import Tool

SHARD = 8
"""Documents that are annotated together at the default number of tokens a batch."""


@dataclass
class Timing:
    """Seconds and counts of one side."""

    seconds: float = 0.0
    scoring: float = 0.0
    candidates: int = 0
    scored: int = 0
    flops: float = 0.0
    """Model FLOPs of the tokens that have to be scored: padding and repetitions not counted."""


def matmul_peak(dtype: torch.dtype, device: torch.device, size: int = 2048, repeats: int = 5) -> float:
    """Multiply-adds as FLOPs a second that this machine reaches on square matrices, the best of a few."""
    a = torch.randn(size, size, device=device).to(dtype)
    b = torch.randn(size, size, device=device).to(dtype)
    best = 0.0
    for _ in range(repeats):
        started = time.perf_counter()
        a @ b
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best


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


@torch.inference_mode()
def textbook(
    language_model: LanguageModel,
    settings: Sequence[ToolSettings],
    tools: dict[str, Tool],
    documents: Sequence[Document],
) -> Timing:
    """The method read literally, on stock Transformers."""
    timing = Timing()
    model = language_model.model
    started = time.perf_counter()
    work = [(document, one) for document in documents for one in settings]
    for document, one in tqdm(work, desc="textbook", unit="text"):
        if not pipeline.Annotator(language_model, [], {})._decide(one.selector, document):
            continue
        encoding = language_model.encode_text(document.text)
        prompt = language_model.encode(one.prompt.fill(document.text))
        logits = (
            model(torch.tensor([prompt + encoding.ids], device=model.device))
            .logits[0, len(prompt) - 1 : -1]
            .float()
        )
        probabilities = logits.softmax(-1)[:, language_model.start_id].tolist()
        allowed = [p if encoding.positions[i] is not None else None for i, p in enumerate(probabilities)]
        for i in choose_positions(allowed, one.start_threshold, one.max_positions):
            name = language_model.encode_after_start(one.name) if one.force_name else []
            context = torch.tensor(
                [prompt + encoding.ids[:i] + [language_model.start_id] + name], device=model.device
            )
            written = model.generate(
                context,
                attention_mask=torch.ones_like(context),
                do_sample=True,
                top_k=0,
                max_new_tokens=one.max_call_tokens,
                num_return_sequences=one.samples,
                stop_strings=["]"],
                tokenizer=language_model.tokenizer,
                pad_token_id=language_model.tokenizer.eos_token_id,
            )
            for ids in written[:, context.shape[1] :].tolist():
                timing.candidates += 1
                _, call, reason = read_sample(language_model.decode(name + ids), one)
                if call is None or reason:
                    continue
                result = tools[one.key].run([call.input], [document])[0]
                if result.text is None:
                    continue
                scoring = time.perf_counter()
                for z in (call.with_result(result.text), call.with_result(""), None):
                    _loss(language_model, encoding.ids, i, z)
                timing.scored += 1
                timing.scoring += time.perf_counter() - scoring
    timing.seconds = time.perf_counter() - started
    return timing


def _loss(language_model: LanguageModel, ids: list[int], i: int, call: ApiCall | None) -> float:
    z = language_model.encode(linearise(call)) if call else []
    head = z or (language_model.document_start() if i == 0 else [])
    sequence = torch.tensor([head + ids], device=language_model.device)
    log_probs = language_model.model(sequence).logits[0].float().log_softmax(-1)
    return -sum(
        weight * float(log_probs[len(head) + j - 1, ids[j]])
        for weight, j in zip(WEIGHTS, range(i, len(ids)), strict=False)
    )


def product(
    language_model: LanguageModel,
    settings: Sequence[ToolSettings],
    tools: dict[str, Tool],
    documents: Sequence[Document],
    batch_tokens: int = TOKENS_PER_BATCH,
) -> Timing:
    """The harness, a shard at a time as the generate stage calls it; larger batches have larger shards."""
    timing = Timing()
    language_model.batch_tokens = batch_tokens
    size = max(1, SHARD * batch_tokens // TOKENS_PER_BATCH)
    real, real_scores = pipeline.score, language_model.score

    def timed(
        language_model: LanguageModel, candidates: Sequence[Candidate], dtype: str = "auto"
    ) -> list[Candidate]:
        started = time.perf_counter()
        scored = real(language_model, candidates, dtype)
        timing.scoring += time.perf_counter() - started
        timing.candidates += len(scored)
        timing.scored += sum(c.gain is not None for c in scored)
        return scored

    def counted(
        sequences: Sequence[Sequence[int]],
        wanted: Sequence[Sequence[int]],
        dtype: torch.dtype = torch.float32,
    ) -> list[TokenScores]:
        timing.flops += sum(model_flops(language_model, indices[-1], len(indices)) for indices in wanted)
        return real_scores(sequences, wanted, dtype)

    language_model.score = counted  # type: ignore[method-assign]
    pipeline.score = timed
    try:
        annotator = pipeline.Annotator(language_model, settings, tools)
        started = time.perf_counter()
        for shard in range(0, len(documents), size):
            annotator.annotate(documents[shard : shard + size])
        timing.seconds = time.perf_counter() - started
    finally:
        pipeline.score = real
        language_model.score = real_scores  # type: ignore[method-assign]
    return timing


def _overrides(options: dict[str, str]) -> list[str]:
    tools = options["tools"].split(",")
    return [
        "experiment=demo",
        f"model={options['model']}",
        f"lm.dtype={options['dtype']}",
        f"tools=[{options['tools']}]",
        *(f"tool.{tool}.max_positions={options['k']}" for tool in tools),
        *(f"tool.{tool}.samples={options['m']}" for tool in tools),
    ]


def main(arguments: Sequence[str]) -> None:
    options = given(
        arguments,
        {
            "documents": "4",
            "model": "smollm2",
            "tools": "calculator,calendar,search",
            "k": "10",
            "m": "5",
            "dtype": "auto",
            "batch_tokens": str(TOKENS_PER_BATCH),
        },
        lists=["batch_tokens"],
    )
    budgets = [int(one) for one in options["batch_tokens"].split(",")]
    config = validate(compose("generate", _overrides(options)))
    build.apply_paths(config)
    language_model = LanguageModel.from_pretrained(config.model, config.lm.dtype, config.lm.device)
    tools = build.tools(config)
    settings = [build.tool_settings(config, key) for key in config.tools]
    # Texts that the calculator is tried on, so that every tool has work.
    documents = [d for d in build.documents(config.corpus) if pipeline.select.calculator(d)][
        : int(options["documents"])
    ]
    peak = matmul_peak(language_model.dtype, language_model.device)
    for tool in tools.values():
        tool.run(["1 + 1"], documents[:1])  # a tool's index is loaded before the clock starts
    with peak_memory() as peak_gib:
        product(language_model, settings, tools, documents[:1])
        timings = [product(language_model, settings, tools, documents, budget) for budget in budgets]
    fast, best = timings[0], min(timings, key=lambda one: one.seconds)
    with stock(language_model):
        slow = textbook(language_model, settings, tools, documents)

    ratios = {
        "speedup_vs_textbook": round(slow.seconds / fast.seconds, 2),
        "score_share_of_matmul_peak": round(fast.flops / fast.scoring / peak, 3) if fast.scoring else 0.0,
        "peak_memory_gib": round(peak_gib.gib, 2),
        **({"filled_vs_first": round(fast.seconds / best.seconds, 2)} if len(timings) > 1 else {}),
    }
    table = Table(
        title=f"{len(documents)} documents, {options['tools']}, {config.model}, {language_model.dtype}"
    )
    for column in ("", "seconds", "of it scoring", "candidates", "scored", "documents/s"):
        table.add_column(column, justify="right" if column else "left")
    names = [f"toolformer{f', batches of {budget}' if len(budgets) > 1 else ''}" for budget in budgets]
    for name, one in zip(["textbook", *names], [slow, *timings], strict=True):
        table.add_row(
            name, f"{one.seconds:.1f}", f"{one.scoring:.1f}", str(one.candidates), str(one.scored),
            f"{len(documents) / one.seconds:.3f}",
        )  # fmt: skip
    console = Console()
    console.print(table)
    console.print(f"matmul peak {peak / 1e9:.0f} GFLOP/s; {machine()}")
    console.print(shlex.join(["python", "-m", "benchmarks.speed.annotate", *arguments]), soft_wrap=True)
    print(json.dumps(ratios))


if __name__ == "__main__":
    run("annotate", main)
