"""How fast top-k API decoding is, in one run on the same prompts and the same model.

    python -m benchmarks.speed.decode [prompts=256] [batch=32] [new_tokens=32] [k=10] [model=smollm2] [tools=calculator,calendar]

Three decoders continue the same prompts: the product with its tools; stock batched `generate` without tools, at the
same batch size; and one prompt at a time, read literally from the paper with a stock cache. No text may end before
`new_tokens`, so that all write as much. Tokens are those that the model wrote and that stayed: of executed calls too, of
results and of calls that were taken back not. Prints a table, and its ratios as one JSON object on the last line:
`share_of_plain_generate` and `speedup_vs_one_at_a_time` (tokens a second).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from tqdm import tqdm
from transformers import DynamicCache

from toolformer.benchmarks import dateset
from toolformer.benchmarks.speed.script import run, show, stock_layers
from toolformer.benchmarks.tasks import question_prompt
from toolformer.calls import ARROW, END, START, CallSyntaxError, call_end, parse
from toolformer.data import Document
from toolformer.decoding.decoder import Decoder
from toolformer.lm.language_model import LanguageModel
from toolformer.stages import instantiate
from toolformer.stages.config import compose, validate
from toolformer.tools.base import Tool

MAX_CALL_TOKENS, MAX_RESULT_TOKENS = 40, 64


@dataclass
class Options:
    """What all three decoders share."""

    prompts: int = 256
    batch: int = 32
    new_tokens: int = 32
    k: int = 10
    model: str = "smollm2"
    tools: str = "calculator,calendar"


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


def product(
    language_model: LanguageModel, tools: Mapping[str, Tool], documents: Sequence[Document], options: Options
) -> Timing:
    """The harness."""
    decoder = Decoder(
        language_model,
        tools,
        k=options.k,
        max_call_tokens=MAX_CALL_TOKENS,
        max_result_tokens=MAX_RESULT_TOKENS,
        batch_size=options.batch,
        min_new_tokens=options.new_tokens,
    )
    prompts = [document.text for document in documents]
    started = time.perf_counter()
    found = decoder.complete(prompts, documents, max_new_tokens=options.new_tokens)
    seconds = time.perf_counter() - started
    calls = sum(completion.call is not None for completion in found)
    return Timing(len(prompts), seconds, sum(completion.tokens for completion in found), calls)


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


@torch.inference_mode()
def one_at_a_time(
    language_model: LanguageModel, tools: Mapping[str, Tool], documents: Sequence[Document], options: Options
) -> Timing:
    """Top-k API decoding read literally: one prompt, one token, a stock cache."""
    by_name = {tool.name: tool for tool in tools.values()}
    timing = Timing(len(documents))
    started = time.perf_counter()
    for document in tqdm(documents, desc="one at a time", unit="prompt"):
        _continue(language_model, by_name, document, options, timing)
    timing.seconds = time.perf_counter() - started
    return timing


def _continue(
    language_model: LanguageModel,
    tools: Mapping[str, Tool],
    document: Document,
    options: Options,
    timing: Timing,
) -> None:
    cache = DynamicCache()
    names = [language_model.encode_after_start(name) for name in sorted(tools)]
    start = language_model.start_id

    def read(ids: list[int]) -> torch.Tensor:
        fed = torch.tensor([ids], device=language_model.device)
        row: torch.Tensor = language_model.model(fed, past_key_values=cache, logits_to_keep=1).logits[0, -1]
        return row

    row = read(language_model.bos_ids + language_model.encode(document.text))
    may_call = True
    written = 0
    while written < options.new_tokens:
        row[sorted(language_model.end_ids)] = float("-inf")
        if may_call and int((row > row[start]).sum()) < options.k:
            may_call = False
            before = cache.get_seq_length()
            body: list[int] = []
            text = ""
            call_row = read([start])
            while len(body) < MAX_CALL_TOKENS:
                left = [name for name in names if name[: len(body)] == body and len(name) > len(body)]
                choices = sorted({name[len(body)] for name in left})
                best = int(call_row[choices].argmax()) if choices else int(call_row.argmax())
                body.append(choices[best] if choices else best)
                text = language_model.decode(body)
                if call_end(text) is not None or ARROW in text:
                    break
                call_row = read([body[-1]])
            result = _result(text, tools, document) if ARROW in text else None
            if result is None:
                cache.crop(before - cache.get_seq_length())
            else:
                ids = language_model.encode(f" {result}")[:MAX_RESULT_TOKENS]
                row = read([body[-1], *ids, *language_model.encode(END)])
                timing.calls += 1
                timing.tokens += 1 + len(body)
            continue
        row[start] = float("-inf")
        token = int(row.argmax())
        written += 1
        timing.tokens += 1
        if written < options.new_tokens:
            row = read([token])


def _result(text: str, tools: Mapping[str, Tool], document: Document) -> str | None:
    try:
        call = parse(START.strip() + text[: text.index(ARROW)].rstrip() + END)
    except CallSyntaxError:
        return None
    if call.tool not in tools:
        return None
    return tools[call.tool].run([call.input], [document])[0].text


def main(options: Options) -> None:
    config = validate(compose("evaluate", [f"model={options.model}", f"tools=[{options.tools}]"]))
    instantiate.apply_paths(config)
    model = LanguageModel.from_pretrained(config.model, config.lm.dtype, config.lm.device)
    tools = instantiate.tools(config, inference=True)
    rows = dateset.subset(dateset.generate(0), options.prompts, 0, "family")
    documents = [Document(doc_id=str(n), text=question_prompt(row)) for n, row in enumerate(rows)]
    few, short = documents[:: max(1, len(documents) // 16)], replace(options, new_tokens=2)

    product(model, tools, documents[:2], short)
    timings = {"toolformer": product(model, tools, documents, options)}
    with stock_layers():
        plain_generate(model, documents[:2], short)
        timings["generate, no tools"] = plain_generate(model, documents, options)
        timings["one at a time"] = one_at_a_time(model, tools, few, options)
    ours, plain, single = (timing.rate for timing in timings.values())
    show(
        f"{options}, {model.dtype}, {model.device}",
        {name: vars(side) | {"tokens/s": side.rate} for name, side in timings.items()},
        {
            "share_of_plain_generate": round(ours / plain, 3),
            "speedup_vs_one_at_a_time": round(ours / single, 2),
        },
    )


if __name__ == "__main__":
    run(Options, main)
