"""What tests of several packages build: tiny made-up models of the architectures that matter, with a tokenizer trained on the
spot; data folders of benchmarks; prompts, tools and steered models for decoding. No downloads."""

import argparse
import datetime
import functools
import gzip
import itertools
import json
import random
import socket
import subprocess
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import lm_eval
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.tasks._yaml_loader import load_yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTJConfig,
    GPTJForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from toolformer.benchmarks import TASKS_DIR
from toolformer.data import Document
from toolformer.decoding.decoder import Decoder, Steps
from toolformer.decoding.row import Row
from toolformer.lm.language_model import LanguageModel
from toolformer.results import Results, RunInfo
from toolformer.step import Step
from toolformer.tools.base import ClosedTool, Result, Tool

Capture = pytest.CaptureFixture[str]
Log = pytest.LogCaptureFixture
Patch = pytest.MonkeyPatch
ARTICLES = {
    "Lighthouse": "A lighthouse is a tower with a bright lamp at its top. It warns ships of rocks and shallow water, "
    "and its keeper once lit the lamp by hand every evening.",
    "Windmill": "A windmill turns the force of the wind into work. Millers ground grain between two heavy stones, and "
    "in low country windmills pumped water out of the fields.",
    "Beekeeping": "Beekeeping is the care of honey bee colonies. A beekeeper takes honey and wax from the hives and "
    "feeds the bees with sugar water through a long winter.",
    "Harbour": "A harbour is sheltered water where ships lie at anchor. Many harbours have a lighthouse at the end of "
    "their mole and cranes along the quay.",
    "Compass": "A compass shows where north is. Its magnetic needle swings freely on a pin, and sailors have steered "
    "by it for almost a thousand years.",
    "Sundial": "A sundial tells the hour by the shadow of a rod. It is the oldest clock, and it is of no use at night "
    "or under clouds.",
}

ARCHITECTURES = ("gpt2", "gptj", "llama")
TRAINING_TEXT = [
    "The number in the next term is 18 + 12 x 3 = [Calculator(18 + 12 * 3) -> 54] 54.",
    'Joe Biden was born in [QA("Where was Joe Biden born?") -> Scranton] Scranton, Pennsylvania.',
    "Today is the first [Calendar() -> Today is Monday, January 30, 2023.] Monday of the year.",
    'red is for [WikiSearch("Ghana flag red meaning") -> Flag of Ghana > Red] the blood of martyrs [MT(la tortue)] x',
    "Input: The population is 658,893 people. Output: This is 11.4% of the national average.",
] * 20


