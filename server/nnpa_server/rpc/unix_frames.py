# SPDX-License-Identifier: Apache-2.0
"""Serve conversations over plain Unix sockets, for clients on this host: gRPC without HTTP/2.

Beside each Unix socket of gRPC lies a plain one. Each of its connections carries one call: the
conversation that `:path` in the client's metadata names, or else the first conversation. Messages
go both ways in gRPC's length-prefixed frames. A frame whose flag has the highest bit carries
metadata in the form of gRPC-Web: the client's first frame, and the server's last one with the
status. Measured: a small message takes a tenth of its time over HTTP/2, one of megabytes a quarter.
Sources: deploy/docs/wire.md, "Plain sockets"; gRPC, PROTOCOL-HTTP2.md,
"Length-Prefixed-Message" and "Status-Message"; gRPC-Web, PROTOCOL-WEB.md, "Message framing".
"""

import base64
import logging
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

import grpc
import numpy as np

from nnpa_server.errors import CallRefused, MessageTooLong, no_message
from nnpa_server.rpc.budget import account_of_call
from nnpa_server.rpc.callers import Shares
from nnpa_server.rpc.methods import Raw, StreamBehaviour
from nnpa_server.sessions.cancellation import Metadata

SUFFIX = ".plain"
"""The suffix of a plain socket's path, behind the path of gRPC's socket."""
_PREFIX = struct.Struct(">BI")
_PATH = ":path"  # of the metadata of a request. Source: gRPC, PROTOCOL-HTTP2.md, "Requests"
_METADATA = 0x80  # the flag of a frame that is no message
_MAX_METADATA = 8 << 10  # bytes, as gRPC's grpc.max_metadata_size
_SPARE = 16  # clients above the bound of conversations: these are refused as over HTTP/2
_PAUSE = 0.05  # seconds after a client could not be accepted
_METADATA_TIMEOUT = 5.0  # seconds that a client has for its metadata
_READ = 64 << 10  # bytes that are read at once: small messages with their prefixes
_MAX_PIECES = 64  # of one system call, below IOV_MAX
_BUFFER = 1 << 20  # bytes that one side may write before the other side reads
_MAX_SECONDS = 1e9  # seconds: fits into every system's timeval
_PEER = struct.Struct("iII")  # of a client: process, user, group. Source: Linux, struct ucred
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")  # of a Status-Message
_log = logging.getLogger("nnpa.server")


class _Ended(Exception):
    """Raised by `abort` to end the call with an error."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code, self.details = code, details


class PlainListener:
    """Serves conversations by path to `most` clients at a time; each client process has a share.

    The pieces of an answer are sent without a copy. A message above `max_message` bytes is refused
    before memory is taken for it. A client that takes no byte of an answer for `idle_timeout`
    seconds is cut off.
    """

    def __init__(
        self,
        conversations: Mapping[str, StreamBehaviour],
        most: int,
        max_message: int,
        idle_timeout: float,
    ) -> None:
        self._conversations = conversations
        self._max_message = max_message
        self._idle_timeout = idle_timeout
        most += min(most, _SPARE)
        self._clients = Shares("max_conversations", most, "conversations")
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._open: dict[_Connection, threading.Thread] = {}
        self._listening: list[tuple[Path, socket.socket]] = []

    def start(self, path: Path) -> None:
        """Listen on a path and serve; raise OSError if the path cannot be bound."""
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.bind(str(path))
            listening.listen()
        except OSError:
            listening.close()
            raise
        self._listening.append((path, listening))
        threading.Thread(
            target=self._accept, args=(listening,), name="plain sockets", daemon=True
        ).start()

    def stop(self, grace: float) -> None:
        """Cut off all clients, accept no more, and wait at most `grace` seconds for threads."""
        self._stopped.set()
        for path, listening in self._listening:
            path.unlink(missing_ok=True)
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        with self._lock:
            left = dict(self._open)
        for connection in left:
            connection.cancel()
        for thread in left.values():
            thread.join(grace / len(left))

    def _accept(self, listening: socket.socket) -> None:
        while not self._stopped.is_set():
            try:
                self._welcome(*listening.accept())
            except (OSError, RuntimeError):  # of descriptors, memory, threads: they come back
                self._stopped.wait(_PAUSE)

    def _welcome(self, connected: socket.socket, _address: object) -> None:
        """Give a client a thread; the call's own bound, which is a little lower, refuses most."""
        try:
            connection = _Connection(connected, self._max_message, self._idle_timeout)
        except BaseException:
            connected.close()
            raise
        thread = threading.Thread(target=self._serve, args=(connection,), name="plain", daemon=True)
        try:
            self._clients.take(connection.process)
        except CallRefused as refused:
            connection.refuse(refused.status())
            return
        with self._lock:  # until it runs: `stop` waits for running threads
            try:
                if self._stopped.is_set():
                    raise RuntimeError("the listener has stopped")
                thread.start()
            except RuntimeError:
                self._clients.give(connection.process)
                connection.close()
                raise
            self._open[connection] = thread

    def _serve(self, connection: "_Connection") -> None:
        try:
            connection.converse(self._conversations)
        except Exception:
            _log.exception("a plain socket failed")
        finally:
            with self._lock:
                del self._open[connection]
            self._clients.give(connection.process)
            connection.close()


