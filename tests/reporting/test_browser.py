"""The pages in a real Chromium, without a window and without a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.speed import viewer as speed
from tests.browser import chromium, needs_browser, shot
from tests.reporting.conftest import accuracy, write_annotation
from tests.reporting.test_figures import samples
from toolformer.errors import UserError
from toolformer.reporting import Report, build
from toolformer.tracking import Tracker

pytestmark = needs_browser
MANY = 10_000
READABLE = 4.5  # WCAG 2, AA: contrast of text


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report on the calls of four texts, one of them hostile, and 10,000 more candidates in further texts."""
    root = tmp_path_factory.mktemp("pages")
    tracker = Tracker(None, root / "runs")
    files = write_annotation(root)
    table = pq.read_table(files[0])
    row = {
        **table.to_pylist()[0],
        "gain": -0.25,
        "loss_result": 1.0,
        "loss_none": 0.75,
        "loss_no_result": 0.75,
    }
    more = [
        {
            **row,
            "doc_id": f"more-{n // 20}",
            "position": 90 * (n % 20),
            "sample": n % 5,
            "call": f"[Calculator({n} + {7 * n})]",
            "result": str(8 * n),
            "gain": -0.25 + n / MANY / 10,
        }
        for n in range(MANY - len(table))
    ]
    pq.write_table(pa.concat_tables([table, pa.Table.from_pylist(more, schema=table.schema)]), files[0])
    texts = [
        {
            "doc_id": doc_id,
            "text": " ".join(f"Sentence {n} of {doc_id} adds {n} and more." for n in range(60)),
            "calls": [],
        }
        for doc_id in dict.fromkeys(one["doc_id"] for one in more)
    ]
    files.append(root / "documents_without_calls.parquet")
    pq.write_table(pa.Table.from_pylist(texts, schema=pq.read_schema(files[2])), files[-1])
    with tracker.run(stage="generate", name="g", fingerprint="g", config={}) as run:
        for file in files:
            run.artifact(file)
    for system, scores in (("model", [0.0] * 30), ("toolformer", [0.0] * 20 + [100.0] * 10)):
        tool = "Calculator" if system == "toolformer" else None
        with tracker.run(
            stage="evaluate", name="e", fingerprint=system, config={}, tags={"system": system}
        ) as run:
            run.metrics(accuracy("svamp", sum(scores) / 30, 30))
            run.artifact(samples(root / system / "svamp.parquet", scores, tool), "samples")
    return build(tracker, None, root / "report")


def opened(browser: Any, path: Path, *, dark: bool = False, width: int = 1280) -> Any:
    """The page, in the colours and width asked for; it has asked nothing of a network and met no error."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(path.as_uri())
    calm(browser)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [
        one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"
    ]
    assert asked and all(url.startswith("file:") for url in asked)
    return browser


def calm(browser: Any) -> None:
    """Two frames later, and without an error so far."""
    frames = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()));"
    browser.execute_async_script(frames)
    assert browser.get_log("browser") == []


def waited(browser: Any, condition: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 30).until(lambda driver: driver.execute_script(f"return {condition}"))
    calm(browser)


def count(browser: Any) -> str:
    return str(browser.execute_script("return document.getElementById('candidates-count').textContent"))


def set_value(browser: Any, element: str, value: str) -> None:
    code = """const one = document.getElementById(arguments[0]); one.value = arguments[1];
    one.dispatchEvent(new Event("input", {bubbles: true})); one.dispatchEvent(new Event("change", {bubbles: true}));"""
    browser.execute_script(code, element, value)


def chosen(browser: Any, panel: str = "candidates") -> str:
    """What a screen reader is told is chosen."""
    return str(
        browser.execute_script(
            """const list = document.getElementById(`${arguments[0]}-list`);
            const row = document.getElementById(list.getAttribute("aria-activedescendant"));
            return row.getAttribute("aria-selected") + row.getAttribute("aria-posinset");""",
            panel,
        )
    )


@pytest.mark.parametrize("dark", [False, True])
def test_the_report_draws_its_figures(browser: Any, report: Report, dark: bool) -> None:
    opened(browser, report.html, dark=dark)
    places, drawn = browser.execute_script(
        "return [document.querySelectorAll('.plot').length, document.querySelectorAll('.plot .main-svg').length]"
    )
    assert places >= 3 and drawn >= places
    named = "return [...document.querySelectorAll('.plot')].every((one) => document.getElementById(one.getAttribute('aria-describedby')))"
    assert browser.execute_script(named)
    values = "return [...document.querySelectorAll('.values tbody')].map((one) => one.rows.length)"
    assert all(browser.execute_script(values))  # every plot has its values as text
    shot(browser, f"report-{'dark' if dark else 'light'}")
    opened(browser, report.html, dark=dark, width=400)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 400
    assert_readable(
        browser, ["h1", ".lead", ".caption", "td small", "td.p", ".notes li", "code", "nav a", "h2 span"]
    )


WATCH = """window.made = 0; window.watcher?.disconnect();
window.watcher = new MutationObserver((changes) => { for (const one of changes) window.made +=
  [...one.addedNodes].filter((node) => node.classList?.contains("row")).length; });
