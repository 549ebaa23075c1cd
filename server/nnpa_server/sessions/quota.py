# SPDX-License-Identifier: Apache-2.0
"""Places for sessions that several server processes share: one counter, in their parent.

A process asks in lines of JSON over a Unix socket: {"take": TOKEN, "limit": N} is answered by who
has no place left, "server", "token" or "" for nobody; {"give": TOKEN} returns a place and has no
answer. The places of a process whose connection ends return with it.
"""

import json
import socket
import socketserver
import threading
from collections import Counter


class SharedQuota:
    """What a process asks; OSError once the parent has ended."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._answers = self._socket.makefile("rb")
        self._turn = threading.Lock()

    def take(self, token: str, limit: int) -> str:
        """Take a place for a session of a token, "" for none; return who is full, "" for nobody."""
        with self._turn:
            self._send({"take": token, "limit": limit})
            answer = self._answers.readline()
        if not answer:
            raise OSError("the parent of this process has ended")
        return str(json.loads(answer))

    def give(self, token: str) -> None:
        """Return a place."""
        with self._turn:
            self._send({"give": token})

    def close(self) -> None:
        """Ask no more; the places that are left return."""
        self._answers.close()
        self._socket.close()

    def _send(self, message: dict[str, object]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")


class QuotaCounter(socketserver.ThreadingUnixStreamServer):
    """The counter, at the socket `path`: `max_sessions` places, and the limits of tokens."""

    daemon_threads = True

    def __init__(self, path: str, max_sessions: int) -> None:
        super().__init__(path, _Conversation)
        self._max_sessions = max_sessions
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, name="quota", daemon=True).start()

    def take(self, token: str, limit: int) -> str:
        """Take a place; return who has none left."""
        with self._lock:
            if self._taken.total() >= self._max_sessions:
                return "server"
            if token and self._taken[token] >= limit:
                return "token"
            self._taken[token] += 1
            return ""

    def give(self, tokens: Counter[str]) -> None:
        """Return places, so many of each token."""
        with self._lock:
            self._taken -= tokens


class _Conversation(socketserver.StreamRequestHandler):
    """The lines of one process."""

    def handle(self) -> None:
        """Answer until the process ends."""
        counter = self.server
        assert isinstance(counter, QuotaCounter)
        held: Counter[str] = Counter()
        try:
            for line in self.rfile:
                message = json.loads(line)
                if "give" in message:
                    counter.give(Counter([message["give"]]))
                    held[message["give"]] -= 1
                    continue
                refusal = counter.take(message["take"], message["limit"])
                held[message["take"]] += not refusal
                self.wfile.write(json.dumps(refusal).encode() + b"\n")
        finally:
            counter.give(held)
