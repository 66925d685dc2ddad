"""Comparing two evaluation runs: which samples pair, what is said of the rest, what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from benchmarks.paired import compare_scores
from toolformer.cli import main
from toolformer.compare import Unpaired, compare_task, pair
from toolformer.tracking import Tracker


def scored(one: int, score: float, prompt: str = "", **more: Any) -> dict[str, Any]:
    return {"id": str(one), "prompt": prompt or f"p{one}", "target": [str(one)], "score": score, **more}


def text(
    one: int, log_likelihood: float, tokens: int | None, words: int = 4, sha: str = ""
) -> dict[str, Any]:
    row = {"id": str(one), "text_sha256": sha or f"sha{one}", "log_likelihood": log_likelihood}
    return {**row, "tokens": tokens, "words": words}


def test_samples_pair_by_what_was_asked() -> None:
    first = [scored(1, 0), scored(2, 100), scored(3, 0), scored(4, 0), scored(4, 100)]
    second = [
        scored(4, 0, note="n"),
        scored(3, 100, prompt="other"),
        scored(2, 0),
        scored(5, 0),
        scored(6, 0),
    ]
    pairs, unpaired = pair(first, second)
    assert [(one["id"], two["id"]) for one, two in pairs] == [("2", "2"), ("4", "4")]
    assert unpaired == Unpaired(only_first=2, only_second=2, changed=1) and unpaired.total == 5
    assert pair(second, first)[1] == Unpaired(2, 2, 1)
    another_target = {**scored(2, 0), "target": ["7"]}
    assert pair([scored(2, 0)], [another_target]) == ([], Unpaired(changed=1))
    assert pair([], []) == ([], Unpaired())


def test_the_same_words_on_another_day_are_another_question() -> None:
    monday, tuesday = (scored(1, 0, current_date=day) for day in ("2023-01-30", "2023-01-31"))
    assert pair([monday], [monday]) == ([(monday, monday)], Unpaired())
    assert pair([monday], [tuesday]) == ([], Unpaired(changed=1))


def test_perplexity_per_token_or_per_word() -> None:
    first = [text(1, -8.0, 4), text(2, -8.0, 4)]
    same = compare_task("t", first, [text(1, -6.0, 4), text(2, -6.0, 4)], 0, 50)
    assert same and same.unit == "token" and same.perplexity
    assert same.perplexity.first == pytest.approx(2.718281828**2)
    other = compare_task("t", first, [text(1, -6.0, 5, words=4), text(2, -6.0, None)], 0, 50)
    assert other and other.unit == "word"
    assert compare_task("t", first, [text(1, -6.0, 4, sha="x")], 0, 50) is None


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Three evaluations: two with samples in common, one with none."""
    root = tmp_path_factory.mktemp("compared")
    tracker = Tracker(None, root)
    better = [scored(n, 100.0 * (n % 3 == 0)) for n in range(30)]
    worse = [scored(n, 100.0 * (n % 6 == 0)) for n in range(5, 40)]
    texts = [text(n, -8.0 - n, 4) for n in range(6)]
    contents: list[dict[str, list[dict[str, Any]]]] = [
        {"svamp": better, "heldout_perplexity": texts, "asdiv": [scored(1, 0)]},
        {"svamp": worse, "heldout_perplexity": [{**row, "log_likelihood": -9.0} for row in texts]},
        {"mawps": better},
    ]
    ids = []
    for number, content in enumerate(contents):
        tags = {"system": ("model", "toolformer", "model_cc")[number], "decoding.k": "10"}
        with tracker.run(stage="evaluate", name="e", fingerprint=str(number), config={}, tags=tags) as run:
            for task, rows in content.items():
                path = root / f"{task}.parquet"
                pandas.DataFrame(rows).to_parquet(path)
                run.artifact(path, "samples")
        ids.append(run.run_id)
    return root, ids


def test_the_command_prints_tables_and_json(
    runs: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    root, (one, two, _) = runs
    assert main(["compare", one[:8], two, "--json", "--resamples=100", f"paths.root={root}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["first"], found["second"]) == (one, two)
    by_task = {row["task"]: row for row in found["benchmarks"]}
    assert sorted(by_task) == ["heldout_perplexity", "svamp"] and found["only_first"] == ["asdiv"]
    expected = compare_scores(
        [100.0 * (n % 3 == 0) for n in range(5, 30)], [100.0 * (n % 6 == 0) for n in range(5, 30)], 0, 100
    )
    assert by_task["svamp"]["scores"]["p_value"] == expected.p_value
    assert by_task["svamp"]["scores"]["difference"]["low"] == expected.difference.low
    assert by_task["svamp"]["unpaired"] == {"only_first": 5, "only_second": 10, "changed": 0}
    assert main(["compare", "latest:model", "latest:toolformer", f"paths.root={root}"]) == 0
    shown = capsys.readouterr().out
    assert "McNemar" in shown and "B / A" in shown
    assert "svamp: 15 samples without a partner: 5 only in A, 10 only in B, 0 asked otherwise" in shown
    assert "asdiv: not compared, B has nothing to pair with it" in shown


def test_the_data_need_not_be_there_any_more(
    runs: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, (one, two, _) = runs
    monkeypatch.setenv("TOOLFORMER_DATA_DIR", str(root / "gone"))
    assert main(["compare", one, two, "--resamples=20", f"paths.root={root}"]) == 0
    assert "McNemar" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("0", "2"), "have no benchmark in common"),
        (("0", "0"), "are the same run"),
        (("latest:gpt", "0"), "say a run id, latest, or latest: and one of model"),
        (("latest:baseline", "0"), "there is no finished evaluate run with system=baseline"),
        (("abcdef00", "0"), "there is no run abcdef00"),
    ],
)
def test_wrong_runs_are_one_line(
    runs: tuple[Path, list[str]], names: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root, ids = runs
    chosen = [ids[int(name)] if name.isdigit() else name for name in names]
    assert main(["compare", *chosen, f"paths.root={root}"]) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("toolformer:")]
    assert len(error) == 1 and words in error[0]
