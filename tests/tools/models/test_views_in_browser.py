# SPDX-License-Identifier: Apache-2.0
"""The view Models as a browser shows it: graph, estimate, accuracy, keyboard, hostile names."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.network.small_models import model
from tests.server.page.serving import PageServer
from tests.tools.views.viewing import HOSTILE, viewing, write_model_and_report

pytestmark = pytest.mark.browser
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser  # noqa: E402

from tests.server.page.browser import NARROW, WIDE, browsing, opened, overflow  # noqa: E402


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser, shared by the tests."""
    with browsing() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and its accuracy report."""
    place = tmp_path_factory.mktemp("models")
    write_model_and_report(place)
    return place


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[PageServer]:
    """The page with model and report."""
    with viewing(folder / "dense.onnx", folder / "report.json") as shown:
        yield shown


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("dark", [False, True])
def test_shows_a_model_and_its_report(
    browser: Browser, server: PageServer, width: int, dark: bool
) -> None:
    """Boxes, estimate, verdict and outputs are visible, and the page fits its window."""
    with opened(browser, server.url, width=width, dark=dark) as page:
        page.locator(".box").nth(2).wait_for()
        assert page.locator(".box.accelerator").count() == 3
        assert page.locator(".box .error").last.get_attribute("width") != "0"
        page.get_by_role("heading", name="Time on the machine").wait_for()
        page.get_by_role("row", name="stickify").first.wait_for()
        page.locator(".verdict").filter(has_text="Every answer is that of FP32").wait_for()
        page.get_by_role("rowheader", name="y", exact=True).first.wait_for()
        assert overflow(page) == 0


@pytest.mark.parametrize("dark", [False, True])
def test_explains_colours_in_the_legend(browser: Browser, tmp_path: Path, dark: bool) -> None:
    """Boxes of the accelerator and of the host have the colours of their keys."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Cos", ["a"], ["y"])]
    proto = model(nodes, [("x", np.float32, [32, 64])], [("y", np.float32, [32, 64])])
    (tmp_path / "two.onnx").write_bytes(proto.SerializeToString())
    with (
        viewing("--machine", "z17", tmp_path / "two.onnx") as server,
        opened(browser, server.url, dark=dark) as page,
    ):
        for device in ("accelerator", "host"):
            key = page.locator(".legend").get_by_text(f"on the {device}").locator(".key")
            box = page.locator(f".box.{device} .body")
            assert key.evaluate("key => getComputedStyle(key).backgroundColor") == box.evaluate(
                "box => getComputedStyle(box).fill"
            )


def test_names_file_and_machine_in_the_title(
    browser: Browser, server: PageServer, folder: Path
) -> None:
    """Window and heading name the model and its machine, also after a change, or the report."""
    with opened(browser, server.url) as page:
        for name, system in (("telum2", "IBM z17, Telum II"), ("telum1", "IBM z16, Telum I")):
            page.get_by_label("machine").select_option(name)
            title = f"Model: dense.onnx on {name} ({system})"
            page.get_by_role("heading", name=title, level=1, exact=True).wait_for()
            assert page.title() == f"{title} - nnpa"
    with viewing(folder / "report.json") as alone, opened(browser, alone.url) as page:
        page.get_by_role("heading", name="Accuracy: report.json", level=1, exact=True).wait_for()


def test_draws_a_node_below_its_sources(browser: Browser, tmp_path: Path) -> None:
    """No two boxes overlap, and each box lies below all boxes that it takes values from."""
    nodes = [helper.make_node("Relu", ["x"], ["a"], "a")]
    nodes += [helper.make_node("Tanh", ["a"], [f"t{place}"], f"t{place}") for place in range(5)]
    nodes += [helper.make_node("Sum", ["a", *(f"t{place}" for place in range(5))], ["y"], "sum")]
    proto = model(nodes, [("x", np.float32, [32, 64])], [("y", np.float32, [32, 64])])
    (tmp_path / "wide.onnx").write_bytes(proto.SerializeToString())
    with (
        viewing("--machine", "z17", tmp_path / "wide.onnx") as server,
        opened(browser, server.url) as page,
    ):
        boxes = page.locator(".box .body")
        boxes.last.wait_for()
        places = [box for place in range(boxes.count()) if (box := boxes.nth(place).bounding_box())]
    assert len(places) == len(nodes)
    first, *middle, last = places
    assert all(first["y"] + first["height"] < box["y"] for box in middle)
    assert all(box["y"] + box["height"] < last["y"] for box in middle)
    lefts = sorted(box["x"] for box in middle)
    assert all(b - a > middle[0]["width"] for a, b in pairwise(lefts))


def test_walks_nodes_by_keyboard(browser: Browser, server: PageServer) -> None:
    """Arrow keys go from node to node and show each, on the selected machine."""
    with opened(browser, server.url) as page:
        page.locator(".box").nth(2).wait_for()
        page.get_by_label("machine").select_option("telum2")
        page.get_by_role("listbox", name="nodes").focus()
        for key, name in (("End", "act"), ("ArrowUp", "sum"), ("Home", "product")):
            page.keyboard.press(key)
            page.get_by_role("heading", name=name, exact=True).wait_for()
            assert page.locator("[aria-selected=true]").count() == 1
        page.locator(".detail").filter(has_text="zDNN functions").wait_for()


def test_shows_hostile_names_as_text(browser: Browser, folder: Path, tmp_path: Path) -> None:
    """Markup in names of files, nodes, operators and reports is shown as text."""
    nodes = [helper.make_node("Relu", ["x"], [HOSTILE], HOSTILE)]
    shape = [32, 64]
    proto = model(nodes, [("x", np.float32, shape)], [(HOSTILE, np.float32, shape)])
    path, report = tmp_path / "<b onclick=x>.onnx", tmp_path / "<u>.json"
    path.write_bytes(proto.SerializeToString())
    document = json.loads((folder / "report.json").read_text("utf-8"))
    document["verdict"] = document["about"][HOSTILE] = HOSTILE
    for run in document["runs"]:
        for entry in (*run["nodes"], *run["outputs"]):
            entry.update({name: HOSTILE for name, held in entry.items() if isinstance(held, str)})
    report.write_text(json.dumps(document), encoding="utf-8")
    with viewing(path, report) as server, opened(browser, server.url) as page:
        page.locator(".box").first.click()
        page.get_by_role("heading", name=HOSTILE, exact=True).wait_for()
        page.get_by_role("heading", name=str(path)).wait_for()
        page.locator("summary").first.click()
        assert HOSTILE in page.locator(".verdict").inner_text()
        assert page.locator("main img, main b, main u").count() == 0
        title = f"Model: {path.name} on telum2 (IBM z17, Telum II)"
        assert page.title() == f"{title} - nnpa"
