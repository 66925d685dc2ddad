"""No secret of a command line reaches the folder of the runs, MLflow or an export, whatever becomes of the command."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Quote, QuotedString

from tests.build import Capture, Patch, smoke_words
from toolformer.cli import main

SERVER = Path(__file__).parents[1] / "tools" / "user" / "mcp_server.py"
SECRET = "hunter2-correct-horse"
TOOL = "+tool.qa.implementation"
ADDRESSES = {
    "user": f"http://{SECRET}@h/v1",
    "slash": f"http://me:{SECRET}/{SECRET}@h/v1",
    "sign": f"http://me:{SECRET}?{SECRET}#{SECRET}@h/v1",
    "quote": f"http://h/v1?key={SECRET}\"{SECRET}'{SECRET}",
    "blank": f"http://h/v1?key={SECRET} {SECRET}#{SECRET}",
    "database": f"postgresql://me:{SECRET}@h/db",
}
NAMES = (
    *(
        "api_key",
        "apiKey",
        "APIKEY",
        "PASSWD",
        "db_password",
        "passphrase",
        "pwd",
        "authorization",
        "cookie",
        "bearer",
    ),
    *(
        "ACCESS_TOKEN",
        "clientSecret",
        "accessKeyId",
        "session_id",
        "GITHUB_PAT",
        "pin",
        "otp",
        "openaikey",
        "Passwort",
    ),
)
VALUES = {
    "dsn": f"host=h password={SECRET}",
    "odbc": f"Server=h;Pwd={SECRET};",
    "header": f"X-Api-Key: {SECRET}",
    "json": f'{{"token": "{SECRET}"}}',
    "parameter": f"https://h/a;token={SECRET}",
    "relative": f"//me:{SECRET}@h",
    "proxy": f"me:{SECRET}@h:80",
    "words": ["server", "--api-key", SECRET],
}
HELD = {**{f"url_{name}": url for name, url in ADDRESSES.items()}, **dict.fromkeys(NAMES, SECRET), **VALUES}
"""Every kind of secret, as arguments of a tool."""
HEADERS = {"X": SECRET, "Authorization": f"Bearer {SECRET}"}
SERVED = {
    "command": sys.executable,
    "args": [str(SERVER), "stdio", "", SECRET],
    "env": {"A": SECRET, "B": "$HELD"},
}


def override(key: str, value: object) -> str:
    """A value as an override, in Hydra's grammar."""
    if isinstance(value, dict):
        return (
            f"{key}={{{','.join(override(name, part).replace('=', ':', 1) for name, part in value.items())}}}"
        )
    if isinstance(value, list):
        return f"{key}=[{','.join(override('', part)[1:] for part in value)}]"
    return f"{key}={QuotedString(str(value), Quote.single).with_quotes()}"


COMMAND = [override(f"{TOOL}.{name}", value) for name, value in HELD.items()]
MAPPINGS = [override(f"{TOOL}.settings", HELD), override(f"{TOOL}.headers", HEADERS)]
HYDRA = [
    f"+hydra.job.env_set.HELD_BY_HYDRA={SECRET}",
    override("+hydra.launcher.setup", [f"export A={SECRET}"]),
]
MCP = [override("tool_sources", [SERVED | {"only": ["add"]}])]
DOORS = {
    "command": COMMAND,
    "mappings": MAPPINGS,
    "hydra": HYDRA[:1],
    "mcp": MCP,
    "environment": [f"{TOOL}.pwd=${{oc.env:HELD}}"],
}


