# SPDX-License-Identifier: Apache-2.0
"""Save published models on disk, so that they outlive the server.

The folder of --state has one file per model, with all its versions. A file is written under another
name, synchronized and renamed, so that it is replaced as a whole. Its name is the SHA-256 of the
model's name. It holds a mark, the SHA-256 and the length of the header, the header (JSON, with the
SHA-256 of each version's contents), and the contents.
"""

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import struct
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallRefused
from nnpa_server.open_inference.owners import OPERATOR

MARK = b"nnpa-m1\n"
PREFIX = struct.Struct(f">{len(MARK)}s32sQ")
"""The mark, and the SHA-256 and length of the header."""
_log = logging.getLogger("nnpa.models")
_MAX_HEADER = 16 << 20
_MODEL, _PART, _LOCK = re.compile(r"[0-9a-f]{64}\.model"), re.compile(r"[0-9a-f]{32}\.part"), "lock"
_CHUNK = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StateInvalid(Exception):
    """The folder of --state cannot be used; the text names it and the reason."""


class Damaged(Exception):
    """A file has other contents than were written; the text describes the damage."""


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model as its client sent it: owner, configuration in JSON, files by version."""

    name: str
    owner: str
    config: str
    files: Mapping[str, bytes]

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(map(len, self.files.values()))


@dataclass(frozen=True, slots=True)
class _Header:
    """The header of a file."""

    name: str
    owner: str
    config: str
    versions: Sequence[tuple[str, int, str]]  # number, size in bytes, SHA-256
    size: int  # of the whole file, in bytes


class SavedModels:
    """The saved models of a folder, at most `max_bytes`; the folder is locked."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._lock = threading.RLock()
        self._headers: dict[str, _Header] = {}
        self._unusable: dict[str, int] = {}  # bytes of files that are damaged, by file name
        try:
            self._claim: int | None = _claim(folder)
            self._scan()
        except OSError as error:
            raise StateInvalid(f"--state {folder}: {error.strerror or error}") from error

    def _scan(self) -> None:
        for path in sorted(self._folder.iterdir()):
            is_file = path.is_file() and not path.is_symlink()
            if is_file and _PART.fullmatch(path.name):
                path.unlink()
                _log.warning("state: %s was half written, it is removed", path.name)
            elif is_file and _MODEL.fullmatch(path.name):
                self._enter(path)
            elif path.name != _LOCK:
                _log.warning("state: %r is no file of a model, it is ignored", path.name)

    def _enter(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                header = _read_header(file)
            if _file_name(header.name) != path.name:
                raise Damaged("it is named as another model's")
        except (Damaged, OSError) as error:
            self._unusable[path.name] = path.stat().st_size
            _log.warning("state: %s is damaged and ignored: %s", path.name, error)
        else:
            self._headers[header.name] = header

    def names(self) -> list[str]:
        """Return the names of the saved models."""
        with self._lock:
            return sorted(self._headers)

    def owner(self, name: str) -> str | None:
        """Return the owner of a model, or None; the operator owns damaged models."""
        with self._lock:
            if _file_name(name) in self._unusable:
                return OPERATOR
            header = self._headers.get(name)
        return None if header is None else header.owner

    def read(self, name: str) -> SavedModel:
        """Read a saved model and check its contents; raise Damaged, OSError."""
        with (self._folder / _file_name(name)).open("rb") as file:
            header = _read_header(file)
            files: dict[str, bytes] = {}
            for number, size, digest in header.versions:
                contents = file.read(size)
                if hashlib.sha256(contents).hexdigest() != digest:
                    raise Damaged(f"version {number} is not what was written")
                files[number] = contents
        return SavedModel(header.name, header.owner, header.config, files)

    def require_room(self, name: str, size: int, owner: str, quota: int | None = None) -> None:
        """Raise CallRefused if a model of `size` bytes exceeds the limit or the owner's `quota`."""
        with self._lock:
            beside = [header for header in self._headers.values() if header.name != name]
            damaged = sum(size for path, size in self._unusable.items() if path != _file_name(name))
        total = sum(header.size for header in beside) + damaged + size
        if total > self._max_bytes:
            raise _too_large(total, self._max_bytes)
        own = sum(header.size for header in beside if header.owner == owner) + size
        if quota is not None and own > quota:
            raise _too_large(own, quota)

    def save(self, model: SavedModel, quota: int | None = None) -> None:
        """Write a model in place of the one of its name; it is on disk when this returns.

        Raise CallRefused if there is no room: the old model stays then. Raise OSError if the folder
        cannot be written or synchronized.
        """
        encoded, header = _encode(model)
        file_name = _file_name(model.name)
        with self._lock:
            self._require_open()
            self.require_room(model.name, header.size, model.owner, quota)
            try:
                self._replace(file_name, (encoded, *model.files.values()))
            except OSError as error:
                if error.errno in _FULL:
                    raise _too_large(header.size, self._max_bytes, "the disk is full") from error
                raise
            self._headers[model.name] = header
            self._unusable.pop(file_name, None)
            _synchronize(self._folder)

    def _replace(self, file_name: str, parts: Iterable[bytes]) -> None:
        part = self._folder / f"{secrets.token_hex(16)}.part"
        try:
            with open(part, "xb", opener=_opener) as file:
                for contents in parts:
                    file.write(contents)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._folder / file_name)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise

    def remove(self, name: str) -> bool:
        """Remove a model for good; return False if there was none."""
        file_name = _file_name(name)
        with self._lock:
            if name not in self._headers and file_name not in self._unusable:
                return False
            self._require_open()
            (self._folder / file_name).unlink(missing_ok=True)
            self._headers.pop(name, None)
            self._unusable.pop(file_name, None)
            _synchronize(self._folder)
            return True

    def close(self) -> None:
        """Unlock the folder; models are no longer saved or removed."""
        with self._lock:
            if self._claim is not None:
                os.close(self._claim)
                self._claim = None

    def _require_open(self) -> None:
        if self._claim is None:
            text = "the server shuts down: no model is saved or removed any more"
            raise CallRefused(wire.ERROR_REASON_SERVER_DRAINING, text)


