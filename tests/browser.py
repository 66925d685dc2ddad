"""A real Chromium without a window, for tests of pages.

Screenshots are kept in build/screenshots, or the folder that TOOLFORMER_SCREENSHOTS names. Without a browser the tests are
skipped; with TOOLFORMER_BROWSER=required, as .ci/run has it, they fail.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed.browser import MISSING, chromium

__all__ = ["chromium", "needs_browser", "shot"]

REQUIRED = os.environ.get("TOOLFORMER_BROWSER") == "required"
needs_browser = pytest.mark.skipif(bool(MISSING) and not REQUIRED, reason=MISSING)
SCREENSHOTS = Path(
    os.environ.get("TOOLFORMER_SCREENSHOTS", Path(__file__).parents[1] / "build" / "screenshots")
)


def shot(browser: Any, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    file = SCREENSHOTS / f"{name}.png"
    file.unlink(missing_ok=True)
    assert browser.save_screenshot(str(file)) and file.stat().st_size > 10_000
