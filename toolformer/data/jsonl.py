"""JSON Lines and .txt files, plain or compressed with gzip, bzip2 or Zstandard (by the first bytes, not the name)."""

import bz2
import codecs
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from toolformer.data.document import BadRow
from toolformer.data.row_corpus import Rows, broken_off

LONGEST = 2**24
"""Longest line or text in bytes: a compressed file of a few megabytes may contain a line of gigabytes."""
TOO_LONG = f"longer than {LONGEST >> 20} MiB"
_BUFFER = 2**16
_ARRAY = "the file is one JSON array; convert it to JSON Lines"
_CONVERT = "python -c 'import json, sys; [print(json.dumps(row)) for row in json.load(sys.stdin)]' < FILE > FILE.jsonl"
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
"""What a file is by its first bytes, and what makes it readable."""


def read_jsonl(path: Path) -> Rows:
    """(`line N`, row) of every line; a truncated file is read up to its end.

    UserError if the file cannot be opened or read; not for broken content.
    """
    number, is_first = 0, True
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(_lines(unpacked(file)), start=1):
                if not line.strip():
                    continue
                if is_first and line.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
                    yield f"line {number}", BadRow("not a JSON object", f"{_ARRAY}: {_CONVERT}")
                    return
                is_first = False
                yield f"line {number}", _row(line, "utf-8-sig" if number == 1 else "utf-8")
    except BadRow as error:
        yield "the whole file", error
    except (EOFError, zlib.error, OSError) as error:
        yield f"after line {number}", broken_off(path, error)


def read_text(path: Path, field: str) -> Rows:
    """A file of plain text as one row; raises as `read_jsonl`."""
    try:
        with open(path, "rb") as file:
            text = unpacked(file).read(LONGEST + 1)
    except BadRow as error:
        yield "the whole file", error
        return
    except (EOFError, zlib.error, OSError) as error:
        yield "the whole file", broken_off(path, error)
        return
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


def _row(line: bytes, encoding: str) -> Any:
    if len(line) > LONGEST:
        return BadRow(TOO_LONG)
    try:
        return json.loads(line.decode(encoding))
    except UnicodeDecodeError as error:
        return BadRow("not UTF-8", f"byte {error.start + 1}")
    except (ValueError, RecursionError):
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

        stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
        return io.BufferedReader(cast(Any, stream), _BUFFER)
    return file
