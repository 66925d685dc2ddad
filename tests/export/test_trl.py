"""TRL's SFTTrainer trains on its two formats: on our labels, and on the assistant's turns of the conversation."""

from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset

from tests.conftest import tiny_model, tiny_tokenizer
from tests.export.conftest import rows_of
from tests.export.test_formats import trained, write

ROWS = rows_of(6)
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool.function.name }}\n{% endfor %}"
    "{% for message in messages %}{{ message.role }}: "
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}\n{% endgeneration %}"
    "{% else %}{{ message.content }}\n{% endif %}{% endfor %}"
)


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


def test_it_trains_on_the_assistants_turns(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    write("messages", ROWS, tmp_path)
    trainer = fit(tmp_path, tokenizer, assistant_only_loss=True)
    assert trainer.state.global_step == 2
    for row, example in zip(ROWS, trainer.train_dataset, strict=True):
        target = tokenizer.decode([token for token in example["labels"] if token != -100])
        assert target.count('"name"') == len(row["calls"]), "calls are in the loss"
        assert "user: " not in target and "tool: " not in target
