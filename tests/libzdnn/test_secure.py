# SPDX-License-Identifier: Apache-2.0
"""Servers that ask for more than an address: ZDNN_TLS_CA, _CERT, _KEY and ZDNN_TOKEN."""

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from nnpa_server.accelerator import AcceleratorService, add_to
from nnpa_server.config import Limits
from nnpa_server.sessions.store import Store

from tests.certificates import Party, issue
from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import Prefix
from tests.server.process import serving

PROGRAMS = Path(__file__).parent / "programs"
ANY_PORT = ("--listen", "127.0.0.1:0")
TOKEN = "a token of 24 characters"
RIGHT, UNAVAILABLE = "1 00000000\n", "0 000c0002\n"
if TYPE_CHECKING:
    _ServerInterceptor = grpc.ServerInterceptor[Any, Any]  # generic in the stubs only
else:
    _ServerInterceptor = grpc.ServerInterceptor
Ask = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def ask(prefix: Prefix, tmp_path: Path) -> Ask:
    """A function that runs a program against a server, with more variables set."""
    source = PROGRAMS / "once.c"
    program = toolchain.compiled(source, tmp_path / "once", prefix, "-std=gnu11")

    def run(server: str, **variables: object) -> "subprocess.CompletedProcess[str]":
        texts = {f"ZDNN_{key}": str(value) for key, value in variables.items()}
        return subprocess.run(
            [program, "1"],
            env=toolchain.environment(ZDNN_SERVER=server, ZDNN_LOGLEVEL="off", **texts),
            input="\n",
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.fixture
def parties(tmp_path: Path) -> dict[str, Party]:
    """A CA, a server and a client that it signed, and a CA of somebody else, as files."""
    ca = issue("nnpa test CA")
    parties = {"ca": ca, "other": issue("another CA")}
    parties |= {name: issue(name, ca) for name in ("server", "client")}
    for name, party in parties.items():
        party.write(tmp_path, name)
    return parties


def _refused(answer: "subprocess.CompletedProcess[str]", *words: str) -> None:
    """Expect that the log says why a program has no accelerator, in a line for each reason.

    When a server breaks off a connection the program sees a closed one or a broken pipe.
    """
    assert answer.stdout == UNAVAILABLE, answer.stderr
    reasons = [line.split(": ", 2)[2] for line in answer.stderr.splitlines()]
    assert 1 <= len(reasons) == len(set(reasons)), answer.stderr
    assert all(word in answer.stderr for word in words), answer.stderr


@pytest.mark.usefixtures("parties")
def test_tls(ask: Ask, tmp_path: Path) -> None:
    """With ZDNN_TLS_CA the channel is TLS; a client that trusts another CA, or none, is refused."""
    tls = ("--tls-cert", f"{tmp_path}/server.crt", "--tls-key", f"{tmp_path}/server.key")
    with serving(tmp_path, *ANY_PORT, *tls) as server:
        answer = ask(server.address, TLS_CA=tmp_path / "ca.crt")
        assert (answer.stdout, answer.stderr) == (RIGHT, "")
        port = server.address.rpartition(":")[2]
        assert ask(f"localhost:{port}", TLS_CA=tmp_path / "ca.crt").stdout == RIGHT
        _refused(ask(server.address, TLS_CA=tmp_path / "other.crt"), server.address, "certificate")
        _refused(ask(server.address), server.address)


@pytest.mark.usefixtures("parties")
def test_mutual_tls(ask: Ask, tmp_path: Path) -> None:
    """With ZDNN_TLS_CERT and ZDNN_TLS_KEY a server that asks for certificates lets a program in."""
    tls = ("--tls-cert", f"{tmp_path}/server.crt", "--tls-key", f"{tmp_path}/server.key")
    ca = ("--tls-client-ca", f"{tmp_path}/ca.crt")
    mine = {"TLS_CA": tmp_path / "ca.crt", "TLS_CERT": tmp_path / "client.crt"}
    with serving(tmp_path, *ANY_PORT, *tls, *ca) as server:
        answer = ask(server.address, TLS_KEY=tmp_path / "client.key", **mine)
        assert (answer.stdout, answer.stderr) == (RIGHT, "")
        for name, value in (("TLS_CERT", tmp_path / "other.crt"), ("TLS_KEY", "")):
            wrong = {**mine, "TLS_KEY": tmp_path / "other.key", name: value}
            _refused(ask(server.address, **wrong), server.address)


def test_files_that_are_not_there(ask: Ask, tmp_path: Path) -> None:
    """A file that cannot be read is named, and nothing is sent in the clear instead."""
    missing = tmp_path / "missing.crt"
    _refused(ask("127.0.0.1:1", TLS_CA=missing), str(missing), "No such file")


class Doorkeeper(_ServerInterceptor):
    """Lets in callers with the token."""

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Answer UNAUTHENTICATED to everybody else."""
        token = dict(handler_call_details.invocation_metadata).get("authorization")
        if token == f"Bearer {TOKEN}":
            return continuation(handler_call_details)

        def refuse(_request: Any, context: grpc.ServicerContext) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not the one asked for")

        return grpc.unary_unary_rpc_method_handler(refuse)


@pytest.fixture
def guarded(parties: dict[str, Party]) -> Iterator[str]:
    """The address of the service behind TLS and a token."""
    pool, store = ThreadPoolExecutor(4), Store(Limits())
    server = grpc.server(pool, interceptors=[Doorkeeper()])
    add_to(server, AcceleratorService(store))
    pair = (parties["server"].key, parties["server"].certificate)
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()
    store.close()


def test_token(ask: Ask, guarded: str, tmp_path: Path) -> None:
    """ZDNN_TOKEN goes with every call; without it, or with another, the status is UNAVAILABLE."""
    ca = tmp_path / "ca.crt"
    assert ask(guarded, TLS_CA=ca, TOKEN=TOKEN).stdout == RIGHT
    _refused(ask(guarded, TLS_CA=ca, TOKEN="another"), "the token is not the one asked for")
    _refused(ask(guarded, TLS_CA=ca), "the token is not the one asked for")
    _refused(ask(guarded, TLS_CA=ca, TOKEN="two\nlines"), guarded)
