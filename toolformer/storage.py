"""Atomic files, locks between processes, content hashes, folders built once.

Everything that must survive a kill, a full disk or a second process goes through here: no other module renames finished
files into place, syncs them or takes a lock.
"""

import errno
import functools
import glob
import hashlib
import logging
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from toolformer.errors import UserError

log = logging.getLogger(__name__)

_PART = ".part"
CACHE_VARIABLE = "TOOLFORMER_CACHE"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
REMEDIES = {
    **dict.fromkeys(_FULL, "make room or name another folder"),
    **dict.fromkeys(_FORBIDDEN, "change permissions or name another folder"),
    errno.EISDIR: "move the folder away that is where this file belongs",
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "move the file away that is where a folder belongs"),
}
"""What to do after a failed write, by its errno."""
_REMEMBERED = 2**24
"""Bytes of a file from which on its hash is remembered."""
_SAMPLED = "sample:"
_PIECES, _PIECE = 16, 2**20
_DAY = 86_400
"""Seconds after which a temporary file is left over."""


def atomic_write(path: Path, data: bytes) -> None:
    """Writes a file atomically, even in case of a power cut. UserError if it cannot be written."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(data)


def write_line(path: Path, text: str) -> None:
    """Writes a line, and its SHA-256 as a second one: `read_line` reads it."""
    atomic_write(path, _with_digest(text))


def read_line(path: Path) -> str | None:
    """The line that `write_line` wrote; None if there is none. ValueError if it was changed, or cannot be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{path} cannot be read") from error
    text = data.decode().partition("\n")[0]
    if data != _with_digest(text):
        raise ValueError(f"{path} was changed")
    return text


def _with_digest(text: str) -> bytes:
    return f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n".encode()


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields a path to write to, which becomes `path` when the block ends without an exception.

    UserError if it cannot be written.
    """
    # An unpredictable name: nobody can plant a link there, which writing would follow.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_PART}")
    with writing(path):
        _remove_old_leftovers(path.parent)
        temporary.touch(exist_ok=False)
        try:
            yield temporary
            into_place(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@functools.cache
def _remove_old_leftovers(folder: Path) -> None:
    """Removes the temporary files of processes that were killed a day ago or longer, once per process: there may be many."""
    remove_leftovers(folder, older_than=_DAY)


def remove_leftovers(folder: Path, older_than: float = 0.0) -> None:
    """Removes the temporary files in a folder that were last written so many seconds ago.

    With 0 no other process may be writing there.
    """
    for part in folder.glob(f".*{_PART}*"):
        with suppress(OSError):
            is_ours = re.search(rf"\.[0-9a-f]{{16}}{_PART}", part.name)
            if is_ours and part.lstat().st_mtime <= time.time() - older_than:
                part.unlink()


def into_place(temporary: Path, path: Path) -> None:
    """Renames a finished file or folder; its bytes are on disk before its name, and the name before this returns.

    A folder's files get the ordinary mode, as the umask has it: safetensors writes its own for their owner only.
    """
    for file in sorted(temporary.rglob("*")) if temporary.is_dir() else ():
        if file.is_file():
            file.chmod(temporary.stat().st_mode & 0o666)
        sync(file)
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flushes a file, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failed write (OSError) into one line (UserError); the line names another file that the block cannot read."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in _FULL  # shutil names the source then
        if (
            error.filename is not None
            and not is_full
            and not _belongs(Path(os.fsdecode(error.filename)), path)
        ):
            reason = f"the file cannot be read ({error.strerror or error}); check its path and permissions"
            raise UserError(f"{os.fsdecode(error.filename)}: {reason}") from error
        reason = f"cannot write {path.name} ({error.strerror or error})"
        remedy = REMEDIES.get(error.errno or 0, "name another folder")
        advice = f"finished work is kept: {remedy}, and give the same command again"
        raise UserError(f"{path.parent}: {reason}; {advice}") from error


def _belongs(other: Path, path: Path) -> bool:
    """Whether a file is written for the sake of `path`: its temporary file, a folder above it, or a file in it."""
    return other in (path, *path.parents) or path in other.parents or other.name.startswith(f".{path.name}.")


def cache_dir() -> Path:
    """The folder of downloads and hashes: `TOOLFORMER_CACHE` if set, otherwise ~/.cache/toolformer."""
    return Path(os.environ.get(CACHE_VARIABLE) or "~/.cache/toolformer").expanduser().absolute()


def set_cache_dir(path: str | Path) -> None:
    """Moves the cache for this process and its children."""
    # An environment variable, since workers in other processes must find the same folder.
    os.environ[CACHE_VARIABLE] = str(Path(path).expanduser().absolute())


def content_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, or of the names and bytes of a folder's files (hidden ones do not count).

    The hash of a file of 16 MiB or more is kept in the cache folder until its size, inode or times change, so that gigabytes
    of weights are not read by every command. OSError if a file cannot be read.
    """
    if path.is_dir():
        names = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
        visible = sorted(name for name in names if not any(part.startswith(".") for part in name.parts))
        digest = hashlib.sha256()
        for name in visible:
            digest.update(os.fsencode(name.as_posix()) + b"\0" + content_digest(path / name).encode() + b"\n")
        return digest.hexdigest()
    size, state = _state(path)
    if size < _REMEMBERED:
        return sha256(path)
    return _remembered(os.fsencode(path.resolve()), state, lambda: sha256(path))


