"""How fast top-k API decoding is, in one run on the same prompts and the same model.

    python -m benchmarks.speed.decode [prompts=256] [batch=32] [new_tokens=32] [k=10] [model=smollm2] [tools=calculator,calendar]

Three decoders continue the same prompts: the product with its tools; stock batched `generate` without tools, at the
same batch size; and one prompt at a time, read literally from the paper with a stock cache. No text may end before
`new_tokens`, so that all write as much. Tokens are those that the model wrote and that stayed: of executed calls too, of
results and of calls that were taken back not. Prints a table, and its ratios as one JSON object on the last line:
`share_of_plain_generate` and `speedup_vs_one_at_a_time` (tokens a second).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from tqdm import tqdm
from transformers import DynamicCache

from benchmarks import dateset
from benchmarks.speed.arguments import given, run
from benchmarks.speed.machine import show, stock_layers
from benchmarks.tasks import question_prompt
from toolformer.calls import ARROW, END, START, CallSyntaxError, call_end, parse
from toolformer.data import Document
from toolformer.decoding.decoder import Decoder
from toolformer.lm.language_model import LanguageModel
from toolformer.stages import instantiate
from toolformer.stages.config import compose, validate
from toolformer.tools.base import Tool


@dataclass
class Timing:
    """Seconds and counts of one decoder."""

    prompts: int
    seconds: float
    tokens: int
    calls: int = 0

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Settings:
    """What all three decoders share."""

    new_tokens: int
    batch: int
    k: int
    max_call_tokens: int = 40
    max_result_tokens: int = 64


def product(
    language_model: LanguageModel,
    tools: Mapping[str, Tool],
    prompts: Sequence[str],
    documents: Sequence[Document],
    settings: Settings,
) -> Timing:
    """The harness."""
    decoder = Decoder(
        language_model,
        tools,
        k=settings.k,
        max_call_tokens=settings.max_call_tokens,
        max_result_tokens=settings.max_result_tokens,
        batch_size=settings.batch,
        min_new_tokens=settings.new_tokens,
    )
    started = time.perf_counter()
    found = decoder.complete(prompts, documents, max_new_tokens=settings.new_tokens)
    seconds = time.perf_counter() - started
    calls = sum(completion.call is not None for completion in found)
    return Timing(len(prompts), seconds, sum(completion.tokens for completion in found), calls)


@torch.inference_mode()
def plain_generate(language_model: LanguageModel, prompts: Sequence[str], settings: Settings) -> Timing:
    """Stock batched generation, prompts of similar length together."""
    tokenizer = language_model.tokenizer
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.eos_token
    order = sorted(range(len(prompts)), key=lambda n: -len(language_model.encode(prompts[n])))
    tokens = 0
    started = time.perf_counter()
    for start in range(0, len(order), settings.batch):
        batch = tokenizer(
            [prompts[n] for n in order[start : start + settings.batch]], return_tensors="pt", padding=True
        )
        written = language_model.model.generate(
            **batch.to(language_model.device),
            do_sample=False,
            max_new_tokens=settings.new_tokens,
            min_new_tokens=settings.new_tokens,
            pad_token_id=tokenizer.pad_token_id,
        )
        tokens += (written.shape[1] - batch["input_ids"].shape[1]) * written.shape[0]
    return Timing(len(prompts), time.perf_counter() - started, tokens)


@torch.inference_mode()
def one_at_a_time(
    language_model: LanguageModel,
    tools: Mapping[str, Tool],
    prompts: Sequence[str],
    documents: Sequence[Document],
    settings: Settings,
) -> Timing:
    """Top-k API decoding read literally: one prompt, one token, a stock cache."""
    by_name = {tool.name: tool for tool in tools.values()}
    timing = Timing(0, 0.0, 0)
    started = time.perf_counter()
    for prompt, document in tqdm(
        list(zip(prompts, documents, strict=True)), desc="one at a time", unit="prompt"
    ):
        _continue(language_model, by_name, prompt, document, settings, timing)
        timing.prompts += 1
    timing.seconds = time.perf_counter() - started
    return timing


def _continue(
    language_model: LanguageModel,
    tools: Mapping[str, Tool],
    prompt: str,
    document: Document,
    settings: Settings,
    timing: Timing,
) -> None:
    cache = DynamicCache()
    names = [language_model.encode_after_start(name) for name in sorted(tools)]

    def read(ids: list[int]) -> torch.Tensor:
        fed = torch.tensor([ids], device=language_model.device)
        row: torch.Tensor = language_model.model(fed, past_key_values=cache, logits_to_keep=1).logits[0, -1]
        return row

    row = read(language_model.own_prefix + language_model.encode(prompt))
    may_call = True
    written = 0
    while written < settings.new_tokens:
        row[sorted(language_model.end_ids)] = float("-inf")
        start = language_model.start_id
        if may_call and int((row > row[start]).sum()) < settings.k:
            may_call = False
            before = cache.get_seq_length()
            body: list[int] = []
            call_row = read([start])
            while len(body) < settings.max_call_tokens:
                left = [name for name in names if name[: len(body)] == body and len(name) > len(body)]
                choices = sorted({name[len(body)] for name in left})
                body.append(
                    max(choices, key=lambda token: float(call_row[token]))
                    if choices
                    else int(call_row.argmax())
                )
                text = language_model.decode(body)
                if call_end(text) is not None or ARROW in text:
                    break
                call_row = read([body[-1]])
            result = _result(text, tools, document) if ARROW in text else None
            if result is None:
                cache.crop(before - cache.get_seq_length())
            else:
                ids = language_model.encode(f" {result}")[: settings.max_result_tokens]
                row = read([body[-1], *ids, *language_model.encode(END)])
                timing.calls += 1
                timing.tokens += 1 + len(body)
            continue
        token = int(row.argmax())
        if token == start:
            row[start] = float("-inf")
            token = int(row.argmax())
        written += 1
        timing.tokens += 1
        if written < settings.new_tokens:
            row = read([token])


def _result(text: str, tools: Mapping[str, Tool], document: Document) -> str | None:
    try:
        call = parse(START.strip() + text[: text.index(ARROW)].rstrip() + END)
    except CallSyntaxError:
        return None
    if call.tool not in tools:
        return None
    return tools[call.tool].run([call.input], [document])[0].text


def main(arguments: Sequence[str]) -> None:
    options = given(
        arguments, {
        "prompts": "256", "batch": "32", "new_tokens": "32", "k": "10",
        "model": "smollm2", "tools": "calculator,calendar",
    },
    )  # fmt: skip
    config = validate(compose("evaluate", [f"model={options['model']}", f"tools=[{options['tools']}]"]))
    instantiate.apply_paths(config)
    language_model = LanguageModel.from_pretrained(config.model, config.lm.dtype, config.lm.device)
    tools = instantiate.tools(config, inference=True)
    rows = dateset.subset(dateset.generate(0), int(options["prompts"]), 0, "family")
    prompts = [question_prompt(row) for row in rows]
    documents = [Document(doc_id=str(n), text=prompt) for n, prompt in enumerate(prompts)]
    settings = Settings(int(options["new_tokens"]), int(options["batch"]), int(options["k"]))

    few = range(0, len(prompts), max(1, len(prompts) // 16))
    sides: dict[str, Callable[[Settings], Timing]] = {
        "toolformer": lambda settings: product(language_model, tools, prompts, documents, settings),
        "generate, no tools": lambda settings: plain_generate(language_model, prompts, settings),
        "one at a time": lambda settings: one_at_a_time(
            language_model, tools, [prompts[n] for n in few], [documents[n] for n in few], settings
        ),
    }
    product(language_model, tools, prompts[:2], documents[:2], Settings(2, settings.batch, settings.k))
    timings = {"toolformer": sides.pop("toolformer")(settings)}
    with stock_layers():
        plain_generate(language_model, prompts[:2], Settings(2, settings.batch, settings.k))
        timings |= {name: side(settings) for name, side in sides.items()}
    rates = [timing.rate for timing in timings.values()]
    show(
        f"batch {settings.batch}, {settings.new_tokens} new tokens, k={settings.k}, {config.model}, "
        f"{language_model.dtype}, {language_model.device}",
        ("", "prompts", "seconds", "tokens", "calls", "tokens/s"),
        [
            (
                name,
                str(side.prompts),
                f"{side.seconds:.1f}",
                str(side.tokens),
                str(side.calls),
                f"{side.rate:.1f}",
            )
            for name, side in timings.items()
        ],
        {
            "share_of_plain_generate": round(rates[0] / rates[1], 3),
            "speedup_vs_one_at_a_time": round(rates[0] / rates[2], 2),
        },
    )


if __name__ == "__main__":
    run("decode", main)
