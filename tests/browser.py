"""A real Chromium without a window, for tests of pages.

Screenshots are kept in the folder that TOOLFORMER_SCREENSHOTS names, else among pytest's temporary files.
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
needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="Chromium and chromedriver are not installed (Debian: chromium-driver)"
)


def chromium(profile: Path) -> Iterator[Any]:
    """A driver of a browser with a profile of its own; ended when the next value is asked for."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

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


def shot(browser: Any, name: str, tmp_path: Path) -> None:
    folder = Path(os.environ.get("TOOLFORMER_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    assert browser.save_screenshot(str(folder / f"{name}.png"))
    assert (folder / f"{name}.png").stat().st_size > 10_000
