"""The figures and the README's table show what the tables of the documentation say."""

import csv
import re

from tests.pages.page import ROOT

with (ROOT / "docs/results/tables/gains.csv").open(newline="", encoding="utf-8") as file:
    GAINS = list(csv.DictReader(file))


def test_the_figure_of_gains_shows_its_table() -> None:
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", (ROOT / "docs/gains.svg").read_text(encoding="utf-8"))
    labels = ["+{gain}  [{gain_low}, {gain_high}]".format(**row) for row in GAINS]
    assert [text for text in shown if text.startswith("+")] == labels[::-1]


def test_the_readme_shows_the_table_of_gains() -> None:
    shown = re.findall(r"^\| (.*) \(([\d,]+)\) \| (.*) \|$", (ROOT / "README.md").read_text("utf-8"), re.M)
    cells = [[name, n.replace(",", ""), *re.findall(r"\d+\.\d", rest)] for name, n, rest in shown]
    columns = "benchmark questions disabled toolformer gain gain_low gain_high repeat_gain".split()
    assert cells == [[row[column] for column in columns] for row in GAINS]
    two_seeds = [name for name, _, rest in shown if rest.endswith("†")]
    assert two_seeds == [row["benchmark"] for row in GAINS if row["repeat_seeds"] == "2"]
