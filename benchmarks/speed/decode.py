"""Speed of top-k API decoding, in one run on the same prompts and the same model.

    python -m benchmarks.speed.decode [prompts=256] [batch=32] [new_tokens=32] [k=10] [model=smollm2] [tools=calculator,calendar]
        [dtype=auto]

Three decoders continue the same prompts: this project with its tools; stock batched `generate` without tools, at the
same batch size; and a literal reading of the paper, one prompt at a time with a stock cache. No text may end before
`new_tokens`, therefore all write equally much. Counted are the tokens that the model wrote and that stayed: those of executed
calls, but not those of results and of calls that were rolled back. Prints a table, and its ratios as one JSON object on the last line:
`share_of_plain_generate` and `speedup_vs_one_at_a_time` (tokens a second), `peak_memory_gib` and on a GPU `gpu_busy`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from tqdm import tqdm
from transformers import DynamicCache

from toolformer.benchmarks import dateset
from toolformer.benchmarks.speed.script import measured_usage, repeated, run, show, stock_layers
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
    """Settings of all three decoders."""

    prompts: int = 256
    batch: int = 32
    new_tokens: int = 32
    k: int = 10
    model: str = "smollm2"
    tools: str = "calculator,calendar"
    dtype: str = "auto"


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
    """This project."""
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


@torch.inference_mode()
def one_at_a_time(
    language_model: LanguageModel, tools: Mapping[str, Tool], documents: Sequence[Document], options: Options
) -> Timing:
    """Top-k API decoding read literally: one prompt, one token, a stock cache."""
    by_name = {tool.name: tool for tool in tools.values()}
    timing, started = Timing(len(documents)), time.perf_counter()
    for document in tqdm(documents, desc="one at a time", unit="prompt"):
        _Prompt(language_model, by_name, document, timing).complete(options)
    timing.seconds = time.perf_counter() - started
    return timing


@dataclass
class _Prompt:
    """A document's text with its continuation."""

    language_model: LanguageModel
    tools: Mapping[str, Tool]
    """By the name in a call."""
    document: Document
    timing: Timing
    cache: DynamicCache = field(default_factory=DynamicCache)

    def read(self, ids: Sequence[int]) -> torch.Tensor:
        """The logits [vocabulary] of the token that follows `ids`."""
        model, tokens = self.language_model.model, torch.tensor([ids], device=self.language_model.device)
        logits: torch.Tensor = model(tokens, past_key_values=self.cache, logits_to_keep=1).logits[0, -1]
        return logits

    def complete(self, options: Options) -> None:
        model, start = self.language_model, self.language_model.start_id
        logits = self.read(model.bos_ids + model.encode(self.document.text))
        may_call, written = True, 0
        while written < options.new_tokens:
            logits[sorted(model.end_ids)] = float("-inf")
            if may_call and int((logits > logits[start]).sum()) < options.k:
                may_call = False
                after_call = self.call()
                logits = logits if after_call is None else after_call
                continue
            logits[start] = float("-inf")
            token = int(logits.argmax())
            written += 1
            self.timing.tokens += 1
            if written < options.new_tokens:
                logits = self.read([token])

    def call(self) -> torch.Tensor | None:
        """Writes and executes a call; the logits that follow its result, or None if the call was rolled back."""
        model, before = self.language_model, self.cache.get_seq_length()
        ids, text = self.write_call()
        result = _result(text, self.tools, self.document) if ARROW in text else None
        if result is None:
            self.cache.crop(before - self.cache.get_seq_length())
            return None
        self.timing.calls += 1
        self.timing.tokens += 1 + len(ids)
        shown = model.encode(f" {result}")[:MAX_RESULT_TOKENS]
        return self.read([ids[-1], *shown, *model.encode(END)])

    def write_call(self) -> tuple[list[int], str]:
        """The tokens after the opening bracket up to the arrow or the end, the last of them unread, and their text."""
        model, ids, text = self.language_model, list[int](), ""
        names = [model.encode_after_start(name) for name in sorted(self.tools)]
        logits = self.read([model.start_id])
        while len(ids) < MAX_CALL_TOKENS:
            choices = sorted(
                {name[len(ids)] for name in names if name[: len(ids)] == ids and len(name) > len(ids)}
            )
            ids.append(choices[int(logits[choices].argmax())] if choices else int(logits.argmax()))
            text = model.decode(ids)
            if call_end(text) is not None or ARROW in text:
                break
            logits = self.read([ids[-1]])
        return ids, text


def _result(text: str, tools: Mapping[str, Tool], document: Document) -> str | None:
    try:
        call = parse(START.strip() + text[: text.index(ARROW)].rstrip() + END)
    except CallSyntaxError:
        return None
    if call.tool not in tools:
        return None
    return tools[call.tool].run([call.input], [document])[0].text


def main(options: Options) -> None:
    config = validate(
        compose(
            "evaluate", [f"model={options.model}", f"tools=[{options.tools}]", f"lm.dtype={options.dtype}"]
        )
    )
    instantiate.apply_paths(config)
    model = LanguageModel.from_pretrained(config.model, config.lm.dtype, config.lm.device)
    tools = instantiate.tools(config, inference=True)
    rows = dateset.subset(dateset.generate(0), options.prompts, 0, "family")
    documents = [Document(doc_id=str(n), text=question_prompt(row)) for n, row in enumerate(rows)]
    documents = repeated(documents, options.prompts)
    few = documents[:: max(1, len(documents) // 16)]
    # A GPU's first pass over each shape chooses kernels and captures graphs.
    on_gpu = model.device.type == "cuda"
    warm_up = (documents, options) if on_gpu else (documents[:2], replace(options, new_tokens=2))

    product(model, tools, *warm_up)
    with measured_usage() as usage:
        timings = {"toolformer": product(model, tools, documents, options)}
    with stock_layers():
        plain_generate(model, *warm_up)
        timings["generate, no tools"] = plain_generate(model, documents, options)
        timings["one at a time"] = one_at_a_time(model, tools, few, options)
    ours, plain, single = (timing.rate for timing in timings.values())
    show(
        f"{options}, {model.dtype}, {model.device}",
        {name: vars(side) | {"tokens/s": side.rate} for name, side in timings.items()},
        {
            "share_of_plain_generate": round(ours / plain, 3),
            "speedup_vs_one_at_a_time": round(ours / single, 2),
        }
        | usage.results(),
    )


if __name__ == "__main__":
    run(Options, main)
