# SPDX-License-Identifier: Apache-2.0
"""The views as a browser shows them: no error in its console, keyboard, narrow, dark and light."""

from collections.abc import Iterator

import numpy as np
import pytest
from nnpa_client import ZdnnWarning, connect, zdnn

from tests.server.page.serving import PageServer, serving_page

pytestmark = pytest.mark.browser
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser  # noqa: E402

from tests.server.page.browser import (  # noqa: E402
    NARROW,
    WIDE,
    browsing,
    first_paints,
    opened,
    overflow,
    show,
)

MAX_PAINT = 1000.0  # ms from the begin of a load to what it shows
LOADS = 5  # of which the fastest counts: others of this machine must not fail it


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser, shared by the tests."""
    with browsing() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """A server with a page, shared by the tests."""
    with serving_page(tmp_path_factory.mktemp("page")) as page_server:
        yield page_server


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("dark", [False, True])
def test_views_fit_their_window(
    browser: Browser, server: PageServer, width: int, dark: bool
) -> None:
    """Each view fits the width of its window in light and dark, and shows its content."""
    with opened(browser, server.url, width=width, dark=dark) as page:
        page.get_by_role("rowheader", name="NNPA_SQRT").wait_for()
        assert overflow(page) == 0
        show(page, "sticks", "Sticks")
        page.get_by_role("grid", name="page 0").wait_for()
        assert overflow(page) == 0
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(22, 22, 22)" if dark else "rgb(255, 255, 255)")


def test_paints_within_a_second(browser: Browser, server: PageServer) -> None:
    """On loopback the browser paints, and shows the largest part of the view, within a second."""
    paints: list[tuple[float, float]] = []
    for _ in range(LOADS):
        with opened(browser, server.url) as page:
            page.get_by_role("rowheader", name="NNPA_SQRT").wait_for()
            paints.append(first_paints(page))
    assert max(min(paints, key=max)) < MAX_PAINT, paints


def test_keeps_the_token_out_of_the_url(browser: Browser, server: PageServer) -> None:
    """The token stays in the tab, survives a reload, and is not part of the URL."""
    with opened(browser, server.url) as page:
        page.get_by_role("heading", name="Machines").wait_for()
        assert server.token not in page.url
        page.reload()
        page.get_by_role("heading", name="Machines").wait_for()


def test_asks_for_a_missing_token(browser: Browser, server: PageServer) -> None:
    """A page that is opened without a token asks for it, and opens with the right one."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.url.partition("#")[0])
    page.get_by_label("token").fill(server.token)
    page.get_by_role("button", name="Open").click()
    page.get_by_role("heading", name="Machines").wait_for()
    context.close()


def test_shows_a_custom_machine_as_it_is_typed(browser: Browser, server: PageServer) -> None:
    """Each change of a field shows the custom machine; the filter hides equal rows."""
    with opened(browser, server.url) as page:
        page.get_by_label("without functions").fill("NNPA_ADD")
        page.get_by_role("columnheader", name="telum2-custom").wait_for()
        page.get_by_label("only what differs").check()
        row = page.get_by_role("row", name="NNPA_ADD")
        assert row.get_by_role("cell").all_inner_texts()[:3] == ["yes", "yes", "no"]
        assert page.get_by_role("rowheader", name="NNPA_SUB").count() == 0


def test_shows_markup_in_a_field_as_text(browser: Browser, server: PageServer) -> None:
    """Markup that is typed into a field appears as text in the refusal, and nothing runs."""
    with opened(browser, server.url) as page:
        page.get_by_label("without functions").fill("<img/src=x/onerror=document.title='XSS'>")
        refusal = page.locator("#status")
        refusal.filter(has_text="must be names").wait_for()
        assert "<IMG/SRC=X/ONERROR" in refusal.inner_text()
        assert page.locator("#status img").count() == 0
        assert page.title() == "Machines - nnpa"


def test_walks_sticks_by_keyboard(browser: Browser, server: PageServer) -> None:
    """Arrow keys go from cell to cell, over the elements and into the padding."""
    with opened(browser, server.url) as page:
        show(page, "sticks", "Sticks")
        chosen = page.locator(".chosen")
        page.get_by_label("shape").fill("1, 1, 2, 3")
        chosen.filter(has_text="dim2 0, dim1 0").wait_for()
        page.get_by_text("transformed").wait_for()
        page.locator("[aria-selected=true]").focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
        text = "byte 132, stick 1, cell 2: dim4 0, dim3 0, dim2 1, dim1 2"
        chosen.filter(has_text=text).wait_for()
        page.keyboard.press("ArrowRight")
        chosen.filter(has_text="byte 134, stick 1, cell 3: padding").wait_for()
        padding = page.get_by_role("gridcell", name="padding", exact=True)
        assert padding.count() == 2048 - 6


def test_turns_pages_of_sticks(browser: Browser, server: PageServer) -> None:
    """Buttons turn the pages; the last page has the last element."""
    with opened(browser, server.url) as page:
        show(page, "sticks", "Sticks")
        page.get_by_label("shape").fill("1, 1, 33, 65")
        page.get_by_text("page, of 4").wait_for()
        for number in (1, 2, 3):
            page.get_by_role("button", name="Next page").click()
            page.get_by_role("grid", name=f"page {number}").wait_for()
        name = "dim4 0, dim3 0, dim2 32, dim1 64"
        assert page.get_by_role("gridcell", name=name, exact=True).count() == 1
        assert page.get_by_role("button", name="Next page").is_disabled()


def test_leads_from_a_session_to_bits_of_its_tensor(browser: Browser, server: PageServer) -> None:
    """The list leads to a session and its last calls, a tensor, and the bits of a cell."""
    values = np.array([[1.5, -2.0, 0.0]], np.float32)
    with connect(server.grpc) as session, opened(browser, server.url) as page:
        tensor, logarithms = session.ztensor(values), session.ztensor(values)
        show(page, "sessions", "Sessions")
        page.get_by_role("row").nth(1).get_by_role("link").click()
        page.get_by_role("heading", name="Last calls").wait_for()
        with pytest.warns(ZdnnWarning):
            zdnn.log(tensor, logarithms)
        refused = page.get_by_role("row", name="log").first
        refused.get_by_text("ZDNN_ELEMENT_RANGE_VIOLATION").wait_for()
        page.get_by_role("link", name=str(tensor.id), exact=True).click()
        page.locator(".cell-bits dd").first.wait_for()
        cells = page.get_by_role("gridcell")
        cells.nth(1).click()
        assert page.locator(".bits .sign").all_inner_texts() == ["1", "1"]
        assert page.locator(".bits .exponent").all_inner_texts() == ["100000", "10000000"]
        assert page.locator(".bits .fraction").all_inner_texts() == ["0" * 9, "0" * 23]
        assert "2^-8 = 0.00390625" in page.locator(".cell-bits").inner_text()
        page.goto(page.url.rpartition("/")[0] + f"/{logarithms.id}")
        page.get_by_text("range violation: 2").wait_for()
        assert page.locator(".cell.violation").count() == 2
        assert overflow(page) == 0


def test_says_that_a_session_has_ended(browser: Browser, server: PageServer) -> None:
    """An unknown session is reported as ended, and its hostile name stays text."""
    with opened(browser, server.url) as page:
        page.get_by_role("heading", name="Machines").wait_for()
        page.evaluate("location.hash = '#/sessions/<img src=x onerror=alert(1)>'")
        page.get_by_text("does not exist, or has ended").wait_for()
        assert page.locator("main img").count() == 0
