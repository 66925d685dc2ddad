"""A model's conversion for CTranslate2: made once, whole or not there, whoever asks and whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.tools import nllb as tiny
from toolformer import assets
from toolformer.errors import UserError
from toolformer.tools import nllb_ctranslate2

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_folder(tmp_path_factory.mktemp("models") / "random", spread=0.2)


def test_a_conversion_is_made_once_and_again_when_damaged_or_changed(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", nllb_ctranslate2.__name__)
    monkeypatch.setenv(assets.CACHE_VARIABLE, str(tmp_path / "cache"))
    folder = tmp_path / "model"
    folder.mkdir()
    for file in model_folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())

    def conversions() -> int:
        nllb_ctranslate2.converted(str(folder), None, "int8")
        return sum("converting" in record.message for record in caplog.records)

    place = nllb_ctranslate2.converted(str(folder), None, "int8")
    assert conversions() == 1
    (place / "model.bin").write_bytes(b"half")
    assert conversions() == 2
    assert (place / "model.bin").stat().st_size > 1000
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert conversions() == 3
    assert not list(assets.cache_dir().glob(".making-*"))


def test_a_conversion_that_fails_leaves_nothing(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(assets.CACHE_VARIABLE, str(tmp_path / "cache"))
    with pytest.raises(UserError, match="cannot be converted for CTranslate2"):
        nllb_ctranslate2.converted(str(model_folder / "absent"), None, "int8")
    assert not (tmp_path / "cache" / "ctranslate2").exists()
    assert not list((tmp_path / "cache").glob(".making-*"))
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv(assets.CACHE_VARIABLE, str(blocked / "cache"))
    with pytest.raises(UserError, match="TOOLFORMER_CACHE"):
        nllb_ctranslate2.converted(str(model_folder), None, "int8")


CONVERT = """
import sys, time
from ctranslate2.specs.model_spec import ModelSpec
from toolformer.tools.nllb_ctranslate2 import converted

save = ModelSpec.save

def slowly(self, folder):
    save(self, folder)
    print("saved", flush=True)
    sys.stdin.readline()

ModelSpec.save = slowly
print(converted(sys.argv[1], None, "int8"), flush=True)
"""


def test_a_killed_conversion_leaves_its_place_to_the_next(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second waits while the first converts, and converts itself when the first is killed."""
    monkeypatch.setenv(assets.CACHE_VARIABLE, str(tmp_path))
    command = [sys.executable, "-c", CONVERT, str(model_folder)]
    with (
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as first,
        ThreadPoolExecutor(1) as pool,
    ):
        assert first.stdout is not None and first.stdout.readline() == "saved\n"
        (left,) = tmp_path.glob(".making-*/*")
        assert left.name == "made" and (left / "model.bin").is_file()
        second = pool.submit(nllb_ctranslate2.converted, str(model_folder), None, "int8")
        with pytest.raises(TimeoutError):
            second.result(timeout=0.5)
        assert not (tmp_path / "ctranslate2").exists()
        first.send_signal(signal.SIGKILL)
        place = second.result()
    assert first.returncode == -signal.SIGKILL
    assert [path.name for path in (tmp_path / "ctranslate2").iterdir()] == [place.name]
    assert not list(tmp_path.glob(".making-*"))
    nllb_ctranslate2.CTranslate2Model(place, tiny.tiny_tokenizer(), "int8", "cpu")
