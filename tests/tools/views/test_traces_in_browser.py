# SPDX-License-Identifier: Apache-2.0
"""The view Traces as a browser shows it: side by side, by keyboard, 10,000 calls, hostile names."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from nnpa_client import connect

from tests.server.page.serving import PageServer
from tests.tools.views.viewing import HOSTILE, calls, record, viewing, write

pytestmark = pytest.mark.browser
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, Page  # noqa: E402

from tests.server.page.browser import NARROW, WIDE, browsing, opened, overflow  # noqa: E402

CALLS = 10_000
IN_SIGHT = 100  # lines in the document, at most


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser, shared by the tests."""
    with browsing() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with left and right, of one program with other values, and a call that failed."""
    place = tmp_path_factory.mktemp("traces")
    with connect() as session:
        for name, scale in (("left", 1.0), ("right", 1.0625)):
            record(session, place / name, scale)
    records = calls(2)
    records[2].call.ClearField("results")
    records[2].call.error.reason = "PROGRAM_CHECK"
    write(place / "failed", *records)
    return place


@pytest.fixture(scope="module")
def pair(folder: Path) -> Iterator[PageServer]:
    """Two traces of one program with other values."""
    with viewing(folder / "left", folder / "right") as page:
        yield page


def line(page: Page, trace: int, text: str) -> str:
    """Return the text of a line of a trace, when it is there."""
    options = page.get_by_role("listbox").nth(trace).get_by_role("option").filter(has_text=text)
    options.first.wait_for()
    return options.first.inner_text()


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("dark", [False, True])
def test_shows_two_traces_side_by_side(
    browser: Browser, pair: PageServer, width: int, dark: bool
) -> None:
    """Both traces have their lines with differences in ulp, and the page fits its window."""
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


def test_names_files_and_machines_in_the_title(
    browser: Browser, pair: PageServer, tmp_path: Path
) -> None:
    """Window and heading name each file and its machine."""
    machine = "telum2 (IBM z17, Telum II)"
    with opened(browser, pair.url) as page:
        title = f"Traces: left on {machine}; right on {machine}"
        page.get_by_role("heading", name=title, level=1, exact=True).wait_for()
        assert page.title() == f"{title} - nnpa"
    path = write(tmp_path / "run.nnpa", *calls(1))
    with viewing(path) as server, opened(browser, server.url) as page:
        page.get_by_role("heading", name="Trace: run.nnpa on telum2", level=1).wait_for()
        assert page.title() == "Trace: run.nnpa on telum2 - nnpa"


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_names_columns_and_shows_times(browser: Browser, tmp_path: Path, width: int) -> None:
    """The lines have a heading, and start and duration are in sight at each width."""
    path = write(tmp_path / "run.nnpa", *calls(200))
    with viewing(path) as server, opened(browser, server.url, width=width) as page:
        box = page.get_by_role("listbox")
        line(page, 0, "add")
        heads = box.locator(".head > :visible").all_inner_texts()
        assert heads[:2] == ["#", "function"]
        assert set(heads) >= {"lint", "status", "start", "duration"}
        box.focus()
        page.keyboard.press("End")
        chosen = box.locator("[aria-selected=true]")
        chosen.wait_for()
        frame = box.bounding_box()
        assert frame is not None
        for text in ("0.20 ms", "1 us", "add"):
            part = chosen.get_by_text(text, exact=True).bounding_box()
            assert part is not None
            assert frame["x"] <= part["x"]
            assert part["x"] + part["width"] <= frame["x"] + frame["width"] <= width
            assert frame["y"] <= part["y"] + part["height"] <= frame["y"] + frame["height"]
        head, top = (part.bounding_box() for part in (box.locator(".head"), box))
        assert head is not None
        assert top is not None
        assert abs(head["y"] - top["y"]) <= 1


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(
    ("names", "kind", "painted", "text"),
    [
        (("left", "right"), "differing", "backgroundColor", "differs from the other trace"),
        (("left",), "found", "backgroundColor", "has a lint finding"),
        (("failed",), "refused", "color", "refused or failed"),
    ],
)
def test_explains_colours_in_the_legend(
    browser: Browser,
    folder: Path,
    dark: bool,
    names: Sequence[str],
    kind: str,
    painted: str,
    text: str,
) -> None:
    """Each colour of a line has a key of the same colour, in light and dark."""
    with (
        viewing(*(folder / name for name in names)) as server,
        opened(browser, server.url, dark=dark) as page,
    ):
        line(page, 0, "add")
        key = page.locator(".legend").get_by_text(text).locator(".key")
        colours = [
            part.first.evaluate(f"box => getComputedStyle(box).{name}")
            for part, name in ((key, "backgroundColor"), (page.locator(f".line.{kind}"), painted))
        ]
        assert colours[0] == colours[1]


def test_walks_calls_by_keyboard(browser: Browser, pair: PageServer) -> None:
    """Arrow keys, Home and End select calls, and the page describes the selected one."""
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


def test_leads_from_findings_and_differences_to_calls(browser: Browser, pair: PageServer) -> None:
    """Buttons lead to the call of a finding, and from difference to difference."""
    with opened(browser, pair.url) as page:
        line(page, 0, "log")
        page.get_by_role("button", name="equal-bytes").first.click()
        chosen = page.get_by_role("listbox").first.locator("[aria-selected=true]")
        chosen.filter(has_text="transform_ztensor").wait_for()
        for name in ("transform_ztensor", "add", "transform_origtensor", "log"):
            page.get_by_role("button", name="calls that differ").first.click()
            chosen.filter(has_text=name).wait_for()


def test_keeps_only_calls_in_sight_in_the_document(browser: Browser, tmp_path: Path) -> None:
    """Of 10,000 calls only those in sight are in the document, at each scroll position."""
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


def test_shows_hostile_names_as_text(browser: Browser, tmp_path: Path) -> None:
    """Markup in names of file, machine, version, status and error is shown as text."""
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
        assert page.title() == f"Trace: {path.name} on {HOSTILE} - nnpa"


def test_says_that_a_trace_is_truncated(browser: Browser, tmp_path: Path) -> None:
    """A truncated file is shown up to its end, with a line that says so."""
    whole = write(tmp_path / "whole", *calls(2 * CALLS)).read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) * 2 // 3])
    with viewing(tmp_path / "cut") as server, opened(browser, server.url) as page:
        page.get_by_text("This trace is not complete: interrupted").wait_for()
        line(page, 0, "add")
