"""JSON Lines, plain or packed with gzip or Zstandard (by the file's first bytes, not its name), a line at a time."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from toolformer.data.reader_stats import Skipped
from toolformer.errors import UserError, one_line

BROKEN = "broken off"
_BUFFER = 2**16
_GZIP, _ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def read_jsonl(path: Path, skipped: Skipped) -> Iterator[tuple[str, Any]]:
    """(`line N`, row) of every line that is JSON; a file that breaks off is read as far as it goes.

    Raises:
        UserError: the file cannot be opened or read at all (not: what is in it is broken).
    """
    number = 0
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(unpacked(file), start=1):
                if line.strip():
                    yield from _row(path, number, line, skipped)
    except (EOFError, zlib.error, OSError) as error:
        # What cannot be unpacked has no error number, neither from gzip nor from pyarrow.
        if getattr(error, "errno", None) is not None:
            raise UserError(
                f"{path}: the file cannot be read ({one_line(error)}); check its place and permissions"
            ) from error
        skipped.row(str(path), f"after line {number}", BROKEN, detail=one_line(error))


def _row(path: Path, number: int, line: bytes, skipped: Skipped) -> Iterator[tuple[str, Any]]:
    place = f"line {number}"
    try:
        yield place, json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        skipped.row(str(path), place, "not UTF-8", detail=f"byte {error.start + 1}")
    except (ValueError, RecursionError):
        skipped.row(str(path), place, "malformed JSON")


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
