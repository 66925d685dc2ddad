"""The pages of results say what their tables say, and every run, table and link of theirs is there."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import tables
from tests.pages.page import ROOT
from toolformer.errors import UserError

RESULTS = ROOT / "docs" / "results"
HEADLINE, *PAGES = tables.PAGES


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [tables.README, HEADLINE, *PAGES], ids=lambda page: page.stem)
def test_a_pages_tables_are_computed_from_their_sources(page: Path) -> None:
    assert text(page) == tables.fill(text(page)), "python scripts/tables.py writes the tables into the pages"


def test_every_table_is_on_a_page() -> None:
    pages = "".join(map(text, [HEADLINE, *PAGES]))
    unused = {path.name for path in (RESULTS / "tables").glob("*.csv")} - set(re.findall(r"\w+\.csv", pages))
    assert not unused


def runs() -> list[dict[str, str]]:
    with (RESULTS / "runs.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_runs_are_listed_once_with_the_page_that_they_are_of() -> None:
    ids = [run["run"] for run in runs()]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"[0-9a-f]{8,16}", run) for run in ids)
    assert {run["page"] for run in runs()} <= {page.stem for page in (HEADLINE, *PAGES)}


def test_pages_name_no_runs() -> None:
    ids = {run["run"] for run in runs()}
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = "set,n,score,score_low,score_high,gain\nsums,12000,8.0,-1.5,9.0,3.5\nwords,12,7.0,6.0,8.0,-0.9\n"
    (tmp_path / "small.csv").write_text(rows, encoding="utf-8")
    return tmp_path


def test_a_table_has_intervals_signs_and_aligned_numbers(folder: Path) -> None:
    page = "Before.\n\n<!-- small.csv -->\n\n| old |\n\nAfter.\n"
    assert tables.fill(page, folder) == (
        "Before.\n\n<!-- small.csv -->\n\n"
        "| set | n | score | gain |\n| :--- | ---: | ---: | ---: |\n"
        "| sums | 12,000 | 8.0 [−1.5, 9.0] | +3.5 |\n| words | 12 | 7.0 [6.0, 8.0] | −0.9 |\n\nAfter.\n"
    )


def test_a_table_has_the_columns_that_its_comment_names(folder: Path) -> None:
    filled = tables.fill("<!-- small.csv | gain = points | set -->\n", folder)
    assert filled.splitlines()[2:] == [
        "| points | set |",
        "| :--- | :--- |",
        "| +3.5 | sums |",
        "| −0.9 | words |",
        "",
    ]


@pytest.mark.parametrize(
    ("comment", "message"),
    [("<!-- none.csv -->\n", "there is no"), ("<!-- small.csv | scores -->\n", "no column 'scores'")],
)
def test_a_comment_that_names_nothing_is_refused(folder: Path, comment: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        tables.fill(comment, folder)
