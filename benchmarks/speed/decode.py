"""Speed of top-k API decoding, in one run on the same prompts and the same model.

    python -m benchmarks.speed.decode [prompts=256] [batch=32] [new_tokens=32] [k=10] [model=smollm2] [tools=calculator,calendar]
        [dtype=auto] [turns=8] [reference=4]

Run it in the repository's folder. Three decoders continue the same prompts: this project with its tools; stock batched
`generate` without tools, at the same batch size; and the tests' reference implementation (tests/reference.py), one prompt and
one full pass per token at a time, on `reference` of them. No text may end before `new_tokens`, so all three write equally much. Tokens are counted if
the model wrote them and they stayed: those of executed calls, but not those of results and of calls that were rolled back.
The first two take turns, so that other work on the machine slows both. Prints a table of the last turn, and as one JSON object on
the last line the median ratios of tokens per second, `share_of_plain_generate` (with those of all turns) and
`speedup_vs_reference`; `row_passes_per_token` and `mean_rows`, which explain the share: tokens that a row reads for each one that
counts, and rows per step of the batch; `peak_memory_gib` and on a GPU `gpu_busy`.
"""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from tqdm import tqdm

from tests import reference
from toolformer.benchmarks import dateset
from toolformer.benchmarks.speed.script import (
    measured_usage,
    print_timings,
    repeated,
    run_script,
    stock_layers,
)
from toolformer.benchmarks.tasks import question_prompt
from toolformer.data import Document
from toolformer.decoding.decoder import Decoder
from toolformer.jobs import instantiate
from toolformer.jobs.config import compose, validate
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Tool
from toolformer.tools.limits import Calling

MAX_CALL_TOKENS, MAX_RESULT_TOKENS = 40, 64


@dataclass
class Options:
    """Settings of all three decoders."""

    prompts: int = 256
    batch: int = 32
    new_tokens: int = 32
    k: int = 10
    model: str = "smollm2"
    tools: str = "calculator,calendar"
    dtype: str = "auto"
    turns: int = 8
    """One turn differs from the next by 5 % and more on a machine that others share; the median of eight repeats within 5 %."""
    reference: int = 4


@dataclass
class Timing:
    """Seconds and counts of one decoder."""

    prompts: int
    seconds: float = 0.0
    tokens: int = 0
    calls: int = 0

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


@dataclass
class Steps:
    """Counts the rows of steps of single tokens."""

    rows: list[int] = field(default_factory=list)

    @contextmanager
    def counted(self, language_model: LanguageModel) -> Iterator[None]:
        """Counts those of this model."""

        def count(*given: Any) -> None:
            rows, length = given[-1]["input_ids"].shape
            if length == 1:
                self.rows.append(rows)

        hook = language_model.model.register_forward_pre_hook(count, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()


def product(
    language_model: LanguageModel, tools: Mapping[str, Tool], documents: Sequence[Document], options: Options
) -> Timing:
    """This project."""
    decoder = Decoder(
        language_model,
        tools,
        dict.fromkeys(tools, Calling(max_call_tokens=MAX_CALL_TOKENS, max_result_tokens=MAX_RESULT_TOKENS)),
        k=options.k,
        batch_size=options.batch,
        min_new_tokens=options.new_tokens,
    )
    prompts = [document.text for document in documents]
    started = time.perf_counter()
    completions = decoder.complete(prompts, documents, max_new_tokens=options.new_tokens)
    seconds = time.perf_counter() - started
    calls = sum(completion.call is not None for completion in completions)
    return Timing(len(prompts), seconds, sum(completion.tokens or 0 for completion in completions), calls)


@torch.inference_mode()
def plain_generate(language_model: LanguageModel, documents: Sequence[Document], options: Options) -> Timing:
    """Stock batched generation, prompts of similar length together."""
    tokenizer = language_model.tokenizer
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.eos_token
    prompts = sorted(
        (document.text for document in documents), key=lambda prompt: -len(language_model.encode(prompt))
    )
    timing = Timing(len(prompts))
    started = time.perf_counter()
    for start in range(0, len(prompts), options.batch):
        batch = tokenizer(prompts[start : start + options.batch], return_tensors="pt", padding=True)
        written = language_model.model.generate(
            **batch.to(language_model.device),
            do_sample=False,
            max_new_tokens=options.new_tokens,
            min_new_tokens=options.new_tokens,
            pad_token_id=tokenizer.pad_token_id,
        )
        timing.tokens += (written.shape[1] - batch["input_ids"].shape[1]) * written.shape[0]
    timing.seconds = time.perf_counter() - started
    return timing


def time_reference(
    language_model: LanguageModel, tools: Mapping[str, Tool], documents: Sequence[Document], options: Options
) -> Timing:
    """The reference implementation, on some of the prompts."""
    timing, started = Timing(len(documents)), time.perf_counter()
    for document in tqdm(documents, desc="reference", unit="prompt"):
        completion, _ = reference.decode(
            language_model, document.text, options.new_tokens, dict(tools), document, k=options.k,
            max_call_tokens=MAX_CALL_TOKENS, max_result_tokens=MAX_RESULT_TOKENS, min_new_tokens=options.new_tokens,
        )  # fmt: skip
        timing.tokens += completion.tokens or 0
        timing.calls += len(completion.calls)
    timing.seconds = time.perf_counter() - started
    return timing


def main(options: Options) -> None:
    config = validate(
        compose(
            "evaluate", [f"model={options.model}", f"tools=[{options.tools}]", f"lm.dtype={options.dtype}"]
        )
    )
    model = LanguageModel.from_pretrained(config.model, config.lm.dtype, config.lm.device)
    tools = instantiate.tools(config, inference=True)
    rows = dateset.subset(dateset.generate(0), options.prompts, 0, "family")
    documents = [Document(doc_id=str(n), text=question_prompt(row)) for n, row in enumerate(rows)]
    documents = repeated(documents, options.prompts)
    few = documents[:: max(1, len(documents) // options.reference)][: options.reference]
    # A GPU's first pass over each shape chooses kernels and captures graphs.
    on_gpu = model.device.type == "cuda"
    warm_up = (documents, options) if on_gpu else (documents[:2], replace(options, new_tokens=2))

    product(model, tools, *warm_up)
    with stock_layers():
        plain_generate(model, *warm_up)
    turns, steps = list[tuple[Timing, Timing]](), Steps()
    with measured_usage() as usage:
        for _ in range(options.turns):
            with steps.counted(model):
                ours = product(model, tools, documents, options)
            with stock_layers():
                turns.append((ours, plain_generate(model, documents, options)))
    shares = [ours.rate / plain.rate for ours, plain in turns]
    ours, plain = turns[-1]
    slow = time_reference(model, tools, few, options)
    timings = {"toolformer": ours, "generate, no tools": plain, "reference": slow}
    print_timings(
        f"{options}, {model.dtype}, {model.device}",
        {name: vars(side) | {"tokens/s": side.rate} for name, side in timings.items()},
        {
            "share_of_plain_generate": round(statistics.median(shares), 3),
            "shares": [round(share, 3) for share in shares],
            "row_passes_per_token": round(sum(steps.rows) / options.turns / ours.tokens, 3),
            "mean_rows": round(statistics.mean(steps.rows), 1),
            "speedup_vs_reference": round(ours.rate / slow.rate, 2),
        }
        | usage.results(),
    )


if __name__ == "__main__":
    run_script(Options, main)
