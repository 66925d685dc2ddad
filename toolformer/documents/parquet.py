"""Parquet: the columns that documents need, a few rows at a time.

A row group that is broken is left out from where it breaks; the next one is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolformer.documents.document import Fields
from toolformer.documents.jsonl import BROKEN
from toolformer.documents.skipped import Skipped
from toolformer.errors import UserError

_ROWS = 64
_BUFFER = 2**20


def read_parquet(path: Path, fields: Fields, skipped: Skipped) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`row N`, row) of every row, counted from 1; texts come as bytes, since a file may claim UTF-8 falsely.

    Raises:
        UserError: the file cannot be opened or read at all (not: what is in it is broken).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = str(path)
    try:
        # Buffered and without prefetching: a row group, which can be large, is not held as a whole.
        file = pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True)
    except pa.ArrowException as error:
        skipped.row(name, "the whole file", "not a Parquet file", detail=_line(error))
        return
    except OSError as error:
        if error.errno is not None:
            raise UserError(
                f"{path}: the file cannot be read ({error.strerror or error}); mend its place or its rights"
            ) from error
        skipped.row(name, "the whole file", "not a Parquet file", detail=_line(error))
        return
    with file:
        schema = file.schema_arrow
        if fields.text not in schema.names:
            known = ", ".join(schema.names[:8])
            skipped.row(
                name,
                "the whole file",
                f"no column `{fields.text}`",
                max(1, file.metadata.num_rows),
                detail=f"it has {known}; name the column with {skipped.key}.text_field",
            )
            return
        columns = [column for column in fields.named() if column in schema.names]
        before = 0
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            read = 0
            try:
                for batch in file.iter_batches(_ROWS, [group], columns, use_threads=False):
                    try:
                        values = [_values(batch.column(column)) for column in columns]
                    except (
                        OverflowError,
                        ValueError,
                    ) as error:  # a date that Python has not: of a row, not of a batch
                        if isinstance(error, pa.ArrowException):
                            raise
                        values = [_one_by_one(batch.column(column)) for column in columns]
                    for row in zip(*values, strict=True):
                        read += 1
                        yield f"row {before + read}", dict(zip(columns, row, strict=True))
            except (pa.ArrowException, OSError) as error:
                if getattr(error, "errno", None) is not None:
                    raise UserError(f"{path}: the file cannot be read ({error})") from error
                skipped.row(
                    name, f"after row {before + read}", BROKEN, max(1, rows - read), detail=_line(error)
                )
            before += rows


def _values(column: Any) -> list[Any]:
    """A column's values; texts undecoded, so that one that is not UTF-8 costs a row and not its whole batch."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
    found: list[Any] = column.to_pylist()
    return found


def _one_by_one(column: Any) -> list[Any]:
    """The values of a column of which some cannot be made in Python: those are None."""
    found: list[Any] = []
    for n in range(len(column)):
        try:
            found += _values(column.slice(n, 1))
        except (OverflowError, ValueError):
            found.append(None)
    return found


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