def byte_level(texts: Iterable[str], tokens: int, special: list[str], **model: Any) -> Tokenizer:
    """A byte-level BPE of so many tokens, special ones included, trained on the spot."""
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=tokens, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = byte_level(TRAINING_TEXT, 420, ["<|endoftext|>"])
    special = dict.fromkeys(("eos_token", "bos_token", "pad_token"), "<|endoftext|>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def tiny_model(architecture: str, vocabulary: int, context: int = 512, width: int = 32) -> Any:
    """Wide initial weights: a tiny model whose predictions differ visibly from uniform."""
    torch.manual_seed(0)
    shared = {"vocab_size": vocabulary, "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 0}
    sizes = {"hidden_size": width, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": context}
    if architecture == "llama":
        return LlamaForCausalLM(LlamaConfig(**shared, **sizes, **heads))
    if architecture == "mistral":
        return MistralForCausalLM(MistralConfig(**shared, **sizes, **heads, sliding_window=4))
    if architecture == "gemma3":
        sliding = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4, "head_dim": 8}
        return Gemma3ForCausalLM(Gemma3TextConfig(**shared, **sizes, **heads, **sliding))
    shared |= {"n_positions": context, "n_embd": width, "n_layer": 2, "n_head": 4}
    if architecture == "gpt2":
        return GPT2LMHeadModel(GPT2Config(**shared))
    return GPTJForCausalLM(GPTJConfig(**shared, rotary_dim=4))


def teach(model: Any, tokenizer: Any, texts: Iterable[str]) -> None:
    """Trains a tiny model, a step a text; a GPT-2 learns what comes next at any position."""
    if hasattr(model, "transformer") and hasattr(model.transformer, "wpe"):
        model.transformer.wpe.weight.requires_grad_(False).zero_()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for text in texts:
        ids = tokenizer(text, return_tensors="pt").input_ids
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimizer.step()
    model.eval()


@functools.cache
def taught_model(architecture: str, *pieces: str) -> LanguageModel:
    """A tiny model that has learnt to write these pieces of text in any order, unlike a random one."""
    tokenizer = tiny_tokenizer()
    model = tiny_model(architecture, len(tokenizer))
    chance = random.Random(0)
    teach(model, tokenizer, (" ".join(chance.choice(pieces) for _ in range(30)) for _ in range(200)))
    return LanguageModel(model, tokenizer, name=f"taught {architecture}")


@contextmanager
def full_gpu(language_model: LanguageModel, passes: Container[int]) -> Iterator[None]:
    """The forward passes of these numbers find a GPU's memory full."""
    numbers = itertools.count(1)

    def begin(*_: Any) -> None:
        if next(numbers) in passes:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    hook = language_model.model.register_forward_pre_hook(begin)
    try:
        yield
    finally:
        hook.remove()


class Terminal(StringIO):
    """A stream that is a terminal's."""

    def isatty(self) -> bool:
        return True


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Until it holds; a test that waits for longer has failed."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


Refused = Callable[..., str]


GOLDEN = Path(__file__).parent / "golden" / "model"


def smoke_words(root: Path) -> list[str]:
    """The smallest experiment, with a tiny model that calls two tools."""
    words = [f"model={GOLDEN}", f"paths.root={root}", "tools=[calendar,calculator]", "lm.dtype=float32"]
    return ["experiment=smoke", *words]


SVAMP = {"id": "chal-1", "body": "Each pack costs 76 dollars.", "question": "How much?", "answer": 76.0}
ASDIV = [
    {"id": "nluds-0001", "body": "Two and 7.", "question": "How many?", "answer": "9 (apples)"},
    {"id": "nluds-0002", "body": "A recipe.", "question": "Which ratio?", "answer": "2:1"},
    {"id": "nluds-0003", "body": "Two boxes.", "question": "How many each?", "answer": "3 (red); 4 (blue)"},
    {"id": "nluds-0004", "body": "A race.", "question": "Who won?", "answer": "Tim"},
    {"id": "nluds-0005", "body": "A pizza.", "question": "How much is left?", "answer": "1/2 (pizza)"},
]
MAWPS = [
    {"id": 1, "question": " 56 books on 9 shelves? ", "equations": ["56*9=x"], "solutions": [504.0]},
    {"id": 2, "question": "41 and 57 trees?", "equations": ["X = 41 + 57"], "solutions": ["98"]},
    {"id": 3, "question": "Two numbers?", "equations": ["x+y=3"], "solutions": [1, 2]},
]


def write(folder: Path, name: str, rows: list[dict[str, Any]], text: str | None = None) -> Path:
    path = folder / f"{name}.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(text if text is not None else "".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_math(folder: Path) -> None:
    """The three benchmarks of math: six questions of SVAMP, two of ASDiv and two of MAWPS that are kept."""
    write(folder, "svamp/svamp", [{**SVAMP, "id": str(n), "answer": float(n)} for n in range(6)])
    write(folder, "asdiv/asdiv", ASDIV)
    write(folder, "mawps/mawps_full", MAWPS)


PROMPTS = [
    "The number in the next term is",
    "Joe Biden was born in",
    "Today is the first Monday of the year, and the population is 658,893 people. This is",
    "red",
    "Where was the average of the term",
]
DOCUMENTS = [
    Document(f"p{n}", prompt, date=datetime.date(2021, 3, n + 1)) for n, prompt in enumerate(PROMPTS)
]


CALLING = [f"{prompt} people is" for prompt in PROMPTS]
PIECES = ("The", "is", "people", "[QA(ab) -> AB 1]", "[QA(abcd) -> AB 2]")
"""What tiny models of these tests are trained to write, in any order."""


class Shout(Tool):
    """Answers in capitals, and with the document's day; an odd number of letters gets no answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: list[list[str]] = []

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        self.batches.append(list(inputs))
        return [
            Result(f"{text.upper()} {document.date}") if len(text) % 2 == 0 else Result(reason="odd")
            for text, document in zip(inputs, documents, strict=True)
        ]


def tools() -> dict[str, Shout]:
    return {"qa": Shout("QA"), "calculator": Shout("Calculator"), "calendar": Shout("Calendar")}


def steer(monkeypatch: Patch, wanted: Callable[[Decoder, Row], int | None]) -> None:
    """Makes models want this token next to what a row has, where there is one."""
    real = Steps.choose

    def steered(self: Steps, logits: torch.Tensor, rows: list[Row], fresh: list[int]) -> list[int]:
        for n in fresh:
            token = wanted(self.decoder, rows[n])
            if token is not None:
                logits[n, token] = 1e4
        return real(self, logits, rows, fresh)

    monkeypatch.setattr(Steps, "choose", steered)


def force(monkeypatch: Patch, language_model: LanguageModel, prompt: str, wanted: str) -> None:
    """Makes the model want to continue `prompt` with exactly `wanted`, whatever was fed in which batch."""
    base = language_model.encode(prompt)
    target = language_model.tokenizer(prompt + wanted, add_special_tokens=False).input_ids
    assert target[: len(base)] == base

    def following(_: Decoder, row: Row) -> int:
        so_far = row.ids
        return target[len(so_far)] if so_far == target[: len(so_far)] and len(so_far) < len(target) else 0

    steer(monkeypatch, following)


def step(name: str = "evaluate", made_from: Step | None = None, **settings: Any) -> Step:
    return Step(name, 1, settings, {"source": made_from} if made_from else {})


def at_work(
    results: Results, of: Step, config: Any = None, name: str = "", **more: Any
) -> AbstractContextManager[Any]:
    """A run at work, whose configuration is by default the settings of its step."""
    more.setdefault("command", f"toolformer {of.name}")
    beginning = RunInfo(name or f"a {of.name}", of.settings if config is None else config, **more)
    return results.open(of, beginning)


def made(results: Results, of: Step, **more: Any) -> str:
    """A finished run; returns its id."""
    with at_work(results, of, **more) as folder:
        return str(folder.id)


@contextmanager
def mounted_read_only(folder: Path) -> Iterator[None]:
    """A folder that can only be read, also by root."""
    if subprocess.run(["mount", "--bind", "-o", "ro", folder, folder], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


QA_PIECES = ("The", "is", "people", "red", "[QA(x)]", "[QA(Joe)]")


def random_documents(words: tuple[str, ...], count: int) -> list[Document]:
    chance = random.Random(0)
    return [Document(str(n), " ".join(chance.choices(words, k=chance.randint(2, 12)))) for n in range(count)]


T5_WORDS = "question answer title context lighthouse windmill harbour compass sundial bee honey north south ships rocks"


def t5_tokenizer() -> PreTrainedTokenizerFast:
    special = ["<pad>", "</s>", "<unk>", "<extra_id_0>"]
    tokenizer = byte_level([*TRAINING_TEXT, T5_WORDS], 360, special, unk_token="<unk>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))]
    )
    names = dict(zip(("pad_token", "eos_token", "unk_token"), special, strict=False))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, additional_special_tokens=special[3:], model_max_length=512, **names
    )


def tiny_t5(vocabulary: int, first: bool = False, seed: int = 0) -> Any:
    """A random T5 1.1 (gated, output embeddings of its own), or with `first` one like T5's first version."""
    torch.manual_seed(seed)
    config_class: Any = T5Config
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    sizes |= {"vocab_size": vocabulary, "relative_attention_num_buckets": 16}
    config = config_class(
        **sizes, feed_forward_proj="relu" if first else "gated-gelu", tie_word_embeddings=first,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
        initializer_factor=3.0,  # wide initial weights: what it writes depends on what it read
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    if not first:
        model.lm_head.weight = torch.nn.Parameter(torch.randn(vocabulary, 32))
    return model.eval()


OTHER_DOCUMENT = Document("d", "An unrelated text.")


class Recorder(Tool):
    """A tool without `depends_on`; answers by a function and remembers its batches."""

    benchmarks = ("qa", "xquad")

    def __init__(
        self, answer: Callable[[str], Result] = lambda text: Result(f"<{text}>"), name: str = "Recorder"
    ) -> None:
        self.answer = answer
        self.name = name
        self.batches: list[list[str]] = []

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        self.batches.append(list(inputs))
        return [self.answer(text) for text in inputs]


class German:
    """Takes every text for German, and is as strict about it as a tokenizer."""

    def identify(self, text: str) -> tuple[str, float]:
        text.encode("utf-8")
        return "de", 1.0


def answers(tool: Tool, *inputs: str) -> list[str | None]:
    """What a tool answers, or why not."""
    return [result.text or result.reason for result in tool.run(inputs, [OTHER_DOCUMENT] * len(inputs))]


class Closed(Recorder, ClosedTool):
    """The same, depending on its input alone."""


class Writer:
    """A local `TextGenerator` that writes by a function."""

    is_remote = False

    def __init__(self, write: Callable[[str], str]) -> None:
        self.write = write
        self.batches: list[list[str]] = []

    def check(self) -> None:
        """Nothing is missing."""

    def __call__(self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()) -> list[str]:
        self.batches.append(list(prompts))
        for prompt in prompts:
            prompt.encode("utf-8")  # as strict as a tokenizer
        return [self.write(prompt) for prompt in prompts]


PUBLISHED_TASKS = Path(lm_eval.__file__).parent / "tasks"


ARC_QUESTIONS = [
    {"question": question, "choices": {"text": choices, "label": list("ABCD")}, "answerKey": key}
    for question, choices, key in (
        ("Which of these is a liquid at room temperature?", ["iron", "water", "oxygen", "sand"], "B"),
        ("What do plants take from the air?", ["carbon dioxide", "gold", "salt", "light bulbs"], "A"),
        ("Which animal lays eggs?", ["cow", "horse", "hen", "whale"], "C"),
    )
]


def published_task(folder: Path, task: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A published task of lm-eval, reading `rows`."""
    config = dict(load_yaml(PUBLISHED_TASKS / task, resolve_func=True))
    file = folder / f"{config['task']}.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    for split in ("training_split", "validation_split"):
        config.pop(split, None)
    config |= {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}}}
    return {**config, "dataset_name": None, "test_split": "test"}


def bos_tokenizer(times: int = 1) -> Any:
    """A tokenizer that begins texts itself, as Llama's, Gemma's and Mistral's do. GLM's puts two tokens."""
    tokenizer = tiny_tokenizer()
    begin = str(tokenizer.bos_token)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} " * times + "$A", special_tokens=[(begin, tokenizer.bos_token_id)]
    )
    return tokenizer


class Parrot(LM):
    """Answers each document by a function; a text has log-likelihood -2 a character."""

    def __init__(self, answer: Callable[[dict[str, Any]], str]) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[Instance] = []
        self.switched_off: Any

    def generate_until(self, requests: list[Instance]) -> list[str]:
        self.asked += requests
        return [self.answer(request.doc) for request in requests]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return [(-1.0, False) for _ in requests]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        self.asked += requests
        return [-2.0 * len(request.args[0]) for request in requests]


def task_config(name: str) -> dict[str, Any]:
    [path] = TASKS_DIR.glob(f"*/{name}.yaml")
    found: dict[str, Any] = load_yaml(path)
    return found


def save_atlas(path: Path, weights: Mapping[str, torch.Tensor], prefix: str = "reader.") -> Path:
    """A file laid out as Atlas saves it: reader and retriever, the training's settings and the states it went on with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {f"{prefix}{name}": tensor for name, tensor in weights.items()}
    # Saved by a library that did not yet know that it is of no use.
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    state[f"{prefix}{unused}"] = torch.zeros(16, 4)
    state["retriever.contriever.embeddings.word_embeddings.weight"] = torch.zeros(5, 4)
    settings = argparse.Namespace(n_context=40, device=torch.device("cpu"), train_data=["a"])
    scheduler = {"base_lrs": [1e-4], "last_epoch": 3, "lr_lambdas": [{}]}
    torch.save({"step": 3, "model": state, "optimizer": None, "scheduler": scheduler, "opt": settings}, path)
    return path
