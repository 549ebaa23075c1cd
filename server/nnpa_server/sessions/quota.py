# SPDX-License-Identifier: Apache-2.0
"""Places for sessions, of one server process or of several whose parent counts.

One of several processes asks in lines of JSON over a Unix socket. {"take": TOKEN, "limit": N} takes
a place; the answer is "", or the bound that is reached, "server" or "token". {"give": TOKEN}
returns a place and has no answer. When a connection ends, the places of its process return.
"""

import json
import socket
import socketserver
import threading
from collections import Counter


class SharedQuota:
    """The client of a QuotaCounter in a server process; raises OSError if the parent ended."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._answers = self._socket.makefile("rb")
        self._turn = threading.Lock()

    def take(self, token: str, limit: int) -> str:
        """Take a place for a session of a token, or of ""; return the reached bound or ""."""
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
        """Close the connection; places that are still taken return."""
        self._answers.close()
        self._socket.close()

    def _send(self, message: dict[str, object]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")


class Quota:
    """Counts at most `max_sessions` places, and the limits of tokens."""

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, token: str, limit: int) -> str:
        """Take a place for a session of a token, or of ""; return the reached bound or ""."""
        with self._lock:
            if self._taken.total() >= self._max_sessions:
                return "server"
            if token and self._taken[token] >= limit:
                return "token"
            self._taken[token] += 1
            return ""

    def give(self, token: str, count: int = 1) -> None:
        """Return places, at most those that were taken."""
        with self._lock:
            self._taken -= Counter({token: count})

    def close(self) -> None:
        """Do nothing: the places end with the process."""


class QuotaCounter(socketserver.ThreadingUnixStreamServer):
    """Counts the places of several processes at the socket `path`."""

    daemon_threads = True

    def __init__(self, path: str, max_sessions: int) -> None:
        super().__init__(path, _Conversation)
        self.quota = Quota(max_sessions)
        threading.Thread(target=self.serve_forever, name="quota", daemon=True).start()


class _Conversation(socketserver.StreamRequestHandler):
    """The connection of one process."""

    def handle(self) -> None:
        """Answer lines until the process ends, then return its places."""
        assert isinstance(self.server, QuotaCounter)
        quota, held = self.server.quota, Counter[str]()
        try:
            for line in self.rfile:
                message = json.loads(line)
                if "give" in message:
                    quota.give(message["give"])
                    held[message["give"]] -= 1
                    continue
                refusal = quota.take(message["take"], message["limit"])
                held[message["take"]] += not refusal
                self.wfile.write(json.dumps(refusal).encode() + b"\n")
        finally:
            for token, count in held.items():
                quota.give(token, count)
