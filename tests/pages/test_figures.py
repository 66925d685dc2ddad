"""The figures show what the published runs say."""

import re

from scripts import method_figure
from scripts.figures import gains
from tests.pages.page import ROOT


def test_the_figure_of_gains_shows_its_rows() -> None:
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", (ROOT / "docs/gains.svg").read_text(encoding="utf-8"))
    labels = [row.label for row in gains()]
    assert [text for text in shown if text[:1] in "+−"] == labels[::-1]


def test_the_figure_of_the_method_is_what_its_script_draws() -> None:
    assert method_figure.PATH.read_text(encoding="utf-8") == method_figure.svg()
