# SPDX-License-Identifier: Apache-2.0
"""Weights as an application holds them: one blob, or one piece per tensor, in graph order.

Source: X-CUBE-AI 7.0 Embedded Inference Client API, "AI buffers and privileged placement", "Split
weights buffer".
"""

from collections.abc import Sequence

from nnpa_network.client_api.activations import aligned
from nnpa_network.client_api.buffer_format import Buffer
from nnpa_network.client_api.errors import ErrorCode, ErrorType, NetworkRefused
from nnpa_network.importing.plan import Weight


def layout(weights: Sequence[Weight]) -> tuple[tuple[int, ...], int]:
    """Return where each tensor begins in one blob, bytes, and the size of the blob."""
    offsets: list[int] = []
    end = 0
    for weight in weights:
        offsets.append(end)
        end += aligned(weight.nbytes)
    return tuple(offsets), end


def given_weights(
    weights: Sequence[Weight], buffer: Buffer, split: bool
) -> tuple[bytes, ...] | None:
    """Return the pieces of a buffer that replace `weights`; None if it keeps them.

    Raise `NetworkRefused` for a NULL pointer, too few bytes, or pieces where a blob is due.
    """
    if buffer.data is None and buffer.parts is None and buffer.is_empty:
        return None
    size = layout(weights)[1]
    if (buffer.parts if split else buffer.data) is None:
        raise _refused(f"params.{'parts' if split else 'data'} is NULL")
    if buffer.channels < size:
        raise _refused(f"params.channels is {buffer.channels}, must be at least {size}")
    parts = buffer.parts if split else _cut(weights, memoryview(buffer.data or b""), size)
    sizes = [weight.nbytes for weight in weights]
    if parts is None or [len(part) for part in parts] != sizes:
        raise _refused(f"params: not pieces of {sizes} bytes")
    same = all(weight.data == part for weight, part in zip(weights, parts, strict=True))
    return None if same else parts


def _cut(weights: Sequence[Weight], blob: memoryview, size: int) -> tuple[bytes, ...]:
    if len(blob) < size:
        raise _refused(f"params.data has {len(blob)} bytes, must have {size}")
    offsets, _end = layout(weights)
    return tuple(
        bytes(blob[start : start + weight.nbytes])
        for start, weight in zip(offsets, weights, strict=True)
    )


def _refused(text: str) -> NetworkRefused:
    return NetworkRefused(ErrorType.INIT_FAILED, ErrorCode.NETWORK_WEIGHTS, text)
