# SPDX-License-Identifier: Apache-2.0
"""The kernels' connection to a server: of `mli.connect`, or of the session."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike

from nnpa.mli.v1.mli_pb2 import KernelInfo, ListKernelsRequest

from nnpa_client._server.methods import LIST_KERNELS
from nnpa_client._server.private_server import PrivateServer
from nnpa_client._server.transport import Transport
from nnpa_client.connection import ConnectOptions, open_transport
from nnpa_client.mli.calls import DEFAULT, Batch, Call, Options, current_batch, open_batch
from nnpa_client.session import Session, current_session

__tracebackhide__ = True  # pytest shows the line that called, not these

_entered: ContextVar[tuple["Connection", ...]] = ContextVar("nnpa_mli", default=())


class Connection:
    """A connection without a zDNN session; the kernels of its `with` block use it."""

    def __init__(self, transport: Transport, server: PrivateServer | None = None) -> None:
        self.transport = transport
        self._server = server

    @property
    def target(self) -> str:
        """The server's address."""
        return self.transport.target

    def close(self) -> None:
        """Close the connection, and stop a private server. May be repeated."""
        self.transport.close()
        if self._server is not None:
            self._server.stop()
            self._server = None

    def __enter__(self) -> "Connection":
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *_exception: object) -> None:
        _entered.set(tuple(entered for entered in _entered.get() if entered is not self))
        self.close()


def connect(
    target: str | None = None,
    *,
    tls_ca: str | PathLike[str] | None = None,
    tls_cert: str | PathLike[str] | None = None,
    tls_key: str | PathLike[str] | None = None,
    token: str | None = None,
    timeout: float | None = None,
    connect_timeout: float | None = 10.0,
) -> Connection:
    """Connect to a server for MLI alone; arguments as in `nnpa_client.connect`.

    Not needed inside `with nnpa_client.connect():`, where kernels use the session's connection.
    """
    reach = ConnectOptions(
        target=target, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, token=token,
        timeout=timeout, connect_timeout=connect_timeout,
    )  # fmt: skip
    return Connection(*open_transport(reach))


def current_transport() -> Transport:
    """Return the connection of the innermost block: a batch's, `mli.connect`'s, a session's."""
    queued, connections = current_batch(), _entered.get()
    if queued is not None:
        return queued.transport
    return connections[-1].transport if connections else current_session().transport


def submit(call: Call, options: Options | None) -> None:
    """Run a call now, or queue it in the batch of the block."""
    queued = current_batch(options)
    if queued is None:
        Batch(current_transport(), options or DEFAULT, [call]).send(0)
    else:
        queued.calls.append(call)


def ask(call: Call, options: Options | None) -> int:
    """Run a call that returns a number, after the queued calls."""
    queued = current_batch(options) or Batch(current_transport(), options or DEFAULT)
    queued.calls.append(call)
    queued.send(0)
    return int(queued.results[-1].number)


@contextmanager
def batch(options: Options = DEFAULT, on: Connection | Session | None = None) -> Generator[Batch]:
    """Run the kernels of the block in one request at its end, which fills the outputs.

    with mli.batch():
        hidden = mli.krn_fully_connected_fx16(x, weights, bias, frac_bits=11)
        out = mli.krn_tanh_fx16(hidden)
    """
    transport = current_transport() if on is None else on.transport
    with open_batch(Batch(transport, options)) as queued:
        yield queued


def list_kernels() -> list[KernelInfo]:
    """List the kernels of the server: names, aliases, descriptions, numbered constraints."""
    transport, request = current_transport(), ListKernelsRequest(page_size=1000)
    kernels: list[KernelInfo] = []
    while True:
        page = transport.unary(LIST_KERNELS, request)
        kernels.extend(page.kernels)
        if not page.next_page_token:
            return kernels
        request.page_token = page.next_page_token
