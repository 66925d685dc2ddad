"""JSON Lines, plain or packed with gzip or Zstandard (told by the file's first bytes, not by its name).

A line is read at a time, and no line longer than `LONGEST`. A file that breaks off is read as far as it goes.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from toolformer.documents.skipped import Skipped
from toolformer.errors import UserError

LONGEST = 64 * 2**20
"""Bytes of a line that is still read."""

BROKEN = "broken off"
_BUFFER = 2**16
_GZIP, _ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def read_jsonl(path: Path, skipped: Skipped) -> Iterator[tuple[str, Any]]:
    """(`line N`, row) of every line that is JSON.

    Raises:
        UserError: the file cannot be opened or read at all (not: what is in it is broken).
    """
    number, rest = 0, False
    try:
        with open(path, "rb") as file:
            lines = unpacked(file)
            while True:
                try:
                    while rest:
                        line = lines.readline(_BUFFER)
                        rest = bool(line) and not line.endswith(b"\n")
                    line = lines.readline(LONGEST)
                except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                    skipped.row(str(path), f"after line {number}", BROKEN, detail=str(error))
                    return
                except OSError as error:
                    # pyarrow has no exception of its own for a stream that cannot be unpacked.
                    if error.errno is not None:
                        raise
                    skipped.row(str(path), f"after line {number}", BROKEN, detail=str(error))
                    return
                if not line:
                    return
                number += 1
                place = f"line {number}"
                if len(line) == LONGEST and not line.endswith(b"\n"):
                    skipped.row(str(path), place, f"longer than {LONGEST // 2**20} MiB")
                    rest = True  # of the long line
                    continue
                if line.strip():
                    yield from _row(path, number, line, skipped)
    except OSError as error:
        raise UserError(
            f"{path}: the file cannot be read ({error.strerror or error}); mend its place or its rights"
        ) from error


def _row(path: Path, number: int, line: bytes, skipped: Skipped) -> Iterator[tuple[str, Any]]:
    place = f"line {number}"
    try:
        yield place, json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        skipped.row(str(path), place, "not UTF-8", detail=f"byte {error.start + 1}")
    except (ValueError, RecursionError):
        skipped.row(str(path), place, "malformed JSON")


def unpacked(file: BinaryIO) -> BinaryIO:
    """What a file holds that is packed with gzip or Zstandard, or is not packed; told by its first bytes."""
    head = file.read(4)
    file.seek(0)
    if head.startswith(_GZIP):
        return cast(BinaryIO, gzip.open(file, "rb"))
    if head.startswith(_ZSTANDARD):
        import pyarrow as pa

        stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
        return io.BufferedReader(cast(Any, stream), _BUFFER)
    return file
