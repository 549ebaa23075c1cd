# SPDX-License-Identifier: Apache-2.0
"""The view Traces as a browser shows it: side by side, by keyboard, 10,000 calls, hostile names."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nnpa_client import connect

from tests.page.serving import PageServer
from tests.page.viewing import HOSTILE, calls, record, viewing, write

pytestmark = pytest.mark.browser
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, Page  # noqa: E402

from tests.page.browser import NARROW, WIDE, browsing, opened, overflow  # noqa: E402

CALLS = 10_000
IN_SIGHT = 100  # lines in the document, at most


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser, shared by the tests."""
    with browsing() as running:
        yield running


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """Two traces of one program with other values."""
    folder = tmp_path_factory.mktemp("traces")
    with connect() as session:
        for name, scale in (("left", 1.0), ("right", 1.0625)):
            record(session, folder / name, scale)
    with viewing(folder / "left", folder / "right") as page:
        yield page


def line(page: Page, trace: int, text: str) -> str:
    """Return the text of a line of a trace, when it is there."""
    options = page.get_by_role("listbox").nth(trace).get_by_role("option").filter(has_text=text)
    options.first.wait_for()
    return options.first.inner_text()


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("dark", [False, True])
def test_two_traces_side_by_side(
    browser: Browser, pair: PageServer, width: int, dark: bool
) -> None:
    """Both traces have their lines, what differs is marked in both in ulp, and the page fits."""
    with opened(browser, pair.url, width=width, dark=dark) as page:
        for trace in (0, 1):
            assert "48 ulp" in line(page, trace, "transform_origtensor")
            assert "ELEMENT_RANGE_VIOLATION" in line(page, trace, "log")
            assert "equal-bytes" in line(page, trace, "transform_ztensor")
        assert overflow(page) == 0
        page.get_by_role("option").filter(has_text="transform_origtensor").first.click()
        details = page.locator(".detail section")
        details.nth(1).wait_for()
        for trace in (0, 1):
            assert "3 of 3 elements, 48 ulp at most" in details.nth(trace).inner_text()
        assert page.locator("[aria-selected=true]").count() == 2
        assert overflow(page) == 0


def test_calls_by_keyboard(browser: Browser, pair: PageServer) -> None:
    """Arrow keys, Home and End choose calls, of which the detail is shown."""
    with opened(browser, pair.url) as page:
        line(page, 0, "log")
        page.get_by_role("listbox").first.focus()
        for key, name in (
            ("Home", "zdnn_allochelper_ztensor"), ("ArrowDown", "zdnn_transform_ztensor"),
            ("End", "zdnn_log"), ("ArrowUp", "zdnn_transform_origtensor"),
        ):  # fmt: skip
            page.keyboard.press(key)
            page.locator(".detail section").first.filter(has_text=name).wait_for()
            assert page.get_by_role("listbox").first.evaluate(
                "box => box === document.activeElement"
            )


def test_lint_and_differences_lead_to_their_calls(browser: Browser, pair: PageServer) -> None:
    """A finding is a button that goes to its call; another goes from difference to difference."""
    with opened(browser, pair.url) as page:
        line(page, 0, "log")
        page.get_by_role("button", name="equal-bytes").first.click()
        chosen = page.get_by_role("listbox").first.locator("[aria-selected=true]")
        chosen.filter(has_text="transform_ztensor").wait_for()
        for name in ("transform_ztensor", "add", "transform_origtensor", "log"):
            page.get_by_role("button", name="calls that differ").first.click()
            chosen.filter(has_text=name).wait_for()


def test_ten_thousand_calls(browser: Browser, tmp_path: Path) -> None:
    """Of 10,000 calls only those in sight are in the document, wherever it is scrolled to."""
    with (
        viewing(write(tmp_path / "long", *calls(CALLS))) as server,
        opened(browser, server.url) as page,
    ):
        box = page.get_by_role("listbox")
        line(page, 0, "add")
        for share in (0.25, 0.5, 0.999, 0.1):
            box.evaluate("(box, share) => { box.scrollTop = share * box.scrollHeight; }", share)
            top = int(share * CALLS)
            page.locator(f"[aria-posinset='{top}']").wait_for()
            options = page.get_by_role("option")
            assert options.count() < IN_SIGHT
            shown = page.locator(f"[aria-posinset='{top}'] > span").first.inner_text()
            assert shown == str(top - 1)
        box.focus()
        page.keyboard.press("End")
        page.locator(f"[aria-posinset='{CALLS}'][aria-selected=true]").wait_for()
        page.locator(".detail").filter(has_text="zdnn_add").wait_for()


def test_hostile_names_in_a_trace_are_text(browser: Browser, tmp_path: Path) -> None:
    """Markup in names of a file, a machine, a version, a status and an error is shown as text."""
    records = calls(1)
    records[0].session.options.machine.name = HOSTILE
    records[0].session.options.library_version = HOSTILE
    failed = records[1].call
    failed.ClearField("results")
    failed.error.reason = failed.error.message = HOSTILE
    path = write(tmp_path / "<b onclick=x>", *records)
    with viewing(path) as server, opened(browser, server.url) as page:
        page.get_by_role("option").first.click()
        page.locator(".detail").filter(has_text=HOSTILE).wait_for()
        assert page.get_by_role("heading", name=str(path)).count() == 1
        assert HOSTILE in page.locator("main").inner_text()
        assert page.locator("main img, main b").count() == 0
        assert page.title() == "Traces - nnpa"


def test_a_truncated_trace_says_so(browser: Browser, tmp_path: Path) -> None:
    """A file that lost its end is shown up to there, and says that it did."""
    whole = write(tmp_path / "whole", *calls(2 * CALLS)).read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) * 2 // 3])
    with viewing(tmp_path / "cut") as server, opened(browser, server.url) as page:
        page.get_by_text("This trace is not complete: interrupted").wait_for()
        line(page, 0, "add")
