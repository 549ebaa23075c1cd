# SPDX-License-Identifier: Apache-2.0
"""The configuration of a server; only this module reads the environment."""

import ipaddress
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nnpa_server.sandbox.confinement import die_with
from nnpa_server.tuning.kernel_cache import choose, has_kernels, key_by_sources, leave_out_scipy

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# Largest inline contents: larger ones travel in chunks, so that messages stay bounded.
MAX_INLINE_BYTES = 16 * MIB
MAX_CHUNK_BYTES = 4 * MIB
MAX_RESPONSE = 2047 * MIB  # contents of an answer: messages of protobuf have less than 2 GiB
MAX_UNDER_WAY = 8 * GIB  # bytes of messages and answers: an answer of MAX_RESPONSE fits
MESSAGES_UNDER_WAY, MIN_UNDER_WAY = 4, 16 * MIB  # messages of the largest size, and bytes
# Messages this much above --max-message are let in, so that refusing them is counted; gRPC itself
# refuses larger ones, of which the server hears nothing.
OVERSIZE_BYTES = 4 * MIB
MAX_SECONDS = 1e9  # fits into every system's timeval
MIN_MESSAGE_TIMEOUT = 0.1
MAX_PROCESSES = 256
MAX_REGIONS = 2048  # of shared memory, of all callers
RESERVED_DESCRIPTORS = 48  # for listeners, gRPC itself, modules that are imported late
_SIZES = {"": 1, "B": 1, "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": GIB << 10}
_TIMES = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


