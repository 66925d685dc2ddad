"""Parquet: the columns that documents need, a few rows at a time."""

from pathlib import Path
from typing import Any

from toolformer.data.document import BadRow, Fields
from toolformer.data.row_corpus import Rows, broken_off

_ROWS = 64
_BUFFER = 2**20


def read_parquet(path: Path, fields: Fields, key: str) -> Rows:
    """(`row N`, row) of every row, counted from 1; a file that breaks off is read as far as it goes.

    Texts come as bytes, since a file may claim UTF-8 falsely. UserError as `read_jsonl`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Buffered and without prefetching: a row group, which can be large, is not held as a whole.
        with pq.ParquetFile(
            path, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
        ) as file:
            names = file.schema_arrow.names
            if fields.text_field not in names:
                detail = f"it has {', '.join(names[:8])}; name the column with {key}.text_field"
                lost = max(1, file.metadata.num_rows)
                yield "the whole file", BadRow(f"no column `{fields.text_field}`", detail, lost)
                return
            columns = [column for column in fields.named() if column in names]
            number = 0
            try:
                for batch in file.iter_batches(_ROWS, columns=columns, use_threads=False):
                    for row in zip(*(_values(batch.column(column)) for column in columns), strict=True):
                        number += 1
                        yield f"row {number}", dict(zip(columns, row, strict=True))
            except (pa.ArrowException, OSError) as error:
                lost = max(1, file.metadata.num_rows - number)
                yield f"after row {number}", broken_off(path, error, count=lost)
    except (pa.ArrowException, OSError) as error:
        yield "the whole file", broken_off(path, error, "not a Parquet file")


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
