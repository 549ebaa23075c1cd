# SPDX-License-Identifier: Apache-2.0
"""Trace files: a magic number, then zlib-compressed records; see nnpa/zdnn/v1/trace.proto.

A truncated file is read up to its last complete record.
"""

import os
import time
import zlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from google.protobuf.message import DecodeError
from nnpa.zdnn.v1.trace_pb2 import TraceRecord
from nnpa_wire.fields import read_varint

TracePath: TypeAlias = str | PathLike[str]

_FAMILY = b"NNPATRC"  # every version's magic number begins so
_VERSION = 1
MAGIC = _FAMILY + b"%d" % _VERSION
_LEVEL = 1  # of zlib: fastest, as the recorded program runs meanwhile
_FLUSH_SECONDS = 0.5  # between flushes: a crash loses no more than this
_READ_BYTES = 1 << 20
# Sources: the largest message of a server, --max-message, with its answer; the largest trace.
_MAX_RECORD_BYTES = 1 << 30
_MAX_BYTES = 5 << 30
# Reading a file takes at most these bytes, or this multiple of its size; a record takes objects.
_SMALL_BYTES, _MAX_RATIO, _OBJECT_BYTES = 256 << 20, 100, 256


class TraceWriter:
    """A trace file that is written while its records arrive."""

    def __init__(self, path: TracePath) -> None:
        self._file = Path(path).open("wb")  # noqa: SIM115 - closed by close()
        self._file.write(MAGIC)
        self._file.flush()
        self._zlib = zlib.compressobj(_LEVEL)
        self._flushed = time.monotonic()

    def write(self, records: bytes) -> None:
        """Append bytes of records; flush the file every half second."""
        if records:
            self._file.write(self._zlib.compress(records))
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self._file.write(self._zlib.flush(zlib.Z_SYNC_FLUSH))
            self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Write the rest and close the file. May be repeated."""
        if not self._file.closed:
            self._file.write(self._zlib.flush())
            self._file.close()


def is_trace(path: TracePath) -> bool:
    """Return whether a file begins as traces of any version do. Raises OSError."""
    with Path(path).open("rb") as file:
        return file.read(len(_FAMILY)) == _FAMILY


def read_records(path: TracePath) -> Iterator[TraceRecord]:
    """Yield the complete records of a file.

    Raises ValueError for a file that is no trace, has a newer version, or decompresses to more than
    any server records; OSError for a file that cannot be opened.
    """
    with Path(path).open("rb") as file:
        start = file.read(len(MAGIC))
        if start != MAGIC and start.startswith(_FAMILY):
            version = start.removeprefix(_FAMILY).decode("latin-1") or "unknown"
            raise ValueError(
                f"{path}: a trace of version {version}, expected version {_VERSION}: "
                "a newer nnpa wrote it"
            )
        if start != MAGIC:
            raise ValueError(f"{path}: begins with {start!r}, expected {MAGIC!r}: not a trace")
        size = os.fstat(file.fileno()).st_size
        most = min(_MAX_BYTES, max(_SMALL_BYTES, _MAX_RATIO * size))
        pending, used_bytes = bytearray(), 0
        for unpacked in _decompressed(iter(lambda: file.read(_READ_BYTES), b"")):
            pending += unpacked
            used_bytes += len(unpacked)
            _require_few(used_bytes, most, path)
            for record in _take_records(pending, path):
                used_bytes += _OBJECT_BYTES
                _require_few(used_bytes, most, path)
                yield record


def _require_few(used_bytes: int, most: int, path: TracePath) -> None:
    if used_bytes > most:
        raise ValueError(
            f"{path}: its records take more than {most} bytes, which is the limit for its size: "
            "record it without contents, or less of it"
        )


def _decompressed(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield decompressed bytes, up to the first corrupt part."""
    decompressor = zlib.decompressobj()
    for part in parts:
        packed = part
        while packed:
            try:
                unpacked = decompressor.decompress(packed, _READ_BYTES)
            except zlib.error:
                return
            yield unpacked
            packed = decompressor.unconsumed_tail


def _take_records(pending: bytearray, path: TracePath) -> Iterator[TraceRecord]:
    """Yield the complete records at the front of a buffer, and remove them."""
    done = 0
    with memoryview(pending) as view:
        while True:
            try:
                size, start = read_varint(view, done)
            except DecodeError:
                break  # it goes on in the next part of the file
            if size > _MAX_RECORD_BYTES:
                raise ValueError(f"{path}: a record of {size} bytes, at most {_MAX_RECORD_BYTES}")
            if start + size > len(view):
                break
            try:
                record = TraceRecord.FromString(view[start : start + size].tobytes())
            except DecodeError as error:
                raise ValueError(f"{path}: a record that is none: {error}") from error
            done = start + size
            yield record
    del pending[:done]
