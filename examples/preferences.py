"""Trains a model on the preference rows of an annotation with TRL, and leaves a model folder that `evaluate` reads.

    toolformer export dataset latest ROWS format=dpo
    python examples/preferences.py MODEL ROWS TRAINED
    toolformer evaluate system=toolformer checkpoint=TRAINED name=preferences

MODEL should already call tools, such as the model folder of a train run: it is the reference to stay near, too. TRL is installed
by `make setup EXTRA=preferences`. Any argument of TRL's DPOConfig may follow, as `--learning_rate 1e-6`.
"""

import sys

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import DPOConfig, DPOTrainer

DEFAULTS = {
    "beta": 0.1,
    "learning_rate": 5e-6,
    "num_train_epochs": 1,
    "per_device_train_batch_size": 8,
    "max_length": None,  # prompts are never cut
    "save_strategy": "no",
    "report_to": "none",
}


def main(model: str, rows: str, folder: str, *options: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    given = [f"--output_dir={folder}", *options]
    (arguments,) = HfArgumentParser(DPOConfig).parse_args_into_dataclasses(given)
    for name, value in DEFAULTS.items():
        if f"--{name}" not in given:
            setattr(arguments, name, value)
    trainer = DPOTrainer(
        AutoModelForCausalLM.from_pretrained(model, dtype="float32"),
        args=arguments,
        train_dataset=load_dataset("json", data_files=f"{rows}/data/train.jsonl", split="train"),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
