# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs as the client API sees them: batches, height, width, channels.

A model's first dim is the batch when it is 1 or free; the rest is the shape of one element. Where
the first dim is a fixed number above 1, or the only dim, all of it is one element.

    element of the model      (height, width, channels)
    ()                        (1, 1, 1)
    (c)                       (1, 1, c)
    (h, c)                    (h, 1, c)
    (c, h, w)                 (h, w, c), elements in another order than in the model
    (n, c, h, w)              (n * h, w, c), elements in another order than in the model
    anything else             (1, 1, all of it)

Sources: X-CUBE-AI 7.0 Embedded Inference Client API, "IO tensor description" (mapping of 1d to 3d
tensors; ONNX's CHW is the application's to re-arrange); what has more dims, or height or width
above 65535, is our reading.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from nnpa_network.client_api.buffer_format import (
    Buffer,
    Format,
    FormatType,
    MetaInfo,
    byte_size,
    dequantise,
    dtype_of,
    format_of,
    from_fixed_point,
    get_bits,
    get_type,
    quantise,
    same_format,
    to_fixed_point,
)
from nnpa_network.importing.plan import Plan, Weight
from nnpa_network.program import Array, DType, Node, Port

_MAX_SIDE = 0xFFFF  # height and width have 16 bits


@dataclass(frozen=True, slots=True)
class IoTensor:
    """One input or output for the application.

    `shape` is what a run of one batch takes or gives in the model's terms; `dims` are height,
    width, channels; `order` brings an element's axes from channels-last into the model's, empty
    when they are alike. `offset` is where it lies in the activations, bytes, None elsewhere.
    """

    port: Port
    shape: tuple[int, ...]
    dims: tuple[int, int, int]
    order: tuple[int, ...]
    format: int
    meta_info: MetaInfo | None = None
    offset: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of one batch."""
        return byte_size(math.prod(self.dims), self.format)

    def describe(
        self,
        n_batches: int = 1,
        data: bytes | None = None,
        offset: int | None = None,
        meta_info: MetaInfo | None = None,
    ) -> Buffer:
        """Return its descriptor; the arguments are fields of `Buffer`."""
        height, width, channels = self.dims
        return Buffer(
            self.format, n_batches, height, width, channels, data, offset, meta_info=meta_info
        )

    def to_model(self, data: memoryview) -> Array:
        """Return one batch in the model's shape and type."""
        values = np.frombuffer(data, dtype_of(self.format))
        if not self._is_native():
            values = self._to_float(values)
        elif self.port.dtype == ml_dtypes.bfloat16:
            values = values.view(ml_dtypes.bfloat16)
        if self.order:
            last = [self._element()[axis] for axis in np.argsort(self.order)]
            values = values.reshape(last).transpose(self.order)
        return np.ascontiguousarray(values.reshape(self.shape))

    def from_model(self, values: Array) -> bytes:
        """Return the application's bytes of one batch."""
        if self.order:
            values = values.reshape(self._element()).transpose(np.argsort(self.order))
        if self.port.dtype == ml_dtypes.bfloat16:
            values = np.ascontiguousarray(values).view(np.uint16)
        if not self._is_native():
            values = self._from_float(values)
        return np.ascontiguousarray(values, dtype_of(self.format)).tobytes()

    def _element(self) -> tuple[int, ...]:
        return self.shape[len(self.shape) - len(self.order) :]

    def _is_native(self) -> bool:
        return same_format(self.format, native_format(self.port.dtype))

    def _to_float(self, values: Array) -> Array:
        if self.meta_info is None:
            return from_fixed_point(values, self.format)
        return dequantise(values, self.meta_info.scale, self.meta_info.zero_point)

    def _from_float(self, values: Array) -> Array:
        if self.meta_info is None:
            return to_fixed_point(values, self.format)
        return quantise(values, self.meta_info.scale, self.meta_info.zero_point, self.format)


def native_format(dtype: DType) -> int:
    """Return the format of a model's own type, none for text; BFLOAT16 travels as its 16 bits."""
    if dtype.kind == "O":
        return Format.NONE
    return Format.U16 if dtype == ml_dtypes.bfloat16 else format_of(dtype)


def io_tensor(
    port: Port, shape: tuple[int, ...], word: int | None, meta_info: MetaInfo | None
) -> IoTensor:
    """Return an input or output of concrete `shape` (batch 1), in its own format or another.

    ValueError for another format than 8 or 16 bits of a float tensor, or a scale that is not > 0.
    """
    native = native_format(port.dtype)
    chosen = native if word is None else word
    if not same_format(chosen, native):
        _require_convertible(port, chosen, meta_info)
    first = port.shape[0] if port.shape else 0
    element = shape[1:] if len(shape) > 1 and first in (-1, 1) else shape
    dims, order = _arranged(element)
    return IoTensor(port, shape, dims, order, chosen, meta_info)


def _require_convertible(port: Port, word: int, meta_info: MetaInfo | None) -> None:
    limit = "8 or 16 bits of type Q for a float32 tensor, scale > 0 or none"
    scale = None if meta_info is None else meta_info.scale
    fits = get_type(word) == FormatType.Q and get_bits(word) in (8, 16)
    if not fits or port.dtype != np.float32 or (scale is not None and not 0 < scale < math.inf):
        text = f"0x{word & 0xFFFFFFFF:08X}, scale {scale}, {port.dtype}"
        raise ValueError(f"format of {port.name}: {text}, must be {limit}")


def _arranged(element: tuple[int, ...]) -> tuple[tuple[int, int, int], tuple[int, ...]]:
    """Return height, width, channels of an element, and the order of its axes in the model."""
    dims, order = (1, 1, math.prod(element)), tuple[int, ...]()
    match element:
        case (height, channels):
            dims = (height, 1, channels)
        case (channels, height, width):
            dims, order = (height, width, channels), (2, 0, 1)
        case (count, channels, height, width):
            dims, order = (count * height, width, channels), (0, 3, 1, 2)
        case _:
            return dims, order
    if max(dims[:2]) > _MAX_SIDE:
        return (1, 1, math.prod(element)), ()
    return dims, order


def quantisation(plan: Plan, nodes: Sequence[Node]) -> Mapping[str, MetaInfo]:
    """Return scale and zero point of inputs and outputs that a model itself keeps as integers.

    The DequantizeLinear that reads an input and the QuantizeLinear that makes an output have them,
    if they are constant and one per tensor.
    """
    weights = {weight.name: weight for weight in plan.weights()}
    formats: dict[str, MetaInfo] = {}
    for node in nodes:
        ends = {"DequantizeLinear": node.inputs[:1], "QuantizeLinear": node.outputs[:1]}
        for name in ends.get(node.op_type, ()):
            _data, scaled, *shifted = node.inputs
            scale, zero = weights.get(scaled), weights.get(shifted[0]) if shifted else None
            if scale is not None and math.prod(scale.shape) == 1:
                zero_point = 0 if zero is None else int(_values(zero)[0])
                formats[name] = MetaInfo(float(_values(scale)[0]), zero_point)
    return formats


def _values(weight: Weight) -> Array:
    return np.frombuffer(weight.data, np.dtype(weight.dtype))
