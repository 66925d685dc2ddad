"""The figure of gains shows what its answers say."""

import re

from scripts.figures import gains
from tests.pages.page import ROOT


def test_the_figure_of_gains_shows_its_rows() -> None:
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", (ROOT / "docs/gains.svg").read_text(encoding="utf-8"))
    labels = [row.label for row in gains()]
    assert [text for text in shown if text[:1] in "+−"] == labels[::-1]
