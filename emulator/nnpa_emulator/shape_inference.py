# SPDX-License-Identifier: Apache-2.0
"""Output shape inference: descriptors of outputs that a caller leaves to the emulator."""

from dataclasses import replace

from nnpa_emulator.ztensor import (
    DataLayouts,
    DataTypes,
    TensorDesc,
    Ztensor,
    generate_transformed_desc,
)

Dims = tuple[int, int, int, int]
Descriptors = tuple[TensorDesc, TensorDesc]
Outputs = tuple[Descriptors, ...]


def like_input(input: Ztensor, **_arguments: object) -> Outputs:  # noqa: A002 - zDNN's name
    """Describe one output as `input` is."""
    return ((input.pre_transformed_desc, input.transformed_desc),)


def like_input_a(input_a: Ztensor, **_arguments: object) -> Outputs:
    """Describe one output as `input_a` is."""
    return like_input(input_a)


def resized(tensor: Ztensor, dims: Dims) -> Descriptors:
    """Return a tensor's descriptors, pre-transformed and transformed, for other transformed dims.

    The user's layout stays where it can express the dims, else it becomes ZDNN_NHWC.
    """
    transformed = tensor.transformed_desc.with_dims(dims)
    pre = tensor.pre_transformed_desc
    candidate = _expressed(pre, dims)
    if candidate is not None:
        as_float = replace(candidate, type=int(DataTypes.FP32))
        if generate_transformed_desc(as_float).dims == dims:
            return candidate, transformed
    return replace(pre.with_dims(dims), layout=int(DataLayouts.ZDNN_NHWC)), transformed


def _expressed(pre: TensorDesc, dims: Dims) -> TensorDesc | None:
    """Order transformed dims as the user's layout does; None for layouts that are not plain."""
    d4, d3, d2, d1 = dims
    orders = {
        DataLayouts.ZDNN_1D: (0, 0, 0, d1),
        DataLayouts.ZDNN_2D: (0, 0, d2, d1),
        DataLayouts.ZDNN_2DS: (0, 0, d4, d1),
        DataLayouts.ZDNN_3D: (0, d3, d2, d1),
        DataLayouts.ZDNN_3DS: (0, d4, d2, d1),
        DataLayouts.ZDNN_4D: dims,
        DataLayouts.ZDNN_4DS: (d4, 1, d2, d1),
        DataLayouts.ZDNN_NHWC: dims,
        DataLayouts.ZDNN_NCHW: (d4, d1, d3, d2),
    }
    order = {int(layout): dims for layout, dims in orders.items()}.get(pre.layout)
    return None if order is None else pre.with_dims(order)
