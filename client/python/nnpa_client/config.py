# SPDX-License-Identifier: Apache-2.0
"""How to reach a server: the only module of the client that reads the environment.

    ZDNN_TLS_CA     file with the certificates that may sign the server's, PEM
    ZDNN_TLS_CERT   file with the client's certificate, PEM, for mutual TLS
    ZDNN_TLS_KEY    file with the key of ZDNN_TLS_CERT, PEM
    ZDNN_TOKEN      bearer token that the server requires
    ZDNN_FAULTS     file of fault rules for sessions at ZDNN_SERVER; `nnpa faults run` sets both
    ZDNN_WAIT       seconds to wait for a free session at a full server; default 0
    ZDNN_PLAIN      1: leave all shortcuts out; or the names of some, separated by commas
    NNPA_TRAP_LIBRARY  path of libnnpa-trap.so, instead of the installed one, for `nnpa run`
    QEMU_LD_PREFIX  folder with loader and libraries of programs for s390x, as for qemu-user
    ZDNN_TRACE      trace that sessions at ZDNN_SERVER join; `nnpa trace record` sets both
    ZDNN_MACHINE, ZDNN_LIBRARY_VERSION, ZDNN_SANITIZE  defaults of sessions of a program that `nnpa`
                    runs at its server: a machine, a version of zDNN, 1 for reports of misused
                    ztensors
    ZDNN_TICKET     the trace's ticket if a proxy is in front of its server; set with ZDNN_TRACE

Arguments win over the environment. TLS is for `host:port` targets; Unix sockets need none.
"""

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

_SCHEMES = ("unix", "dns", "ipv4", "ipv6")  # that gRPC resolves; source: gRPC, naming.md


class Credentials(TypedDict, total=False):
    """The credentials of a client, and the certificates it trusts: arguments of `connect`."""

    tls_ca: str | os.PathLike[str] | None
    tls_cert: str | os.PathLike[str] | None
    tls_key: str | os.PathLike[str] | None
    token: str | None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address and credentials.

    `target` is "host:port" or "unix:/path". With `tls_ca` the connection is encrypted; with
    `tls_cert` and `tls_key` the client shows a certificate. `token` is sent with every call.
    """

    target: str
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    token: str = ""

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            field = "tls_cert" if self.tls_key is None else "tls_key"
            raise ValueError(f"{field}: given alone, tls_cert and tls_key go together")
        if self.tls_cert is not None and self.tls_ca is None:
            raise ValueError("tls_ca: not given, tls_cert needs it")
        if not (self.token.isascii() and self.token.isprintable()):
            raise ValueError("token: not printable ASCII: give it without line ends and blanks")
        scheme, colon, rest = self.target.partition("://")
        if colon and scheme not in _SCHEMES:
            advice = f"give {rest.rstrip('/')!r}, and tls_ca where the server has TLS"
            raise ValueError(f"target: {self.target!r} is a URL, expected host:port; {advice}")
        if self.is_unix and sys.platform == "win32":
            advice = "a Unix socket needs Linux or macOS; give host:port"
            raise ValueError(f"target: {self.target!r}: {advice}")
        is_path = self.target.startswith("unix:") and len(self.target) > len("unix:")
        if not is_path and not self.target.rpartition(":")[2].isdigit():
            raise ValueError(f"target: {self.target!r}, expected host:port or unix:/path")

    @property
    def is_unix(self) -> bool:
        """Whether the target is a Unix socket."""
        return self.target.startswith("unix:")

    @property
    def is_loopback(self) -> bool:
        """Whether the target is on this machine."""
        host = self.target.rpartition(":")[0].strip("[]")
        return self.is_unix or host in ("localhost", "::1") or host.startswith("127.")


@dataclass(frozen=True, slots=True)
class Recorder:
    """The server that records this process, the trace's name there, and its ticket or ""."""

    target: str
    trace: str
    ticket: str = ""


def recorder() -> Recorder | None:
    """Return the recorder of this process, None if it has none."""
    target, trace = os.environ.get("ZDNN_SERVER", ""), os.environ.get("ZDNN_TRACE", "")
    ticket = os.environ.get("ZDNN_TICKET", "")
    return Recorder(target, trace, ticket) if target and trace else None


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """The server on which this process meets faults, and the file of fault rules."""

    target: str
    rules: Path


