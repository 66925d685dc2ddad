"""No secret of a command line reaches the folder of the runs or MLflow, whatever becomes of the command."""

import sys
from pathlib import Path

import pytest

from tests.build import Capture
from toolformer.cli import main

SERVER = Path(__file__).parents[1] / "tools" / "user" / "mcp_server.py"
SECRET = "hunter2-correct-horse"
TOOL = "+tool.qa.implementation"
KINDS = {
    "env": f"tool_sources=[{{command: {sys.executable}, args: [{SERVER}], env: {{KEY: {SECRET}}}}}]",
    "args": f"tool_sources=[{{command: {sys.executable}, args: [{SERVER}, stdio, {SECRET}]}}]",
    "headers": f"{TOOL}.headers.Authorization={SECRET}",
    "a mapping": f"{TOOL}.headers={{Authorization: Bearer {SECRET}}}",
    "password": f"{TOOL}.base_url='http://me:{SECRET}@h/v1'",
    "query": f"{TOOL}.base_url='http://h/v1?key={SECRET}'",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_keeps_no_secret(kind: str, tmp_path: Path, capsys: Capture) -> None:
    root = tmp_path / "runs"
    assert main(["train", "-m", f"paths.root={root}", "seed=0,1", KINDS[kind]]) == 2
    printed = capsys.readouterr()
    assert "run `toolformer generate` first" in printed.err
    written = {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert [name for name, data in written.items() if SECRET.encode() in data] == []
    assert SECRET not in printed.out + printed.err
