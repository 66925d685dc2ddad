"""Reads rows from a data folder or the hub, and keeps or drops them, counted by reason.

A row comes with its location (file and line, or data set, split and number), which error messages name.
"""

import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import datasets

from toolformer.benchmarks import dateset as dateset_generator
from toolformer.benchmarks.declared import is_perplexity
from toolformer.data.document import BadRow
from toolformer.data.jsonl import read_jsonl
from toolformer.errors import UserError, one_line

log = logging.getLogger(__name__)

Row = dict[str, Any]
Placed = tuple[str, Row]
"""A row's location, for messages, and the row."""
Splits = dict[str, datasets.Dataset]
Item = TypeVar("Item", str, Row)

DATA_DIR = "paths.data_dir (data_dir in lm-eval's --metadata)"
DATA_DIR_VARIABLE = "TOOLFORMER_DATA_DIR"


def data_folder(metadata: Mapping[str, Any]) -> Path | None:
    """The folder that `data_dir` names, or else the environment variable TOOLFORMER_DATA_DIR; None is the hub."""
    configured = metadata["data_dir"] if "data_dir" in metadata else os.environ.get(DATA_DIR_VARIABLE)
    if not configured:
        return None
    folder = Path(str(configured)).expanduser()
    if not folder.is_dir():
        raise UserError(f"{DATA_DIR}: there is no folder {folder}; leave it out to read from the hub")
    return folder


