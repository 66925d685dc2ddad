"""Progress is a bar on a terminal and a log line now and then elsewhere; long work is announced."""

from contextlib import redirect_stderr
from io import StringIO
from typing import Any

import pytest

from tests.build import Capture, Log, Patch, Terminal
from toolformer import progress
from toolformer.progress import Bar, size


@pytest.fixture(autouse=True)
def info(caplog: Log) -> None:
    caplog.set_level("INFO", "toolformer")


@pytest.fixture
def talkative(monkeypatch: Patch) -> None:
    """Every change is a line."""
    monkeypatch.setattr(progress, "EVERY", 0.0)


def work() -> None:
    with Bar(total=4, desc="generate", unit="texts") as bar:
        for _ in range(4):
            bar.set_postfix_str("scoring")
            bar.update()


def after(seconds: float, count: float, **options: Any) -> Bar:
    """A bar that has counted so much in this time."""
    bar = Bar(**{"desc": "generate", "unit": "texts", **options})
    bar.start_t -= seconds
    bar.update(count)
    return bar


def test_short_work_is_not_logged(caplog: Log, capsys: Capture) -> None:
    work()
    assert caplog.messages == [] and capsys.readouterr() == ("", "")


def test_lines_without_a_terminal(caplog: Log, capsys: Capture, talkative: None) -> None:
    work()
    assert any("generate: 2 of 4 texts, " in line and "left, scoring" in line for line in caplog.messages)
    shown = capsys.readouterr()  # the log's own lines may be there
    assert not shown.out and "\r" not in shown.err and "%|" not in shown.err


def test_a_bar_on_a_terminal(caplog: Log) -> None:
    with redirect_stderr(Terminal()) as terminal:
        work()
    assert "4/4" in terminal.getvalue() and caplog.messages == []


def test_figures_move_while_an_item_takes_its_time(caplog: Log, talkative: None) -> None:
    with after(600, 1, total=4) as bar:
        bar.set_postfix_str("scoring")
    assert caplog.messages[-1] == "generate: 1 of 4 texts, 600.0 s per text, 10:00 gone, 30:00 left, scoring"


def test_tokens_have_a_rate_per_second_however_slow(caplog: Log, talkative: None) -> None:
    with after(100, 50, total=4000, unit="tokens", unit_scale=True) as bar:
        bar.set_postfix_str("loss")
    assert "0.50 tokens/s" in caplog.messages[-1] and "s per" not in caplog.messages[-1]


@pytest.mark.parametrize("on_terminal", [False, True])
def test_long_work_has_a_line_as_soon_as_its_rate_is_known(caplog: Log, on_terminal: bool) -> None:
    """Once, with the figures of every other line; a terminal's bar shows them anyway."""
    with redirect_stderr(Terminal() if on_terminal else StringIO()):
        with after(60, 3, total=300 + 7, initial=7) as bar:
            bar.update()
    line = "generate: 10 of 307 texts, 20.0 s per text, 01:00 gone, 1:39:00 left"
    assert caplog.messages == ([] if on_terminal else [line])


def test_the_first_of_a_batch_give_no_rate(caplog: Log, talkative: None) -> None:
    """They took the time of all."""
    for count in (1, 32):
        with after(30, count, total=40, together=32) as bar:
            bar.set_postfix_str("")
    assert "generate: 1 of 40 texts, ? texts/s, 00:30 gone, ? left" in caplog.messages
    assert caplog.messages[-1] == "generate: 32 of 40 texts, 1.07 texts/s, 00:30 gone, 00:07 left"


def test_loading_a_model_counts_for_no_rate(caplog: Log) -> None:
    with Bar(total=301, desc="generate", unit="texts") as bar:
        bar.start_t -= 9000
        bar.update(0)
        bar.restart(ago=60)
        bar.update(3)
    assert caplog.messages == ["generate: 3 of 301 texts, 20.0 s per text, 01:00 gone, 1:39:20 left"]


def test_a_line_names_the_step_that_took_the_time(caplog: Log, monkeypatch: Patch) -> None:
    with Bar(total=4, desc="generate", unit="texts") as bar:
        bar.set_postfix_str("scoring")
        monkeypatch.setattr(progress, "EVERY", 0.0)
        bar.set_postfix_str("executing calls")
        monkeypatch.undo()
    assert caplog.messages[0].endswith("left, scoring")


@pytest.mark.parametrize(
    ("seconds", "count", "total"),
    [(60, 3, 5), (5, 1, 1000), (60, 3, None)],
    ids=["short", "early", "unknown"],
)
def test_no_announcement_of_short_work_or_without_a_rate(
    caplog: Log, seconds: float, count: int, total: int | None
) -> None:
    after(seconds, count, total=total).close()
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 kB"),
        (12, "1 kB"),
        (999_999, "1000 kB"),
        (3_400_000, "3.4 MB"),
        (1_200_000_000, "1.2 GB"),
        (1.2e13, "12,000 GB"),
    ],
)
def test_bytes_are_shown_in_their_size(count: int, shown: str) -> None:
    assert size(count) == shown
