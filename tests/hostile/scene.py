# SPDX-License-Identifier: Apache-2.0
"""The scene of an attack: a server of the build, an attacker's means, and what was seen."""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.hostile.calls import Answer, Caller
from tests.hostile.methods import FAILURE
from tests.hostile.target import Server, help_text

USER = "attacker"
BYSTANDER = "bystander"
SMALL_SESSION = 64 << 20  # bytes of a session, where a row has a budget
INTERNAL = ("INTERNAL", "UNKNOWN")
Behaviour = Callable[["Scene"], None]


@dataclass(frozen=True)
class Row:
    """One attack: its number in the table, what it does, the server's flags, and how it is made.

    `has_bystander` rows have one server and a bystander; others start servers of their own. With a
    `budget` of bytes under way the server's memory is bounded by it, and by `session_bytes` each.
    Bystanders' times in an `idle_machine` row count only on a machine without other work.
    """

    number: str
    title: str
    attack: Behaviour
    flags: tuple[str, ...] = ()
    has_tokens: bool = False
    has_bystander: bool = True
    descriptors: int = 0
    budget: int = 0
    session_bytes: int = SMALL_SESSION
    idle_machine: bool = False


ROWS: dict[str, Row] = {}


def row(
    number: str,
    title: str,
    *flags: str,
    tokens: bool = False,
    bystander: bool = True,
    descriptors: int = 0,
    budget: int = 0,
    session_bytes: int = SMALL_SESSION,
    idle_machine: bool = False,
) -> Callable[[Behaviour], Behaviour]:
    """Enter an attack into the table."""

    def enter(attack: Behaviour) -> Behaviour:
        assert number not in ROWS, number
        ROWS[number] = Row(
            number,
            title,
            attack,
            flags,
            tokens,
            bystander,
            descriptors,
            budget,
            session_bytes,
            idle_machine,
        )
        return attack

    return enter


@dataclass
class Scene:
    """The place of one attack; `broken` says why the build does not hold.

    `late` names calls of other clients that took too long.
    """

    executable: Path
    folder: Path
    row: Row
    broken: list[str] = field(default_factory=list[str])
    late: list[str] = field(default_factory=list[str])
    seen: list[str] = field(default_factory=list[str])
    servers: list[Server] = field(default_factory=list[Server])
    idle_memory: int = 0

    @property
    def server(self) -> Server:
        """The server that was started last."""
        return self.servers[-1]

    def start(self, *flags: str, stderr: int | None = None) -> Server:
        """Start a server of the build with the row's flags; it is killed after the attack."""
        tokens = (BYSTANDER, USER) if self.row.has_tokens else ()
        server = Server(
            self.executable,
            self.folder / f"server{len(self.servers)}",
            *self.row.flags,
            *self._budget_flags(),
            *flags,
            tokens=tokens,
            descriptors=self.row.descriptors,
            stderr=stderr,
        )
        self.servers.append(server)
        return server

    def _budget_flags(self) -> list[str]:
        """Return the flags of a row with a budget, as far as the build has them."""
        if not self.row.budget:
            return []
        flags = ["--max-session-bytes", str(self.row.session_bytes)]
        if self.offers("--max-bytes-under-way"):
            flags += ["--max-bytes-under-way", str(self.row.budget)]
        return flags

    def offers(self, flag: str) -> bool:
        """Tell whether the build has a flag."""
        return flag in help_text(self.executable)

    def caller(self, name: str = USER, address: str = "") -> Caller:
        """Return a caller with a token, where tokens are asked for; "" has none."""
        token = self.server.tokens.get(name, "")
        return Caller(address or self.server.address, token)

    def require(self, holds: bool, text: str) -> None:
        """Note why the build does not hold, unless it does."""
        if not holds:
            self.broken.append(text)

    def saw(self, text: str) -> None:
        """Note what was seen."""
        self.seen.append(text)

    def require_documented(self, attempt: str, answer: Answer) -> None:
        """Require that an answer is no internal failure of the server."""
        self.saw(f"{attempt}: {answer.name} {answer.details[:100]}")
        self.require(
            answer.code not in INTERNAL, f"{attempt}: {answer.code} {answer.details[:120]}"
        )
        self.require(
            all(FAILURE not in message for message in answer.messages),
            f"{attempt}: a failure inside the answer",
        )

    def require_quiet_log(self, attempt: str, before: str = "") -> None:
        """Require that the log has no more tracebacks than `before`."""
        count = self.server.log_text().count("Traceback") - before.count("Traceback")
        self.require(count == 0, f"{attempt}: {count} tracebacks in the log")

    @contextmanager
    def in_background(self, *calls: Callable[[], object]) -> Generator[Sequence[threading.Thread]]:
        """Have calls run in threads while the context lasts; it does not wait for them."""
        threads = [threading.Thread(target=call, daemon=True) for call in calls]
        for thread in threads:
            thread.start()
        yield threads

    def stay(self, seconds: float) -> None:
        """Let an attack last, as long as the server lives."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.server.is_alive():
            time.sleep(0.1)

    def kill_servers(self) -> None:
        """Kill all servers of the scene."""
        for server in self.servers:
            server.kill()
