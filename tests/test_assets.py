"""Fetching and caching of assets: a made-up wheel in a local folder stands for the registry; real ones are marked."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import subprocess
import sys
import textwrap
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from toolformer import assets
from toolformer.assets import download
from toolformer.assets.convert import add_bos
from toolformer.assets.table import ASSETS, Asset, Member, Wheel
from toolformer.errors import UserError

TEXT = b'{"Tiny": "A tiny summary."}'
MEMBER = "tiny_text/data/tiny.json"
FILE_NAME = "tiny_text-1.0-py3-none-any.whl"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@functools.cache  # a second one, two seconds later, would have another time in it
def wheel_bytes() -> bytes:
    buffer = io.BytesIO()
    information = "tiny_text-1.0.dist-info"
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(MEMBER, TEXT)
        archive.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: tiny-text\nVersion: 1.0\n")
        archive.writestr(
            f"{information}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{information}/RECORD", "")
    return buffer.getvalue()


def tiny_asset(wheel: bytes, wheel_sha256: str | None = None, member_sha256: str | None = None) -> Asset:
    return Asset(
        name="tiny",
        wheels=(
            Wheel(
                project="tiny-text",
                version="1.0",
                file_name=FILE_NAME,
                size=len(wheel),
                sha256=wheel_sha256 or sha256(wheel),
                members=(Member(MEMBER, member_sha256 or sha256(TEXT)),),
            ),
        ),
        file="tiny.json",
        licence="a tiny licence",
        terms="Tiny terms apply.",
        disk=1000,
    )


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that serves the tiny wheel to pip, an empty cache, and the tiny asset in the table."""
    folder = tmp_path / "registry"
    folder.mkdir()
    wheel = wheel_bytes()
    (folder / FILE_NAME).write_bytes(wheel)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("TOOLFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(ASSETS, "tiny", tiny_asset(wheel))
    monkeypatch.setattr(download, "RETRY_PAUSE", 0.0)
    return folder


def files_in(folder: Path) -> set[str]:
    """All files below `folder` but lock files, by relative path."""
    paths = (path for path in folder.rglob("*") if path.is_file() and ".locks" not in path.parts)
    return {str(path.relative_to(folder)) for path in paths}


def no_pip(*arguments: object) -> None:
    raise AssertionError("pip was called")


def test_a_fetched_file_is_whole_and_nothing_else_stays(registry: Path, tmp_path: Path) -> None:
    path = assets.ensure("tiny")
    assert path == tmp_path / "cache" / "tiny" / "tiny.json"
    assert path.read_bytes() == TEXT
    assert files_in(tmp_path / "cache") == {"tiny/tiny.json", "tiny/asset.json"}


def test_the_second_call_neither_calls_pip_nor_speaks(
    registry: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first = assets.ensure("tiny")
    assert "Tiny terms apply." in capfd.readouterr().err
    monkeypatch.setattr(download, "_run", no_pip)
    assert assets.ensure("tiny") == first
    assert capfd.readouterr() == ("", "")


def test_progress_goes_to_stderr_and_stdout_stays_clean(
    registry: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assets.ensure("tiny")
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "a tiny licence" in captured.err


def test_a_wheel_with_a_wrong_checksum_is_refused(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = wheel_bytes()
    monkeypatch.setitem(ASSETS, "tiny", tiny_asset(wheel, wheel_sha256="0" * 64))
    with pytest.raises(UserError) as caught:
        assets.ensure("tiny")
    message = str(caught.value)
    assert FILE_NAME in message
    assert f"SHA-256 {sha256(wheel)}, expected {'0' * 64}" in message
    assert "run again" in message
    assert "\n" not in message
    assert files_in(tmp_path / "cache") == set()


def test_a_file_with_a_wrong_checksum_is_refused(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ASSETS, "tiny", tiny_asset(wheel_bytes(), member_sha256="1" * 64))
    with pytest.raises(UserError, match=rf"tiny\.json has SHA-256 {sha256(TEXT)}, expected 1{{64}}"):
        assets.ensure("tiny")
    assert assets.find("tiny") is None
    assert not (tmp_path / "cache" / "tiny").exists()


def test_a_wheel_put_into_downloads_by_hand_is_used_or_refused(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_run", no_pip)
    downloads = tmp_path / "cache" / "downloads"
    downloads.mkdir(parents=True)
    (downloads / FILE_NAME).write_bytes(b"cut off")
    with pytest.raises(UserError, match=f"delete {downloads / FILE_NAME} and run again"):
        assets.ensure("tiny")
    (downloads / FILE_NAME).write_bytes(wheel_bytes())
    assert assets.ensure("tiny").read_bytes() == TEXT


def test_a_wheel_that_cannot_be_had_names_it_and_the_mend(registry: Path, tmp_path: Path) -> None:
    (registry / FILE_NAME).unlink()
    with pytest.raises(UserError) as caught:
        assets.ensure("tiny")
    message = str(caught.value)
    assert "cannot fetch tiny-text==1.0" in message
    assert f"put {FILE_NAME} into {tmp_path / 'cache' / 'downloads'}" in message
    assert "\n" not in message


def test_a_download_that_breaks_off_is_tried_again(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, calls = download._run, []

    def flaky(command: list[str], log: Path, *rest: object) -> None:
        calls.append(command)
        if len(calls) < download.ATTEMPTS:
            log.write_text("ERROR: Connection broken")
        else:
            run(command, log, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(download, "_run", flaky)
    assert assets.ensure("tiny").read_bytes() == TEXT
    assert len(calls) == download.ATTEMPTS


def test_an_interruption_leaves_no_half_asset_and_keeps_the_wheel(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract = assets.extract

    def interrupted(*arguments: object) -> None:
        extract(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(assets, "extract", interrupted)
    with pytest.raises(KeyboardInterrupt):
        assets.ensure("tiny")
    assert assets.find("tiny") is None
    assert f"downloads/{FILE_NAME}" in files_in(tmp_path / "cache")

    monkeypatch.setattr(assets, "extract", extract)
    monkeypatch.setattr(download, "_run", no_pip)  # the finished piece is not fetched again
    assert assets.ensure("tiny").read_bytes() == TEXT
    assert files_in(tmp_path / "cache") == {"tiny/tiny.json", "tiny/asset.json"}


@pytest.mark.parametrize("damage", ["truncate", "remove", "stale", "garbage"])
def test_a_damaged_or_stale_copy_is_built_again(
    registry: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    downloads = assets.cache_dir() / "downloads"
    downloads.mkdir(parents=True)
    (downloads / FILE_NAME).write_bytes(wheel_bytes())
    path = assets.ensure("tiny")
    marker = path.parent / assets.MARKER
    if damage == "truncate":
        path.write_bytes(TEXT[:5])
    elif damage == "remove":
        path.unlink()
    elif damage == "stale":
        marker.write_text(json.dumps(json.loads(marker.read_text()) | {"fingerprint": "of other pins"}))
    else:
        marker.write_text("[1")
    assert assets.find("tiny") is None
    assert assets.ensure("tiny").read_bytes() == TEXT


def test_concurrent_calls_fetch_once(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, calls = download._run, []

    def counted(*arguments: object) -> None:
        calls.append(arguments)
        run(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(download, "_run", counted)
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(assets.ensure, ["tiny"] * 4))
    assert len(paths) == 1
    assert len(calls) == 1


def test_a_second_process_waits_for_the_first(registry: Path, tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys
        from tests import test_assets
        from toolformer import assets
        from toolformer.assets import download
        assets.ASSETS["tiny"] = test_assets.tiny_asset(test_assets.wheel_bytes_of(sys.argv[1]))
        run = download._run
        def announced(*arguments):
            print("fetched", flush=True)
            run(*arguments)
        download._run = announced
        assert assets.ensure("tiny").read_bytes() == test_assets.TEXT
    """)
    command = [sys.executable, "-c", script, str(registry / FILE_NAME)]
    root = Path(__file__).resolve().parents[1]
    environment = os.environ | {"PYTHONPATH": str(root)}
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert "".join(outputs).count("fetched") == 1


def wheel_bytes_of(path: str) -> bytes:
    """The bytes of a wheel that another process made."""
    return Path(path).read_bytes()


def test_parts_are_joined_in_order_and_checked(tmp_path: Path) -> None:
    parts = [tmp_path / "model.gguf.part00", tmp_path / "model.gguf.part01"]
    for part, content in zip(parts, (b"one", b"two"), strict=True):
        part.write_bytes(content)
    whole = tmp_path / "model.gguf"
    download.join(parts, whole, sha256(b"onetwo"), "mend")
    assert whole.read_bytes() == b"onetwo"
    assert not any(part.exists() for part in parts)
    with pytest.raises(UserError, match="wrong checksum.*; mend"):
        download.join([whole], whole, sha256(b"other"), "mend")


def test_unknown_names_are_told_before_anything_is_fetched(
    registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_run", no_pip)
    with pytest.raises(UserError, match="unknown asset 'smolm'; there are smollm2, wikipedia, lid, gemma3"):
        assets.ensure_all(["tiny", "smolm"])


def test_the_cache_moves_by_variable_and_by_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOOLFORMER_CACHE", str(tmp_path / "one"))
    assert assets.cache_dir() == tmp_path / "one"
    assets.set_cache_dir(tmp_path / "two")
    assert assets.cache_dir() == tmp_path / "two"
    assert os.environ["TOOLFORMER_CACHE"] == str(tmp_path / "two")  # so that workers find it too
    assets.set_cache_dir(None)
    assert assets.cache_dir() == Path.home() / ".cache" / "toolformer"


def test_a_cache_that_cannot_be_written_is_one_line(registry: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assets.set_cache_dir(tmp_path / "file" / "cache")
    with pytest.raises(UserError, match="TOOLFORMER_CACHE"):
        assets.ensure("tiny")


def test_a_full_disk_is_told_before_the_download(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ASSETS, "tiny", replace(ASSETS["tiny"], disk=10**18))
    monkeypatch.setattr(download, "_run", no_pip)
    with pytest.raises(UserError, match="tiny needs 1000000000000 MB"):
        assets.ensure("tiny")


def test_every_pin_is_a_sha256_and_an_exact_version() -> None:
    for asset in ASSETS.values():
        for wheel in asset.wheels:
            digests = [wheel.sha256, *(member.sha256 for member in wheel.members)]
            assert all(len(digest) == 64 and int(digest, 16) for digest in digests)
            assert wheel.version in wheel.file_name
            assert wheel.project.replace("-", "_") in wheel.file_name
    assert [bool(asset.joined_sha256) for asset in ASSETS.values()] == [True, False, False, True]


def test_a_failed_conversion_is_one_line_and_leaves_no_folder(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tiny wheel's file is no GGUF at all; its name alone makes it one for the table."""
    buffer = io.BytesIO(wheel_bytes())
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("tiny_text/data/tiny.gguf", TEXT)
    asset = tiny_asset(buffer.getvalue())
    wheel = replace(asset.wheels[0], members=(Member("tiny_text/data/tiny.gguf", sha256(TEXT)),))
    monkeypatch.setitem(
        ASSETS, "tiny", replace(asset, wheels=(wheel,), joined_sha256=sha256(TEXT), file=None)
    )
    (registry / FILE_NAME).write_bytes(buffer.getvalue())
    with pytest.raises(UserError, match="tiny: the conversion to safetensors failed") as caught:
        assets.ensure("tiny")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache" / "tiny").exists()


def test_add_bos_survives_saving(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    from tests.conftest import tiny_tokenizer

    tokenizer = tiny_tokenizer()
    plain = tokenizer("Output: x").input_ids
    add_bos(tokenizer)
    add_bos(tokenizer)  # once is enough
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again("Output: x").input_ids == [tokenizer.bos_token_id, *plain]
    assert again("Output: x", add_special_tokens=False).input_ids == plain


@pytest.mark.real
def test_smollm2_loads_and_its_tokens_suit_the_notation() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = assets.ensure("smollm2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for piece in (" [", "]", " ->", "->", ")]"):
        assert len(tokenizer(piece).input_ids) == 1
    text = "It is [Calculator(400 / 1400) -> 0.29] 29% of  them. Ça va, 北京?"
    encoding = tokenizer(text, return_offsets_mapping=True)
    assert tokenizer.decode(encoding.input_ids) == text
    # Offsets are not trimmed: a token's span holds the space before it.
    bracket = encoding.input_ids.index(tokenizer(" [").input_ids[0])
    assert text[slice(*encoding.offset_mapping[bracket])] == " ["
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert next(model.parameters()).dtype == torch.float32
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.inference_mode():
        assert tokenizer.decode(model(ids).logits[0, -1].argmax()).strip() == "Paris"


@pytest.mark.real
def test_wikipedia_summaries_are_there() -> None:
    articles = json.loads(assets.ensure("wikipedia").read_text(encoding="utf-8"))
    assert len(articles) == 10_033


@pytest.mark.real
def test_gemma3_begins_with_bos_and_reads_english() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = assets.ensure("gemma3")
    assert (folder / "GEMMA_TERMS.html").is_file()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("The Eiffel Tower is a tower in Paris, France.", return_tensors="pt").input_ids
    assert ids[0, 0] == tokenizer.bos_token_id
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.inference_mode():
        perplexity = model(ids, labels=ids).loss.exp()
    assert perplexity < 40  # about 440 without BOS
