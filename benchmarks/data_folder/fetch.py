"""Fetches the files of a data folder, and says what is there.

A download is streamed to the cache folder, where an interrupted one is resumed: others may write to a data folder. A file gets
its name when it is converted and checked. Sources are not trusted: https only, no redirects, bounded sizes and times, JSON alone.
"""

import gzip
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from toolformer.benchmarks.data_folder.files import Address, DataFile
from toolformer.benchmarks.loaders.sources import Placed, from_hub, rows_of
from toolformer.errors import UserError, one_line
from toolformer.progress import Bar, size
from toolformer.storage import atomic_file, cache_dir, locked, sha256, writing

log = logging.getLogger(__name__)

MOST_BYTES = 2**28
"""Largest download."""
SILENCE = 60.0
"""Seconds without a byte after which a server is given up."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_ADVICE = "check the network, and run the same command again to resume"


def fetch(file: DataFile, folder: Path) -> Path:
    """The file in a folder, fetched and converted unless it is there and readable; safe to call from several processes.

    UserError if the source cannot be read, or does not have the published rows; then nothing is written.
    """
    if path := _whole(file, folder):
        return path
    downloads = cache_dir() / "downloads"
    with locked(downloads / f"{file.name}.lock", f"{file.name}: another process fetches it; waiting"):
        if path := _whole(file, folder):  # another process was first
            return path
        log.info("%s: from %s (licence: %s)", file.name, file.source, file.licence)
        if not isinstance(file.source, Address):
            return _convert(file, from_hub(file.name, file.source.pin, advice=_ADVICE), folder)
        download = _download(file.name, file.source, downloads)
        try:
            return _convert(file, file.source.read(download), folder)
        finally:
            download.unlink(missing_ok=True)


def _whole(file: DataFile, folder: Path) -> Path | None:
    """The file in a folder; None if it is missing or damaged. UserError if it may not be read."""
    path = file.find(folder)
    if path is None:
        return None
    if not os.access(path, os.R_OK):
        raise UserError(f"{path}: the file cannot be read; check its permissions")
    try:
        if sum(1 for _ in rows_of(path)):
            return path
        fault = f"{path} has no rows"
    except UserError as error:
        fault = str(error)
    log.warning("%s: damaged, fetched again: %s", file.name, fault)
    return None


def describe(file: DataFile, folder: Path) -> str:
    """Whether a file is in a folder, its rows and size, and how it compares with the one that results were measured with."""
    path = file.find(folder)
    if path is None:
        return "missing"
    try:
        rows = [row for _, row in rows_of(path)]
    except UserError as error:
        return str(error)
    counted = f"{len(rows):,} rows, {size(path.stat().st_size)}"
    if file.measured and file.digest(rows) == file.measured:
        return f"{counted}, as measured"
    if file.rows not in (None, len(rows)):
        return f"{counted}; expected {file.rows:,} rows"
    return f"{counted}, other than measured" if file.measured else counted


def _convert(file: DataFile, rows: Iterable[Placed], folder: Path) -> Path:
    """Writes the rows as gzip'd JSON Lines."""
    target = folder / file.path
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise UserError(
            f"{target.parent}: a link leads out of {folder}, so nothing is written; remove the link"
        )
    with atomic_file(target) as temporary:
        with (
            temporary.open("wb") as plain,
            gzip.GzipFile("", "wb", fileobj=plain, mtime=0) as packed,
            Bar(desc=file.name, unit=" rows") as bar,
        ):
            for _, row in file.convert(_counted(rows, bar)):
                packed.write(f"{json.dumps(row)}\n".encode())
        count = sum(1 for _ in rows_of(temporary))
        if not count or file.rows not in (None, count):
            expected = "some" if file.rows is None else f"{file.rows:,}"
            reason = (
                f"{file.source} has {count:,} rows, expected {expected}: it is no longer the published set"
            )
            raise UserError(
                f"{file.name}: {reason}; nothing is written: make {target} from another copy (docs/data.md)"
            )
    return target


def _counted(rows: Iterable[Placed], bar: Bar) -> Iterator[Placed]:
    for placed in rows:
        yield placed
        bar.update()


def _download(name: str, source: Address, folder: Path) -> Path:
    """Downloads a file of at most `MOST_BYTES`, resuming a part of it, and checks its SHA-256."""
    url = urlsplit(source.url)
    if url.scheme != "https" and url.hostname not in _LOOPBACK:
        raise UserError(f"{name}: {source.url} is not https; nothing is fetched")
    part = folder / f"{name}-{hashlib.sha256(source.url.encode()).hexdigest()[:16]}.part"
    try:
        _stream(name, source.url, part)
    except httpx2.HTTPError as error:
        raise UserError(f"{name}: {source.url} cannot be read ({one_line(error, 160)}); {_ADVICE}") from error
    if source.sha256 and (actual := sha256(part)) != source.sha256:
        part.unlink()
        reason = f"{source.url} has SHA-256 {actual}, expected {source.sha256}"
        raise UserError(f"{name}: {reason}; run again; if it repeats, the source serves another file")
    return part


def _stream(name: str, url: str, part: Path) -> None:
    """Appends what is missing of a file to `part`, or writes it again if the server does not continue."""
    done = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={done}-"} if done else {})}
    with httpx2.stream("GET", url, headers=headers, timeout=SILENCE, follow_redirects=False) as response:
        if response.status_code == 416:  # nothing is missing
            return
        if response.status_code not in (200, 206):
            raise UserError(f"{name}: {url} answers HTTP {response.status_code}; {_ADVICE}")
        done = done if response.status_code == 206 else 0
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else None
        with (
            writing(part),
            part.open("ab" if done else "wb") as file,
            Bar(total=total, initial=done, desc=name, unit="B", unit_scale=True) as bar,
        ):
            for chunk in response.iter_raw():
                done += len(chunk)
                if done > MOST_BYTES:
                    part.unlink()
                    raise UserError(
                        f"{name}: {url} is larger than {MOST_BYTES >> 20} MiB; make the file from another copy (docs/data.md)"
                    )
                file.write(chunk)
                bar.update(len(chunk))
    if total is not None and done < total:
        raise UserError(f"{name}: {url} broke off after {done:,} of {total:,} bytes; {_ADVICE}")
