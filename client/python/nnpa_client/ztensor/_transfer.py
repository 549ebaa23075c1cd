# SPDX-License-Identifier: Apache-2.0
"""Transfers of user arrays and sticks: inline if small, in chunks if large."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from nnpa.zdnn.v1 import tensor_pb2
from nnpa.zdnn.v1.accelerator_pb2 import (
    ReadSticks,
    ReadTensorRequest,
    WriteArrays,
    WriteSticks,
    WriteTensorHeader,
    WriteTensorRequest,
)
from nnpa.zdnn.v1.operation_pb2 import (
    Operation,
    OperationResult,
    TransformOrigtensor,
    TransformZtensor,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    BFLOAT,
    BYTE_ORDER_BIG_ENDIAN,
    BYTE_ORDER_LITTLE_ENDIAN,
    FP16,
    FP32,
    ZDNN_1D,
    ZDNN_2D,
    ZDNN_3D,
    ZDNN_NHWC,
    ByteOrder,
    DataLayouts,
    DataTypes,
    TensorDesc,
)

from nnpa_client._guest.call import Call
from nnpa_client._guest.guest import Guest
from nnpa_client._guest.sanitizer import place_header, place_request
from nnpa_client._guest.sink import Sink
from nnpa_client._guest.verb import Operand, require_ztensors
from nnpa_client._server.methods import READ_TENSOR, WRITE_TENSOR, Upload
from nnpa_client._server.transport import OUT_OF_BAND_BYTES
from nnpa_client._values.fields import enum_name, enum_number
from nnpa_client._values.user_arrays import DTYPES, RANKS, Array, dims, layout_shape
from nnpa_client.descriptors import init_pre_transformed_desc
from nnpa_client.errors import NnpaError, TransportError

__tracebackhide__ = True  # pytest shows the line that called, not these

CHUNK_BYTES = 1 << 20
_LAYOUTS = {1: ZDNN_1D, 2: ZDNN_2D, 3: ZDNN_3D, 4: ZDNN_NHWC}

Bytes = npt.NDArray[np.uint8]
UserArray = Array | bytes | bytearray | memoryview
MakeOperation = Callable[[Sequence[bytes]], Operation]


def transform(
    ztensor: Operand,
    name: str,
    arrays: Sequence[UserArray],
    make: MakeOperation,
    before: Sequence[Call] = (),
) -> None:
    """Send user arrays to a transform; `make` returns its operation with arrays, or without.

    The calls `before` travel in the same message if it can hold the arrays.
    """
    require_ztensors(ztensor=ztensor)
    views = [_bytes_of(ztensor, array) for array in arrays]
    try:
        _send(ztensor, name, views, make, before)
    except TransportError as error:
        if error.reason != "DATA_SIZE_MISMATCH":
            raise
        raise ValueError(_size_complaint(ztensor, arrays, views)) from error


def _send(
    ztensor: Operand,
    name: str,
    views: Sequence[Bytes],
    make: MakeOperation,
    before: Sequence[Call],
) -> None:
    guest = ztensor.guest
    call = Call(name, make(()), {"ztensor": ztensor}, (), _keep_flags(ztensor))
    total = sum(view.nbytes for view in views)
    if ztensor.id and total >= OUT_OF_BAND_BYTES and total > guest.limits.max_inline_bytes:
        if before:
            guest.submit(*before)
        sizes = [view.nbytes for view in views]
        arrays_header = WriteArrays(operation=call.operation, array_bytes=sizes)
        _write(guest, call, WriteTensorHeader(session=guest.name, arrays=arrays_header), views)
        return
    if ztensor.id and total < OUT_OF_BAND_BYTES:
        call = replace(call, operation=make([view.tobytes() for view in views]))
    elif ztensor.id:
        call = replace(call, arrays=[view.data for view in views])
    guest.submit(*before, call)


def transform_ztensor(
    ztensor: Operand, arrays: Sequence[UserArray], before: Sequence[Call] = ()
) -> None:
    """Convert user arrays, one or one per gate, into sticks: zdnn_transform_ztensor."""

    def make(data: Sequence[bytes]) -> Operation:
        return Operation(transform_ztensor=TransformZtensor(ztensor=ztensor.ref(), data=data))

    transform(ztensor, "transform_ztensor", arrays, make, before)


def _keep_flags(ztensor: Operand) -> Callable[[OperationResult], None]:
    def keep(result: OperationResult) -> None:
        ztensor.flags = result.fp_flags

    return keep


def _bytes_of(ztensor: Operand, array: object) -> Bytes:
    """Return the little-endian bytes of a user array of the pre-transformed type."""
    if isinstance(array, bytes | bytearray | memoryview):
        return np.frombuffer(array, np.uint8)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"data: {type(array).__name__}, expected a numpy array or bytes")
    kind = ztensor.structure.pre_transformed_desc.type
    dtype = DTYPES.get(kind)
    if dtype is not None and array.dtype != dtype and array.dtype.newbyteorder("<") != dtype:
        name = DataTypes.Name(kind)
        raise TypeError(f"data: {array.dtype} array, the descriptor says {name} ({dtype.name})")
    dense = np.ascontiguousarray(array, dtype)
    return dense.reshape(-1).view(np.uint8)


def _size_complaint(ztensor: Operand, arrays: Sequence[UserArray], views: Sequence[Bytes]) -> str:
    """Return a message about the first array of a wrong size, or about a wrong number of arrays."""
    pre = ztensor.structure.pre_transformed_desc
    shape, dtype = layout_shape(pre), DTYPES.get(pre.type, np.dtype(np.uint8))
    expected = math.prod(shape) * dtype.itemsize
    layout = enum_name(DataLayouts.DESCRIPTOR, pre.layout)
    described = f"the descriptor {layout} of {shape} {enum_name(DataTypes.DESCRIPTOR, pre.type)}"
    for array, view in zip(arrays, views, strict=True):
        if view.nbytes != expected:
            what = f"{type(array).__name__} of {view.nbytes} bytes"
            if isinstance(array, np.ndarray):
                what = f"{array.dtype} array of shape {array.shape}, {view.nbytes} bytes"
            return f"data: {what}, {described} calls for {expected}"
    return f"data: {len(arrays)} arrays, {described} calls for another number of them"


def _write(guest: Guest, call: Call, header: WriteTensorHeader, views: Sequence[Bytes]) -> None:
    def parts() -> Iterator[Upload]:
        yield WriteTensorRequest(header=header)
        for view in views:
            for start in range(0, view.nbytes, CHUNK_BYTES):
                yield view[start : start + CHUNK_BYTES].data

    guest.flush()
    with guest.in_flight(call):
        if guest.watch is not None:
            place_header(header, call)
        try:
            result = guest.transport.send_stream(WRITE_TENSOR, parts()).result
        except NnpaError:
            guest.mark_uncertain()
            raise
        guest.apply_result(call, result)
        guest.raise_for_status(call, result)


def transform_origtensor(ztensor: Operand, out_buf: Array | None = None) -> Array:
    """Fetch the user's array; with `out_buf` a pipeline may defer it."""
    require_ztensors(ztensor=ztensor)
    guest = ztensor.guest
    operation = Operation(transform_origtensor=TransformOrigtensor(ztensor=ztensor.ref()))
    sink = Sink(None if out_buf is None else _writable(out_buf))
    size = _dense_bytes(ztensor) if out_buf is None else out_buf.nbytes
    tensors, read = {"ztensor": ztensor}, _keep_flags(ztensor)
    if size > guest.limits.max_inline_bytes and ztensor.id:
        guest.flush()
        request = ReadTensorRequest(session=guest.name, operation=operation)
        _read(guest, Call("transform_origtensor", operation, tensors, (), read), request, sink)
        return _shaped(ztensor, sink.filled) if out_buf is None else out_buf
    guest.submit(Call("transform_origtensor", operation, tensors, (), read, (), sink))
    if out_buf is not None:
        return out_buf
    guest.flush()
    return _shaped(ztensor, sink.filled)


