# SPDX-License-Identifier: Apache-2.0
"""Chunks of WriteTensor and ReadTensor as bytes, past the protobuf runtime, which would copy them.

A chunk is field 2 of WriteTensorRequest and of ReadTensorResponse: a tag, a length, the bytes.
"""

from nnpa.zdnn.v1.accelerator_pb2 import ReadTensorResponse, WriteTensorRequest

from nnpa_client._shortcuts.out_of_band_arrays import varint

Upload = WriteTensorRequest | memoryview
Download = ReadTensorResponse | memoryview

_TAG = 0x12  # field 2, wire type 2 (length-delimited)


def serialize_write(part: Upload) -> bytes:
    """Return the wire form of a header message, or of a chunk's bytes."""
    if not isinstance(part, memoryview):
        return part.SerializeToString()
    return b"".join((bytes((_TAG,)), varint(part.nbytes), part))


def parse_read(raw: bytes) -> Download:
    """Return the bytes of a chunk, or the message for anything else."""
    if raw and raw[0] == _TAG:
        length, start = 0, 1
        for byte in raw[1:11]:
            length |= (byte & 0x7F) << 7 * (start - 1)
            start += 1
            if byte < 0x80:
                break
        if length == len(raw) - start:
            return memoryview(raw)[start:]
    return ReadTensorResponse.FromString(raw)
