"""No secret stands in a run, and nothing that somebody else's store holds becomes a path, markup or a terminal's command."""

import shlex
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reporting.conftest import NOTE
from tests.tracking.conftest import run
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.reporting.console import show
from toolformer.reporting.pairing import compare_groups
from toolformer.results.provenance import command_of, describe, masked, masked_words, model_name
from toolformer.stages.compare import Comparison, content
from toolformer.tracking import Tracker, provenance
from toolformer.tracking.store import Refused

HOSTILE = "../../precious"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "work.txt").write_text("years of work")
    return folder


@pytest.mark.parametrize("local_id", ["/../../precious", HOSTILE, "0" * 31, "A" * 32])
def test_a_tag_of_a_server_is_no_path(tmp_path: Path, precious: Path, local_id: str) -> None:
    """Another user of a shared server tagged a run."""
    theirs = served(tmp_path)
    with run(theirs, "train", "hostile") as active:
        pass
    assert theirs.server
    copy = Tracker(theirs.server.uri, tmp_path / "x").get(active.run_id).stored_as
    theirs.server.log(copy, tags={"local_id": local_id})
    ours = Tracker(theirs.server.uri, tmp_path / "ours" / "runs")
    (found,) = ours.runs("train")
    assert found.run_id == copy
    assert ours.artifact_path(found, "config.yaml").is_relative_to(ours.root)
    for name in (f"{HOSTILE}/work.txt", "../x", "/etc/passwd", ".hidden"):
        with pytest.raises(UserError, match="is no file name"):
            ours.artifact_path(found, name)
    assert (precious / "work.txt").read_text() == "years of work"


def served(tmp_path: Path) -> Tracker:
    return Tracker(f"sqlite:///{tmp_path / 'server' / 'mlflow.db'}", tmp_path / "theirs")


@pytest.mark.parametrize(
    "place",
    [
        "PRECIOUS",
        "file://PRECIOUS",
        "file:SERVER/artifacts/%2e%2e/%2e%2e/precious",
        "runs:/" + "0" * 32,
        "models:/x/1",
        "http://127.0.0.1:1/x",
        "mlflow-artifacts:/x",
        "mlflow-artifacts://elsewhere/x",
        "ftp://127.0.0.1/x",
        "dbfs:/x",
        "http://[",
    ],
)
def test_a_server_sends_no_artifact_to_another_place(tmp_path: Path, precious: Path, place: str) -> None:
    theirs = served(tmp_path)
    with run(theirs, "train", "hostile") as active:
        pass
    place = place.replace("PRECIOUS", str(precious)).replace("SERVER", str(tmp_path / "server"))
    with sqlite3.connect(tmp_path / "server" / "mlflow.db") as database:
        database.execute("UPDATE runs SET artifact_uri = ?", [place])
    assert theirs.server and theirs.mirror
    with pytest.raises(Refused, match="nothing is read or written there"):
        theirs.mirror.copy(active.run_id)
    ours = Tracker(theirs.server.uri, tmp_path / "ours")
    (found,) = ours.runs("train")
    with pytest.raises(Refused, match="nothing is read or written there"):
        ours.artifact_path(found, "config.yaml")
    assert [path.name for path in precious.iterdir()] == ["work.txt"]


def test_an_address_is_used_as_it_was_read_when_it_was_checked(tmp_path: Path) -> None:
    server = served(tmp_path).server
    assert server
    with server.faults():
        folder = server.artifacts(f"{tmp_path}/server/artifacts/x?/../../../../precious").artifact_dir
    assert folder == f"{tmp_path}/server/artifacts/x"