def find_file(folder: Path, benchmark: str, names: Sequence[str]) -> Path:
    """The first of `names` (relative to `folder`) that exists; UserError, naming the first, if none does."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    get = f"`toolformer data get {benchmark} {folder}` fetches it, or leave {benchmark} out of the benchmarks"
    advice = f"expected the file {folder / names[0]}: {get}"
    raise UserError(f"{DATA_DIR}: {folder} has no {benchmark}; {advice}")


def rows_of(path: Path) -> Iterator[Placed]:
    """Rows of a JSON Lines file, plain, gzip or Zstandard; UserError for a line that is not a JSON object."""
    for line, row in read_jsonl(path):
        location = f"{path}, {line}"
        if isinstance(row, BadRow):
            raise UserError(f"{location}: {row}; fix the file")
        if not isinstance(row, dict):
            raise UserError(f"{location}: not a JSON object; fix the row")
        yield location, row


def from_hub(
    benchmark: str,
    hub: Mapping[str, Any],
    columns: Sequence[str] = (),
    advice: str = f"set {DATA_DIR} to a folder that holds the benchmark",
) -> Iterator[Placed]:
    """Rows of a data set on the hub, `hub` being the pin in the task's YAML (metadata.hub).

    Its keys are `path`, `config`, `split` (one or a list), `revision`; `data_files` if `path` is a format and each split is a
    file at a URL; `data_dir` if a folder of the repository is the configuration; `first` if only so many rows are streamed,
    without downloading the rest. Logs the name of the cached copy, which contains the commit. `columns` reads only these, if
    all exist.
    """
    if not hub.get("path") or not hub.get("split"):
        raise UserError(
            f"{benchmark}: its task file has no metadata.hub with path and split; add it, or set {DATA_DIR}=DIR"
        )
    options = {key: hub[key] for key in ("revision", "data_dir", "data_files") if key in hub}
    options |= {"streaming": True} if "first" in hub else {}
    for split in [hub["split"]] if isinstance(hub["split"], str) else hub["split"]:
        log.info("%s: %s (%s) from the hub", benchmark, hub["path"], split)
        try:
            loaded = datasets.load_dataset(hub["path"], hub.get("config"), split=split, **options)
        # The hub client raises a dozen types, from its own to those of the HTTP library, for "not there".
        except Exception as error:
            raise _unread(benchmark, hub["path"], error, advice) from error
        for file in [] if "first" in hub else loaded.cache_files[:1]:
            log.info("%s: read as %s", benchmark, file["filename"])
        if columns and set(columns) <= set(loaded.column_names or ()):
            loaded = loaded.select_columns(list(columns))
        rows = enumerate(itertools.islice(loaded, hub.get("first")))
        while row := _next(rows, benchmark, hub["path"], advice):
            yield f"{hub['path']}, {split}, row {row[0]}", dict(row[1])


def _next(rows: Iterator[tuple[int, Any]], benchmark: str, path: str, advice: str) -> tuple[int, Any] | None:
    """The next row of a data set, which may be a stream that breaks off; None at its end."""
    try:
        return next(rows, None)
    except Exception as error:
        raise _unread(benchmark, path, error, advice) from error


def _unread(benchmark: str, path: str, error: Exception, advice: str) -> UserError:
    reason = f"cannot be read from the hub ({type(error).__name__}: {one_line(error, 160)})"
    return UserError(f"{benchmark}: {path} {reason}; {advice}")


def value_of(row: Mapping[str, Any], name: str, location: str, what: str = "value") -> Any:
    """The value of a field, which may be null; UserError if the row has no such field."""
    if name not in row:
        fields = ", ".join(map(str, row))
        raise UserError(f"{location}: no {what} in field `{name}` (the row has {fields}); fix the row")
    return row[name]


def text_of(row: Mapping[str, Any], name: str, location: str) -> str:
    """The text in a field; raises as `value_of` does."""
    value = value_of(row, name, location, "text")
    if not isinstance(value, str):
        raise UserError(f"{location}: no text in field `{name}`; fix the row")
    return value


def list_of(row: Mapping[str, Any], name: str, location: str, kind: type[Item]) -> list[Item]:
    """The texts (`str`) or objects (`dict`) in a field that is a list of them; raises as `value_of` does."""
    what = "list of texts" if kind is str else "list of objects"
    values = value_of(row, name, location, what)
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise UserError(f"{location}: no {what} in field `{name}`; fix the row")
    return values


def distinct(texts: Iterable[str]) -> list[str]:
    """The texts that are not blank, without repeats, in their order."""
    return list(dict.fromkeys(text for text in texts if text.strip()))


def collect(
    benchmark: str,
    rows: Iterable[Placed],
    make: Callable[[Row, str], Row | str],
    metadata: Mapping[str, Any],
    by: str | None = None,
) -> Splits:
    """Documents from rows: `make` returns a document, or as a text the reason for dropping the row.

    Logs how many rows were read, kept and dropped by reason, with the first row of each reason, and warns if the number of
    rows is not the task's `published_rows`. Rows that share an id get `#2` and so on added to it. `as_splits` then takes the
    subset that `metadata` asks for.
    """
    kept: list[Row] = []
    dropped: dict[str, list[str]] = {}
    seen: Counter[str] = Counter()
    total = 0
    for location, row in rows:
        total += 1
        made = make(row, location)
        if isinstance(made, str):
            dropped.setdefault(made, []).append(location)
            continue
        identity = name = str(total if made.get("id") in (None, "") else made["id"])
        while identity in seen:
            seen[name] += 1
            identity = f"{name}#{seen[name]}"
        seen[identity] = 1
        kept.append({**made, "id": identity})
    counts = {reason: len(locations) for reason, locations in dropped.items()}
    log.info("%s: %d rows read, %d kept, dropped: %s", benchmark, total, len(kept), counts or "none")
    for reason, locations in dropped.items():
        log.info("%s: first dropped: %s: %s", benchmark, reason, locations[0])
    if total and not kept:
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
        first = next(iter(dropped.values()))[0]
        raise UserError(
            f"{benchmark}: none of {total} rows can be used: {reasons} (first: {first}); name other data"
        )
    if (published_rows := metadata.get("published_rows")) not in (None, total):
        log.warning("%s: %d rows read, but the published set has %d", benchmark, total, published_rows)
    return as_splits(benchmark, kept, metadata, by)


def generated(name: str, generate: Callable[[int], list[Row]], metadata: Mapping[str, Any]) -> Splits:
    """The rows of a generator, with the seed `<name>_seed` of the metadata."""
    rows = generate(metadata.get(f"{name}_seed", 0))
    return collect(name, (("", row) for row in rows), lambda row, _: row, metadata, by="family")


def as_splits(name: str, rows: list[Row], metadata: Mapping[str, Any], by: str | None = None) -> Splits:
    """Returns the rows, or a seeded subset (in proportion to the values of the field `by`), as the split `test`."""
    of_texts = is_perplexity(name)
    key = "perplexity_subset" if of_texts and "perplexity_subset" in metadata else "subset"
    if (size := metadata.get(key)) is not None:
        chosen = dateset_generator.subset(rows, size, metadata.get("seed", 0), by)
        if len(chosen) < len(rows):
            what, limit = ("texts", "perplexity_limit") if of_texts else ("questions", "limit")
            log.info(
                "%s: %s of %s %s (evaluation.%s)", name, f"{len(chosen):,}", f"{len(rows):,}", what, limit
            )
        rows = chosen
    if not rows:
        raise UserError(f"{name}: no documents are left; check {DATA_DIR} or the file it is read from")
    return {"test": datasets.Dataset.from_list(rows)}