class _Connection:
    """A client's socket, and the context of its one call.

    `process` names the client's process. The connection counts each message before it takes memory
    for it, which `counts_messages` says.
    """

    counts_messages = True

    def __init__(self, connected: socket.socket, max_message: int, idle_timeout: float) -> None:
        self._socket = connected
        self._max_message = max_message
        self._buffer = memoryview(bytearray(_READ))
        self._start = self._end = 0  # of the bytes that were read ahead
        self._metadata: Metadata = ()
        self._trailing: Metadata = ()
        self._callbacks: list[Callable[[], None]] = []
        self._cancelled = False
        self._memory: int | None = None
        self._until: float | None = None  # the deadline of the metadata, while they come
        self._held = 0  # bytes of the last message, which the reader of the next one may hold
        peer = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        self.process = f"process {_PEER.unpack(peer)[0]}"
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            connected.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        self._limit(socket.SO_SNDTIMEO, idle_timeout)

    def converse(self, conversations: Mapping[str, StreamBehaviour]) -> None:
        """Read the metadata, run the conversation that they name, and send its answers."""
        code, details = grpc.StatusCode.OK, ""
        try:
            self._metadata = self._read_metadata()
            path = str(dict(self._metadata).get(_PATH, next(iter(conversations))))
            behaviour = conversations.get(path)
            if behaviour is None:
                text = f"{path[:80]} is not served here, must be one of {', '.join(conversations)}"
                raise _Ended(grpc.StatusCode.UNIMPLEMENTED, text)
            answers = behaviour(self._messages(), self)
            try:
                for pieces in answers:
                    self._send(0, pieces)
                    del pieces
            finally:
                answers.close()
        except _Ended as ended:
            code, details = ended.code, ended.details
        except OSError as error:
            _log.debug("a plain socket ended: %s", error)
            return
        self._end_with(code, details)

    def refuse(self, status: grpc.Status) -> None:
        """End the call with a status before it has begun, and close the socket."""
        self._trailing = tuple(status.trailing_metadata or ())
        self._end_with(status.code, status.details)
        self.close()

    def close(self) -> None:
        """Close the socket, and call the callbacks of the call's end."""
        self._socket.close()
        if (memory := self.take_memory()) is not None:
            os.close(memory)
        for callback in self._callbacks:
            callback()

    def peer(self) -> str:
        """Return gRPC's name of a peer on a Unix socket."""
        return "unix:"

    def invocation_metadata(self) -> Metadata:
        """Return the metadata that the client sent first."""
        return self._metadata

    def trailing_metadata(self) -> Metadata:
        """Return the trailing metadata set so far."""
        return self._trailing

    def set_trailing_metadata(self, trailing_metadata: Metadata) -> None:
        """Replace the trailing metadata."""
        self._trailing = tuple(trailing_metadata)

    def time_remaining(self) -> None:
        """Return None: calls here have no deadline."""

    def is_active(self) -> bool:
        """Return True while the call runs and the client is connected."""
        watched = select.poll()
        watched.register(self._socket, 0)  # reports by itself that the other end is closed
        return not (self._cancelled or watched.poll(0))

    def take_memory(self) -> int | None:
        """Return the descriptor that came with the metadata, or None; the caller closes it."""
        memory, self._memory = self._memory, None
        return memory

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Add a function that is called when the call ends."""
        self._callbacks.append(callback)
        return True

    def cancel(self, ends: int = socket.SHUT_RD) -> None:
        """Cut off the call's requests: the next read finds the end."""
        self._cancelled = True
        with suppress(OSError):
            self._socket.shutdown(ends)

    def cut_off(self) -> None:
        """Cut off the call at once, even while it sends an answer that its client does not take."""
        self.cancel(socket.SHUT_RDWR)

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call with an error."""
        raise _Ended(code, details)

    def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """End the call with an error and its details."""
        self._trailing = tuple(status.trailing_metadata or ())
        raise _Ended(status.code, status.details)

    def _limit(self, which: int, seconds: float) -> None:
        """Set the seconds that one system call may take, 0 for no limit. Source: socket(7)."""
        whole, part = divmod(min(seconds, _MAX_SECONDS), 1)
        limit = struct.pack("ll", int(whole), int(part * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, which, limit)

    def _read_metadata(self) -> Metadata:
        """Return the metadata of the first frame; raise TimeoutError if it comes too late."""
        self._until = time.monotonic() + _METADATA_TIMEOUT
        self._limit(socket.SO_RCVTIMEO, _METADATA_TIMEOUT)
        received, files, *_ = socket.recv_fds(
            self._socket, len(self._buffer), 1, socket.MSG_CMSG_CLOEXEC
        )
        self._memory = files[0] if files else None
        self._buffer[: len(received)] = received
        self._end = len(received)
        flag, size = self._head() or (0, 0)
        if flag != _METADATA or size > _MAX_METADATA:
            limit = f"a frame of metadata of at most {_MAX_METADATA} bytes"
            raise _Ended(grpc.StatusCode.INVALID_ARGUMENT, f"the first frame must be {limit}")
        lines = bytes(self._take(size)).decode("latin-1").split("\r\n")
        self._until = None
        self._limit(socket.SO_RCVTIMEO, 0)
        ends = ((line, line.find(":", 1)) for line in lines if ":" in line[1:])
        return tuple((line[:end].strip().lower(), line[end + 1 :].strip()) for line, end in ends)

    def _messages(self) -> Generator[Raw]:
        """Yield the client's messages until it has no more; raise RpcError as gRPC does."""
        while True:
            try:
                head = self._head()
                if head is None:
                    break
                raw = self._receive(*head)
            except OSError as error:
                raise grpc.RpcError("the connection broke") from error
            yield raw
            del raw
        if self._cancelled:
            raise grpc.RpcError("the call was cancelled")

    def _receive(self, flag: int, size: int) -> Raw:
        """Return the next message; raise CallRefused if there is no room for it."""
        if size > self._max_message:
            raise MessageTooLong(size, self._max_message)
        account = account_of_call()
        if account is not None and max(size, account.counted) > account.small:
            account.receive(self._held + size)
        self._held = size
        raw = self._take(size)
        if flag:
            raise no_message()
        return raw

    def _head(self) -> tuple[int, int] | None:
        """Return flag and size of the next frame, or None at the end."""
        if self._read_ahead(_PREFIX.size) == 0:
            return None
        flag, size = _PREFIX.unpack_from(self._buffer, self._start)
        self._start += _PREFIX.size
        return flag, size

    def _read_ahead(self, size: int) -> int:
        """Read until the buffer has at least `size` bytes; return their number, 0 at the end."""
        if self._start == self._end:
            self._start = self._end = 0
        while (size_read := self._end - self._start) < size:
            if self._start + size > len(self._buffer):
                self._buffer[:size_read] = bytes(self._buffer[self._start : self._end])
                self._start, self._end = 0, size_read
            if self._until is not None:
                self._limit(socket.SO_RCVTIMEO, max(1e-3, self._until - time.monotonic()))
            count = self._socket.recv_into(self._buffer[self._end :])
            if count == 0 and size_read:
                raise ConnectionResetError("a frame that does not end")
            if count == 0:
                return 0
            self._end += count
        return size_read

    def _take(self, size: int) -> Raw:
        """Return the next bytes: a large message in memory of its own, which is not cleared."""
        if size <= len(self._buffer):
            if self._read_ahead(size) < size:
                raise ConnectionResetError("a frame that does not end")
            self._start += size
            return bytes(self._buffer[self._start - size : self._start])
        whole = np.empty(size, np.uint8).data
        size_read = self._end - self._start
        whole[:size_read] = self._buffer[self._start : self._end]
        self._start = self._end = 0
        while size_read < size:
            count = self._socket.recv_into(whole[size_read:], 0, socket.MSG_WAITALL)
            if count == 0:
                raise ConnectionResetError("a frame that does not end")
            size_read += count
        return whole

    def _send(self, flag: int, pieces: Sequence[bytes | memoryview]) -> None:
        """Send a frame."""
        left = [_PREFIX.pack(flag, sum(map(len, pieces))), *pieces]
        while left:
            sent = self._socket.sendmsg(left[:_MAX_PIECES])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = memoryview(left[0])[sent:]

    def _end_with(self, code: grpc.StatusCode, details: str) -> None:
        """Send the status, which is the end."""
        number: int = code.value[0]
        pairs: list[tuple[str, str | bytes]] = [("grpc-status", str(number))]
        if details:
            pairs.append(("grpc-message", quote(details, safe=_PLAIN)))
        lines = (f"{name}: {_text(value)}\r\n" for name, value in (*pairs, *self._trailing))
        with suppress(OSError):
            self._send(_METADATA, ["".join(lines).encode("latin-1", "replace")])


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else base64.b64encode(value).decode()
