# SPDX-License-Identifier: Apache-2.0
"""Debian's chromium, driven by Playwright; tests are skipped by name where either is absent."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright  # noqa: E402

PROGRAM = shutil.which("chromium")
if PROGRAM is None:
    pytest.skip("chromium is not installed", allow_module_level=True)
WIDE, NARROW = 1300, 390  # pixels


@contextmanager
def browsing() -> Generator[Browser]:
    """Run the browser."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, url: str, *, width: int = WIDE, dark: bool = False) -> Generator[Page]:
    """Open a URL in a context of its own; at its end its console must hold no message."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    messages: list[str] = []

    def note(message: ConsoleMessage) -> None:
        messages.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda failure: messages.append(str(failure)))
    page.goto(url)
    yield page
    context.close()
    assert not messages


def show(page: Page, view: str, title: str) -> None:
    """Go to a view by its link, and wait until it is there."""
    page.get_by_role("link", name=title, exact=True).click()
    page.get_by_role("heading", name=title, level=1).wait_for()
    assert page.url.endswith(f"#/{view}")


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(page.evaluate(script))


def first_paints(page: Page) -> tuple[float, float]:
    """Return when the browser painted first, and when the largest part of the view: ms from begin.

    Source: Paint Timing and Largest Contentful Paint, W3C.
    """
    first = page.evaluate(
        "performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)[0]"
    )
    largest = page.evaluate(
        "new Promise(tell => new PerformanceObserver(list => "
        "tell(list.getEntries().at(-1).startTime))"
        ".observe({ type: 'largest-contentful-paint', buffered: true }))"
    )
    return float(first), float(largest)