def _dense_bytes(ztensor: Operand) -> int:
    """Return an upper bound for the bytes of the dense array."""
    size = DTYPES.get(ztensor.structure.pre_transformed_desc.type, np.dtype("f4")).itemsize
    for dim in dims(ztensor.structure.transformed_desc):
        size *= dim
    return size


def _writable(array: Array) -> npt.NDArray[np.uint8]:
    if not (array.flags.c_contiguous and array.flags.writeable):
        raise ValueError("out_buf: not contiguous or not writable, expected both")
    return array.reshape(-1).view(np.uint8)


def _read(guest: Guest, call: Call, request: ReadTensorRequest, sink: Sink) -> None:
    """Read a stream into the sink, then raise for the status that came first."""
    result = OperationResult()
    with guest.in_flight(call):
        if guest.watch is not None:
            place_request(request, call)
        for part in guest.transport.receive_stream(READ_TENSOR, request):
            if isinstance(part, memoryview):
                sink.append(part)
                continue
            result = part.header.result
            if part.header.total_bytes:
                sink.expect(part.header.total_bytes)
        guest.apply_result(call, result)
        guest.raise_for_status(call, result)


def _shaped(ztensor: Operand, dense: npt.NDArray[np.uint8]) -> Array:
    """Return bytes as an array of the pre-transformed type and shape."""
    pre = ztensor.structure.pre_transformed_desc
    array = dense.view(DTYPES.get(pre.type, np.dtype(np.uint8)))
    shape = layout_shape(pre)
    return array.reshape(shape) if array.size == np.prod(shape) else array