def files_digest(files: Sequence[Path], root: Path) -> str:
    """SHA-256 of the names below `root` and the bytes of files, kept like those of `content_digest` where they hold 16 MiB or more.

    UserError if a file cannot be read.
    """

    def compute() -> str:
        digest = hashlib.sha256()
        for file in files:
            name = os.fsencode(file.relative_to(root).as_posix())
            digest.update(name + b"\0" + content_digest(file).encode() + b"\n")
        return digest.hexdigest()

    try:
        states = [_state(file) for file in files]
        if sum(size for size, _ in states) < _REMEMBERED:
            return compute()
        state = hashlib.sha256("\n".join(state for _, state in states).encode()).hexdigest()
        return _remembered(b"\0".join(os.fsencode(file.resolve()) for file in files), state, compute)
    except OSError as error:
        raise UserError(
            f"{error.filename}: the file cannot be read ({error.strerror or error}); check its path and permissions"
        ) from error


def _state(path: Path) -> tuple[int, str]:
    """A file's size, and what changes with its content."""
    status = path.stat()
    return (
        status.st_size,
        f"{status.st_size} {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}",
    )


def _remembered(name: bytes, state: str, compute: Callable[[], str]) -> str:
    """A hash that is kept in the cache folder under a name until the state changes."""
    entry = cache_dir() / "digests" / hashlib.sha256(name).hexdigest()[:32]
    with suppress(OSError, ValueError):
        known, _, hexadecimal = entry.read_text(encoding="ascii").strip().partition(": ")
        if known == state and re.fullmatch(r"[0-9a-f]{64}", hexadecimal):
            return hexadecimal
    hexadecimal = compute()
    with suppress(OSError, UserError):  # a cache that cannot be written only costs time
        entry.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(entry, f"{state}: {hexadecimal}\n".encode("ascii"))
    return hexadecimal


def sha256(path: Path) -> str:
    """The file's SHA-256, as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sample_digest(path: Path) -> str:
    """The SHA-256 of a file below 16 MiB; of a larger one that of its size and 16 MiB of it, from its first to its last byte.

    It tells files of weights apart without reading all of their gigabytes; a single changed byte between the pieces does not
    show. `has_digest` checks it.
    """
    size = path.stat().st_size
    if size < _PIECES * _PIECE:
        return sha256(path)
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for number in range(_PIECES):
            file.seek(number * (size - _PIECE) // (_PIECES - 1))
            digest.update(file.read(_PIECE))
    return _SAMPLED + digest.hexdigest()


def has_digest(path: Path, digest: object) -> bool:
    """Whether a file has a digest that `sample_digest` or `sha256` gave it."""
    is_sampled = isinstance(digest, str) and digest.startswith(_SAMPLED)
    return digest == (sample_digest(path) if is_sampled else sha256(path))


def lock_file(path: Path) -> FileLock:
    """A lock between processes, not yet acquired; the system releases it when its holder dies.

    It never falls back to lock files that outlive a killed holder; another thread may release it.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path, fallback_to_soft=False, thread_local=False, poll_interval=0.2)


def acquired(lock: FileLock, wait: bool = False) -> bool:
    """Acquires a lock, optionally waiting; returns whether it succeeded. UserError without file locks."""
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        return False
    except OSError as error:
        # Another machine removed the file between our opening and locking it.
        if error.errno in (errno.ESTALE, errno.ENOENT):
            return False
        if error.errno in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise UserError(
                f"{lock.lock_file}: this file system has no locks (flock); mount it with them or name another paths.root"
            ) from error
        with writing(Path(lock.lock_file)):
            raise
    return True


@contextmanager
def locked(path: Path, waiting: str = "") -> Iterator[None]:
    """Holds a lock for the block; if another process has it, logs `waiting` once and waits."""
    lock = lock_file(path)
    if not acquired(lock):
        log.info("%s", waiting or f"{path.name}: in use by another process; waiting for it to finish")
        while not acquired(lock, wait=True):
            pass
    try:
        yield
    finally:
        lock.release()


def build_once(
    folder: Path,
    build: Callable[[Path], None],
    scratch: Path,
    is_whole: Callable[[Path], bool] = Path.is_dir,
    replace: bool = False,
) -> None:
    """Builds a folder under a lock, unless it is complete; safe to call from several processes.

    Args:
        build: fills an empty folder; if it raises, nothing is left.
        scratch: the parent of locks and unfinished folders, on the same file system as `folder`.
        is_whole: whether the folder is complete.
        replace: whether to replace an incomplete folder; otherwise it is an OSError.
    """
    if is_whole(folder):
        return
    with locked(scratch / ".locks" / f"{folder.name}.lock"):
        if is_whole(folder):  # another process was first
            return
        name = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:16]
        prefix = f".making-{folder.name}-{name}-"
        for leftover in scratch.glob(f"{glob.escape(prefix)}*"):  # of a killed process
            shutil.rmtree(leftover, ignore_errors=True)
        unfinished = Path(tempfile.mkdtemp(prefix=prefix, dir=scratch))
        made = unfinished / "made"
        made.mkdir()
        try:
            build(made)
            folder.parent.mkdir(parents=True, exist_ok=True)
            if replace and folder.exists():
                folder.replace(unfinished / "old")
            into_place(made, folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def safe_join(folder: Path, *names: str) -> Path:
    """A path inside a folder, from untrusted names (a tag, an artifact, a parameter).

    UserError if one is not a plain file name, or the path leads out of the folder.
    """
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._ =,+-]{0,199}", name):
            raise UserError(f"{name!r:.100} is not a valid file name")
    path = folder.joinpath(*names)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{path}: leads out of {folder}; nothing is read or written there")
    return path
