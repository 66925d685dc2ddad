"""The docs site: it builds strictly, without network, and its links hold on a code host as well."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.docs_site import relink
from tests.pages.page import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; strict: a page outside the navigation, a link or an anchor to nothing is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    build = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (build.returncode, build.stderr) == (0, "")
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.relative_to(site) for path in site.rglob("*.html")}
    outside = {"404", "index", "results/index", "contributing", "changelog"}
    assert built == pages | {Path(f"{name}.html") for name in outside}


def test_no_page_loads_anything_from_another_server(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|iframe|link)\b[^>]*(?:src|href)="((?:https?:)?//[^"]*)"')
    assert not [found for page in site.rglob("*.html") for found in loads.findall(page.read_text())]


def test_the_results_folder_opens_the_page_of_results(site: Path) -> None:
    assert "url=../results.html" in (site / "results" / "index.html").read_text()


def test_the_reference_has_signatures_and_docstrings(site: Path) -> None:
    page = re.sub(r"<[^>]+>", "", (site / "api.html").read_text(encoding="utf-8"))
    assert "Loads a model folder or hub model, with the configured tools." in page
    assert "max_new_tokens: int = 40" in page


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("Why a call that was started", "api.html"),
        ("HF_TOKEN", "troubleshooting.html"),
        ("out of memory", "troubleshooting.html"),
        ("chat model", "faq.html"),
        ("resume", "faq.html"),
    ],
)
def test_the_search_finds(site: Path, words: str, page: str) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    found = [entry["location"] for entry in entries if words in entry["text"]]
    assert any(location.startswith(page) for location in found), found


@pytest.mark.parametrize(
    ("source", "name", "link", "on_site"),
    [
        ("README.md", "index.md", "[keys](docs/keys.md#data)", "[keys](keys.md#data)"),
        ("README.md", "index.md", '<img src="docs/report.png" alt="x">', '<img src="report.png" alt="x">'),
        ("docs/results.md", "results.md", "[README](../README.md#usage)", "[README](index.md#usage)"),
        ("docs/results/a.md", "results/a.md", "[x](../keys.md)", "[x](../keys.md)"),
        ("docs/results/a.md", "results/a.md", "[changes](../../CHANGELOG.md)", "[changes](../changelog.md)"),
        ("docs/keys.md", "keys.md", "[first](gpu.md#1-run), [x](#2-x)", "[first](gpu.md#1-run), [x](#2-x)"),
        ("docs/keys.md", "keys.md", "see [the base](../conf/base.yaml)", "see the base"),
        ("docs/keys.md", "keys.md", "[above](#data), [site](https://semver.org)", "[above](#data), [site](https://semver.org)"),
    ],
)  # fmt: skip
def test_links_lead_to_the_same_page_on_the_site(source: str, name: str, link: str, on_site: str) -> None:
    assert relink(link, source, name) == on_site


def test_a_link_to_nothing_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        relink("[gone](../conf/gone.yaml)", "docs/keys.md", "keys.md")
    assert "docs/keys.md links to ../conf/gone.yaml, which is not there" in caplog.text
