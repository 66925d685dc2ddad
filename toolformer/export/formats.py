"""The formats of a data set: each writes the rows of C* into a file. To add one, add a function to `FORMATS`."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toolformer.export.preferences import Preference, labelled_rows, paired_rows
from toolformer.jobs.train import annotated_text
from toolformer.storage import atomic_file
from toolformer.training.data import IGNORED, PackedTexts
from toolformer.training.tokens import tokenize

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
class Format:
    """A format of a data set."""

    meaning: str
    """For the card: the content of a row."""
    file: str
    """The data, relative to the folder."""
    write: Callable[[Source, Path], int]
    """Writes the file; returns the number of rows."""
    usage: str = ""
    """For the card: lines of the trainer's configuration."""
    of_tokens: bool = False
    """Whether it depends on a tokenizer."""


def _datasets(source: Source, path: Path) -> int:
    with atomic_file(path) as temporary:
        shutil.copyfile(source.dataset, temporary)
    return int(pq.read_metadata(path).num_rows)


def _trl(source: Source, path: Path) -> int:
    rows = [
        {"input_ids": ids, "assistant_masks": [int(label != IGNORED) for label in labels]}
        for ids, labels in _examples(source)
    ]
    with atomic_file(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=_TOKENS), temporary, row_group_size=_BATCH)
    return len(rows)


def _examples(source: Source) -> Iterator[tuple[list[int], list[int]]]:
    """Token ids and labels of each row, unpacked, as our training makes them: a label is the token's id, or -100."""
    documents = tokenize([annotated_text(row) for row in source.rows], source.tokenizer())
    layout = [[(index, 0, length)] for index, length in enumerate(documents.lengths)]
    packed = PackedTexts(documents, layout, source.train_on_results)
    for index in range(len(packed)):
        example = packed[index]
        yield example["input_ids"].tolist(), example["labels"].tolist()


def _dpo(source: Source, path: Path) -> int:
    return _write_lines(path, paired_rows(source.preferences(), source.tokenizer()))


def _kto(source: Source, path: Path) -> int:
    return _write_lines(path, labelled_rows(source.preferences(), source.tokenizer()))


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(lines)
    return len(lines)


FORMATS: Mapping[str, Format] = {
    "datasets": Format(
        "All of C\\*: `text` with its calls, and `calls`, each with `tool`, `name`, `input`, `result`, `gain` (nats) and the "
        "character `position` in the plain text. In `text` a call is ` [name(input) -> result]`, its input in double quotes where "
        "`quoted`.",
        "data/train.parquet",
        _datasets,
    ),
    "trl": Format(
        "Lossless: `input_ids` and `assistant_masks` (1: in the loss), the token ids and labels of this project's training, "
        "a row per text.",
        "data/train.parquet",
        _trl,
        "SFTConfig(max_length=None)  # the default cuts rows at 1,024 tokens",
        of_tokens=True,
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
