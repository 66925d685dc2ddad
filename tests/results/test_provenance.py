"""What a run says of itself: secrets masked, a command and a description that are no markup, the commit."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.build import at_work, step
from toolformer.credentials import masked
from toolformer.jobs.config.overrides import command_of, masked_overrides
from toolformer.results import Results, provenance
from toolformer.results.provenance import describe, model_name

SECRET = "hunter2-correct-horse"


def test_settings_that_may_be_secrets_are_masked() -> None:
    plain = {"model": "gpt2", "key_variable": "OPENAI_API_KEY", "max_new_tokens": 40}
    sources = [
        {"command": "python", "args": ["server.py", SECRET, "--token=$TOKEN"], "env": {"A": 1, "B": "${B}"}},
        {"url": "http://h", "headers": {"X": SECRET, "Authorization": "Bearer $KEY"}, "env": {}},
    ]
    shown = [
        {"command": "python", "args": ["***", "***", "--token=$TOKEN"], "env": {"A": "***", "B": "${B}"}},
        {"url": "http://h", "headers": {"X": "***", "Authorization": "Bearer $KEY"}, "env": {}},
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
        (
            f"tool_sources=[{{command: x, args: [{SECRET}], env: {{b: $B}}}}]",
            "tool_sources=[{command:x,args:[***],env:{b:$B}}]",
        ),
        (f"tool_sources=[{{command:x,env:{{A:{SECRET}}}}}]", "tool_sources=[{command:x,env:{A:***}}]"),
        (
            f"+tool.x.implementation.url='http://me:a/{SECRET}@h',null",
            "+tool.x.implementation.url=http://***@h,null",
        ),
        (f"+tool.x.implementation.PASSWD='{SECRET} it'", "+tool.x.implementation.PASSWD=***"),
        (f"a=[{{key:{SECRET}", "a=***"),
    ],
)
def test_overrides_are_masked(word: str, shown: str) -> None:
    assert masked_overrides([word]) == [shown]


def test_secrets_reach_no_folder(results: Results) -> None:
    words = [f"tracking.uri=http://me:{SECRET}@host", f"tool_sources=[{{command: x, env: {{A: {SECRET}}}}}]"]
    command = command_of("evaluate", words, "-m")
    config = {"tool_sources": [{"args": [SECRET], "env": {"A": SECRET}}], "uri": f"http://{SECRET}@h"}
    opened = at_work(results, step(), config, command=command, description=describe(command, {}))
    with pytest.raises(ValueError), opened as folder:
        folder.add_facts(endpoint=f"http://u:{SECRET}@h/")
        raise ValueError(f"no http://me:{SECRET}@h/x")
    stored = b"".join(path.read_bytes() for path in results.root.rglob("*") if path.is_file())
    assert SECRET.encode() not in stored and b"***" in stored


def test_a_description_has_facts_sources_and_command(results: Results) -> None:
    with at_work(results, step("train"), name="train gpt2 augmented") as folder:
        pass
    command = command_of("evaluate", ["model=/my models/x", "benchmarks=[dateset,lama]"], "-m")
    text = describe(command, {"model": "gpt2", "k": 0, "corpus": ""}, [results.get(folder.id), None])
    assert text.splitlines() == [
        "- model: `gpt2`",
        "- k: `0`",
        f"- made from train gpt2 augmented (run {folder.id})",
        "",
        "```",
        "toolformer evaluate -m 'model=/my models/x' 'benchmarks=[dateset,lama]'",
        "```",
    ]
    assert shlex.split(command)[3] == "model=/my models/x"


def test_a_model_in_a_folder_is_named_by_its_last_part() -> None:
    names = [model_name(model) for model in ("/far/away/gpt2-xl", "~/models/tiny", "./tiny/", "a/b")]
    assert names == ["gpt2-xl", "tiny", "tiny", "a/b"]


def test_names_are_no_markup(results: Results) -> None:
    odd = "a`b\n```\n[x](http://y) <img src=x>"
    with at_work(results, step("train"), name=odd) as folder:
        pass
    *facts, fence, command, end = describe(odd, {"model": odd}, [results.get(folder.id)]).splitlines()
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