def _order(byte_order: str) -> "ByteOrder.ValueType":
    orders = {"little": BYTE_ORDER_LITTLE_ENDIAN, "big": BYTE_ORDER_BIG_ENDIAN}
    if byte_order not in orders:
        raise ValueError(f"byte_order: {byte_order!r}, expected 'little' or 'big'")
    return orders[byte_order]


def read_sticks(ztensor: Operand, byte_order: str) -> npt.NDArray[np.uint8]:
    """Fetch the contents of a buffer as bytes."""
    guest = ztensor.guest
    guest.flush()
    source = ReadSticks(id=ztensor.id, byte_order=_order(byte_order))
    sink = Sink(None)
    request = ReadTensorRequest(session=guest.name, sticks=source)
    _read(guest, Call("read_sticks", Operation()), request, sink)
    return sink.filled


def write_sticks(
    ztensor: Operand, sticks: UserArray, byte_order: str, is_transformed: bool
) -> None:
    """Replace the contents of a buffer."""
    guest = ztensor.guest
    dense = np.ascontiguousarray(sticks) if isinstance(sticks, np.ndarray) else sticks
    view = np.frombuffer(dense, np.uint8)
    size = ztensor.structure.buffer_size
    if view.nbytes != size:
        raise ValueError(f"sticks: {view.nbytes} bytes, expected {size}")
    target = WriteSticks(
        id=ztensor.id,
        total_bytes=view.nbytes,
        byte_order=_order(byte_order),
        is_transformed=is_transformed,
    )
    header = WriteTensorHeader(session=guest.name, sticks=target)
    _write(guest, Call("write_sticks", Operation(), {"ztensor": ztensor}), header, [view])


def put_ztensor(ztensor: Operand, structure: tensor_pb2.Ztensor, sticks: UserArray | None) -> None:
    """Create the tensor in the session from a structure as it stands, and its sticks."""
    guest, sent = ztensor.guest, tensor_pb2.Ztensor()
    sent.CopyFrom(structure)
    sent.ClearField("contents")
    sent.null_buffer = sticks is None
    view = np.frombuffer(b"" if sticks is None else sticks, np.uint8)
    target = WriteSticks(id=ztensor.id, new_ztensor=sent, total_bytes=view.nbytes)
    header = WriteTensorHeader(session=guest.name, sticks=target)
    call = Call("put_ztensor", Operation(), {"ztensor": ztensor}, (ztensor,))
    _write(guest, call, header, [view])


def describe(array: Array, layout: int | str | None) -> TensorDesc:
    """Return the pre-transformed descriptor of a float array; its dims decide a missing layout.

    Raises ValueError if the layout has another number of dims, TypeError as `dtype_code`.
    """
    if array.ndim not in _LAYOUTS:
        raise ValueError(f"array: {array.ndim} dims, expected 1 to 4")
    chosen = _LAYOUTS[array.ndim] if layout is None else layout
    number = enum_number(DataLayouts.DESCRIPTOR, "layout", chosen, "ZDNN_")
    if RANKS.get(number, array.ndim) != array.ndim:
        name = enum_name(DataLayouts.DESCRIPTOR, number)
        raise ValueError(
            f"array: {array.ndim} dims {array.shape}, layout {name} has {RANKS[number]}"
        )
    return init_pre_transformed_desc(number, dtype_code(array), *array.shape)


def dtype_code(array: Array) -> int:
    """Return the zDNN type of a float array; raise TypeError for a type that zDNN lacks."""
    for kind in (FP32, FP16, BFLOAT):
        if array.dtype.newbyteorder("<") == DTYPES[kind]:
            return kind
    raise TypeError(
        f"array: {array.dtype}, expected float32, float16 or ml_dtypes.bfloat16"
        + (" (astype('float32') first)" if array.dtype == np.float64 else "")
    )
