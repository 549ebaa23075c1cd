# SPDX-License-Identifier: Apache-2.0
"""The ways to a server: TCP, Unix sockets, TLS, mutual TLS."""

import inspect
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest
from nnpa_client import ConnectOptions, Session, TransportError, connect, list_machines, zdnn
from nnpa_client.config import Endpoint, endpoint

from tests.certificates import issue
from tests.client.server_process import serving


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of a certificate and of its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Parties:
    """A certificate authority, a server and a client that it vouches for."""

    ca: Files
    server: Files
    client: Files


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    """Certificates for tests that use TLS."""
    folder = tmp_path_factory.mktemp("tls")
    ca = issue("ca")
    parties = {"ca": ca, "server": issue("server", ca), "client": issue("client", ca)}
    return Parties(**{name: Files(*party.write(folder, name)) for name, party in parties.items()})


@pytest.fixture(scope="module")
def tls_target(parties: Parties) -> Iterator[str]:
    """A server that asks clients for a certificate."""
    with serving(
        ["127.0.0.1:0"],
        "--tls-cert",
        str(parties.server.certificate),
        "--tls-key",
        str(parties.server.key),
        "--tls-client-ca",
        str(parties.ca.certificate),
    ) as targets:
        yield targets[0]


def round_trip(session: Session) -> None:
    """Send small and large data, compare the data that comes back, and close the session."""
    with session:
        for rows in (1, 600):
            array = np.ones((rows, 1024), np.float32)
            a = session.ztensor(array)
            np.testing.assert_array_equal(zdnn.add(a, a).numpy(), 2 * array)


def test_tcp_and_unix_of_one_server(tmp_path: Path) -> None:
    """A server on TCP and on a Unix socket serves clients on both."""
    with serving(["127.0.0.1:0", f"unix:{tmp_path}/n.sock"]) as targets:
        assert targets[1] == f"unix:{tmp_path}/n.sock"
        for target in targets:
            round_trip(connect(target))
            assert list_machines(target)[0].name == "machines/telum1"


def test_tls(parties: Parties) -> None:
    """A server with TLS serves clients that know its authority, and no others."""
    flags = ("--tls-cert", str(parties.server.certificate), "--tls-key", str(parties.server.key))
    with serving(["127.0.0.1:0"], *flags) as (target,):
        round_trip(connect(target, tls_ca=parties.ca.certificate))
        with pytest.raises(TransportError) as caught:
            connect(target, tls_ca=parties.client.certificate)
        assert caught.value.code == "UNAVAILABLE"


def test_mutual_tls(tls_target: str, parties: Parties) -> None:
    """With the authority's certificate and one of its own, a client is let in."""
    session = connect(
        tls_target,
        tls_ca=parties.ca.certificate,
        tls_cert=parties.client.certificate,
        tls_key=parties.client.key,
    )
    round_trip(session)


def test_tls_without_a_certificate(tls_target: str, parties: Parties) -> None:
    """A client that shows no certificate, or speaks plainly, is not let in."""
    for ca in (parties.ca.certificate, None):
        with pytest.raises(TransportError) as caught:
            connect(tls_target, tls_ca=ca)
        assert caught.value.code == "UNAVAILABLE"


def test_environment_describes_tls(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZDNN_TLS_* and ZDNN_TOKEN are used where arguments are left out; arguments win."""
    environment = {
        "ZDNN_TLS_CA": str(parties.ca.certificate),
        "ZDNN_TLS_CERT": str(parties.client.certificate),
        "ZDNN_TLS_KEY": str(parties.client.key),
        "ZDNN_TOKEN": "secret",
    }
    monkeypatch.setattr(os, "environ", environment)
    ca, client = parties.ca.certificate, parties.client
    assert endpoint("host:1") == Endpoint("host:1", ca, client.certificate, client.key, "secret")
    assert endpoint("host:1", tls_ca="other").tls_ca == Path("other")
    assert endpoint("unix:/path").tls_ca is None
    environment.clear()
    assert endpoint("host:1") == Endpoint("host:1")


@pytest.mark.parametrize("target", ["", "host", "unix:", "host:", "host:port"])
def test_bad_targets_are_refused(target: str) -> None:
    """A target is host:port or unix:/path."""
    with pytest.raises(ValueError, match=r"target: .* expected host:port or unix:/path"):
        connect(target)


def test_half_a_certificate_is_refused() -> None:
    """A certificate needs its key and an authority."""
    with pytest.raises(ValueError, match="tls_cert: given alone"):
        Endpoint("host:1", Path("ca"), Path("cert"))
    with pytest.raises(ValueError, match="tls_ca: not given"):
        Endpoint("host:1", None, Path("cert"), Path("key"))


@pytest.mark.parametrize(
    ("target", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("unix:/x", True),
        ("localhost:1", True),
        ("h:1", False),
    ],
)
def test_loopback_needs_no_proxy(target: str, loopback: bool) -> None:
    """Targets on this machine are known as such."""
    assert Endpoint(target).is_loopback is loopback


def test_keywords_may_be_an_object(server_target: str) -> None:
    """ConnectOptions equals keywords; a keyword beside it wins; its repr hides the token."""
    options = ConnectOptions(target=server_target, machine="z16", precheck=True, token="secret")
    with connect(options=options) as session:
        assert session.machine.name == "machines/telum1"
        assert session.status().precheck
    with connect(options=options, machine="z17") as session:
        assert session.machine.name == "machines/telum2"
    assert "secret" not in repr(options)


def test_each_keyword_is_an_option() -> None:
    """ConnectOptions has every keyword of `connect`, with the same default."""
    keywords = {
        name: parameter.default
        for name, parameter in inspect.signature(connect).parameters.items()
        if name != "options"
    }
    assert keywords == {option.name: option.default for option in fields(ConnectOptions)}
