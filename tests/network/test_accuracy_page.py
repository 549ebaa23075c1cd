# SPDX-License-Identifier: Apache-2.0
"""The page of `nnpa network validate` in a browser: it takes the width of its window."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from nnpa_network.reporting.accuracy import measure
from nnpa_network.reporting.accuracy_page import as_html

pytestmark = pytest.mark.browser
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser  # noqa: E402

from tests.network.small_models import dense  # noqa: E402
from tests.server.page.browser import NARROW, browsing, opened, overflow  # noqa: E402

_FILLED = 0.9  # of the window, by tables and charts


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser, shared by the tests."""
    with browsing() as running:
        yield running


@pytest.mark.parametrize("width", [NARROW, 1400])
def test_the_accuracy_page_fills_its_window(browser: Browser, tmp_path: Path, width: int) -> None:
    """Tables and charts are as wide as the window, and the page is not wider."""
    data = [{"x": np.ones((1, 4), np.float32)}]
    file = tmp_path / "page.html"
    file.write_text(as_html(measure(dense().SerializeToString(), data)), encoding="utf-8")
    with opened(browser, file.as_uri(), width=width) as shown:
        assert overflow(shown) == 0
        script = "[...document.querySelectorAll('.side, .whole')].map(part => part.clientWidth)"
        widths = shown.evaluate(script)
        assert len(widths) == 3
        assert min(widths) >= _FILLED * width
