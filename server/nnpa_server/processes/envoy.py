# SPDX-License-Identifier: Apache-2.0
"""Find Envoy, the router in front of server processes, and build its configuration.

Sources: Envoy 1.40, `envoy.filters.http.stateful_session` (header), `config.bootstrap.v3`.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from nnpa_server.config import Tls, split_address
from nnpa_server.rpc.sockets import keepalive

Json: TypeAlias = Mapping[str, Any]
TICKET = "nnpa-session-ticket"  # deploy/docs/wire.md, "Behind a proxy"
_TYPES = "type.googleapis.com/envoy.extensions"
_STREAM_WINDOW, _CONNECTION_WINDOW = 16 << 20, 64 << 20
_MANY = 1 << 20  # more than there are connections or calls
_HANDSHAKE_TIMEOUT = "10s"


def program() -> str | None:
    """Return the path of Envoy, from its wheel in this environment or from the PATH."""
    return shutil.which("envoy", path=Path(sys.executable).parent) or shutil.which("envoy")


@dataclass(frozen=True, slots=True)
class Listener:
    """An address that Envoy serves, and the sockets of the processes behind it."""

    name: str
    address: str
    members: Sequence[str]
    own_limit: bool = False  # of connections, apart from the other listeners


def bootstrap(
    listeners: Sequence[Listener], admin: str, max_connections: int, tls: Tls | None
) -> Json:
    """Return the configuration of Envoy; its administration listens at the socket `admin`."""
    limit = _typed(
        "envoy.resource_monitors.global_downstream_max_connections",
        "resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
        max_active_downstream_connections=max_connections,
    )
    return {
        "admin": {"address": address_of(admin)},
        "overload_manager": {"resource_monitors": [limit]},
        "static_resources": {
            "listeners": [_listener(listener, max_connections, tls) for listener in listeners],
            "clusters": [
                {**cluster(listener.name), "type": "STATIC",
                 "load_assignment": assignment(listener.name, listener.members)}
                for listener in listeners
            ],
        },
    }  # fmt: skip


def address_of(address: str) -> Json:
    """Return Envoy's form of an address, which is `host:port` or `unix:/path`."""
    if address.startswith("unix:"):
        return {"pipe": {"path": address.removeprefix("unix:")}}
    host, port = split_address(address)
    both = {"ipv4_compat": True} if host == "::" else {}
    return {"socket_address": {"address": host, "port_value": port, **both}}


def assignment(name: str, members: Sequence[str]) -> Json:
    """Return the assignment of members to a cluster."""
    endpoints = [{"endpoint": {"address": address_of(member)}} for member in members]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}


def cluster(name: str) -> Json:
    """Return a cluster without members: HTTP/2, round robin, no bounds but the servers'."""
    http2 = {"explicit_http_config": {"http2_protocol_options": _windows()}}
    options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    bounds = {
        f"max_{kind}": _MANY for kind in ("connections", "requests", "pending_requests", "retries")
    }
    # A session stays where it is for as long as its server answers: health is for newcomers.
    statuses = ["UNKNOWN", "HEALTHY", "UNHEALTHY", "DRAINING", "DEGRADED"]
    return {
        "name": name,
        "connect_timeout": "1s",
        "lb_policy": "ROUND_ROBIN",
        "common_lb_config": {
            "healthy_panic_threshold": {"value": 0},
            "override_host_status": {"statuses": statuses},
        },
        "circuit_breakers": {"thresholds": [bounds]},
        "typed_extension_protocol_options": {
            options: {"@type": f"{_TYPES}.upstreams.http.v3.HttpProtocolOptions", **http2}
        },
    }


