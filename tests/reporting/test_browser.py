"""The pages in a real Chromium, without a window and without a network.

Screenshots are kept in build/screenshots, or the folder that TOOLFORMER_SCREENSHOTS names. Without a browser the tests
are skipped; with TOOLFORMER_BROWSER=required they fail.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.runs import FUNNEL, HOSTILE, NOTE, samples, write_annotation
from toolformer.reporting import Report, candidate_stats, render, samples_page, tables
from toolformer.reporting.data import Annotation, Evidence, Sampled, Score

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
IS_MISSING = not (CHROMIUM and DRIVER) and os.environ.get("TOOLFORMER_BROWSER") != "required"
WHY = "Chromium and chromedriver are not installed (Debian: chromium-driver)"
pytestmark = [pytest.mark.chaos, pytest.mark.skipif(IS_MISSING, reason=WHY)]
SCREENSHOTS = Path(os.environ.get("TOOLFORMER_SCREENSHOTS", Path(__file__).parents[2] / "build/screenshots"))
SYSTEMS = ("model", "model_cc", "toolformer_disabled", "toolformer")
TASKS = (
    *("lama_squad", "lama_google_re", "lama_trex"),
    *(f"mlqa_{code}" for code in ("es", "de", "hi", "vi", "zh", "ar")),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A driver of a browser with a profile of its own."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (
        "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
        "disable-component-update", "disable-sync", "window-size=1280,900",
        f"user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def shot(browser: Any, name: str) -> None:
    """Keeps a screenshot."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    file = SCREENSHOTS / f"{name}.png"
    file.unlink(missing_ok=True)
    assert browser.save_screenshot(str(file)) and file.stat().st_size > 10_000


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `report.html` and `samples.html` of an annotation, the tables with most columns, and two runs."""
    folder = tmp_path_factory.mktemp("pages")
    files = write_annotation(folder)
    note = replace(NOTE, facts={"device": HOSTILE})
    thresholds = dict.fromkeys(("calculator", "calendar", "qa"), 1.0)
    edges, gains = candidate_stats.gains(files["candidates.parquet"], thresholds)
    annotation = Annotation(note, {}, FUNNEL, (), gains, edges, thresholds, files)
    score = Score(12.34, 10.1, 15.2, (note,), {"n": 1000})
    answers = {"M": ([0.0] * 30, None), "Toolformer": ([0.0] * 20 + [100.0] * 10, "Calculator")}
    sampled = tuple(
        Sampled(title, title, title, {"svamp": samples(folder / title / "svamp.parquet", values, tool)})
        for title, (values, tool) in answers.items()
    )
    scores = {(system, task): score for system in SYSTEMS for task in TASKS}
    evidence = Evidence(None, annotation, scores, sampled=sampled)
    content, data = tables.report_content(evidence), samples_page.data(evidence)
    assert data
    (folder / "report.html").write_text(render.html(content, "samples.html"), encoding="utf-8")
    (folder / "samples.html").write_text(render.samples_html(content.title, data), encoding="utf-8")
    return folder


def opened(browser: Any, page: Path, *, dark: bool = False, width: int = 1280) -> None:
    """Opens the page in these colours and width; it makes no request and logs no error."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(page.as_uri())
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    # Without those of the page that the browser begins with.
    sent = [one["request"]["url"] for one in requests if one["documentURL"].startswith("file:")]
    assert sent and all(url.startswith(("file:", "data:")) for url in sent)


def put(browser: Any, panel: str, name: str, value: str) -> str:
    """Sets a filter; returns the count."""
    code = """const section = document.getElementById(arguments[0]);
    const control = section.querySelector(`[name=${arguments[1]}]`); control.value = arguments[2];
    control.dispatchEvent(new Event("input", {bubbles: true}));
    return section.querySelector(".count").textContent"""
    return str(browser.execute_script(code, panel, name, value))