def test_a_server_that_changes_its_answer_is_not_followed(tmp_path: Path, precious: Path) -> None:
    theirs = served(tmp_path)
    with run(theirs, "train", "hostile", config={"a": 1}):
        pass
    assert theirs.server
    ours = Tracker(theirs.server.uri, tmp_path / "ours")
    (found,) = ours.runs("train")
    (precious / "config.yaml").write_text("secret")
    with sqlite3.connect(tmp_path / "server" / "mlflow.db") as database:
        database.execute("UPDATE runs SET artifact_uri = ?", [str(precious)])
    assert ours.artifact_path(found, "config.yaml").read_text() == "a: 1\n"


def test_a_runs_folder_leads_nowhere_else(tmp_path: Path, precious: Path) -> None:
    store = Tracker(None, tmp_path / "runs")
    with run(store, "train", "hostile") as active:
        pass
    (store.root / "artifacts" / active.run_id / "artifacts" / "link").symlink_to(precious)
    with pytest.raises(UserError, match="leads out of"):
        store.artifact_path(store.get(active.run_id), "link/work.txt")
    with sqlite3.connect(store.root / "mlflow.db") as database:
        database.execute("UPDATE runs SET status = 'KILLED'")
        for table in ("runs", "tags", "params", "metrics", "latest_metrics"):
            database.execute(f"UPDATE {table} SET run_uuid = ?", [HOSTILE])
    with pytest.raises(UserError, match="is no file name"), run(store, "train", "hostile"):
        pass
    assert [path.name for path in precious.iterdir()] == ["work.txt"]


def test_names_are_neither_escape_sequences_nor_markup(
    store: Tracker, capsys: pytest.CaptureFixture[str]
) -> None:
    with store.run(stage="evaluate", name="\x1b]0;owned\x07 [/b] \u202etxt", fingerprint="escape", config={}):
        pass
    assert main(["runs", f"paths.root='{store.root}'", "--stage", "evaluate"]) == 0
    output = capsys.readouterr().out
    assert "[/b]" in output and not set(output) & {"\x1b", "\x07", "\u202e"}


def test_a_comparison_shows_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": str(index), "prompt": "p", "target": ["1"], "score": 0.0} for index in range(3)]
    compared = compare_groups("[/b]task\x1b[2J", [(0, rows)], [(0, rows)], seed=0, resamples=20)
    assert compared
    name = "[/b] \x1b]0;owned\x07 (1a2b3c4d)"
    comparison = Comparison("a", "b", name, name, (compared,), (name,), (), {}, same_scoring=True)
    show(content(comparison))
    output = capsys.readouterr().out
    assert output.count("[/b]") >= 3 and not set(output) & {"\x1b", "\x07"}


SECRET = "hunter2-correct-horse"


def test_settings_that_may_be_secrets_are_masked_whatever_they_look_like() -> None:
    plain = {"model": "gpt2", "key_variable": "OPENAI_API_KEY", "max_new_tokens": 40}
    sources = [
        {"command": "python", "args": ["server.py", SECRET, "--token=$TOKEN"], "env": {"A": "1", "B": "$B"}},
        {"url": "http://h", "headers": {"X": SECRET, "Authorization": "Bearer $KEY"}, "env": {}},
        {"python": "tools.py", "valves": {"days": 3, "nested": {"key": SECRET}, "named": "${OWM}"}},
    ]
    shown = [
        {"command": "python", "args": ["***", "***", "--token=$TOKEN"], "env": {"A": "***", "B": "$B"}},
        {"url": "http://h", "headers": {"X": "***", "Authorization": "Bearer $KEY"}, "env": {}},
        {"python": "tools.py", "valves": {"days": "***", "nested": {"key": "***"}, "named": "${OWM}"}},
    ]
    config = plain | {"uri": f"https://me:{SECRET}@example.org/x?key={SECRET}", "tool_sources": sources}
    assert masked(config) == plain | {"uri": "https://***@example.org/x?key=***", "tool_sources": shown}


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("seed=0,1", "seed=0,1"),
        ("benchmarks=[dateset,lama]", "benchmarks=[dateset,lama]"),
        (f"tracking.uri=http://me:{SECRET}@host", "tracking.uri=http://***@host"),
        (f"+tool.x.implementation.env.KEY={SECRET}", "+tool.x.implementation.env.KEY=***"),
        ("tool.x.implementation.env.KEY=$KEY", "tool.x.implementation.env.KEY=$KEY"),
        (f"tool_sources=[{{command: x, args: [{SECRET}], valves: {{b: $B}}}}]", "tool_sources=***"),
        (f"tool_sources=[{{command:x,env:{{A:{SECRET}}}}}]", "tool_sources=***"),
    ],
)
def test_overrides_are_masked(word: str, shown: str) -> None:
    assert masked_words([word]) == [shown]


