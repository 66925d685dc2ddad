"""TRL's SFTTrainer trains on our labels."""

from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset

from tests.build import tiny_model, tiny_tokenizer
from tests.export.build import rows_of, trained, write

ROWS = rows_of(6)


def fit(folder: Path, tokenizer: Any, **settings: Any) -> Any:
    """A trainer that has taken two steps on the data in a folder."""
    from trl import SFTConfig, SFTTrainer

    arguments = SFTConfig(
        output_dir=str(folder / "trained"), max_steps=2, per_device_train_batch_size=2, max_length=None, use_cpu=True,
        bf16=False, report_to="none", save_strategy="no", disable_tqdm=True, gradient_checkpointing=False, **settings,
    )  # fmt: skip
    data = load_dataset(str(folder), split="train")
    trainer = SFTTrainer(
        tiny_model("gpt2", len(tokenizer)), args=arguments, train_dataset=data, processing_class=tokenizer
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("results", [True, False])
def test_it_trains_on_our_labels(results: bool, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    write("trl", ROWS, tmp_path, tokenizer, results)
    trainer = fit(tmp_path, tokenizer)
    assert trainer.state.global_step == 2
    read = [(row["input_ids"], row["labels"]) for row in trainer.train_dataset]
    assert read == trained(ROWS, tokenizer, results)
