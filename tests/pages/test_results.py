"""The tables of results are those of the answers, and every link of these pages leads somewhere."""

import re
import shlex
import shutil
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest

from scripts import answers, tables
from tests.pages.page import ROOT
from toolformer.cli import main
from toolformer.results import Results
from toolformer.statistics.crossed import crossed

HEADLINE, *PAGES = tables.PAGES
MEASURED = (HEADLINE, *(page for page in PAGES if page.stem in ("loss", "errors", "positions")))
"""The pages of the registered experiments' results."""


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [tables.README, HEADLINE, *PAGES], ids=lambda page: page.stem)
def test_a_pages_tables_are_computed_from_their_sources(page: Path) -> None:
    assert text(page) == tables.fill(text(page)), "python scripts/tables.py writes the tables into the pages"


def test_the_published_answers_are_browsed_by_the_pages_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(answers.PUBLISHED, tmp_path / "published")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^ +toolformer (.*paths\.root=published)$", text(HEADLINE), re.M)
    assert [main(shlex.split(command)) for command in commands] == [0, 0], capsys.readouterr().err


def prose(page: str) -> str:
    """Without tables, comments, commands, links' targets and versions."""
    page = re.sub(r"^```.*?^```|<!--.*?-->", "", page, flags=re.M | re.S)
    page = re.sub(r"^(\||    ).*$|`[^`]*`|\]\([^)]*\)", "", page, flags=re.M)
    return re.sub(r"\b(Python|torch|transformers|release|Apache)[ -]\d[\d.]*", "", page)


def decimals(text: str) -> set[str]:
    return set(re.findall(r"\d+\.\d+", text))


@pytest.mark.parametrize("page", [tables.README, *MEASURED], ids=lambda page: page.stem)
def test_prose_quotes_numbers_of_the_tables(page: Path) -> None:
    tabled = "".join(line for path in MEASURED for line in text(path).splitlines() if line.startswith("|"))
    assert decimals(prose(text(page))) <= decimals(tabled)


def test_pages_name_no_runs() -> None:
    ids = {run.id for run in Results(answers.PUBLISHED).all_runs()}
    for page in (HEADLINE, *PAGES):
        assert not ids & set(re.findall(r"\b[0-9a-f]{8,16}\b", text(page))), page.name


def links() -> Iterator[tuple[Path, str, str]]:
    """Every link from or to a page of results: its page, file and anchor."""
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)\s]+)\)", text(page)):
            path, _, anchor = target.partition("#")
            if ":" not in path and (page in (HEADLINE, *PAGES) or "results" in path):
                yield page, path, anchor


def anchors(page: Path) -> set[str]:
    """As a code host makes them from headings."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text(page), flags=re.M | re.S), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_from_and_to_results_lead_somewhere() -> None:
    for page, path, anchor in links():
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {path}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {path}#{anchor}"


def test_the_worked_example_of_statistics_is_of_the_answers() -> None:
    sides = [answers.Answers().by_seed(arm, "svamp") for arm in ("disabled", "Toolformer")]
    seeds = sorted(sides[0].keys() & sides[1].keys())
    disabled, toolformer = (
        np.array([[row["score"] for row in sorted(side[seed], key=itemgetter("id"))] for seed in seeds])
        for side in sides
    )
    effect = crossed(toolformer - disabled)
    low, high = effect.ends
    shown = [
        f"{effect.error:.2f}",
        f"{effect.freedom:.1f}",
        f"[{low:+.1f}, {high:+.1f}]",
        f"{effect.p_value:.6f}",
    ]
    page = text(ROOT / "docs" / "statistics.md")
    rows = {"disabled": disabled, "Toolformer": toolformer, "difference": toolformer - disabled}
    for name, table in rows.items():
        (row,) = re.findall(rf"^\| {name} \|(.*)\|$", page, re.M)
        assert [float(cell.strip(" *")) for cell in row.split("|")] == pytest.approx(
            [*table.mean(1), table.mean()]
        )
    assert all(number in page for number in shown), shown