def fault_settings() -> FaultSettings | None:
    """Return the fault settings of this process, None if it has none."""
    target, rules = os.environ.get("ZDNN_SERVER", ""), os.environ.get("ZDNN_FAULTS", "")
    return FaultSettings(target, Path(rules)) if target and rules else None


@dataclass(frozen=True, slots=True)
class GuestSettings:
    """The defaults of sessions of a process that a command runs at its server."""

    machine: str | None
    library: str | None
    sanitize: bool


def guest_settings() -> GuestSettings:
    """Return the defaults of sessions from the variables that libzdnn reads, too."""
    machine, library = os.environ.get("ZDNN_MACHINE"), os.environ.get("ZDNN_LIBRARY_VERSION")
    return GuestSettings(machine or None, library or None, os.environ.get("ZDNN_SANITIZE") == "1")


@dataclass(frozen=True, slots=True)
class TrapSettings:
    """The paths of the library of `nnpa run` and of programs' libraries; None if not set."""

    library: Path | None
    sysroot: Path | None


def trap_settings() -> TrapSettings:
    """Return the paths that the environment sets for programs for s390x."""
    library, sysroot = os.environ.get("NNPA_TRAP_LIBRARY"), os.environ.get("QEMU_LD_PREFIX")
    return TrapSettings(Path(library) if library else None, Path(sysroot) if sysroot else None)


def max_wait() -> float:
    """Return the seconds to wait at a full server; ValueError for anything but 0 or more."""
    text = os.environ.get("ZDNN_WAIT", "") or "0"
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"ZDNN_WAIT: {text!r}, expected seconds, 0 or more")
    return seconds


def plain_shortcuts() -> bool | tuple[str, ...]:
    """Return whether to leave all shortcuts out, or the names of those to leave out."""
    names = [name.strip() for name in os.environ.get("ZDNN_PLAIN", "").split(",") if name.strip()]
    return names == ["1"] or (False if names in ([], ["0"]) else tuple(names))


def default_target() -> str | None:
    """Return the server of C programs, ZDNN_SERVER; None if it is not set."""
    return os.environ.get("ZDNN_SERVER") or None


def program_environment(
    recorder: Recorder, library: Path | None, credentials: Credentials | None = None
) -> dict[str, str]:
    """Return this process's environment for a program that is recorded.

    `library` is the folder with libzdnn.so.0, which is then found first.
    """
    chosen = environment_with(
        {
            "ZDNN_SERVER": recorder.target,
            "ZDNN_TRACE": recorder.trace,
            "ZDNN_TICKET": recorder.ticket,
            **credentials_environment(credentials or {}),
        }
    )
    return chosen | library_path(library)


def library_path(library: Path | None) -> dict[str, str]:
    """Return LD_LIBRARY_PATH with the folder of libzdnn first; nothing without a folder."""
    if library is None:
        return {}
    search_path = os.environ.get("LD_LIBRARY_PATH", "")
    return {"LD_LIBRARY_PATH": f"{library}:{search_path}" if search_path else str(library)}


def credentials_environment(credentials: Credentials) -> dict[str, str]:
    """Return credentials as environment variables of a program."""
    return {f"ZDNN_{name.upper()}": str(value) for name, value in credentials.items() if value}


def environment_with(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with more variables, for a program that it starts."""
    return {**os.environ, **more}


def endpoint(
    target: str,
    *,
    tls_ca: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    token: str | None = None,
) -> Endpoint:
    """Return the endpoint that arguments and environment describe."""
    token = os.environ.get("ZDNN_TOKEN", "") if token is None else token
    if target.startswith("unix:"):
        return Endpoint(target, token=token)

    def file(argument: str | os.PathLike[str] | None, name: str) -> Path | None:
        chosen = os.environ.get(name) if argument is None else argument
        return Path(chosen) if chosen else None

    return Endpoint(
        target,
        file(tls_ca, "ZDNN_TLS_CA"),
        file(tls_cert, "ZDNN_TLS_CERT"),
        file(tls_key, "ZDNN_TLS_KEY"),
        token,
    )
