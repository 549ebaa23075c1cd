# SPDX-License-Identifier: Apache-2.0
"""The page of `nnpa network validate` in a browser: first screen, width, unfolding, print."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nnpa_network.reporting.accuracy import measure
from nnpa_network.reporting.accuracy_page import as_html

pytestmark = pytest.mark.browser
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, Page  # noqa: E402

from tests.network.hosting import normal  # noqa: E402
from tests.network.small_models import dense  # noqa: E402
from tests.server.page.browser import NARROW, WIDE, browsing, opened, overflow  # noqa: E402

_FILLED = 0.9  # of the window, by tables and charts
_ANSWERS = ("h1", ".side", ".losing", ".chart")
_SCREEN = 900  # pixels


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser, shared by the tests."""
    with browsing() as running:
        yield running


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the dense network over some rows."""
    data = [{"x": row[None]} for row in normal(16, 4)]
    path = tmp_path_factory.mktemp("accuracy") / "page.html"
    path.write_text(as_html(measure(dense().SerializeToString(), data)), encoding="utf-8")
    return path


def edges(page: Page, selector: str) -> tuple[float, float, float]:
    """Return the left, right and lower edge of an element in pixels of the page."""
    box = page.locator(selector).bounding_box()
    assert box is not None
    return box["x"], box["x"] + box["width"], box["y"] + box["height"]


@pytest.mark.parametrize("dark", [False, True])
def test_answers_on_the_first_screen(browser: Browser, file: Path, dark: bool) -> None:
    """Verdict, machines side by side, losing nodes and the chart are seen without scrolling."""
    with opened(browser, file.as_uri(), dark=dark) as shown:
        places = [edges(shown, selector) for selector in _ANSWERS]
        assert max(lower for *_, lower in places) <= _SCREEN
        width = max(right for _, right, _ in places) - min(left for left, *_ in places)
        assert width >= _FILLED * WIDE
        assert overflow(shown) == 0


@pytest.mark.parametrize("width", [NARROW, 1900])
def test_fills_its_window(browser: Browser, file: Path, width: int) -> None:
    """Tables and charts use the width of the window, and the page is not wider."""
    with opened(browser, file.as_uri(), width=width) as shown:
        assert overflow(shown) == 0
        frames = [edges(shown, f".wide:has({selector})") for selector in _ANSWERS[1:]]
        assert max(right for _, right, _ in frames) - frames[0][0] >= _FILLED * width


def test_unfolds_details(browser: Browser, file: Path) -> None:
    """The table of nodes is folded at first, and is there after a click on its title."""
    with opened(browser, file.as_uri()) as shown:
        table = shown.locator(".nodes table")
        assert not table.is_visible()
        shown.get_by_text("Node by node").click()
        assert table.is_visible()
        assert overflow(shown) == 0


def test_prints_all_details(browser: Browser, file: Path) -> None:
    """On paper every table is there without unfolding."""
    with opened(browser, file.as_uri()) as shown:
        shown.emulate_media(media="print")
        folded = shown.locator("details:not([open]) table").all()
        assert len(folded) == 4
        assert all(table.is_visible() for table in folded)
