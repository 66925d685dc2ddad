"""What is said of a run that is done already."""

from pathlib import Path

import pytest

from tests.build import made, step
from toolformer.jobs import perform
from toolformer.results import Results

NOW, BEFORE = 10 * "a", 10 * "b"


@pytest.mark.parametrize(
    ("now", "then", "said"),
    [
        (NOW, NOW, "already done"),
        (NOW, BEFORE, "already done, by commit bbbbbbbb; the code has changed since"),
        (f"{NOW}-dirty", NOW, "already done, by commit aaaaaaaa; the code has changed since"),
        (NOW, f"{NOW}-dirty", "already done, by commit aaaaaaaa with uncommitted changes"),
        (f"{NOW}-dirty", f"{NOW}-dirty", "already done, by commit aaaaaaaa with uncommitted changes"),
    ],
)
def test_a_result_of_other_code_says_so(
    now: str, then: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perform, "git_commit", lambda: now)
    results = Results(tmp_path)
    run = results.get(made(results, step(), facts={"git_commit": then}))
    assert perform.already_done(run) == said
