"""The built wheel works without the repository: from an empty folder, with nothing but its own files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "tests" / "golden" / "model"
pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the wheel of the files in Git is installed into."""
    source, wheels, target = (tmp_path_factory.mktemp(name) for name in ("source", "wheels", "installed"))
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    for name in filter(None, files):
        if (ROOT / name).exists() and not name.startswith(("tests/", "docs/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name, follow_symlinks=False)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    offline = ["--no-deps", "--no-index"]
    subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "-w", wheels, source], check=True)
    (wheel,) = wheels.glob("toolformer_harness-*.whl")
    subprocess.run([*pip, "install", *offline, "--no-compile", "--target", target, wheel], check=True)
    return target


def test_an_installed_toolformer_runs_the_smoke_experiment(installed: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLFORMER_")}
    environment["PYTHONPATH"] = str(installed)

    def shown(*words: str) -> str:
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    code = "import toolformer; from toolformer.jobs.config import CONF; print(toolformer.__file__, CONF)"
    assert all(path.startswith(str(installed)) for path in shown("-c", code).split())
    assert not (installed / "benchmarks").exists(), "it would hide a user's own"
    toolformer = ["-m", "toolformer.cli"]
    assert shown(*toolformer, "--version").startswith("toolformer ")
    assert shown(*toolformer, "tool", "calculator", "1+1") == "2\n"
    words = [f"model={MODEL}", "tools=[calendar,calculator]", "lm.dtype=float32"]
    shown(*toolformer, "run", "experiment=smoke", *words)
    folder = tmp_path / "runs" / "report" / "smoke"
    assert {"report.md", "report.html"} <= {path.name for path in folder.iterdir()}


def test_a_script_beside_the_clone_finds_the_package(tmp_path: Path) -> None:
    """The clone's folder has the package's name, and the folder of a script comes first on Python's path."""
    (tmp_path / "toolformer").mkdir()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", "from toolformer import Toolformer; import toolformer.evaluation.suite"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
