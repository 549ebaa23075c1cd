# SPDX-License-Identifier: Apache-2.0
"""The view Sticks: the places of a tensor's elements in pages, sticks and cells."""

from collections.abc import Mapping
from typing import TypeAlias

from nnpa_emulator import Guest, Refused
from nnpa_emulator.checks import require_transformed_desc
from nnpa_emulator.machine import DEFAULT_MACHINE, MACHINES
from nnpa_emulator.stick import Geometry, geometry
from nnpa_emulator.ztensor import (
    LAYOUT_DIMS,
    PAGE,
    STICKS_PER_PAGE,
    DataFormats,
    DataLayouts,
    DataTypes,
    QuantizedTransformTypes,
    TensorDesc,
    generate_quantized_transformed_desc,
    generate_transformed_desc,
    init_pre_transformed_desc,
    stick_bytes,
)
from nnpa_page import Query, Refusal, Visitor, choice, number

_MAX_SIZE = (1 << 32) - 1
LAYOUTS = {DataLayouts(layout).name.removeprefix("ZDNN_"): layout for layout in LAYOUT_DIMS}
Kind: TypeAlias = tuple[DataTypes, QuantizedTransformTypes | None]
"""The kinds of tensors: the user's type, and its quantization."""
_KINDS: Mapping[str, Kind] = {
    "FP32": (DataTypes.FP32, None),
    "INT32": (DataTypes.INT32, None),
    "INT8": (DataTypes.FP32, QuantizedTransformTypes.QUANTIZED_INT8),
    "WEIGHTS_INT8": (DataTypes.FP32, QuantizedTransformTypes.QUANTIZED_WEIGHTS_INT8),
}


def sticks(_visitor: Visitor, query: Query) -> Mapping[str, object]:
    """Return the number of a ztensor's pages, and the elements in the cells of page `page`.

    `shape` are sizes with commas, `layout` and `kind` as zDNN names them.
    """
    layout = choice("layout", query.get("layout", "NHWC"), LAYOUTS)
    kind = choice("kind", query.get("kind", "FP32"), _KINDS)
    try:
        desc = _transformed(layout, kind, _sizes(query.get("shape", ""), LAYOUT_DIMS[layout]))
        require_transformed_desc(desc, Guest(MACHINES[DEFAULT_MACHINE]), "")
    except Refused as refused:
        raise Refusal(str(refused)) from None
    return {
        **describe_pages(desc, page_number(desc, query)),
        "axes": _axes(layout, kind),
        "layouts": {name: LAYOUT_DIMS[number] for name, number in LAYOUTS.items()},
        "kinds": list(_KINDS),
    }


def page_number(desc: TensorDesc, query: Query) -> int:
    """Return the requested page number; refuse a page that the transformed tensor lacks."""
    return number("page", query.get("page", "0"), 0, stick_bytes(desc) // PAGE - 1)


def describe_pages(desc: TensorDesc, page: int) -> Mapping[str, object]:
    """Return the layout of a transformed tensor, and one of its pages.

    Element (dim4, dim3, row, column) of `first` is in the page's first cell; a stick has `cells`
    elements of dim1, of `rows` rows of dim2 each.
    """
    shape, count = geometry(desc), stick_bytes(desc) // PAGE
    elements = desc.dim4 * desc.dim3 * desc.dim2 * desc.dim1
    cells = count * STICKS_PER_PAGE * shape.cells * shape.rows
    return {
        "dims": list(desc.dims),
        "layout": DataLayouts(desc.layout).name,
        "format": DataFormats(desc.format).name,
        "type": DataTypes(desc.type).name,
        "bytes": count * PAGE,
        "pages": count,
        "elements": elements,
        "padding": cells - elements,
        "cells": shape.cells,
        "rows": shape.rows,
        "page": page,
        "first": _first(shape, page),
    }


def _first(shape: Geometry, page: int) -> list[int]:
    """Return the element in the first cell of a page; the inverse of `stick.offset`."""
    (d4, d3, d2, _), (of_dim4, of_column, of_dim3) = shape.dims, shape.pages
    height = -(-d2 // (shape.rows * STICKS_PER_PAGE))
    row = page % height * STICKS_PER_PAGE * shape.rows
    column = page // of_column % shape.columns * shape.cells
    return [page // of_dim4 % d4, page // of_dim3 % d3, row, column]


def _sizes(text: str, count: int) -> list[int]:
    sizes = [size.strip() for size in text.split(",")]
    if len(sizes) != count:
        raise Refusal(f"shape is {text[:32]!r}, must be {count} sizes with commas")
    return [number("shape", size, 1, _MAX_SIZE) for size in sizes]


def _transformed(layout: int, kind: Kind, sizes: list[int]) -> TensorDesc:
    user_type, quantized = kind
    pre = init_pre_transformed_desc(layout, user_type, *sizes)
    if quantized is None:
        return generate_transformed_desc(pre)
    return generate_quantized_transformed_desc(pre, quantized)


def _axes(layout: int, kind: Kind) -> list[list[int]]:
    """Return the axes of the user's shape that become dim4 to dim1."""
    count = LAYOUT_DIMS[layout]
    longer = [[1 + (axis == place) for place in range(count)] for axis in range(count)]
    grown = [_transformed(layout, kind, sizes).dims for sizes in longer]
    return [[axis for axis in range(count) if grown[axis][place] > 1] for place in range(4)]
