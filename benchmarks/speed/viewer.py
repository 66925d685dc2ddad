"""How the page of samples bears 10,000 candidates, against the tenth of them, in one run of a real Chromium.

    python -m benchmarks.speed.viewer [candidates=10000] [repeats=5]

On a page with all candidates and on one with a tenth of them: how long it takes until its first rows stand; what a frame
takes while the list scrolls 100 times by 300 pixels; and what choosing the next candidate, a filter by
status, an order, and a search for a word take until the page is painted. The median of the repeats, the frames by their
median and their longest. Prints a table, and as one JSON object on the last line `scroll_vs_tenth` and `filter_vs_tenth`
(1: ten times the candidates cost nothing) and `longest_frame_ms`. A screen shows a frame each 16.7 ms.

Needs Chromium, chromedriver and selenium (`pip install toolformer[dev]`).
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.speed import browser
from benchmarks.speed.arguments import given, run
from benchmarks.speed.machine import machine
from toolformer.errors import UserError
from toolformer.reporting.page import samples_html

OF_DOCUMENT = 20
SENTENCES = 60
STEPS = 100
DOINGS = {
    "next candidate": 'list.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowDown", bubbles: true, cancelable: true}));',
    "filter by status": 'put("candidates-status", at % 2 ? "" : "dropped");',
    "order": 'put("candidates-order", at % 2 ? "best" : "worst");',
    "search": 'put("candidates-text", at % 2 ? "" : "sentence 59");',
}
"""What a reader does, as scripts; `at` counts the repeats."""
PAINTED = """const done = arguments[1], at = arguments[0];
const put = (id, value) => { const one = document.getElementById(id); one.value = value;
  for (const kind of ["input", "change"]) one.dispatchEvent(new Event(kind, {bubbles: true})); };
const list = document.getElementById("candidates-list");
const before = performance.now();
const watcher = new MutationObserver(() => { watcher.disconnect();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - before))); });
watcher.observe(list, {childList: true, subtree: true, attributes: true});
%s"""
SCROLL = """const done = arguments[1], steps = arguments[0], list = document.getElementById("candidates-list");
const times = []; let step = 0, before = 0;
const turn = (now) => {
  if (step > 1) times.push(now - before);
  before = now;
  if (step === steps) { done(times); return; }
  step += 1;
  list.scrollTop = list.scrollHeight / 4 + 300 * step; // some five rows a frame
  requestAnimationFrame(turn);
};
requestAnimationFrame(turn);"""
OPENED = """const done = arguments[0];
requestAnimationFrame(() => setTimeout(() => done(performance.now())));"""


def data(candidates: int) -> dict[str, Any]:
    """What the page shows: calls in texts of some 2,500 characters, twenty of them in each, a tenth kept."""
    chance = random.Random(0)
    documents = [
        {
            "id": f"d{n}",
            "text": " ".join(f"This is sentence {m} of document {n}." for m in range(SENTENCES)),
            "cut": False,
            "left": 0,
            "url": f"https://example.org/2020/05/{n}",
            "date": "2020-05-01",
        }
        for n in range(-(-candidates // OF_DOCUMENT))
    ]
    rows = []
    for n in range(candidates):
        kept, gain = n % 10 == 0, chance.gauss(0, 1)
        losses = [3.0 - gain, 3.0, 3.0 + chance.random()]
        rows.append(
            {
                "document": n // OF_DOCUMENT,
                "tool": n % 2,
                "position": 90 * (n % OF_DOCUMENT),
                "sample": n % 5,
                "call": f"[Calculator({n} * {n + 1})]" if n % 2 else f'[QA("What is number {n}?")]',
                "result": str(n * (n + 1)),
                "kept": kept,
                "reason": "" if kept else "gain below the threshold",
                "gain": gain,
                "start": chance.random(),
                "losses": losses,
            }
        )
    shown = {
        "tools": ["Question Answering", "Calculator"],
        "thresholds": [1.0, 1.0],
        "documents": documents,
        "rows": rows,
        "total": candidates,
        "drawn": "",
        "run": "00000000",
        "gain": "L⁻ − L⁺",
    }
    return {"candidates": shown, "questions": []}


def measured(driver: Any, page: Path, repeats: int) -> dict[str, float]:
    """Milliseconds by what is done."""
    opened = []
    for _ in range(repeats):
        driver.get(page.as_uri())
        opened.append(driver.execute_async_script(OPENED))
    frames = [time for _ in range(repeats) for time in driver.execute_async_script(SCROLL, STEPS)]
    found = {
        "opened": statistics.median(opened),
        "frame of scrolling": statistics.median(frames),
        "longest frame": max(frames),
    }
    for name, script in DOINGS.items():
        # Pairs of doing and undoing, of which each counts.
        times = [driver.execute_async_script(PAINTED % script, at) for at in range(2 * repeats)]
        found[name] = statistics.median(times)
    return found


def main(arguments: Sequence[str]) -> None:
    """Measures and prints."""
    options = given(arguments, {"candidates": "10000", "repeats": "5"})
    many, repeats = int(options["candidates"]), int(options["repeats"])
    if browser.MISSING:
        raise UserError(browser.MISSING)
    times = {}
    with tempfile.TemporaryDirectory() as folder, browser.chromium(Path(folder) / "profile") as driver:
        version = f"Chromium {driver.capabilities['browserVersion']}"
        for count in (max(many // 10, 1), many):
            page = Path(folder) / f"samples-{count}.html"
            page.write_text(samples_html("speed", data(count)), encoding="utf-8")
            times[count] = measured(driver, page, repeats)
    tenth, whole = times.values()
    table = Table("ms", *(f"{count:,} candidates" for count in times), title=f"{version}, {machine()}")
    for name in whole:
        table.add_row(name, f"{tenth[name]:.1f}", f"{whole[name]:.1f}")
    Console().print(table)
    ratios = {
        "scroll_vs_tenth": whole["frame of scrolling"] / tenth["frame of scrolling"],
        "filter_vs_tenth": whole["filter by status"] / tenth["filter by status"],
        "longest_frame_ms": whole["longest frame"],
    }
    print(json.dumps({name: round(value, 3) for name, value in ratios.items()}))


if __name__ == "__main__":
    run("viewer", main)
