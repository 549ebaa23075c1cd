# SPDX-License-Identifier: Apache-2.0
"""Structures of the client API: buffers, parameters of init, reports, errors.

Source: X-CUBE-AI 7.0 Embedded Inference Client API 1.1.0, ai_platform.h.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from nnpa.network.v1 import network_pb2 as pb

from nnpa_client._values.fields import enum_name
from nnpa_client._values.user_arrays import Array
from nnpa_client.network.formats import Format, byte_size, dtype_of

__tracebackhide__ = True  # pytest shows the line that called, not these

Memory = Array | bytes | bytearray | memoryview
_CONST = 1 << 30


@dataclass(frozen=True, slots=True)
class MetaInfo:
    """Quantisation: real = scale * (q - zero_point); not quantised where `scale` is 0."""

    scale: float
    zero_point: int


@dataclass(slots=True)
class Buffer:
    """Memory and its layout: `ai_buffer`. Channels are innermost, batches outermost.

    `data` is the application's memory, None for NULL: for an input its elements, for an output a
    writeable array that `run` fills. `activations_offset` replaces it for a buffer in the network's
    activations. Only a report sets `meta_info`.
    """

    format: int = Format.NONE
    n_batches: int = 1
    height: int = 1
    width: int = 1
    channels: int = 1
    data: Memory | None = None
    activations_offset: int | None = None
    meta_info: MetaInfo | None = None
    parts: Sequence[bytes] = ()

    @property
    def size(self) -> int:
        """Elements of one batch: AI_BUFFER_SIZE."""
        return self.height * self.width * self.channels

    @property
    def nbytes(self) -> int:
        """Bytes of one batch."""
        return byte_size(self.size, self.format)

    def empty(self, n_batches: int = 1) -> Array:
        """Return an uninitialised array, (n_batches, height, width, channels)."""
        shape = (n_batches, self.height, self.width, self.channels)
        return np.empty(shape, dtype_of(self.format))


@dataclass(frozen=True, slots=True)
class AiError:
    """`ai_error`: type and code in ST's numbers; both 0, and false, for no error."""

    type: int = 0
    code: int = 0
    text: str = ""

    def __bool__(self) -> bool:
        """Return whether this is an error."""
        return self.type != 0

    def __str__(self) -> str:
        """Return "AI_ERROR_INVALID_STATE / AI_ERROR_CODE_MISSED_INIT (0x11, 0x30): text"."""
        kind = enum_name(pb.AiErrorType.DESCRIPTOR, self.type)
        code = enum_name(pb.AiErrorCode.DESCRIPTOR, self.code)
        return f"{kind} / {code} (0x{self.type:02X}, 0x{self.code:02X}): {self.text}"


@dataclass(frozen=True, slots=True)
class NetworkParams:
    """Weights first, activations second: `ai_network_params`."""

    params: Buffer
    activations: Buffer


def default_weights() -> Buffer:
    """Return the descriptor of the model's own weights."""
    return Buffer(Format.NONE | _CONST, height=0, width=0, channels=0)


def weights(data: Memory) -> Buffer:
    """Return the descriptor of weights in one blob."""
    return Buffer(Format.U8 | _CONST, channels=len(raw(data)), data=data)


def split_weights(parts: Sequence[bytes]) -> Buffer:
    """Return the descriptor of split weights: one part per tensor, in graph order."""
    return Buffer(Format.U8 | _CONST, channels=sum(map(len, parts)), parts=tuple(parts))


def activations(size: int) -> Buffer:
    """Return the descriptor of `size` bytes of activations; the server has the memory."""
    return Buffer(Format.U8, channels=size, data=b"")


def raw(data: Memory) -> bytes:
    """Return the bytes of memory; an array becomes row-major and little-endian."""
    if not isinstance(data, np.ndarray):
        return bytes(data)
    dense = np.ascontiguousarray(data)
    return dense.astype(dense.dtype.newbyteorder("<"), copy=False).tobytes()


def to_wire(buffer: Buffer, *, output: bool = False) -> pb.Buffer:
    """Return a buffer's message; an output sends no contents, only whether it has memory."""
    data = None if buffer.data is None else b"" if output else raw(buffer.data)
    return pb.Buffer(
        format=buffer.format,
        n_batches=buffer.n_batches,
        height=buffer.height,
        width=buffer.width,
        channels=buffer.channels,
        data=data,
        activations_offset=buffer.activations_offset,
        parts=buffer.parts,
    )


def from_wire(message: pb.Buffer) -> Buffer:
    """Return a message's buffer."""
    meta = message.meta_info if message.HasField("meta_info") else None
    return Buffer(
        message.format,
        message.n_batches,
        message.height,
        message.width,
        message.channels,
        message.data if message.HasField("data") else None,
        message.activations_offset if message.HasField("activations_offset") else None,
        None if meta is None else MetaInfo(meta.scale, meta.zero_point),
    )


def write_back(buffer: Buffer, data: bytes) -> None:
    """Write results into an output's memory; ValueError for one of another kind or size."""
    memory = buffer.data
    if memory is None:
        return
    if isinstance(memory, np.ndarray):
        if not memory.flags.writeable or not memory.flags.c_contiguous:
            raise ValueError("output.data: not contiguous or not writeable, expected both")
        view = memory.reshape(-1).view(np.uint8)
    elif isinstance(memory, bytearray):
        view = np.frombuffer(memory, np.uint8)
    else:
        raise ValueError(f"output.data: {type(memory).__name__}, expected an array or bytearray")
    if view.nbytes != len(data):
        raise ValueError(f"output.data: {view.nbytes} bytes, expected {len(data)}")
    view[:] = np.frombuffer(data, np.uint8)


def error_from_wire(message: pb.AiError) -> AiError:
    """Return a message's error."""
    return AiError(int(message.type), int(message.code), message.text)
