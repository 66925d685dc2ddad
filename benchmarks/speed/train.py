"""Speed of packed training, in one run on the same documents and the same model.

    python -m benchmarks.speed.train [documents=96] [model=smollm2] [sequence_length=1024] [micro_batch=2]

This project packs the demo corpus into full sequences. The stock Trainer of Transformers pads the documents of a micro
batch to the longest of them, with about as many tokens per micro batch: the more sequences a micro batch has (the paper: 8),
the more padding and memory it needs. Both run forward, backward and optimizer steps over all documents once; loading,
evaluation and saving are not counted. Prints a table,
and its ratios as one JSON object on the last line: `speedup_vs_padded` (text tokens a second), and
`train_share_of_matmul_peak` (model FLOPs of the text tokens, backward counted twice the forward pass, over the time), and
`peak_memory_gib` and on a GPU `gpu_busy` (packed).
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

from toolformer.benchmarks.speed.annotate import matmul_peak, model_flops
from toolformer.benchmarks.speed.script import measured_usage, print_timings, repeated, run_script
from toolformer.data import demo_corpus
from toolformer.lm.devices import choose_device, choose_dtype
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.loading import load_causal
from toolformer.training.settings import TrainingSettings
from toolformer.training.trainer import train


@dataclass
class Options:
    """Options of the measured training."""

    documents: int = 96
    model: str = "smollm2"
    sequence_length: int = 1024
    micro_batch: int = 2


def packed(model: str, texts: Sequence[str], length: int, micro_batch: int) -> dict[str, float]:
    """This project."""
    logged: dict[str, float] = {}
    settings = TrainingSettings(
        max_steps=None, epochs=1, batch_size=4 * micro_batch, micro_batch_size=micro_batch, sequence_length=length,
        eval_every=10_000, save_every=0, log_every=10_000, warmup_ratio=0.0, dtype="auto", device="auto", seed=0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        result = train(
            model, texts, texts[:1], settings, Path(folder), lambda m, _: logged.update(m), progress=False
        )
    rate = logged["tokens_per_second"]  # logged once, at the end: the speed of all steps
    return {"seconds": result.tokens / rate, "tokens": result.tokens, "tokens/s": rate}


def padded(model: str, texts: Sequence[str], micro_batch: int) -> dict[str, float]:
    """The stock Trainer on one document a row, padded to the longest of the micro batch."""
    network, tokenizer = load_causal(model, torch.float32)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    rows = [{"input_ids": tokenizer(text).input_ids + [tokenizer.eos_token_id]} for text in texts]
    device = choose_device()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=micro_batch, gradient_accumulation_steps=4, num_train_epochs=1,
            learning_rate=1e-5, report_to="none", save_strategy="no", disable_tqdm=True, use_cpu=device == "cpu",
            bf16=choose_dtype("auto", device) is torch.bfloat16, dataloader_pin_memory=False,
        )  # fmt: skip
        collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
        trainer = Trainer(network, arguments, collator, cast(Any, rows))
        seconds = trainer.train().metrics["train_runtime"]
    tokens = sum(len(row["input_ids"]) for row in rows)
    return {"seconds": seconds, "tokens": tokens, "tokens/s": tokens / seconds}


def main(options: Options) -> None:
    texts = [document.text for document in repeated(list(demo_corpus("train")), options.documents)]
    model, length, micro_batch = options.model, options.sequence_length, options.micro_batch
    language_model = LanguageModel.from_pretrained(model)
    mean = sum(len(language_model.encode(text)) for text in texts) / len(texts)
    rows = max(1, round(length * micro_batch / mean))
    per_token = model_flops(language_model, round(mean), round(mean)) / round(mean)
    peak = matmul_peak(language_model.dtype, language_model.device)
    del language_model
    if choose_device() != "cpu":
        packed(model, texts[: 8 * rows], length, micro_batch)  # chooses kernels
    with measured_usage() as usage:
        fast = packed(model, texts, length, micro_batch)
    slow = padded(model, texts, rows)
    print_timings(
        f"{len(texts)} documents of {mean:.0f} tokens, {model}, sequences of {length}, matmul peak "
        f"{peak / 1e9:.0f} GFLOP/s",
        {f"packed, {micro_batch} per micro batch": fast, f"padded, {rows} per micro batch": slow},
        {
            "speedup_vs_padded": round(fast["tokens/s"] / slow["tokens/s"], 2),
            "train_share_of_matmul_peak": round(3 * per_token * fast["tokens/s"] / peak, 3),
        }
        | usage.results(),
    )


if __name__ == "__main__":
    run_script(Options, main)
