"""Trains a model to write calculator calls by their gain, with TRL's GRPO: the reward of a call is what its result saves the model.

    python examples/reward.py MODEL TEXTS TRAINED

TEXTS is a JSONL file of texts with worked sums. A prompt is a text up to a sum's result, with a call begun; the reward of what the
model writes there is its gain in nats (`Toolformer.gain`) under MODEL as it was, and -1 for what is not a call with a result. TRL
is installed by `make setup EXTRA=preferences`. Any argument of TRL's GRPOConfig may follow, as `--max_steps 100`.
"""

import json
import re
import sys
from typing import Any

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import GRPOConfig, GRPOTrainer

from toolformer import Toolformer
from toolformer.tools.calculator import calculate

CALL, NO_CALL = " [Calculator(", -1.0
DEFAULTS = {"learning_rate": 1e-5, "num_generations": 4, "per_device_train_batch_size": 8, "max_completion_length": 16, "save_strategy": "no", "report_to": "none"}  # fmt: skip


def places(path: str) -> list[dict[str, Any]]:
    """The positions of results in the texts of a file, after an equals sign, with the prompt that ends in a call begun."""
    texts = [json.loads(line)["text"] for line in open(path, encoding="utf-8")]
    found = [(text, match.end()) for text in texts for match in re.finditer(r"=(?= -?\d)", text)]
    return [{"prompt": text[:end] + CALL, "text": text, "position": end} for text, end in found]


def rewards(
    scorer: Toolformer, completions: list[str], texts: list[str], positions: list[int]
) -> list[float]:
    """The gain of every completed call in nats, scored together; `NO_CALL` for what is not a call that can be computed."""
    found = [NO_CALL] * len(completions)
    calls: dict[int, tuple[str, str]] = {}
    for n, completion in enumerate(completions):
        expression, end, _ = completion.partition(")]")
        try:
            calls[n] = f"Calculator({expression})", calculate(expression) if end else ""
        except ValueError:
            continue
    calls = {n: call for n, call in calls.items() if call[1]}
    gains = scorer.gain([texts[n] for n in calls], [positions[n] for n in calls], *map(list, zip(*calls.values(), strict=True))) if calls else []  # fmt: skip
    for n, gain in zip(calls, gains, strict=True):
        found[n] = gain
    return found


def main(model: str, texts: str, folder: str, *options: str) -> None:
    scorer = Toolformer.from_pretrained(model, ["tools=[calculator]"])
    given = [f"--output_dir={folder}", *options]
    (arguments,) = HfArgumentParser(GRPOConfig).parse_args_into_dataclasses(given)
    for name, value in DEFAULTS.items():
        if not any(option.startswith(f"--{name}") for option in given):
            setattr(arguments, name, value)

    def reward(completions: list[str], text: list[str], position: list[int], **_: Any) -> list[float]:
        return rewards(scorer, completions, text, position)

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    policy = AutoModelForCausalLM.from_pretrained(model, dtype="float32")
    trainer = GRPOTrainer(policy, reward, args=arguments, train_dataset=Dataset.from_list(places(texts)), processing_class=tokenizer)  # fmt: skip
    trainer.train()
    trainer.save_model(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
