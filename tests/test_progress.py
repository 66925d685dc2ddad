"""Progress without a terminal is a line now and then, and on one a bar."""

from __future__ import annotations

import logging
import sys

import pytest

from toolformer import progress
from toolformer.progress import Bar


def work() -> None:
    with Bar(total=4, desc="generate", unit="doc") as bar:
        for _ in range(4):
            bar.set_postfix_str("scoring")
            bar.update()


def test_without_a_terminal_lines_tell_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    with caplog.at_level(logging.INFO, "toolformer"):
        work()
    assert any(
        line.startswith("generate: 2 of 4 doc, ") and "left, scoring" in line for line in caplog.messages
    )
    shown = capsys.readouterr()  # the log's own lines may stand there
    assert not shown.out and "\r" not in shown.err and "%|" not in shown.err
    # What is left is told from all that is gone: an item that takes its time moves the figures before it ends.
    with Bar(total=4, desc="generate", unit=" doc") as bar, caplog.at_level(logging.INFO, "toolformer"):
        bar.start_t -= 600.0
        bar.update()
        bar.set_postfix_str("scoring")
    assert caplog.messages[-1].startswith("generate: 1 of 4 doc, 600.") and "30:0" in caplog.messages[-1]


def test_short_work_tells_nothing(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "toolformer"):
        work()
    assert caplog.messages == [] and capsys.readouterr() == ("", "")


def test_on_a_terminal_there_is_a_bar(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with caplog.at_level(logging.INFO, "toolformer"):
        work()
    assert "4/4" in capsys.readouterr().err and caplog.messages == []
