"""Parquet files: the columns of documents, a few rows at a time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolformer.data.document import BadRow, Fields, listed
from toolformer.data.jsonl import LONGEST, TOO_LONG
from toolformer.data.row_corpus import Rows, broken_off, unreadable

_ROWS = 64
_BUFFER = 2**20


def read_parquet(path: Path, fields: Fields, key: str, known: dict[str, None]) -> Rows:
    """(`row N`, row) of every row, counted from 1; a truncated file is read up to its end.

    Adds the names of all columns to `known`. Texts are bytes, since a file may claim UTF-8 falsely. UserError as
    `read_jsonl`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Buffered, without prefetching: a row group, which can be large, is never in memory as a whole.
        with pq.ParquetFile(
            path, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
        ) as file:
            names = [file.schema.column(at).path for at in range(len(file.schema))]
            known.update(dict.fromkeys(names))
            paths = {name: _path(file.schema_arrow, name) for name in fields.named()}
            paths = {name: path for name, path in paths.items() if path}
            if fault := _fault(file.schema_arrow.names, names, paths, fields, key):
                fault.count = max(1, file.metadata.num_rows)
                yield "the whole file", fault
                return
            number = 0
            try:
                for batch in file.iter_batches(_ROWS, columns=list(paths), use_threads=False):
                    columns = (_values(batch, path) for path in paths.values())
                    for row in zip(*columns, strict=True):
                        number += 1
                        cells = dict(zip(paths, row, strict=True))
                        too_long = next((cell for cell in row if isinstance(cell, BadRow)), None)
                        yield f"row {number}", too_long or cells
            except (pa.ArrowException, OSError) as error:
                lost = max(1, file.metadata.num_rows - number)
                yield f"after row {number}", broken_off(path, error, count=lost)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, broken_off(path, error, "not a Parquet file")) from error


def read_table(source: Path | Any, columns: Sequence[str] | None = None) -> Any:
    """A file of results, or a buffer with one, as a table of pyarrow, or some of its columns; raises as pyarrow does.

    pyarrow's own function makes a column of a folder named `a=b` in the path.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as file:
        return file.read(columns)


def _path(schema: Any, name: str) -> list[str]:
    """The path to a column, such as [meta, url] in a column of structs; empty if it is missing."""
    if name in schema.names:
        return [name]
    level, path = schema, name.split(".")
    for part in path:
        index = level.get_field_index(part) if hasattr(level, "get_field_index") else -1
        if index < 0:
            return []
        level = level.field(index).type
    return path


def _fault(
    top: list[str], names: list[str], paths: dict[str, list[str]], fields: Fields, key: str
) -> BadRow | None:
    """Why no row of the file can be read."""
    if fields.text_field not in paths:
        detail = f"it has {listed(names)}; name the column with {key}.text_field"
        return BadRow(f"no column `{fields.text_field}`", detail)
    twice = [name for name in paths if top.count(name) > 1]
    return BadRow(f"several columns `{twice[0]}`", "rename all but one") if twice else None


def _values(batch: Any, path: list[str]) -> list[Any]:
    """A column's values; texts as bytes and dates as texts, so that a bad value costs a row, not its batch."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = batch.column(path[0])
    for part in path[1:]:
        column = pc.struct_field(column, part)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    if pa.types.is_large_binary(column.type):
        lengths = pc.binary_length(column).to_pylist()
        if max((length or 0 for length in lengths), default=0) > LONGEST:
            return [
                BadRow(TOO_LONG) if (length or 0) > LONGEST else column[n].as_py()
                for n, length in enumerate(lengths)
            ]
    elif pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        column = column.cast(pa.string())
    elif pa.types.is_temporal(column.type):  # a duration or a time of day, whose digits are no date
        return [str(column.type) if is_there else None for is_there in column.is_valid().to_pylist()]
    values: list[Any] = column.to_pylist()
    return values
