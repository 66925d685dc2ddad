"""The built wheel works without the repository: from an empty folder, with nothing but its own files."""

from __future__ import annotations

import os
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
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    offline = ["--no-deps", "--no-index"]
    subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "-w", wheels, source], check=True)
    (wheel,) = wheels.glob("toolformer-*.whl")
    subprocess.run([*pip, "install", *offline, "--no-compile", "--target", target, wheel], check=True)
    return target


def toolformer(installed: Path, folder: Path, *words: str, code: str = "") -> str:
    """What the installed program prints in a folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLFORMER_")}
    program = ["-c", code] if code else ["-m", "toolformer.cli"]
    done = subprocess.run(
        [sys.executable, *program, *words],
        cwd=folder, env={**environment, "PYTHONPATH": str(installed)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


COMPOSE = """
import sys, toolformer
from toolformer.stages.config import CONF, STAGES, compose, validate
from toolformer.stages import instantiate
assert CONF.is_relative_to(sys.argv[1]) and toolformer.__file__.startswith(sys.argv[1])
for stage in STAGES:
    config = validate(compose(stage, []))
    assert [instantiate.tool_settings(config, key).prompt for key in config.tools]
print(len(STAGES))
"""


def test_an_installed_toolformer_composes_and_runs_a_tool_and_the_smoke_experiment(
    installed: Path, tmp_path: Path
) -> None:
    assert toolformer(installed, tmp_path, "--version").startswith("toolformer ")
    assert toolformer(installed, tmp_path, "tool", "calculator", "1+1") == "2\n"
    assert toolformer(installed, tmp_path, str(installed), code=COMPOSE) == "5\n"
    words = [f"model={MODEL}", "tools=[calendar,calculator]", "lm.dtype=float32"]
    toolformer(installed, tmp_path, "run", "experiment=smoke", *words)
    folder = tmp_path / "runs" / "report" / "smoke"
    assert {"report.md", "report.html", "report.tex"} <= {path.name for path in folder.iterdir()}
