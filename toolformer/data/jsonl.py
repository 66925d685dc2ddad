"""JSON Lines and .txt files, plain or compressed with gzip, bzip2 or Zstandard (by the first bytes, not the name)."""

import bz2
import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from toolformer.data.document import BadRow
from toolformer.data.row_corpus import Rows, broken_off, unreadable

LONGEST = 2**24
"""Longest line or text in bytes: a compressed file of a few megabytes may contain a line of gigabytes."""
TOO_LONG = f"longer than {LONGEST >> 20} MiB"
_BUFFER = 2**16
_MOST_WINDOW = 2**27
"""Bytes; a Zstandard frame of a larger window is not unpacked."""
_ARRAY_TO_LINES = "python -c 'import json, sys; [print(json.dumps(row)) for row in json.load(sys.stdin)]' < FILE > FILE.jsonl"
_GZIP, _BZIP2 = b"\x1f\x8b", b"BZh"
# A frame of Zstandard, or a skippable one, which may come first.
_ZSTANDARD = (b"\x28\xb5\x2f\xfd", *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60)))
_UNREAD = {
    b"\xfd7zXZ": ("packed with xz", "unpack it with xz -d"),
    b"\x04\x22\x4d\x18": ("packed with lz4", "unpack it with lz4 -d"),
    b"PK\x03\x04": ("a zip archive", "unpack it with unzip"),
    b"7z\xbc\xaf": ("a 7z archive", "unpack it with 7z x"),
    b"PAR1": ("a Parquet file", "name it FILE.parquet, and read it with corpus=parquet"),
    codecs.BOM_UTF16_LE: ("not UTF-8 but UTF-16", "convert it with iconv -f UTF-16 -t UTF-8"),
    codecs.BOM_UTF16_BE: ("not UTF-8 but UTF-16", "convert it with iconv -f UTF-16 -t UTF-8"),
}
"""Formats by their first bytes, each with the command that makes the file readable."""


def read_jsonl(path: Path) -> Rows:
    """(`line N`, row) of every line; a truncated file is read up to its end.

    UserError if no line of the file can be read; not for broken lines.
    """
    number, is_first = 0, True
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(_lines(unpacked(file)), start=1):
                if not line.strip():
                    continue
                if is_first and (form := _form_of_file(line)):
                    raise BadRow(*form)
                is_first = False
                yield f"line {number}", _row(line)
    except BadRow as error:
        raise unreadable(path, error) from error
    except (EOFError, zlib.error, OSError) as error:
        fault = broken_off(path, error)
        if not number:
            raise unreadable(path, fault) from error
        yield f"after line {number}", fault


def read_text(path: Path, field: str) -> Rows:
    """A file of plain text as one row; raises as `read_jsonl`."""
    try:
        with open(path, "rb") as file:
            text = unpacked(file).read(LONGEST + 1)
    except BadRow as error:
        raise unreadable(path, error) from error
    except (EOFError, zlib.error, OSError) as error:
        raise unreadable(path, broken_off(path, error)) from error
    is_long = len(text) > LONGEST
    text = text.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    yield "the whole file", BadRow(TOO_LONG) if is_long else {field: text}


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; of a longer one, `LONGEST` + 1 bytes."""
    while line := file.readline(LONGEST + 1):
        rest = line
        while len(line) > LONGEST and rest and not rest.endswith(b"\n"):
            rest = file.readline(_BUFFER)
        yield line


def _form_of_file(line: bytes) -> tuple[str, str] | None:
    """Format of a file whose first line is not a row of JSON Lines, and the remedy."""
    text = line.removeprefix(codecs.BOM_UTF8).strip()
    if text.startswith(b"["):
        return "one JSON array", f"convert it to JSON Lines: {_ARRAY_TO_LINES}"
    if text.startswith(b"{") and text.endswith((b"{", b"[", b",", b":")) and not _is_json(text):
        return "JSON objects over several lines", "convert it to JSON Lines: jq -c . FILE > FILE.jsonl"
    return None


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _row(line: bytes) -> Any:
    if len(line) > LONGEST:
        return BadRow(TOO_LONG)
    text = ""
    try:
        text = line.decode("utf-8-sig")  # files that were joined have a mark in the middle
        return json.loads(text)
    except UnicodeDecodeError as error:
        return BadRow("not UTF-8", f"byte {error.start + 1}")
    except (ValueError, RecursionError) as error:
        if getattr(error, "msg", "") == "Extra data" and text[error.pos] in "{[":  # type: ignore[union-attr]
            return BadRow(
                "several JSON objects on one line", "write a line for each: jq -c . FILE > FILE.jsonl"
            )
        if re.match(r"\s*\{\s*'", text):
            return BadRow("a Python dictionary instead of JSON", "write rows with json.dumps")
        return BadRow("malformed JSON")


def unpacked(file: io.BufferedReader) -> BinaryIO:
    """The decompressed content of a file, by gzip, bzip2, Zstandard or none; BadRow for another packing."""
    head = file.peek(6)  # a pipe cannot be read twice
    for start, (kind, advice) in _UNREAD.items():
        if head.startswith(start):
            raise BadRow(kind, advice)
    if head.startswith(_GZIP):
        return cast(BinaryIO, gzip.open(file, "rb"))
    if head.startswith(_BZIP2):
        return cast(BinaryIO, bz2.open(file, "rb"))
    if head.startswith(_ZSTANDARD):
        import pyarrow as pa

        if (window := _zstandard_window(file.peek(6))) > _MOST_WINDOW:
            size = f"Zstandard with a window of {window >> 20} MiB"
            raise BadRow(size, f"unpack it with zstd -d --long={window.bit_length() - 1}")

        stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
        return io.BufferedReader(cast(Any, stream), _BUFFER)
    return file


def _zstandard_window(head: bytes) -> int:
    """The window in bytes that the first frame of a Zstandard file needs (RFC 8878, 3.1.1.1.2); 0 where it is not said."""
    if (
        not head.startswith(_ZSTANDARD[0]) or len(head) < 6 or head[4] & 0x20
    ):  # a single segment has no window
        return 0
    exponent, mantissa = head[5] >> 3, head[5] & 7
    base = 1 << (10 + exponent)
    return base + (base >> 3) * mantissa
