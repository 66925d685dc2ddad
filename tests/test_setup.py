"""The set-up chooses PyTorch's build for the machine; pip and the machine are stand-ins here."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def setup_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    specification = importlib.util.spec_from_file_location("setup_script", ROOT / "scripts" / "setup.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("# locked\nnumpy==1.0\ntorch==9.9.0\n")
    monkeypatch.setattr(module, "CONSTRAINTS", constraints)
    monkeypatch.setattr(module, "environment_python", lambda: Path(sys.executable))
    monkeypatch.setattr(module.sys, "platform", "linux")
    return module


def commands(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, *, gpu: bool, local: bool, index: bool
) -> list[str]:
    """What `install_torch` asks pip for, on a machine with or without a GPU, a local file, a reachable index."""
    asked: list[str] = []

    def install(*arguments: str, quiet: bool = False) -> bool:
        asked.append(" ".join(arguments).removeprefix(f"--constraint {script.CONSTRAINTS} "))
        return local if "--no-index" in arguments else True

    monkeypatch.setattr(script, "install", install)
    monkeypatch.setattr(script, "has_nvidia_gpu", lambda: gpu)
    monkeypatch.setattr(script, "cpu_index_offers", lambda requirement: index)
    script.install_torch()
    return asked


LOCAL = "--no-index --no-deps torch==9.9.0+cpu"


def test_a_gpu_gets_the_ordinary_build(setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commands(setup_script, monkeypatch, gpu=True, local=True, index=True) == ["torch==9.9.0"]


def test_without_a_gpu_a_local_cpu_file_is_enough(
    setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commands(setup_script, monkeypatch, gpu=False, local=True, index=True) == [LOCAL]


def test_without_a_gpu_the_cpu_index_is_next(
    setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = f"--no-deps --index-url {setup_script.CPU_INDEX} torch==9.9.0+cpu"
    assert commands(setup_script, monkeypatch, gpu=False, local=False, index=True) == [LOCAL, expected]


def test_an_unreachable_cpu_index_leaves_the_ordinary_build(
    setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = commands(setup_script, monkeypatch, gpu=False, local=False, index=False)
    assert asked == [LOCAL, "torch==9.9.0"]


def test_macos_has_no_separate_cpu_build(setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_script.sys, "platform", "darwin")
    assert commands(setup_script, monkeypatch, gpu=False, local=False, index=True) == ["torch==9.9.0"]


def test_an_index_that_never_answers_is_given_up(
    setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_script, "PROBE_SECONDS", 3)
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts in the kernel and stays silent
        monkeypatch.setattr(setup_script, "CPU_INDEX", f"http://127.0.0.1:{server.getsockname()[1]}/cpu")
        assert setup_script.cpu_index_offers("torch==9.9.0+cpu") is False


@pytest.mark.parametrize(
    ("program", "code", "output", "expected"),
    [
        (None, 0, "", False),
        ("/usr/bin/nvidia-smi", 9, "NVIDIA-SMI has failed", False),
        ("/usr/bin/nvidia-smi", 0, "No devices found", False),
        ("/usr/bin/nvidia-smi", 0, "GPU 0: NVIDIA H200 (UUID: GPU-1)", True),
    ],
)
def test_a_gpu_counts_when_its_driver_answers(
    setup_script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    program: str | None,
    code: int,
    output: str,
    expected: bool,
) -> None:
    answer = SimpleNamespace(returncode=code, stdout=output)
    monkeypatch.setattr(setup_script.shutil, "which", lambda name: program)
    monkeypatch.setattr(setup_script.subprocess, "run", lambda *arguments, **options: answer)
    assert setup_script.has_nvidia_gpu() is expected


def test_a_finished_set_up_calls_nothing(
    setup_script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp = tmp_path / "stamp"
    stamp.write_text(setup_script.fingerprint())
    monkeypatch.setattr(setup_script, "STAMP", stamp)

    def called(*arguments: object, **options: object) -> None:
        raise AssertionError("something was run")

    monkeypatch.setattr(setup_script.subprocess, "run", called)
    setup_script.main()
    stamp.write_text("of other constraints")
    with pytest.raises(AssertionError, match="something was run"):
        setup_script.main()


def test_everything_is_installed_as_locked(
    setup_script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(setup_script, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(setup_script, "create_environment", lambda: None)
    monkeypatch.setattr(setup_script, "install_torch", lambda: None)
    monkeypatch.setattr(setup_script, "install", lambda *arguments: not asked.append(arguments))
    setup_script.main()
    assert all("--constraint" in arguments for arguments in asked)
    assert [arguments[-1] for arguments in asked] == ["setuptools", f"{ROOT}[dev]", "hydra-ray-launcher"]
    assert "--no-deps" in asked[-1] and "hydra-ray-launcher==" in (ROOT / "constraints.txt").read_text()
    assert setup_script.STAMP.read_text() == setup_script.fingerprint()


def test_an_old_python_is_told_in_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    answer = subprocess.run(
        ["make", "setup", f"PYTHON={old}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 2
    assert answer.stderr.splitlines()[0].startswith("setup: Python 3.11 or newer is needed")