# What makes the server quicker and changes no answer; `--plain` switches it off.
SHORTCUTS: Mapping[str, str] = {
    "request-cache": "repeated lists are decoded once",
    "out-of-band-arrays": "large arrays pass beside messages",
    "prepared-calls": "repeated calls are checked once",
    "placed-operands": "operands are used where they lie in mapped memory",
    "prepared-steps": "steps of hosted networks that come again are checked once",
    "further-sizes": "a network's program for a further size is made from lowered ones",
    "run-buffers": "tensors of a network's run share an arena, which serves the next",
    "host-groups": "neighbouring nodes on the host run as one session of ONNX Runtime",
    "compiled-kernels": "Numba compiles what the reference defines",
    "widened-operands": "operands of products that come again are widened to FP32 once",
    "lazy-services": "services are constructed when they are called",
    "warm-up": "NumPy computes until a kernel that is called often is compiled",
    "process-tuning": "memory is kept, collections are few, threads switch often",
}


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM texts: certificate chain, key, and the CA of clients (None: they need no certificate).

    `files` are the paths of these texts.
    """

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None
    files: tuple[Path | None, Path | None, Path | None] = (None, None, None)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of clients: counts, bytes, and seconds without a call before a session ends.

    `lease_grace` is the limit of seconds for sessions with a broken lease.
    """

    max_sessions: int = 64
    max_session_bytes: int = 8 * GIB
    max_session_tensors: int = 100_000
    max_session_cache: int = 256 * MIB
    idle_timeout: float = 900.0
    lease_grace: float = 10.0
    max_message: int = 64 * MIB
    max_bytes_under_way: int = MAX_UNDER_WAY

    @property
    def max_inline(self) -> int:
        """The most bytes of an inline tensor, user array or answer: four fit into a message."""
        return min(MAX_INLINE_BYTES, self.max_message // 4)

    @property
    def all_bytes(self) -> int:
        """The most bytes of all sessions together; the compilation of models may take the same."""
        return self.max_sessions * self.max_session_bytes


@dataclass(frozen=True, slots=True)
class Config:
    """The flags of a server. Times are in seconds."""

    listen: tuple[str, ...] = ("127.0.0.1:50051",)
    insecure: bool = False
    tls: Tls | None = None
    limits: Limits = Limits()
    workers: int = 64
    drain_delay: float = 0.0
    drain_timeout: float = 30.0
    exit_with_parent: bool = False
    models: Path | None = None
    max_models: int = 64
    state: Path | None = None
    max_state_bytes: int = 8 * GIB
    max_response: int = MAX_RESPONSE
    no_model_control: bool = False
    shared_memory: bool = False
    shared_memory_over_tcp: bool = False
    allow_faults: bool = False
    tokens: Path | None = None
    metrics: str = ""
    page: str = ""
    page_all: bool = False
    telemetry: bool = False
    json_log: bool = False
    access_log: bool = False
    slow: float = 1.0
    health_listen: str = ""
    reflection: str = "auto"
    max_connections: int = 1000
    message_timeout: float = 30.0
    sandbox: str = "auto"
    plain: frozenset[str] = frozenset()
    descriptors: int = 1 << 20  # which the system gives the process
    processes: int = 1
    socket_suffix: str = ""  # of a process's socket, behind the common path
    quota: str = ""  # socket at which the parent of several processes counts sessions

    @property
    def shortcuts(self) -> frozenset[str]:
        """The names of the shortcuts that are on: all except the names in `--plain`."""
        return frozenset(SHORTCUTS) - self.plain

    @property
    def offers_reflection(self) -> bool:
        """Whether reflection is on; `auto` means unless the server requires tokens."""
        return self.reflection == "on" or (self.reflection == "auto" and self.tokens is None)

    @property
    def _spare_descriptors(self) -> int:
        return max(6, self.descriptors - RESERVED_DESCRIPTORS)

    @property
    def max_connection_calls(self) -> int:
        """Calls of a gRPC connection at a time: 100, and a lease and a conversation per session.

        RFC 9113, 6.5.2, recommends 100 or more. Clients hold further calls until one has ended.
        """
        return 100 + 2 * self.limits.max_sessions

    @property
    def max_accepted(self) -> int:
        """The most connections of each gRPC server: at most a quarter of the descriptors.

        gRPC accepts twice this number for moments, until excess newcomers are shut down.
        """
        servers = 1 + bool(self.health_listen)
        return min(self.max_connections, max(1, self._spare_descriptors // 4 // servers))

    @property
    def max_plain_sockets(self) -> int:
        """The most clients of plain sockets, each of which may send a descriptor."""
        return min(self.max_conversations, max(1, self._spare_descriptors // 8))

    @property
    def max_regions(self) -> int:
        """The most regions of shared memory, each of which is an open file."""
        return min(MAX_REGIONS, self._spare_descriptors // 4)

    @property
    def max_streams(self) -> int:
        """The most streams at a time: each keeps a thread, and half of these must stay free."""
        return self.workers // 2

    @property
    def max_conversations(self) -> int:
        """The most conversations at a time, two per session; each has a thread of its own.

        A single caller has half of them: one per session.
        """
        return 2 * min(self.limits.max_sessions, 4 * self.workers)

    @property
    def max_threads(self) -> int:
        """The most threads of other calls.

        A single caller has half of them: for `workers` running calls, and for the same number of
        calls whose message has not come.
        """
        return 4 * self.workers

    @property
    def max_session_calls(self) -> int:
        """The most calls of one session at a time: each waits for its turn in a thread."""
        return max(1, self.workers // 4)


def config_to_json(config: Config) -> str:
    """Return a configuration as a line of JSON for another process; raise ValueError for TLS."""
    if config.tls is not None:
        raise ValueError("tls: is given, must be None: a key stays in its process")

    def plain(value: Path | frozenset[str]) -> object:
        return str(value) if isinstance(value, Path) else sorted(value)

    return json.dumps(asdict(config), default=plain)


def config_from_json(text: str) -> Config:
    """Return the configuration that `config_to_json` wrote."""
    flags: dict[str, Any] = json.loads(text)
    for name in ("models", "state", "tokens"):
        flags[name] = None if flags[name] is None else Path(flags[name])
    flags["limits"] = Limits(**flags["limits"])
    flags["listen"] = tuple(flags["listen"])
    flags["plain"] = frozenset(flags["plain"])
    return Config(**flags)


def parse_size(text: str) -> int:
    """Return the bytes of "64MiB", "8GiB", "4096"; raise ValueError for other text."""
    match = re.fullmatch(r"([0-9]+)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in _SIZES:
        raise ValueError(f"size is {text!r}, must be a number and B, KiB, MiB, GiB or TiB")
    return int(match[1]) * _SIZES[match[2].upper()]


def parse_time(text: str) -> float:
    """Return the seconds of "15m", "1.5s", "200ms", "2h"; raise ValueError for other text."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", text.strip())
    if match is None or match[2] not in _TIMES:
        raise ValueError(f"time is {text!r}, must be a number and ms, s, m or h")
    seconds = float(match[1]) * _TIMES[match[2]]
    if seconds > MAX_SECONDS:
        raise ValueError(f"time is {text!r}, must be at most {MAX_SECONDS:.0f}s")
    return seconds


def parse_message_timeout(text: str) -> float:
    """Return seconds as `parse_time` does; raise ValueError below 100 ms."""
    seconds = parse_time(text)
    if seconds < MIN_MESSAGE_TIMEOUT:
        raise ValueError(f"--message-timeout is {text!r}, must be at least 100ms")
    return seconds


def parse_processes(text: str) -> int:
    """Return the number of processes; "auto" means one per core that this process may use."""
    if text == "auto":
        return len(os.sched_getaffinity(0))
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PROCESSES:
        raise ValueError(f"--processes is {text!r}, must be auto or 1 to {MAX_PROCESSES}")
    return int(text)


def parse_listen(text: str) -> str:
    """Return an address for gRPC: `host:port`, with 127.0.0.1 for no host, or `unix:/path`.

    Raise ValueError for other text.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/"):
            raise ValueError(f"address is {text!r}, the path of a socket must be absolute")
        return f"unix:{path}"
    return parse_tcp(text, " or unix:/path")


def parse_tcp(text: str, alternative: str = "") -> str:
    """Return an address `host:port`, with 127.0.0.1 for no host; raise ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"address is {text!r}, must be host:port (0 to 65535){alternative}")
    return f"{host or '127.0.0.1'}:{int(port)}"


def parse_functions(text: str) -> frozenset[str] | None:
    """Return the functions of "NAME,..."; an empty set for "all", None for an empty text."""
    return frozenset(filter(None, text.split(","))) - {"all"} if text else None


def parse_plain(text: str) -> frozenset[str]:
    """Return the shortcuts of "all" or of names with commas; raise ValueError for other text."""
    if text == "all":
        return frozenset(SHORTCUTS)
    names = frozenset(filter(None, text.split(",")))
    if unknown := sorted(names - SHORTCUTS.keys()):
        raise ValueError(f"--plain is {unknown[0]!r}, must be one of {', '.join(SHORTCUTS)}")
    return names


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`, without the brackets of IPv6."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """Return `host:port`, with brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_local(address: str) -> bool:
    """Return True if only this machine can reach an address: 127/8, ::1, localhost, unix."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def kernel_environment() -> dict[str, str]:
    """Return the environment that tells another process the cache of kernels and processors."""
    return {name: text for name, text in os.environ.items() if name.startswith("NUMBA_")}


def kernel_cache() -> str:
    """Choose the cache of compiled kernels; return a note for the operator, or "".

    Call it before the emulator is imported.
    """
    return choose(os.environ)


def kernel_folder() -> Path | None:
    """Return the folder in which compiled kernels will be kept, or None."""
    place = os.environ.get("NUMBA_CACHE_DIR")
    if find_spec("numba") is None or not place or not os.access(place, os.W_OK):
        return None
    return Path(place)


def kernels_are_cached() -> bool:
    """Return True if the cache has compiled kernels."""
    place = os.environ.get("NUMBA_CACHE_DIR")
    return place is not None and has_kernels(Path(place))


def prepare_compiler() -> None:
    """Prepare a process that compiles kernels for the server that started it."""
    die_with(os.getppid())
    leave_out_scipy()
    key_by_sources()


def leave_out_telemetry() -> None:
    """Switch off the usage reports of ONNX Runtime and Ray, before they are imported."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
