"""The formats of a data set: each writes the rows of C* into a folder. To add one, add a function to `FORMATS`."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toolformer.export import conversations, lossless
from toolformer.export.preferences import Preference, labelled_rows, paired_rows
from toolformer.storage import atomic_file, atomic_write

UNREPRESENTABLE = "no segments of text give its tokens"
_TOKENS = pa.schema({"input_ids": pa.list_(pa.int32()), "assistant_masks": pa.list_(pa.int8())})
_PREFERENCES = (
    "A completion is a call with its result, or no call, and the next five tokens of the text: a kept call is preferred to the text "
    "without it and to a call that harms, and the text to such a call where none was kept. A call harms if with its result the "
    "next tokens have a clearly higher loss than without a call: that is about the loss, and its result may be right. Trainers that read "
    "texts split them by themselves and may end each completion with EOS, which this project's training does not."
)
_BATCH = 1000
"""Rows per row group."""


@dataclass(frozen=True)
class Source:
    """An annotation to export."""

    dataset: Path
    """C* as the run stored it."""
    rows: Sequence[Mapping[str, Any]]
    """Those that our training would take, each also with its `plain` text."""
    tokenizer: Callable[[], Any]
    """Loads it; only formats of tokens need one."""
    train_on_results: bool
    preferences: Callable[[], Sequence[Preference]] = list
    """Finds them among all candidates."""


@dataclass(frozen=True)
class Written:
    """The outcome of a format."""

    rows: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Rows of C* that the format cannot hold, by reason."""


@dataclass(frozen=True)
class Format:
    """A format of a data set."""

    meaning: str
    """For the card: what a row is and what the conversion loses."""
    file: str
    """The data, relative to the folder."""
    write: Callable[[Source, Path], Written]
    """Writes the data and whatever its readers want beside it."""
    usage: str = ""
    """For the card: lines of the trainer's configuration."""
    of_tokens: bool = False
    """Whether it depends on a tokenizer."""


def _datasets(source: Source, path: Path) -> Written:
    with atomic_file(path) as temporary:
        shutil.copyfile(source.dataset, temporary)
    return Written(pq.read_metadata(path).num_rows)


def _axolotl(source: Source, path: Path) -> Written:
    tokenizer = source.tokenizer()
    made = [
        lossless.segments(ids, labels, tokenizer)
        for ids, labels in lossless.examples(source.rows, tokenizer, source.train_on_results)
    ]
    kept = [{"segments": segments} for segments in made if segments is not None]
    _write_lines(path, kept)
    skipped = len(made) - len(kept)
    return Written(len(kept), {UNREPRESENTABLE: skipped} if skipped else {})


def _trl(source: Source, path: Path) -> Written:
    examples = lossless.examples(source.rows, source.tokenizer(), source.train_on_results)
    rows = [lossless.masked(ids, labels) for ids, labels in examples]
    with atomic_file(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=_TOKENS), temporary, row_group_size=_BATCH)
    return Written(len(rows))


def _messages(source: Source, path: Path) -> Written:
    from datasets import Dataset, Features, Json, List

    tools = conversations.tool_schemas(source.rows)
    rows = [{"messages": conversations.conversation(row), "tools": tools} for row in source.rows]
    # Arrow would give every message and argument the keys of all others; `Json` keeps each as it is.
    data = Dataset.from_list(rows, features=Features({"messages": List(Json()), "tools": List(Json())}))
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        data.to_parquet(file, batch_size=_BATCH)
    return Written(len(rows))


def _llamafactory(source: Source, path: Path) -> Written:
    functions = [schema["function"] for schema in conversations.tool_schemas(source.rows)]
    tools = json.dumps(functions, ensure_ascii=False)
    rows = [made for row in source.rows for made in conversations.sharegpt(row, tools)]
    _write_lines(path, rows)
    entry = {
        "file_name": path.name,
        "formatting": "sharegpt",
        "columns": {"messages": "conversations", "tools": "tools"},
        "tags": {
            "role_tag": "from",
            "content_tag": "value",
            "user_tag": "human",
            "assistant_tag": "gpt",
            "observation_tag": "observation",
            "function_tag": "function_call",
        },
    }
    atomic_write(path.parent / "dataset_info.json", json.dumps({"toolformer": entry}, indent=1).encode())
    return Written(len(rows))


def _dpo(source: Source, path: Path) -> Written:
    return _counted(path, paired_rows(source.preferences(), source.tokenizer()))


def _kto(source: Source, path: Path) -> Written:
    return _counted(path, labelled_rows(source.preferences(), source.tokenizer()))


def _counted(path: Path, rows: Sequence[Mapping[str, Any]]) -> Written:
    _write_lines(path, rows)
    return Written(len(rows))


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


FORMATS: Mapping[str, Format] = {
    "datasets": Format(
        "All of C\\*: `text` with its calls, and `calls` with tool, input, result, gain (nats) and the character `position` in "
        "the plain text. The plain text is `text` without each call's `written` form and the blank before it.",
        "data/train.parquet",
        _datasets,
    ),
    "axolotl": Format(
        "Lossless: segments which, tokenised one by one without special tokens added, give the token ids and labels of "
        "this project's training. BOS (where the tokenizer has one) and EOS are in the text. The first token is not in the "
        "loss.",
        "data/train.jsonl",
        _axolotl,
        "datasets:\n  - path: FOLDER/data/train.jsonl\n    ds_type: json\n    type: input_output\ntrain_on_inputs: false",
        of_tokens=True,
    ),
    "trl": Format(
        "Lossless: `input_ids` and `assistant_masks` (1: in the loss), the token ids and labels of this project's training, "
        "a row per text.",
        "data/train.parquet",
        _trl,
        "SFTConfig(max_length=None)  # the default cuts rows at 1,024 tokens",
        of_tokens=True,
    ),
    "messages": Format(
        "A conversion, not what the model was trained on: the text before the first call is the user's turn, each call is an "
        "assistant's turn with `tool_calls`, its result a tool's, and the text after it the assistant's again. How a call was "
        "written, its gain and the text's date are left out.",
        "data/train.parquet",
        _messages,
        "SFTConfig(assistant_only_loss=True)  # needs a chat template with {% generation %}: without, no token is in the loss",
    ),
    "llamafactory": Format(
        "A conversion, not what the model was trained on: a conversation per call. The human's turn is the text before the call, "
        "without the calls before it, because LLaMA-Factory's turns alternate. How a call was written, its gain and the text's "
        "date are left out.",
        "train.jsonl",
        _llamafactory,
        "dataset_dir: FOLDER\ndataset: toolformer",
    ),
    "dpo": Format(
        f"Preferences by gain, `prompt`, `chosen` and `rejected`. {_PREFERENCES}",
        "data/train.jsonl",
        _dpo,
        of_tokens=True,
    ),
    "kto": Format(
        f"Preferences by gain, `prompt`, `completion` and `label`, each completion once. {_PREFERENCES}",
        "data/train.jsonl",
        _kto,
        of_tokens=True,
    ),
}
"""By the name that `format=` takes."""