def manager(name: str) -> Json:
    """Return the filter that handles HTTP, and sends calls of a session to its server alone."""
    state = _typed(
        "envoy.http.stateful_session.header",
        "http.stateful_session.header.v3.HeaderBasedSessionState",
        name=TICKET,
    )
    persistent = _typed(
        "envoy.filters.http.stateful_session",
        "filters.http.stateful_session.v3.StatefulSession",
        session_state=state,
        strict=True,
    )
    router = _typed("envoy.filters.http.router", "filters.http.router.v3.Router")
    host = {"name": name, "domains": ["*"], "routes": _routes(name)}
    return _typed(
        "envoy.filters.network.http_connection_manager",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix=name,
        codec_type="HTTP2",
        stream_idle_timeout="0s",
        http2_protocol_options={"max_concurrent_streams": 1000, **_windows()},
        route_config={"virtual_hosts": [host]},
        http_filters=[persistent, router],
    )


def _routes(name: str) -> Sequence[Json]:
    """Return the routes and their retries.

    A call that could not connect tries another server. CreateSession is also retried after a reset:
    a session that an ending server had begun to create ends with it. A call with a ticket is not
    retried, because Envoy would send it to another server than its session's.
    """
    another = _typed(
        "envoy.retry_host_predicates.previous_hosts",
        "retry.host.previous_hosts.v3.PreviousHostsPredicate",
    )

    def route(match: Json, *reasons: str) -> Json:
        retry = {
            "retry_on": ",".join(("connect-failure", "refused-stream", *reasons)),
            "num_retries": 3,
            "retry_host_predicate": [another],
            "host_selection_retry_max_attempts": 5,
        }
        return {"match": match, "route": {"cluster": name, "timeout": "0s", "retry_policy": retry}}

    create = {"path": "/nnpa.zdnn.v1.AcceleratorService/CreateSession"}
    of_session = {
        "match": {"prefix": "/", "headers": [{"name": TICKET, "present_match": True}]},
        "route": {"cluster": name, "timeout": "0s"},
    }
    return of_session, route(create, "reset"), route({"prefix": "/"})


def _listener(listener: Listener, max_connections: int, tls: Tls | None) -> Json:
    limit = _typed(
        "envoy.filters.network.connection_limit",
        "filters.network.connection_limit.v3.ConnectionLimit",
        stat_prefix=listener.name,
        max_connections=max_connections,
    )
    filters = [*([limit] if listener.own_limit else []), manager(listener.name)]
    chain: dict[str, object] = {"filters": filters}
    if tls is not None and not listener.address.startswith("unix:"):
        chain["transport_socket"] = _tls(tls)
        chain["transport_socket_connect_timeout"] = _HANDSHAKE_TIMEOUT
    options = () if listener.address.startswith("unix:") else keepalive()
    return {
        "name": listener.name,
        "address": address_of(listener.address),
        "socket_options": [
            {"level": level, "name": name, "int_value": value, "state": "STATE_PREBIND"}
            for level, name, value in options
        ],
        "enable_reuse_port": False,  # which would hide that a port is taken
        "ignore_global_conn_limit": listener.own_limit,
        "filter_chains": [chain],
    }


def _tls(tls: Tls) -> Json:
    certificate, key, client_ca = (str(path) if path else "" for path in tls.files)
    pair = {"certificate_chain": {"filename": certificate}, "private_key": {"filename": key}}
    context: dict[str, object] = {"alpn_protocols": ["h2"], "tls_certificates": [pair]}
    if client_ca:
        context["validation_context"] = {"trusted_ca": {"filename": client_ca}}
    return _typed(
        "envoy.transport_sockets.tls",
        "transport_sockets.tls.v3.DownstreamTlsContext",
        common_tls_context=context,
        require_client_certificate=bool(client_ca),
    )


def _windows() -> Json:
    return {
        "initial_stream_window_size": _STREAM_WINDOW,
        "initial_connection_window_size": _CONNECTION_WINDOW,
    }


def _typed(name: str, kind: str, /, **fields: object) -> Json:
    return {"name": name, "typed_config": {"@type": f"{_TYPES}.{kind}", **fields}}