def holding_secret(folder: Path) -> list[str]:
    """The files below a folder that hold the secret, as text or in a database."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [str(path.relative_to(folder)) for path in files if SECRET.encode() in path.read_bytes()]


@pytest.fixture
def check(tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> Iterator[Callable[..., None]]:
    """Runs a command, and looks for the secret in all that it wrote and printed."""
    monkeypatch.setenv("HELD", SECRET)

    def run(code: int, *arguments: str) -> str:
        assert main(arguments) == code
        printed = capsys.readouterr()
        assert holding_secret(tmp_path) == []
        assert SECRET not in printed.out + printed.err
        return printed.out + printed.err

    yield run
    GlobalHydra.instance().clear()


@pytest.mark.parametrize("door", DOORS)
def test_a_sweep_keeps_no_secret(door: str, tmp_path: Path, check: Callable[..., str]) -> None:
    swept = ["train", "-m", f"paths.root={tmp_path / 'runs'}", "seed=0,1"]
    assert "run `toolformer generate` first" in check(2, *swept, *DOORS[door])


def test_a_swept_secret_is_kept_nowhere(tmp_path: Path, check: Callable[..., str]) -> None:
    swept = ["train", "-m", f"paths.root={tmp_path / 'runs'}"]
    check(
        2, *swept, f"{TOOL}.token={SECRET},other", f"{TOOL}.base='http://h?{SECRET}','http://me:{SECRET}/@h'"
    )


@pytest.mark.parametrize(
    "flags", [["--cfg", "all"], ["--cfg", "hydra"], ["--info"], ["--info", "config"]], ids=" ".join
)
def test_a_printed_configuration_shows_no_secret(
    flags: list[str], file: Path, check: Callable[..., str]
) -> None:
    words = [*COMMAND, *MAPPINGS, *HYDRA, *MCP]
    printed = check(0, "train", *flags, f"--config-dir={file}", "experiment=held", *words)
    assert "***" in printed


def test_a_printed_secret_of_a_file_is_masked(file: Path, check: Callable[..., str]) -> None:
    assert (
        check(
            0,
            "train",
            "--cfg",
            "job",
            "-p",
            "tool.translation.implementation.PASSWD",
            f"--config-dir={file}",
            "experiment=held",
        )
        == "'***'\n"
    )


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("corpus.path", "slash"),
        ("model", "quote"),
        ("tracking.uri", "database"),
        ("evaluation.samples", "user"),
        ("paths.data_dir", "sign"),
    ],
)
def test_an_address_is_named_without_its_secret(
    key: str, kind: str, tmp_path: Path, check: Callable[..., str]
) -> None:
    stage = "generate" if key in ("corpus.path", "tracking.uri") else "evaluate"
    root, words = tmp_path / "runs", ["corpus=jsonl", "corpus.path=no.jsonl"] * (key != "corpus.path")
    check(2, stage, f"paths.root={root}", *words, "benchmarks=[mawps]", override(key, ADDRESSES[kind]))


@pytest.fixture
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of configuration that holds every kind of secret."""
    folder = tmp_path_factory.mktemp("conf")
    held = {"tool": {"translation": {"implementation": {**HELD, "headers": HEADERS}}}}
    (folder / "experiment").mkdir()
    (folder / "experiment" / "held.yaml").write_text(
        f"# @package _global_\ndefaults: [smoke, _self_]\n{yaml.safe_dump(held)}"
    )
    return folder


def test_runs_store_and_export_keep_no_secret(tmp_path: Path, file: Path, check: Callable[..., str]) -> None:
    """Secrets of a server whose tool is used, and of tools that are not, by every door."""
    root, export = tmp_path / "runs", tmp_path / "export"
    words = [*smoke_words(root)[1:], *MCP, "tools=[calendar,calculator,add]", "+tool@tool.add=user"]
    words += ["tool.add.example='add(2, 3) -> 5'", *COMMAND, *MAPPINGS, HYDRA[0]]
    check(0, "generate", f"--config-dir={file}", "experiment=held", *words)
    assert b"***" in (root / "mlflow.db").read_bytes()
    check(0, "export", "dataset", "latest", str(export), f"paths.root={root}", "name=smoke")
    check(0, "runs", "--json", f"paths.root={root}")
    assert (export / "README.md").is_file()