def test_secrets_reach_nothing_that_is_stored(store: Tracker) -> None:
    words = [f"tracking.uri=http://me:{SECRET}@host", f"tool_sources=[{{command: x, env: {{A: {SECRET}}}}}]"]
    command = command_of("evaluate", words, "-m")
    config = {"tool_sources": [{"args": [SECRET], "env": {"A": SECRET}}], "uri": f"http://{SECRET}@h"}
    parent = store.parent_run("secret", f"{command} {'x' * 9000}", description=describe(command, {}))
    assert len(store.get(parent).name) <= 250
    with store.run(
        stage="secret", name=command, fingerprint="f", config=config, description=describe(command, {}),
        tags={"endpoint": f"http://u:{SECRET}@h/", "device": "cuda"},
    ) as active:  # fmt: skip
        active.tags({"error": f"no http://me:{SECRET}@h/x"})
    stored = b"".join(path.read_bytes() for path in store.root.rglob("*") if path.is_file())
    assert SECRET.encode() not in stored
    tags = store.get(active.run_id).tags
    assert tags["endpoint"] == "http://***@h/" and tags["git_commit"] and tags["version.mlflow"]
    assert tags["device"] == "cuda", "what the stage says stands"


def test_a_description_says_what_was_done_and_from_what() -> None:
    command = command_of("evaluate", ["model=/my models/x", "benchmarks=[dateset,lama]"], "-m")
    text = describe(
        command, {"model": "gpt2", "k": 0, "corpus": ""}, [replace(NOTE, name="train gpt2 augmented"), None]
    )
    assert text.splitlines() == [
        "- model: `gpt2`",
        "- k: `0`",
        f"- made from [train gpt2 augmented](#/runs/{NOTE.run_id})",
        "",
        "```",
        "toolformer evaluate -m 'model=/my models/x' 'benchmarks=[dateset,lama]'",
        "```",
    ]
    assert shlex.split(command)[3] == "model=/my models/x"
    names = [model_name(model) for model in ("/far/away/gpt2-xl", "~/models/tiny", "./tiny/", "a/b")]
    assert names == ["gpt2-xl", "tiny", "tiny", "a/b"]


def test_what_is_named_is_no_markup() -> None:
    odd = "a`b\n```\n[x](http://y) <img src=x>"
    *facts, fence, command, end = describe(odd, {"model": odd}, [replace(NOTE, name=odd)]).splitlines()
    assert "\n".join(facts).count("`") == 2 and not any("](http" in line or "<" in line for line in facts)
    # Within fences that are longer than any in it nothing is markup.
    assert fence == end == "````" and command == "a`b ``` [x](http://y) <img src=x>"


def test_the_commit_is_marked_when_dirty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    code = tmp_path / "tracking.py"
    code.write_text("1")
    monkeypatch.setattr(provenance, "__file__", str(code))
    commit = provenance.git_commit.__wrapped__
    git("init", "-q")
    assert commit() == "unknown"  # inside a repository that does not track it
    git("add", "tracking.py")
    git("commit", "-q", "-m", "one")
    (tmp_path / "untracked").write_text("")
    assert commit() == git("rev-parse", "HEAD")
    code.write_text("2")
    assert commit() == git("rev-parse", "HEAD") + "-dirty"
