# SPDX-License-Identifier: Apache-2.0
"""The score's page in a browser: as wide as its window, names of functions in one piece."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nnpa_tools.conformance.counts import Case, summed
from nnpa_tools.conformance.page import page
from nnpa_tools.conformance.real_machines import Function, Measured
from nnpa_tools.conformance.score import Score

pytestmark = pytest.mark.browser
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser  # noqa: E402

from tests.server.page.browser import NARROW, WIDE, browsing, opened, overflow  # noqa: E402

NAMES = ("generate_transformed_desc_concatenated", "add")
MACHINES = ("telum1", "telum2", "z15", "telum1-nonnpa", "telum2-nonnpa")
LEAST = 100  # pixels of a column of names


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser, shared by the tests."""
    with browsing() as running:
        yield running


def written(folder: Path) -> Path:
    """Write a page with wide tables and a hostile note."""
    cases = [Case(name, "passed", machine, count=12345) for name in NAMES for machine in MACHINES]
    ulps: dict[str, int] = dict.fromkeys(
        ("0", "1", "2", "3-4", "5-16", ">16", "not a number"), 123456
    )
    functions = tuple(Function(name, 11, 0, 0, 1, ulps) for name in NAMES)
    note = "<script>document.title = 'hostile'</script>"
    row = Measured("telum2", "z17.jsonl", "1.2.0", "2026-11-26", note, functions)
    suites = (summed("vectors", "zDNN vectors", cases, 1.0),)
    scored = Score("0.1.0", "2026-11-26", False, suites, (Measured("telum1"), row), ())
    (folder / "score.html").write_text(page(scored))
    return folder / "score.html"


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("dark", [False, True])
def test_fits_its_window(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    """The page fits its window, its names are readable, and no script of a file runs."""
    with opened(browser, written(tmp_path).as_uri(), width=width, dark=dark) as shown:
        assert overflow(shown) == 0
        script = "[...document.querySelectorAll('td.l')].map(cell => cell.offsetWidth)"
        assert min(shown.evaluate(script)) >= LEAST
        assert shown.title() == "nnpa 0.1.0: conformance"
