"""Parquet: the columns that documents need, a few rows at a time.

A row group that is broken is left out from where it breaks; the next one is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolformer.data.document import Fields
from toolformer.data.jsonl import BROKEN
from toolformer.data.reader_stats import Skipped
from toolformer.errors import UserError, one_line

_ROWS = 64
_BUFFER = 2**20


def read_parquet(path: Path, fields: Fields, skipped: Skipped) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`row N`, row) of every row, counted from 1; texts come as bytes, since a file may claim UTF-8 falsely.

    Raises:
        UserError: the file cannot be opened or read at all (not: what is in it is broken).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Buffered and without prefetching: a row group, which can be large, is not held as a whole.
        with pq.ParquetFile(
            path, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
        ) as file:
            names, total = file.schema_arrow.names, file.metadata.num_rows
            if fields.text_field not in names:
                detail = f"it has {', '.join(names[:8])}; name the column with {skipped.key}.text_field"
                skipped.row(
                    str(path), "the whole file", f"no column `{fields.text_field}`", max(1, total), detail
                )
                return
            columns = [column for column in fields.named() if column in names]
            before = 0
            for group in range(file.num_row_groups):
                rows, read = file.metadata.row_group(group).num_rows, 0
                try:
                    for batch in file.iter_batches(_ROWS, [group], columns, use_threads=False):
                        for row in zip(*(_values(batch.column(column)) for column in columns), strict=True):
                            read += 1
                            yield f"row {before + read}", dict(zip(columns, row, strict=True))
                except (pa.ArrowException, OSError) as error:
                    if getattr(error, "errno", None) is not None:
                        raise
                    lost = max(1, rows - read)
                    skipped.row(str(path), f"after row {before + read}", BROKEN, lost, one_line(error))
                before += rows
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise UserError(
                f"{path}: the file cannot be read ({one_line(error)}); check its place and permissions"
            ) from error
        skipped.row(str(path), "the whole file", "not a Parquet file", detail=one_line(error))


def _values(column: Any) -> list[Any]:
    """A column's values; texts undecoded and dates as texts, so that a bad one costs a row and not its whole batch."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    elif pa.types.is_temporal(column.type):
        column = column.cast(pa.string())
    values: list[Any] = column.to_pylist()
    return values