def _claim(folder: Path) -> int:
    """Create the folder if needed and lock it; raise StateInvalid if another server has it."""
    is_new = not folder.exists()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_new:
        _synchronize(folder.parent)
    descriptor = os.open(
        folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StateInvalid(f"--state {folder}: another server has it") from None
    return descriptor


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _synchronize(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _file_name(name: str) -> str:
    return f"{hashlib.sha256(name.encode()).hexdigest()}.model"


def _encode(model: SavedModel) -> tuple[bytes, _Header]:
    """Return the bytes of a file before its contents, and the header that they encode."""
    versions = [
        (number, len(contents), hashlib.sha256(contents).hexdigest())
        for number, contents in model.files.items()
    ]
    facts = {"name": model.name, "owner": model.owner, "config": model.config, "versions": versions}
    text = json.dumps(facts).encode()
    prefix = PREFIX.pack(MARK, hashlib.sha256(text).digest(), len(text))
    return prefix + text, _parse_header(text)


def _read_header(file: BinaryIO) -> _Header:
    """Read and check the header of a file; raise Damaged."""
    total = os.fstat(file.fileno()).st_size
    prefix = file.read(PREFIX.size)
    if len(prefix) < PREFIX.size:
        raise Damaged(f"it has {total} bytes")
    mark, digest, length = PREFIX.unpack(prefix)
    if mark != MARK:
        raise Damaged("it does not begin as a model")
    if length > min(total, _MAX_HEADER):
        raise Damaged(f"its header has {length} bytes")
    text = file.read(length)
    if hashlib.sha256(text).digest() != digest:
        raise Damaged("its header is not what was written")
    header = _parse_header(text)
    if header.size != total:
        raise Damaged(f"it has {total} of {header.size} bytes")
    return header


def _parse_header(text: bytes) -> _Header:
    try:
        fields = json.loads(text)
        versions = [
            (str(number), int(size), str(digest)) for number, size, digest in fields["versions"]
        ]
        name, owner, config = (str(fields[key]) for key in ("name", "owner", "config"))
    except (ValueError, TypeError, KeyError) as error:
        raise Damaged(f"its header is of another kind ({type(error).__name__})") from error
    size = PREFIX.size + len(text) + sum(size for _, size, _ in versions)
    return _Header(name, owner, config, versions, size)


def _too_large(size: int, limit: int, why: str = "") -> CallRefused:
    """Return the error for models that take too many bytes on disk."""
    return CallRefused(
        wire.ERROR_REASON_MODEL_QUOTA_EXCEEDED,
        f"max_state_bytes is {limit}, the saved models would have {size}"
        f"{f' ({why})' if why else ''}: unload some",
        field="max_state_bytes",
        value=size,
        limit=limit,
    )
