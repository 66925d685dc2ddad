"""Progress without a terminal is a line now and then, and on one a bar."""

from contextlib import redirect_stderr

from tests.conftest import Capture, Log, Patch, Terminal
from toolformer import progress
from toolformer.progress import Bar


def work() -> None:
    with Bar(total=4, desc="generate", unit="doc") as bar:
        for _ in range(4):
            bar.set_postfix_str("scoring")
            bar.update()


def test_progress_is_lines_a_bar_or_nothing(monkeypatch: Patch, caplog: Log, capsys: Capture) -> None:
    caplog.set_level("INFO", "toolformer")
    work()
    assert caplog.messages == [] and capsys.readouterr() == ("", "")
    with monkeypatch.context() as patch:
        patch.setattr(progress, "EVERY", 0.0)
        work()
        assert any("generate: 2 of 4 doc, " in line and "left, scoring" in line for line in caplog.messages)
        shown = capsys.readouterr()  # the log's own lines may stand there
        assert not shown.out and "\r" not in shown.err and "%|" not in shown.err
        # What is left is told from all that is gone: an item that takes its time moves the figures before it ends.
        with Bar(total=4, desc="generate", unit=" doc") as bar:
            bar.start_t -= 600.0
            bar.update()
            bar.set_postfix_str("scoring")
        assert caplog.messages[-1].startswith("generate: 1 of 4 doc, 600.") and "30:0" in caplog.messages[-1]
    caplog.clear()
    with redirect_stderr(Terminal()) as terminal:
        work()
    assert "4/4" in terminal.getvalue() and caplog.messages == []