@pytest.mark.parametrize("dark", [False, True])
def test_the_report_is_readable(browser: Any, pages: Path, dark: bool) -> None:
    opened(browser, pages / "report.html", dark=dark)
    shot(browser, f"report-{'dark' if dark else 'light'}")
    # What is wider than its frame can be scrolled to, and nothing else is cut off.
    cut = """return [...document.querySelectorAll("main *")].filter((one) => one.scrollWidth > one.clientWidth + 1
      && !["auto", "scroll", "visible"].includes(getComputedStyle(one).overflowX)
      && !one.matches("span.away")).map((one) => one.outerHTML)"""
    assert browser.execute_script(cut) == []
    for width in (1280, 400):
        opened(browser, pages / "report.html", dark=dark, width=width)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        # What does not fit shows that there is more.
        bars = """return [...document.querySelectorAll(".scroll")].filter((one) => one.scrollWidth > one.clientWidth)
          .map((one) => one.offsetHeight > one.clientHeight)"""
        shown = browser.execute_script(bars)
        assert all(shown) and (shown or width == 1280)


def test_no_figure_is_cut_on_a_phone(browser: Any, report: Report) -> None:
    opened(browser, report.html, width=390)
    shot(browser, "report-phone")
    code = """return [...document.images].map((image) => [image.getBoundingClientRect().right, image.closest(".scroll")])"""
    drawn = browser.execute_script(code)
    assert drawn and all(right <= 390 and scrolled is None for right, scrolled in drawn)
    assert browser.find_element("css selector", ".gain").text == "+35.0 points"


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_the_message_is_on_the_first_screen(browser: Any, report: Report, width: int) -> None:
    opened(browser, report.html, width=width)
    code = """return [...document.querySelectorAll(".gain, .headline, .basis")].map((part) => {
      const box = part.getBoundingClientRect();
      return box.left >= 0 && box.right <= innerWidth && box.bottom <= 700 && part.scrollWidth <= part.clientWidth + 1})"""
    assert browser.execute_script(code) == [True] * 3
    # The differences themselves, on a phone too.
    code = """const frame = document.querySelector("#paired .scroll").getBoundingClientRect();
    return [...document.querySelectorAll("#paired tbody td:nth-child(3)")].map(
      (part) => part.getBoundingClientRect().right <= frame.right)"""
    shown = browser.execute_script(code)
    assert shown and all(shown)


def test_significance_fits_a_laptop(browser: Any, report: Report) -> None:
    opened(browser, report.html, width=1280)
    code = "const one = document.querySelector('#paired .scroll'); return one.scrollWidth - one.clientWidth"
    assert browser.execute_script(code) <= 0


def test_candidates_are_filtered_and_stay_text(browser: Any, pages: Path) -> None:
    opened(browser, pages / "samples.html")
    shot(browser, "samples-light")
    assert put(browser, "candidates", "order", "worst") == "10 of 10 candidates"
    gains = [one.text for one in browser.find_elements("css selector", "#candidates-list .gain")]
    assert gains[0] == "−0.50" and gains[-1] == "–" and gains[-2] == "+2.50"
    assert put(browser, "candidates", "status", "kept").startswith("5 of")
    assert put(browser, "candidates", "tool", "0").startswith("2 of")  # question answering
    assert put(browser, "candidates", "least", "2").startswith("1 of")
    assert browser.find_element("css selector", ".call.selected").text.startswith("[QA(")
    opened(browser, pages / "samples.html")
    assert put(browser, "candidates", "text", "alert(2)").startswith("1 of")
    text = browser.find_element("css selector", ".document").text
    assert "<img src=x onerror=alert(2)>" in text and '<script>alert("1")</script>' in text
    assert browser.execute_script("return document.querySelectorAll('img, iframe').length") == 0
    # Even a script that got into the page would not run.
    browser.execute_script(
        "const one = document.createElement('script'); one.textContent = 'window.ran = 1'; document.body.append(one)"
    )
    assert browser.execute_script("return window.ran") is None
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))


def test_two_runs_answer_side_by_side(browser: Any, pages: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, pages / "samples.html", dark=True)
    browser.find_element("id", "tab-candidates").send_keys(Keys.ARROW_RIGHT)
    reader = browser.find_element("css selector", "#questions .reader")
    assert "</script><img src=x onerror=alert(1)>" in reader.text
    assert put(browser, "questions", "outcome", "second") == "10 of 30 questions"
    first, second = browser.find_elements("css selector", "#questions .pair section")
    assert first.text.startswith("M ·") and "wrong" in first.text and "Calculator" not in first.text
    assert second.text.startswith("Toolformer ·") and "right" in second.text
    assert second.find_element("css selector", "mark").text == "[Calculator(1 + 1) -> 2]"
    shot(browser, "answers-dark")
