# SPDX-License-Identifier: Apache-2.0
"""Byte strings in a row, the length of each before it: 4 bytes, little-endian.

So travel arrays of text. Source: Open Inference Protocol, "Tensor Data", type BYTES.
"""

from collections.abc import Iterable, Iterator

LENGTH_BYTES = 4
"""Bytes of a length."""


def join(strings: Iterable[bytes]) -> bytes:
    """Return byte strings in a row."""
    return b"".join(len(string).to_bytes(LENGTH_BYTES, "little") + string for string in strings)


def split(row: bytes) -> Iterator[bytes]:
    """Return the byte strings of a row one by one; ValueError at one that it does not hold."""
    end, index = 0, 0
    while end < len(row):
        begin = end + LENGTH_BYTES
        end = begin + int.from_bytes(row[end:begin], "little")
        if max(begin, end) > len(row):
            raise ValueError(f"element {index} ends at byte {end} of {len(row)}")
        yield row[begin:end]
        index += 1
