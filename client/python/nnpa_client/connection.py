# SPDX-License-Identifier: Apache-2.0
"""Connections to servers: shared ones by address, private ones started here."""

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from os import PathLike

from nnpa.zdnn.v1.accelerator_pb2 import ListMachinesRequest, Machine, MachineSpec

from nnpa_client._guest.options import (
    AccumulateOption,
    LogLevelOption,
    NumericsOption,
    ProgramCheckOption,
    session_options,
)
from nnpa_client._server.methods import LIST_MACHINES
from nnpa_client._server.private_server import PrivateServer
from nnpa_client._server.shortcuts import left_out, with_shortcuts
from nnpa_client._server.tickets import Tickets
from nnpa_client._server.transport import GrpcTransport, Transport
from nnpa_client.config import (
    endpoint,
    fault_settings,
    guest_settings,
    max_wait,
    plain_shortcuts,
    recorder,
)
from nnpa_client.session import Session

__tracebackhide__ = True  # pytest shows the line that called, not these


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The keywords of `connect` as an object, to be kept and passed on.

    chosen = ConnectOptions(machine="z16", precheck=True)
    connect(options=chosen)
    connect(options=chosen, machine="z17")      # a keyword wins over the options
    """

    target: str | None = None
    machine: str | MachineSpec | None = None
    library: str | None = None
    precheck: bool = False
    status_diag: int | None = None
    program_check: ProgramCheckOption | None = None
    log_level: LogLevelOption | None = None
    log_module: str | None = None
    numerics: NumericsOption | None = None
    jitter_seed: int | None = None
    accumulate: AccumulateOption | None = None
    sanitize: bool = False
    tls_ca: str | PathLike[str] | None = None
    tls_cert: str | PathLike[str] | None = None
    tls_key: str | PathLike[str] | None = None
    token: str | None = field(default=None, repr=False)
    timeout: float | None = None
    connect_timeout: float | None = 10.0
    allow_faults: bool = False
    plain: bool | Sequence[str] | None = None
    wait: float | None = None
    lease: bool | None = None

    def over(self, others: "ConnectOptions") -> "ConnectOptions":
        """Return `others` with the options of this object that are not the defaults."""
        chosen = {
            option.name: value
            for option in fields(self)
            if (value := getattr(self, option.name)) != option.default
        }
        return replace(others, **chosen)

    @property
    def reach(self) -> "ConnectOptions":
        """The options that say how the server is reached: these."""
        return self


def open_transport(reach: ConnectOptions) -> tuple[Transport, PrivateServer | None]:
    """Return a connection, and the private server that was started for it without a target."""
    plain = plain_shortcuts() if reach.plain is None else reach.plain
    recording, tickets = recorder(), Tickets()
    if reach.target is not None:
        if reach.allow_faults:
            raise ValueError("allow_faults: given with a target, whose server decides that itself")
        place = endpoint(
            reach.target,
            tls_ca=reach.tls_ca,
            tls_cert=reach.tls_cert,
            tls_key=reach.tls_key,
            token=reach.token,
        )
        if recording is not None and recording.target == reach.target:
            tickets.keep(recording.trace, recording.ticket)
        grpc = GrpcTransport(place, reach.connect_timeout, reach.timeout, tickets)
        return with_shortcuts(grpc, plain), None
    left_out(plain)  # an unknown name is refused before a server starts
    faults = ("--allow-faults",) if reach.allow_faults else ()
    plainly = ("--plain",) if plain is True else ()
    server = PrivateServer(flags=(*faults, *plainly))
    place = endpoint(server.target, token=reach.token)
    grpc = GrpcTransport(place, reach.connect_timeout, reach.timeout)
    return with_shortcuts(grpc, plain), server


def close_connection(transport: Transport, server: PrivateServer | None) -> None:
    """Close a connection, and end its private server."""
    transport.close()
    if server is not None:
        server.stop()


@contextmanager
def connected(reach: ConnectOptions) -> Generator[Transport]:
    """Open a connection for the block; without a target, to a private server."""
    transport, server = open_transport(reach)
    try:
        yield transport
    finally:
        close_connection(transport, server)


def connect(
    target: str | None = None,
    machine: str | MachineSpec | None = None,
    library: str | None = None,
    precheck: bool = False,
    *,
    status_diag: int | None = None,
    program_check: ProgramCheckOption | None = None,
    log_level: LogLevelOption | None = None,
    log_module: str | None = None,
    numerics: NumericsOption | None = None,
    jitter_seed: int | None = None,
    accumulate: AccumulateOption | None = None,
    sanitize: bool = False,
    tls_ca: str | PathLike[str] | None = None,
    tls_cert: str | PathLike[str] | None = None,
    tls_key: str | PathLike[str] | None = None,
    token: str | None = None,
    timeout: float | None = None,
    connect_timeout: float | None = 10.0,
    allow_faults: bool = False,
    plain: bool | Sequence[str] | None = None,
    wait: float | None = None,
    lease: bool | None = None,
    options: ConnectOptions | None = None,
) -> Session:
    """Open a session on an emulated machine.

        with connect(machine="telum1") as session:        # a private server, ends with the session
        connect("localhost:50051")                        # a shared server, TCP
        connect("unix:/run/nnpa/nnpa.sock")               # a shared server, Unix socket
        connect("nnpa.example.org:443", tls_ca="ca.pem")  # TLS; or ZDNN_TLS_CA and so on
        connect(machine=MachineSpec(max_dim1=64))         # a custom machine

    `machine` is a name or alias as `nnpa info` lists them (default "telum2"), a MachineSpec, or
    JSON of one: '{"base": "telum2", "max_dim1": 64}', or the path of a file of such JSON.
    `library` is a version of zDNN (default "1.2.0"). `precheck` verifies operands before the
    machine sees them; without it, operands that contradict each other are a `ProgramCheck`.
    `status_diag`, `program_check`, `log_level`, `log_module`, `numerics`, `jitter_seed`,
    `accumulate` are the session options of the wire contract. `sanitize` reports misused ztensors
    as `SanitizerWarning` and in `Session.reports`. `timeout` bounds each call,
    `connect_timeout` opening and closing, seconds. A full server is asked again for `wait` seconds
    (default: ZDNN_WAIT, else 0). `lease` has the server end the session soon after this process,
    also where that is killed (default: with private servers). `allow_faults` has the private server
    take the rules of `Session.faults`. `plain` leaves out the shortcuts that make calls quicker:
    all of them (True), in the private server too, or those named; without it, ZDNN_PLAIN says so. A
    program that `nnpa trace record`, `nnpa faults` or `nnpa doctor` runs gets their server instead
    of a private one, and what the environment says of machine, library and sanitize where it does
    not. `options` are all of these as an object; a keyword that is given wins. Raises
    `TransportError`.
    """
    keywords = ConnectOptions(
        target=target, machine=machine, library=library, precheck=precheck,
        status_diag=status_diag, program_check=program_check, log_level=log_level,
        log_module=log_module, numerics=numerics, jitter_seed=jitter_seed, accumulate=accumulate,
        sanitize=sanitize, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, token=token,
        timeout=timeout, connect_timeout=connect_timeout, allow_faults=allow_faults, plain=plain,
        wait=wait, lease=lease,
    )  # fmt: skip
    return _open(keywords if options is None else keywords.over(options))


_SESSION_OPTIONS = (
    "library", "status_diag", "program_check", "log_level", "log_module", "numerics",
    "jitter_seed", "accumulate",
)  # fmt: skip


def _seconds(name: str, value: object) -> float:
    """Return a time; raise ValueError or TypeError for anything but seconds."""
    expected = "expected seconds, 0 or more"
    if not isinstance(value, int | float):
        raise TypeError(f"{name}: {value!r}, {expected}")
    if not 0 <= value < math.inf:
        raise ValueError(f"{name}: {value}, {expected}")
    return value


def _open(chosen: ConnectOptions) -> Session:
    wait = max_wait() if chosen.wait is None else _seconds("wait", chosen.wait)
    for name in ("timeout", "connect_timeout"):
        _seconds(name, getattr(chosen, name) or 0)
    has_lease = chosen.target is None if chosen.lease is None else chosen.lease
    recording, faulty = recorder(), fault_settings()
    named = recording or faulty
    if named is not None and chosen.target is None and not chosen.allow_faults:
        guest = guest_settings()
        chosen = replace(
            chosen,
            target=named.target,
            machine=chosen.machine or guest.machine,
            library=chosen.library or guest.library,
            sanitize=chosen.sanitize or guest.sanitize,
        )
    target = chosen.target
    transport, server = open_transport(chosen)
    try:
        trace = recording.trace if recording is not None and recording.target == target else None
        message, _fields = session_options(
            transport,
            chosen.machine,
            **{name: getattr(chosen, name) for name in _SESSION_OPTIONS},
            precheck=chosen.precheck,
            sanitize=chosen.sanitize or None,
            lease=has_lease or None,
            trace=trace,
        )
        if faulty is not None and faulty.target == target:
            from nnpa_client.faults import read_rules  # seldom needed

            message.fault_rules.extend(read_rules(faulty.rules))
        return Session(transport, message, server, wait)
    except BaseException:
        close_connection(transport, server)
        raise


def list_machines(
    target: str | None = None,
    *,
    tls_ca: str | PathLike[str] | None = None,
    tls_cert: str | PathLike[str] | None = None,
    tls_key: str | PathLike[str] | None = None,
    token: str | None = None,
    connect_timeout: float | None = 10.0,
) -> list[Machine]:
    """List a server's machines with their answers to NNPA-QAF; arguments as in `connect`."""
    reach = ConnectOptions(
        target=target, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, token=token,
        timeout=connect_timeout, connect_timeout=connect_timeout,
    )  # fmt: skip
    machines: list[Machine] = []
    request = ListMachinesRequest(page_size=1000)
    with connected(reach) as transport:
        while True:
            page = transport.unary(LIST_MACHINES, request)
            machines.extend(page.machines)
            if not page.next_page_token:
                return machines
            request.page_token = page.next_page_token
