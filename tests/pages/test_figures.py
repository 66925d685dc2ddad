"""The figures of the documentation show what their tables say."""

import csv
import re

from tests.pages.page import ROOT


def test_the_figure_of_gains_shows_its_table() -> None:
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", (ROOT / "docs" / "gains.svg").read_text("utf-8"))
    with (ROOT / "docs/results/tables/gains.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    labels = ["+{gain}  [{gain_low}, {gain_high}]".format(**row) for row in rows]
    assert [text for text in shown if text.startswith("+")] == labels[::-1]
