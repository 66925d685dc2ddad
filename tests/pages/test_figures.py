"""The figure of gains shows what the tables of the documentation say."""

import csv
import re

from tests.pages.page import ROOT

with (ROOT / "docs/results/tables/gains.csv").open(newline="", encoding="utf-8") as file:
    GAINS = list(csv.DictReader(file))


def test_the_figure_of_gains_shows_its_table() -> None:
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", (ROOT / "docs/gains.svg").read_text(encoding="utf-8"))
    labels = ["+{gain}  [{gain_low}, {gain_high}]".format(**row) for row in GAINS]
    assert [text for text in shown if text.startswith("+")] == labels[::-1]
