"""Whole files, folders built once whoever asks, fails or is killed, and names that lead nowhere else."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from toolformer import storage
from toolformer.errors import UserError
from toolformer.storage import atomic_file, atomic_write, build_once, content_digest, safe_join, sha256

ROOT = Path(__file__).resolve().parents[1]
KILLED = """
import os, signal, sys
from pathlib import Path
from toolformer.storage import build_once

def make(folder):
    (folder / "half").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)

build_once(Path(sys.argv[1]) / "in" / "thing", make, Path(sys.argv[1]))
"""


def fill(folder: Path) -> None:
    (folder / "file").write_text("whole")


def test_it_is_built_once(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        fill(folder)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(build_once, tmp_path / "thing", make, tmp_path)
    assert len(made) == 1 and [file.name for file in (tmp_path / "thing").iterdir()] == ["file"]
    assert not list(tmp_path.glob(".making-*"))


def test_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [file.name for file in tmp_path.glob(".making-thing-*/made/*")] == ["half"]
    assert not (tmp_path / "in").exists()
    build_once(tmp_path / "in" / "thing", fill, tmp_path)
    assert [file.name for file in (tmp_path / "in" / "thing").iterdir()] == ["file"]
    assert not list(tmp_path.glob(".making-*"))


def test_what_is_not_whole_goes_only_where_that_was_asked_for(tmp_path: Path) -> None:
    place = tmp_path / "thing"
    place.mkdir()
    (place / "mine").write_text("x")

    def is_whole(folder: Path) -> bool:
        return (folder / "file").is_file()

    with pytest.raises(OSError):  # and one that fails leaves nothing
        build_once(place, fill, tmp_path, is_whole)
    assert [file.name for file in place.iterdir()] == ["mine"]
    build_once(place, fill, tmp_path, is_whole, replace=True)
    assert [file.name for file in place.iterdir()] == ["file"]


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_write(path, b"first")
    with pytest.raises(RuntimeError), atomic_file(path) as temporary:
        temporary.write_bytes(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"first" and [file.name for file in tmp_path.iterdir()] == ["file"]
    with pytest.raises(UserError, match="absent: cannot write file"):
        atomic_write(tmp_path / "absent" / "file", b"")


def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("mine")
    (tmp_path / ".report.md.part").symlink_to(tmp_path / ".bashrc")
    names = set()
    for _ in range(2):
        with atomic_file(tmp_path / "report.md") as temporary:
            temporary.write_bytes(b"text")
            names.add(temporary.name)
    assert (tmp_path / ".bashrc").read_text() == "mine" and len(names) == 2
    assert (tmp_path / "report.md").read_bytes() == b"text"


def test_parts_of_killed_processes_go_after_a_day(tmp_path: Path) -> None:
    zeros, ones, letters = ("0" * 16, "1" * 16, "f" * 16)
    names = [f".file.{zeros}.part", f".other.{letters}.part-journal", f".file.{ones}.part", ".theirs.part"]
    for name in names:
        (tmp_path / name).touch()
        if name != names[2]:
            os.utime(tmp_path / name, (1, 1))
    atomic_write(tmp_path / "file", b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == [names[2], ".theirs.part", "file"]


def test_names_and_links_of_others_lead_nowhere_else(tmp_path: Path) -> None:
    for name in ("../x", "/etc", "a/b", "", ".", "..", "a\nb", ".hidden", "x" * 300):
        with pytest.raises(UserError, match="not a valid file name"):
            safe_join(tmp_path, "fine", name)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path)
    with pytest.raises(UserError, match="leads out of"):
        safe_join(tmp_path / "folder", "link", "x")
    assert safe_join(tmp_path, "folder") == tmp_path / "folder"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_files_have_the_mode_that_the_umask_leaves(tmp_path: Path, umask: int, mode: int) -> None:
    """Also those that a library writes for their owner only, as safetensors does."""

    def build(folder: Path) -> None:
        save_file({"weight": torch.zeros(1)}, folder / "model.safetensors")
        (folder / "private").touch(mode=0o600)

    before = os.umask(umask)
    try:
        build_once(tmp_path / "built", build, tmp_path)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "built").iterdir()} == {mode}


def test_a_file_in_a_folders_place_is_no_lack_of_room(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"finished work is kept: move the file away"):
        atomic_write(tmp_path / "file" / "x", b"")


def test_a_source_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    source = tmp_path / "away" / "source"
    with (
        pytest.raises(UserError, match=r"away/source: the file cannot be read"),
        atomic_file(tmp_path / "copy") as copy,
    ):
        shutil.copyfile(source, copy)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_in_the_block_is_a_lack_of_room(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write file .*make room"), atomic_file(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_the_digest_of_a_folder_is_that_of_its_content(tmp_path: Path) -> None:
    for name in ("first", "copy"):
        (tmp_path / name / "in").mkdir(parents=True)
        (tmp_path / name / "in" / "a.txt").write_text("a")
        (tmp_path / name / "b.txt").write_text("b")
    (tmp_path / "copy" / ".hidden").write_text("x")
    os.utime(tmp_path / "copy" / "b.txt", (1, 1))
    first = content_digest(tmp_path / "first")
    assert first == content_digest(tmp_path / "copy")
    (tmp_path / "copy" / "b.txt").rename(tmp_path / "copy" / "c.txt")
    assert first != content_digest(tmp_path / "copy")


def test_a_large_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(storage, "_REMEMBERED", 2)
    read: list[Path] = []
    monkeypatch.setattr(storage, "sha256", lambda path: read.append(path) or sha256(path))
    file = tmp_path / "file"
    file.write_text("first")
    assert content_digest(file) == content_digest(file) == sha256(file) and read == [file]
    before = file.stat()
    file.write_text("other")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert content_digest(file) == sha256(file) and read == [file, file]