window.watcher.observe(document.getElementById("candidates-list"), {childList: true, subtree: true});"""
IN_SIGHT = 40
"""Rows that a list has at most: those in a window of 900 pixels, and a few on either side."""


def test_ten_thousand_candidates_cost_as_much_as_the_rows_that_are_seen(browser: Any, report: Report) -> None:
    """Whatever one does, only so many rows are made, and so many elements are in the page: that is what keeps it smooth."""
    assert report.samples
    opened(browser, report.samples)
    assert count(browser).startswith("10,000 of 10,000")
    calls = browser.execute_script(
        """const rows = JSON.parse(document.getElementById("data-samples").textContent).candidates;
        return [new Set(rows.rows.map((one) => one.call)).size, Math.min(...rows.documents.slice(5).map((one) => one.text.length))]"""
    )
    assert calls[0] > 0.99 * MANY and calls[1] > 2000  # distinct calls, in texts of realistic length
    elements = browser.execute_script("return document.querySelectorAll('*').length")
    scroll = "const one = document.getElementById('candidates-list'); one.scrollTop = arguments[0] * one.scrollHeight"
    doings = [lambda place=place: browser.execute_script(scroll, place) for place in (0.1, 0.5, 0.9, 1.0)]
    values = [
        ("text", "sentence 59 of more-4"),
        ("text", ""),
        ("status", "dropped"),
        ("order", "worst"),
        ("least", "-0.2"),
    ]
    doings += [
        lambda name=name, value=value: set_value(browser, f"candidates-{name}", value)
        for name, value in values
    ]
    for doing in doings:
        browser.execute_script(WATCH)
        before = count(browser)
        doing()
        if doing in doings[4:7] + doings[8:]:  # typing is waited for, and these filters change the count
            waited(
                browser, f"document.getElementById('candidates-count').textContent !== {json.dumps(before)}"
            )
        calm(browser)
        rows, made, now = browser.execute_script(
            "return [document.querySelectorAll('#candidates-list [role=option]').length, window.made, "
            "document.querySelectorAll('*').length]"
        )
        assert 5 < rows <= IN_SIGHT and made <= 3 * IN_SIGHT and now < elements + 10 * IN_SIGHT
    for name in ("least", "status"):
        set_value(browser, f"candidates-{name}", "")
    waited(browser, "document.getElementById('candidates-count').textContent.startsWith('10,000 of')")
    browser.execute_script(scroll, 1.0)
    calm(browser)
    last = "return Math.max(...[...document.querySelectorAll('#candidates-list [role=option]')].map((one) => +one.ariaPosInSet))"
    assert browser.execute_script(last) == MANY


def test_what_the_page_of_samples_takes_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    speed.main(["candidates=400", "repeats=1"])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(figures) == {"scroll_vs_tenth", "filter_vs_tenth", "longest_frame_ms"}
    assert all(value > 0 for value in figures.values())
    with pytest.raises(UserError, match="unknown argument .repeat=1.; known are .*repeats="):
        speed.main(["repeat=1"])


def test_tabs_by_keys(browser: Any, report: Report) -> None:
    from selenium.webdriver.common.keys import Keys

    assert report.samples
    opened(browser, report.samples)
    tab = browser.find_element("id", "tab-candidates")
    tab.send_keys(Keys.END)
    assert browser.switch_to.active_element.get_attribute("id") == "tab-questions"
    browser.switch_to.active_element.send_keys(Keys.HOME)
    assert browser.switch_to.active_element.get_attribute("id") == "tab-candidates"
    assert tab.get_attribute("aria-selected") == "true"


def test_filters_and_keys(browser: Any, report: Report) -> None:
    from selenium.webdriver.common.keys import Keys

    assert report.samples
    opened(browser, report.samples)
    set_value(browser, "candidates-status", "kept")
    waited(browser, "document.getElementById('candidates-count').textContent.startsWith('5 of')")
    assert chosen(browser) == "true1"
    focused = browser.find_element("id", "candidates-list")
    for key, expected in (
        (Keys.ARROW_DOWN, "true2"),
        (Keys.END, "true5"),
        (Keys.ARROW_UP, "true4"),
        (Keys.HOME, "true1"),
    ):
        focused.send_keys(key)
        calm(browser)
        assert chosen(browser) == expected
    outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert browser.switch_to.active_element == focused and outline == "solid"
    shot(browser, "samples-light")
    set_value(browser, "candidates-tool", "0")  # question answering
    waited(browser, "document.getElementById('candidates-count').textContent.startsWith('2 of')")
    set_value(browser, "candidates-least", "2")
    waited(browser, "document.getElementById('candidates-count').textContent.startsWith('1 of')")
    assert browser.find_element("css selector", ".call.chosen").text.startswith("[QA(")
    set_value(browser, "candidates-text", "no such words")
    waited(browser, "document.getElementById('candidates-count').textContent.startsWith('0 of')")
    assert "No candidate fits" in browser.find_element("id", "candidates-reader").text


def test_every_control_has_a_name_and_can_be_reached_by_tab(browser: Any, report: Report) -> None:
    assert report.samples
    opened(browser, report.samples)
    nameless = """return [...document.querySelectorAll("input, select, button, [tabindex]")].filter((one) =>
      !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim())).length"""
    assert browser.execute_script(nameless) == 0
    order = []
    for _ in range(14):
        browser.execute_cdp_cmd(
            "Input.dispatchKeyEvent",
            {"type": "keyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9},
        )
        order.append(browser.execute_script("return document.activeElement.id"))
    wanted = ["tab-candidates", "candidates-text", "candidates-tool", "candidates-status", "candidates-least"]
    wanted += ["candidates-most", "candidates-order", "candidates-all", "candidates-list"]
    assert [one for one in order if one in wanted] == wanted


def test_hostile_text_stays_text(browser: Any, report: Report) -> None:
    assert report.samples
    opened(browser, report.samples)
    set_value(browser, "candidates-text", "alert(2)")
    waited(browser, "document.getElementById('candidates-count').textContent.startsWith('1 of')")
    text = browser.find_element("css selector", ".document").text
    assert "<img src=x onerror=alert(2)>" in text and '<script>alert("1")</script>' in text
    browser.execute_script("document.getElementById('tab-questions').click()")
    calm(browser)
    assert "</script><img src=x onerror=alert(1)>" in browser.find_element("id", "questions-reader").text
    assert browser.execute_script("return document.querySelectorAll('img, iframe').length") == 0
    # Even a script that got into the page would not run.
    browser.execute_script(
        "const one = document.createElement('script'); one.textContent = 'window.ran = 1'; document.body.append(one)"
    )
    assert browser.execute_script("return window.ran") is None
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))


def test_two_runs_answer_side_by_side(browser: Any, report: Report) -> None:
    assert report.samples
    opened(browser, report.samples, dark=True)
    browser.execute_script("document.getElementById('tab-questions').click()")
    set_value(browser, "questions-outcome", "second")
    waited(browser, "document.getElementById('questions-count').textContent.startsWith('10 of 30')")
    first, second = browser.find_elements("css selector", "#questions-reader .pair section")
    assert first.text.startswith("M ·") and "wrong" in first.text and "Calculator" not in first.text
    assert (
        second.text.startswith("Toolformer ·")
        and "right" in second.text
        and "Calculator(1 + 1)" in second.text
    )
    assert second.find_element("css selector", "mark").text == "[Calculator(1 + 1) -> 2]"
    shot(browser, "answers-dark")


@pytest.mark.parametrize("dark", [False, True])
def test_the_samples_are_readable(browser: Any, report: Report, dark: bool) -> None:
    assert report.samples
    opened(browser, report.samples, dark=dark)
    assert_readable(
        browser,
        [".row .gain", ".row .chip", ".row bdi", ".facts dt", ".call", ".call .amount", ".count", "label"],
    )
    browser.execute_script("document.getElementById('tab-questions').click()")
    calm(browser)
    assert_readable(browser, [".mark", ".target", ".pair .chip", ".pair dt", "mark:not(.mark)"])


def assert_readable(browser: Any, selectors: list[str]) -> None:
    """Every visible text of these elements stands out from what is behind it, as the browser computes the colours."""
    code = """
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const light = (colour) => rgba(colour).slice(0, 3).map((one) => one / 255)
      .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
      .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
    const behind = (one) => { while (one) { const colour = getComputedStyle(one).backgroundColor;
      if (rgba(colour)[3] === 255) return colour; one = one.parentElement; } return "white"; };
    const worst = {};
    for (const selector of arguments[0]) {
      const found = [...document.querySelectorAll(selector)].filter((one) => one.offsetParent && one.textContent.trim());
      worst[selector] = found.length ? Math.min(...found.map((one) => {
        const [a, b] = [light(getComputedStyle(one).color), light(behind(one))].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05); })) : 0;
    }
    return worst;"""
    worst = browser.execute_script(code, selectors)
    assert all(contrast >= READABLE for contrast in worst.values()), worst
