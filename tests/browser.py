"""A real Chromium without a window, for tests of pages.

Screenshots are kept in build/screenshots, or the folder that TOOLFORMER_SCREENSHOTS names. Without a browser the tests are
skipped; with TOOLFORMER_BROWSER=required, as .ci/run has it, they fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
REQUIRED = os.environ.get("TOOLFORMER_BROWSER") == "required"
MISSING = (
    "" if CHROMIUM and DRIVER else "Chromium and chromedriver are not installed (Debian: chromium-driver)"
)
needs_browser = pytest.mark.skipif(bool(MISSING) and not REQUIRED, reason=MISSING)
SCREENSHOTS = Path(
    os.environ.get("TOOLFORMER_SCREENSHOTS", Path(__file__).parents[1] / "build" / "screenshots")
)


def chromium(profile: Path) -> Iterator[Any]:
    """A driver of a browser with a profile of its own; ended when the next value is asked for."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    assert not MISSING, MISSING
    options = ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (
        "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
        "disable-component-update", "disable-sync", "window-size=1280,900", f"user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=ChromeService(DRIVER))
    yield driver
    driver.quit()


def shot(browser: Any, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    file = SCREENSHOTS / f"{name}.png"
    file.unlink(missing_ok=True)
    assert browser.save_screenshot(str(file)) and file.stat().st_size > 10_000
