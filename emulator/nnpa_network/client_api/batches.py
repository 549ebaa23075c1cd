# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of one run: checked against the model, and cut into batches.

Which pair of type and code a refusal gets: X-CUBE-AI 7.0 public header set for the names, our
reading for the choice; see `runtime`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from nnpa_network.client_api.bhwc import IoTensor
from nnpa_network.client_api.buffer_format import Buffer, Format, same_format
from nnpa_network.client_api.errors import ErrorCode, ErrorType, NetworkRefused

MAX_BATCHES = 0xFFFF  # n_batches has 16 bits
_CODE = ErrorCode
Batch = Mapping[str, memoryview]
Memory = npt.NDArray[np.uint8]


def read_inputs(
    tensors: Sequence[IoTensor], buffers: Sequence[Buffer] | None, memory: Memory
) -> list[Batch]:
    """Return the bytes of each batch by the inputs' names; those inside activations from there.

    Data that comes with an offset is written to the activations first.
    """
    kind = ErrorType.INVALID_INPUT
    descriptors = _require_all(kind, tensors, buffers)
    n_batches = descriptors[0].n_batches if descriptors else 1
    places: list[int | None] = []
    for index, (tensor, buffer) in enumerate(zip(tensors, descriptors, strict=True)):
        path = f"inputs[{index}]"
        offset = _place(kind, path, tensor, buffer)
        _require_like(kind, path, tensor, buffer, n_batches)
        _require_contents(path, tensor, buffer, offset, memory)
        places.append(offset)
    views: dict[str, memoryview] = {}
    for tensor, buffer, offset in zip(tensors, descriptors, places, strict=True):
        size = tensor.nbytes * n_batches
        if buffer.data is not None and offset is not None:
            memory[offset : offset + size] = np.frombuffer(buffer.data, np.uint8)
        whole = buffer.data if offset is None else memory[offset : offset + size].tobytes()
        views[tensor.port.name] = memoryview(whole or b"")
    return [
        {
            tensor.port.name: views[tensor.port.name][at * tensor.nbytes : (at + 1) * tensor.nbytes]
            for tensor in tensors
        }
        for at in range(n_batches)
    ]


def require_outputs(
    tensors: Sequence[IoTensor], buffers: Sequence[Buffer] | None, n_batches: int
) -> tuple[Buffer, ...]:
    """Return the descriptors of the outputs after checking that results fit into them."""
    kind = ErrorType.INVALID_OUTPUT
    descriptors = _require_all(kind, tensors, buffers)
    for index, (tensor, buffer) in enumerate(zip(tensors, descriptors, strict=True)):
        path = f"outputs[{index}]"
        offset = _place(kind, path, tensor, buffer)
        _require_like(kind, path, tensor, buffer, n_batches)
        if offset is not None and (n_batches != 1 or offset != tensor.offset):
            _refuse(kind, _CODE.INVALID_BATCH, f"{path}: activations have a place for 1 batch")
    return tuple(descriptors)


def write_output(
    tensor: IoTensor, buffer: Buffer, parts: Sequence[bytes], memory: Memory
) -> Buffer:
    """Return an output with its data; write the data to its place in the activations, if any."""
    data = b"".join(parts)
    if buffer.data is not None and buffer.offset is None:
        return tensor.describe(len(parts), data=data)
    assert tensor.offset is not None
    memory[tensor.offset : tensor.offset + len(data)] = np.frombuffer(data, np.uint8)
    return tensor.describe(len(parts), data=data, offset=tensor.offset)


def _refuse(kind: ErrorType, code: ErrorCode, text: str) -> None:
    raise NetworkRefused(kind, code, text)


def _require_all(
    kind: ErrorType, tensors: Sequence[IoTensor], buffers: Sequence[Buffer] | None
) -> Sequence[Buffer]:
    """Return one buffer per tensor. C implies their number; here it can be wrong."""
    what = "inputs" if kind == ErrorType.INVALID_INPUT else "outputs"
    if buffers is None or len(buffers) < len(tensors):
        have = 0 if buffers is None else len(buffers)
        text = f"{what}[{have}] is NULL, the network has {len(tensors)}"
        raise NetworkRefused(kind, _CODE.INVALID_PTR, text)
    if len(buffers) > len(tensors):
        text = f"{what}: {len(buffers)} descriptors, the network has {len(tensors)}"
        raise NetworkRefused(kind, _CODE.INVALID_SIZE, text)
    return buffers


def _place(kind: ErrorType, path: str, tensor: IoTensor, buffer: Buffer) -> int | None:
    """Return where in the activations the data lies, None for memory of the application."""
    if buffer.offset is not None:
        return buffer.offset
    if buffer.data is None and tensor.offset is None:
        _refuse(kind, _CODE.INVALID_PTR, f"{path}.data is NULL and has no place in activations")
    return tensor.offset if buffer.data is None else None


def _require_like(
    kind: ErrorType, path: str, tensor: IoTensor, buffer: Buffer, n_batches: int
) -> None:
    if tensor.format == Format.NONE:
        text = f"{path}: {tensor.port.name} is text, which has no format; infer takes it"
        _refuse(kind, _CODE.INVALID_FORMAT, text)
    if not same_format(buffer.format, tensor.format):
        text = f"{path}.format is 0x{buffer.format:08X}, must be 0x{tensor.format:08X}"
        _refuse(kind, _CODE.INVALID_FORMAT, text)
    dims = buffer.height, buffer.width, buffer.channels
    if dims != tensor.dims:
        text = f"{path}: height, width, channels are {dims}, must be {tensor.dims}"
        _refuse(kind, _CODE.INVALID_SIZE, text)
    if not 0 < buffer.n_batches <= MAX_BATCHES or buffer.n_batches != n_batches:
        limit = f"1 to {MAX_BATCHES} and that of the other buffers, {n_batches}"
        text = f"{path}.n_batches is {buffer.n_batches}, must be {limit}"
        _refuse(kind, _CODE.INVALID_BATCH, text)


def _require_contents(
    path: str, tensor: IoTensor, buffer: Buffer, offset: int | None, memory: Memory
) -> None:
    """Refuse an input whose size is not exactly the size of its batches."""
    kind, size = ErrorType.INVALID_INPUT, tensor.nbytes * buffer.n_batches
    if offset is not None and (buffer.n_batches != 1 or offset + size > len(memory)):
        text = f"{path}: {size} bytes at {offset}, activations hold 1 batch at {tensor.offset}"
        _refuse(kind, _CODE.INVALID_BATCH, text)
    if buffer.data is not None and len(buffer.data) != size:
        text = f"{path}.data has {len(buffer.data)} bytes, must have {size}"
        _refuse(kind, _CODE.INVALID_SIZE, text)
