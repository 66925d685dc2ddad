"""What tests of several packages build: data folders of benchmarks; prompts, tools and steered models for decoding."""

import datetime
import gzip
import json
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import lm_eval
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.tasks._yaml_loader import load_yaml
from tokenizers import processors
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from tests.conftest import TRAINING_TEXT, byte_level, tiny_tokenizer
from toolformer.benchmarks import TASKS_DIR
from toolformer.data import Document
from toolformer.decoding.batch import Row
from toolformer.decoding.decoder import Decoder
from toolformer.lm.language_model import LanguageModel
from toolformer.results import Results, RunInfo
from toolformer.step import Step
from toolformer.tools.base import ClosedTool, Result, Tool

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


def steer(monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Decoder, Row], int | None]) -> None:
    """Makes models want this token next to what a row has, where there is one."""
    real = Decoder._choose

    def steered(self: Decoder, logits: torch.Tensor, rows: list[Row], *more: Any) -> list[int]:
        for n, row in enumerate(rows):
            token = wanted(self, row)
            if token is not None:
                logits[n, token] = 1e4
        return real(self, logits, rows, *more)

    monkeypatch.setattr(Decoder, "_choose", steered)


def force(monkeypatch: pytest.MonkeyPatch, language_model: LanguageModel, prompt: str, wanted: str) -> None:
    """Makes the model want to continue `prompt` with exactly `wanted`, whatever was fed in which batch."""
    base = language_model.encode(prompt)
    target = language_model.tokenizer(prompt + wanted, add_special_tokens=False).input_ids
    assert target[: len(base)] == base

    def following(_: Decoder, row: Row) -> int:
        so_far = row.context + row.written
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
