"""How soon a large corpus is worked at, how fast a finished run answers, and in how much memory.

    python -m benchmarks.speed.corpus [documents=100000] [until=done]

Annotates made-up documents with a tiny untrained model, by the command itself; one document in a thousand has a date, and with
it a candidate. `until=plan` ends the run when the corpus has been read. Prints one JSON object on the last line: seconds from
the start of the command to the first candidate, until the corpus was read, and to the end; seconds of the same command again,
and once more with another time of change of the corpus; and the peak resident memory of each in GiB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from benchmarks.speed.arguments import given, run
from benchmarks.speed.machine import machine
from toolformer.errors import UserError

TEXT = "On that day we met again, and spoke of the weather, of the harvest and of the road to the sea. " * 4
MARKS = {"first_candidate_s": "*/shards*/000000-*.sha256", "planned_s": "plans/*.json"}
"""The files that appear at these moments."""


def main(arguments: Sequence[str]) -> None:
    options = given(arguments, {"documents": "100000", "until": "done"})
    if options["until"] not in ("done", "plan"):
        raise UserError(f"until is {options['until']!r}; it is done or plan")
    documents = int(options["documents"])
    with tempfile.TemporaryDirectory() as place:
        figures = annotate(Path(place), documents, options["until"] == "done")
    print(machine(), file=sys.stderr)
    print(json.dumps({"documents": documents, **figures}))


def annotate(folder: Path, documents: int, is_whole: bool) -> dict[str, float]:
    corpus, root = folder / "corpus.jsonl", folder / "runs"
    with corpus.open("w") as file:
        for n in range(documents):
            url = f"https://example.org/{'2020/05/14' if n % 1000 == 0 else 'undated'}/"
            file.write(json.dumps({"id": f"d{n}", "text": f"{n}. {TEXT}", "url": url}) + "\n")
    save_model(folder / "model")
    command = [
        sys.executable, "-m", "toolformer.cli", "generate", f"model={folder / 'model'}", f"paths.root={root}",
        "corpus=jsonl", f"corpus.path={corpus}", "corpus.limit=null", "tools=[calendar]", "propose.force_name=true",
        "tool.calendar.samples=1", "tool.calendar.max_positions=1", "tool.calendar.max_call_tokens=4",
        "tool.calendar.start_threshold=0.0", "lm.dtype=float32",
    ]  # fmt: skip
    figures: dict[str, float] = {}

    def is_over(seconds: float) -> bool:
        for mark, pattern in MARKS.items():
            if mark not in figures and any((root / "generate").glob(pattern)):
                figures[mark] = round(seconds, 1)
        return not is_whole and len(figures) == len(MARKS)

    measured = timed(command, is_over)
    figures["ended_s"], figures["peak_gib"] = measured
    if is_whole:
        figures["already_done_s"], figures["already_done_gib"] = timed(command)
        corpus.touch()
        figures["touched_s"], figures["touched_gib"] = timed(command)
    return figures


def timed(
    command: Sequence[str], is_over: Callable[[float], bool] = lambda seconds: False
) -> tuple[float, float]:
    """Seconds and peak memory of a command, which is ended when `is_over` says so of the seconds that it has run."""
    started, is_killed = time.monotonic(), False
    process = subprocess.Popen(command)
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        time.sleep(0.1)
        if not is_killed and is_over(time.monotonic() - started):
            process.kill()
            is_killed = True
    seconds, (_, status, usage) = time.monotonic() - started, ended
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not is_killed:
        raise UserError(f"the command ended with {process.returncode}: {' '.join(command)}")
    return round(seconds, 1), round(usage.ru_maxrss / 2**20, 2)


def save_model(folder: Path) -> None:
    """An untrained GPT-2 that reads bytes."""
    merges = [("Ġ", "["), ("-", ">"), ("Ġ", "->")]  # what marks a call has tokens of its own
    tokens = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    letters = {token: n for n, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(letters, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>").save_pretrained(folder)
    config = GPT2Config(
        vocab_size=len(letters),
        n_positions=4096,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    GPT2LMHeadModel(config).save_pretrained(folder)


if __name__ == "__main__":
    run("corpus", main)
