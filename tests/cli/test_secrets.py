"""No secret of a command line reaches the folder of the runs, MLflow or an export, whatever becomes of the command."""

import sys
from pathlib import Path

import pytest

from tests.build import Capture, smoke_words
from toolformer.cli import main

SERVER = Path(__file__).parents[1] / "tools" / "user" / "mcp_server.py"
SECRET = "hunter2-correct-horse"
TOOL = "+tool.qa.implementation"
UNUSED = {
    "headers": f"{{Authorization: Bearer {SECRET}}}",
    "base_url": f"'http://me:{SECRET}@h/v1?key={SECRET}#{SECRET}'",
    "api_key": SECRET,
}
KINDS = {
    "env": f"tool_sources=[{{command: {sys.executable}, args: [{SERVER}], env: {{KEY: {SECRET}}}}}]",
    "args": f"tool_sources=[{{command: {sys.executable}, args: [{SERVER}, stdio, {SECRET}]}}]",
    "headers": f"{TOOL}.headers.Authorization={SECRET}",
    "a mapping": f"{TOOL}.headers={{Authorization: Bearer {SECRET}}}",
    "password": f"{TOOL}.base_url='http://me:{SECRET}@h/v1'",
    "query": f"{TOOL}.base_url='http://h/v1?key={SECRET}'",
    "key": f"{TOOL}.api_key={SECRET}",
}


def holding_secret(folder: Path) -> list[str]:
    """The files below a folder that hold the secret, as text or in a database."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [str(path.relative_to(folder)) for path in files if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_keeps_no_secret(kind: str, tmp_path: Path, capsys: Capture) -> None:
    root = tmp_path / "runs"
    assert main(["train", "-m", f"paths.root={root}", "seed=0,1", KINDS[kind]]) == 2
    printed = capsys.readouterr()
    assert "run `toolformer generate` first" in printed.err
    assert holding_secret(tmp_path) == []
    assert SECRET not in printed.out + printed.err


def test_runs_store_and_export_keep_no_secret(tmp_path: Path, capsys: Capture) -> None:
    """Secrets of a server whose tool is used, and of a tool that is not."""
    server = f"{{command: {sys.executable}, args: [{SERVER}, stdio, '', {SECRET}], env: {{KEY: {SECRET}}}, only: [add]}}"
    root, export = tmp_path / "runs", tmp_path / "export"
    words = [*smoke_words(root), "tools=[calendar,calculator,add]", f"tool_sources=[{server}]"]
    words += ["+tool@tool.add=user", "tool.add.example='add(2, 3) -> 5'"]
    words += [f"{TOOL}.{key}={value}" for key, value in UNUSED.items()]
    assert main(["generate", *words]) == 0
    assert main(["export", "dataset", "latest", str(export), f"paths.root={root}", "name=smoke"]) == 0
    printed = capsys.readouterr()
    assert (root / "mlflow.db").is_file() and (export / "README.md").is_file()
    assert holding_secret(tmp_path) == []
    assert SECRET not in printed.out + printed.err
