# SPDX-License-Identifier: Apache-2.0
"""The views Machines and Sticks: their answers agree with the emulator."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa_emulator import Status
from nnpa_emulator.machine import MACHINES
from nnpa_emulator.stick import offset
from nnpa_emulator.ztensor import (
    PAGE,
    STICK,
    STICKS_PER_PAGE,
    DataFormats,
    DataLayouts,
    DataTypes,
    TensorDesc,
    stick_bytes,
)
from nnpa_page import Refusal, Visitor
from nnpa_server.page.machines import machines
from nnpa_server.page.sticks import describe_pages, sticks

NOBODY = Visitor()
SIZES = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 70), st.integers(1, 140))
KINDS = st.sampled_from(
    (
        (DataLayouts.ZDNN_NHWC, DataFormats.ZDNN_FORMAT_4DFEATURE, DataTypes.ZDNN_DLFLOAT16),
        (DataLayouts.ZDNN_NHWC, DataFormats.ZDNN_FORMAT_4DFEATURE, DataTypes.ZDNN_BINARY_INT8),
        (DataLayouts.ZDNN_NHWC, DataFormats.ZDNN_FORMAT_4DFEATURE, DataTypes.ZDNN_BINARY_INT32),
        (DataLayouts.ZDNN_NHWC, DataFormats.ZDNN_FORMAT_4DWEIGHTS, DataTypes.ZDNN_BINARY_INT8),
        (DataLayouts.ZDNN_HWCK, DataFormats.ZDNN_FORMAT_4DKERNEL, DataTypes.ZDNN_DLFLOAT16),
    )
)


def shown(**fields: str) -> dict[str, Any]:
    """Return the answer of the view Sticks."""
    return dict(sticks(NOBODY, fields))


@given(KINDS, SIZES)
def test_places_each_element_at_its_offset(
    kind: tuple[int, int, int], sizes: tuple[int, int, int, int]
) -> None:
    """The cells of all pages have each element of a tensor once, at its byte offset."""
    desc = TensorDesc(*kind, *sizes)
    places: set[tuple[int, int, int, int]] = set()
    for number in range(stick_bytes(desc) // PAGE):
        page: dict[str, Any] = dict(describe_pages(desc, number))
        dim4, dim3, row, column = page["first"]
        width = page["cells"] * page["rows"]
        for stick in range(STICKS_PER_PAGE):
            for cell in range(width):
                dim2 = row + stick * page["rows"] + cell % page["rows"]
                dim1 = column + cell // page["rows"]
                if dim2 < desc.dim2 and dim1 < desc.dim1:
                    at = number * PAGE + stick * STICK + cell * STICK // width
                    assert at == offset(desc, dim4, dim3, dim2, dim1)
                    places.add((dim4, dim3, dim2, dim1))
    assert len(places) == sizes[0] * sizes[1] * sizes[2] * sizes[3]


def test_computes_sizes_and_padding() -> None:
    """A shape has the pages, bytes and padding that zDNN allocates."""
    tensor = shown(shape="2, 3, 20, 70", layout="NHWC")
    assert (tensor["pages"], tensor["bytes"]) == (12, 49152)
    assert (tensor["elements"], tensor["padding"]) == (8400, 12 * 2048 - 8400)


@pytest.mark.parametrize(
    ("layout", "axes"),
    [
        ("1D", [[], [], [], [0]]),
        ("2DS", [[0], [], [], [1]]),
        ("3DS", [[0], [], [1], [2]]),
        ("4DS", [[0], [], [2], [1, 3]]),
        ("NCHW", [[0], [2], [3], [1]]),
        ("HWCK", [[0], [1], [2], [3]]),
    ],
)
def test_maps_axes_to_dimensions(layout: str, axes: list[list[int]]) -> None:
    """The view maps each axis of the user's array to its dimension; gates share dim1."""
    shape = ",".join("2" * {"1D": 1, "2DS": 2, "3DS": 3}.get(layout, 4))
    assert shown(shape=shape, layout=layout)["axes"] == axes


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"shape": "2,3", "layout": "NHWC"}, "shape is '2,3', must be 4 sizes with commas"),
        ({"shape": "1,2,x,4"}, "shape is 'x', must be 1 to 4294967295"),
        ({"shape": "1,2,0,4"}, "shape is '0', must be 1 to 4294967295"),
        ({"shape": "1,2,٣,4"}, "shape is '٣', must be 1 to 4294967295"),
        ({"shape": "1", "layout": "ZRH"}, "layout is 'ZRH', must be one of 1D, 2D"),
        ({"shape": "1,1,1,1", "kind": "<b>"}, "kind is '<b>', must be one of FP32"),
        ({"shape": "1,1,1,1", "page": "1"}, "page is '1', must be 0 to 0"),
        ({"shape": "1,1,1,4294967295"}, "transformed_desc.dim1 is 4294967295, must be 1 to"),
        ({"shape": "1,1,1,1", "layout": "NCHW", "kind": "INT8"}, "ZDNN_INVALID_LAYOUT"),
    ],
)
def test_refuses_invalid_shapes(fields: dict[str, str], text: str) -> None:
    """An invalid shape is refused by field, value and limit."""
    with pytest.raises(Refusal) as caught:
        shown(**fields)
    assert text in caught.value.text


def test_compares_the_machines() -> None:
    """Each machine has its column of QAF's answer; rows that differ are marked."""
    comparison: dict[str, Any] = dict(machines(NOBODY, {}))
    assert [machine["aliases"] for machine in comparison["machines"]] == [["z16"], ["z17"]]
    differing = {row["name"] for row in comparison["rows"] if row["differs"]}
    assert {"dim1, elements", "NNPA_SQRT", "ZDNN_BINARY_INT8", "parameter block 1"} <= differing
    assert not {"dim4, elements", "NNPA_ADD", "ZDNN_DLFLOAT16"} & differing
    for row in comparison["rows"]:
        codes = MACHINES["telum1"].qaf, MACHINES["telum2"].qaf
        assert len(row["values"]) == len(codes)
        assert any(status.name in row["constraint"] for status in Status), row


def test_adds_a_column_for_a_custom_machine() -> None:
    """A custom machine is a third column, with its own limits and functions."""
    fields = {"model": "telum1", "max_dim1": "100", "removed_functions": "NNPA_ADD, NNPA_EXP"}
    comparison: dict[str, Any] = dict(machines(NOBODY, fields))
    rows = {row["name"]: row["values"] for row in comparison["rows"]}
    assert comparison["machines"][2]["name"] == "telum1-custom"
    assert rows["dim1, elements"] == ["32,768", "2,097,152", "100"]
    assert rows["NNPA_ADD"] == rows["NNPA_EXP"] == ["yes", "yes", "no"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"model": "z99", "max_dim1": "1"}, "model is 'z99', must be one of telum1"),
        ({"max_dim1": "-1"}, "max_dim1 is '-1', must be 0 to"),
        ({"max_dim_idx_size": "0"}, "max_dim_idx_size: 0 is outside 1 to 32768"),
        ({"removed_functions": "ADD"}, "removed_functions has 'ADD', must be names as NNPA_ADD"),
        ({"removed_functions": "NNPA_QAF"}, "NNPA_QAF cannot be taken away"),
    ],
)
def test_refuses_invalid_machines(fields: dict[str, str], text: str) -> None:
    """An invalid custom machine is refused by field, value and limit."""
    with pytest.raises(Refusal) as caught:
        machines(NOBODY, fields)
    assert text in caught.value.text
