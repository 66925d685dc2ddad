"""JSON Lines, plain or packed with gzip or Zstandard (by the file's first bytes, not its name), a line at a time."""

import gzip
import io
import json
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

from toolformer.data.document import BadRow
from toolformer.data.row_corpus import Rows, broken_off

_BUFFER = 2**16
_GZIP, _ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def read_jsonl(path: Path) -> Rows:
    """(`line N`, row) of every line; a file that breaks off is read as far as it goes.

    UserError if the file cannot be opened or read at all (not: what is in it is broken).
    """
    number = 0
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(unpacked(file), start=1):
                if line.strip():
                    yield f"line {number}", _row(line, "utf-8-sig" if number == 1 else "utf-8")
    except (EOFError, zlib.error, OSError) as error:
        yield f"after line {number}", broken_off(path, error)


def _row(line: bytes, encoding: str) -> Any:
    try:
        return json.loads(line.decode(encoding))
    except UnicodeDecodeError as error:
        return BadRow("not UTF-8", f"byte {error.start + 1}")
    except (ValueError, RecursionError):
        return BadRow("malformed JSON")


def unpacked(file: io.BufferedReader) -> BinaryIO:
    """What a file holds that is packed with gzip or Zstandard, or is not packed."""
    head = file.peek(4)  # a pipe cannot be read twice
    if head.startswith(_GZIP):
        return cast(BinaryIO, gzip.open(file, "rb"))
    if head.startswith(_ZSTANDARD):
        import pyarrow as pa

        stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
        return io.BufferedReader(cast(Any, stream), _BUFFER)
    return file
