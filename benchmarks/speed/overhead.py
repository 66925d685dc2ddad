"""Host time of proposing, scoring and decoding: a GPU would wait for it, but it can be measured without one.

    python -m benchmarks.speed.overhead [texts=8] [k=10] [m=5] [call_tokens=16] [batch_tokens=16384] [prompts=64]
        [batch=32] [new_tokens=32] [repeats=5]

Run it in the repository's folder. The model is random, one layer deep and 32 wide, so almost all the time is host time. It
writes no valid calls, so made-up ones are scored, a different one for each sample. Prints the ten costliest functions of
each part, and microseconds per sampled token, per scored call, and per row and step of decoding: in all, and outside of the
model's forward pass; each the least of several repetitions. The last line has these as one JSON object.
"""

import cProfile
import itertools
import pstats
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from toolformer.annotation import propose
from toolformer.annotation.candidates import SCORED, Candidate, ToolSettings
from toolformer.annotation.score import score
from toolformer.annotation.windows import Window
from toolformer.benchmarks import dateset
from toolformer.benchmarks.speed.script import print_timings, run_script
from toolformer.benchmarks.tasks import question_prompt
from toolformer.calls import ApiCall
from toolformer.data import Document, demo_corpus
from toolformer.decoding.decoder import Decoder
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.loading import load_tokenizer
from toolformer.tools.calculator import Calculator
from toolformer.tools.prompt_sets import Prompt

TOKENIZER = "tests/golden/model"
PROMPT = Prompt('Add calls such as "[Calculator(1 + 1)]".', ())
CHARACTERS = 100
"""Characters of each text: attention takes little time."""
FUNCTIONS = 10


@dataclass
class Options:
    """How much is proposed, scored and decoded."""

    texts: int = 8
    k: int = 10
    m: int = 5
    call_tokens: int = 16
    batch_tokens: int = 16384
    prompts: int = 64
    batch: int = 32
    new_tokens: int = 32
    repeats: int = 5


@dataclass
class Counter:
    """Draws, tokens read one by one, and seconds inside of a model's forward pass, since the counter was reset."""

    draws: int = 0
    steps: int = 0
    forward: float = 0.0

    @contextmanager
    def watching(self, model: LanguageModel) -> Iterator[None]:
        """Counts this model's passes, and all draws."""
        forward, draw = model.model.forward, propose.draw

        def counted_pass(**inputs: Any) -> Any:
            rows, length = inputs["input_ids"].shape
            self.steps += rows if length == 1 else 0
            started = time.perf_counter()
            output = forward(**inputs)
            self.forward += time.perf_counter() - started
            return output

        def counted_draw(logits: torch.Tensor, keys: torch.Tensor, *arguments: Any) -> torch.Tensor:
            self.draws += len(keys)
            return draw(logits, keys, *arguments)

        with patch.object(model.model, "forward", counted_pass), patch.object(propose, "draw", counted_draw):
            yield

    def reset(self) -> None:
        self.draws = self.steps = 0
        self.forward = 0.0


def random_model() -> LanguageModel:
    """A language model with one layer, 32 wide, and the tokenizer of the tests' model."""
    tokenizer = load_tokenizer(TOKENIZER)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, max_position_embeddings=8192, initializer_range=0.3,
    )  # fmt: skip
    return LanguageModel(LlamaForCausalLM(config), tokenizer, "random")


def with_calls(proposals: Sequence[propose.Proposal]) -> list[Candidate]:
    """The candidates, each with a different executed call."""
    candidates = itertools.chain.from_iterable(proposal.candidates for proposal in proposals)
    return [
        replace(candidate, call=ApiCall("Calculator", f"{n} + 1", f"{n + 1}"), status=SCORED)
        for n, candidate in enumerate(candidates)
    ]


def measure(
    work: Callable[[], object], units: Callable[[], int], counter: Counter, repeats: int
) -> dict[str, float]:
    """Microseconds per unit of the fastest repetition; one more is profiled, and another one warms up."""
    work()
    total, outside = [], []
    for _ in range(repeats):
        counter.reset()
        started = time.perf_counter()
        work()
        seconds, count = time.perf_counter() - started, units()
        total.append(1e6 * seconds / count)
        outside.append(1e6 * (seconds - counter.forward) / count)
    with cProfile.Profile() as profile:
        work()
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(FUNCTIONS)
    return {"units": count, "us": min(total), "us outside of the model": min(outside)}


def main(options: Options) -> None:
    torch.set_num_threads(1)
    settings = ToolSettings(
        "calculator", "Calculator", PROMPT, start_threshold=0.0, max_positions=options.k, samples=options.m,
        max_call_tokens=options.call_tokens,
    )  # fmt: skip
    model, counter = random_model(), Counter()
    model.batch_tokens = options.batch_tokens
    texts = [document.text[:CHARACTERS] for document in itertools.islice(demo_corpus("train"), options.texts)]
    encoded = [(Document(str(n), text), model.encode_text(text)) for n, text in enumerate(texts)]
    windows = [Window(document, encoding, 0, len(encoding.ids)) for document, encoding in encoded]
    candidates = with_calls(propose.propose(model, settings, windows))
    decoder = Decoder(
        model, {"calculator": Calculator()}, batch_size=options.batch, min_new_tokens=options.new_tokens
    )
    questions = dateset.subset(dateset.generate(0), options.prompts, 0, "family")
    prompts = [question_prompt(row) for row in questions]
    parts: dict[str, tuple[Callable[[], object], Callable[[], int]]] = {
        "sampled token": (lambda: propose.propose(model, settings, windows), lambda: counter.draws),
        "scored call": (lambda: score(model, candidates), lambda: len(candidates)),
        "decoded row": (
            lambda: decoder.complete(prompts, max_new_tokens=options.new_tokens),
            lambda: counter.steps,
        ),
    }
    with counter.watching(model):
        rows = {name: measure(work, units, counter, options.repeats) for name, (work, units) in parts.items()}
    results = {f"us_per_{name.replace(' ', '_')}": round(row["us"], 1) for name, row in rows.items()}
    print_timings(f"{options}", rows, results)


if __name__ == "__main__":
    run_script(Options, main)
