# SPDX-License-Identifier: Apache-2.0
"""nnpa.network.v1.NetworkService: hosted networks.

What it runs on is imported when the first call comes: a server without the packages of the extra
`onnx` serves everything else, and one that hosts no network starts as quickly.
"""

import logging
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

import grpc
from nnpa.network.v1 import network_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.config import SHORTCUTS
from nnpa_server.errors import CallRefused
from nnpa_server.open_inference.repository import Repository
from nnpa_server.rpc import lazy
from nnpa_server.rpc.lazy import Lazy
from nnpa_server.sandbox import confinement
from nnpa_server.sandbox.pool import Pool
from nnpa_server.sessions.store import Store

if TYPE_CHECKING:
    from types import ModuleType

    from nnpa_network.importing.plan import Plan

    from nnpa_server.network.service import NetworkService
    from nnpa_server.open_inference.loading import Compile, Loader
    from nnpa_server.open_inference.sources import Options

_log = logging.getLogger("nnpa.sandbox")
# ONNX Runtime starts a thread for telemetry, and a process with threads cannot be confined.
_WORKER_ENVIRONMENT = {"ORT_DISABLE_TELEMETRY": "1"}

_DESCRIPTOR = pb.DESCRIPTOR.services_by_name["NetworkService"]
SERVICE = _DESCRIPTOR.full_name

__all__ = ["SERVICE", "add_to", "compile_in", "make_pool", "make_service"]


def make_pool(sandbox: str) -> Pool | None:
    """Return what gives workers that compile models, None where the server does it by itself.

    Say what the kernel lacks; raise `NotConfined` where `sandbox` requires it.
    """
    if sandbox == "off":
        return None
    missing = confinement.missing()
    if missing and sandbox == "require":
        raise confinement.NotConfined(f"the kernel lacks {', '.join(missing)}: --sandbox require")
    if not confinement.is_linux():
        _log.warning("models are compiled in the server's process: workers need Linux")
        return None
    if missing:
        _log.warning("workers are not confined by %s, which the kernel lacks", ", ".join(missing))
    return Pool(
        "nnpa_server.network.compiling:start", _WORKER_ENVIRONMENT, whole=sandbox == "require"
    )


def compile_in(pool: Pool, shortcuts: frozenset[str]) -> "Compile":
    """Return what compiles a model to be published, in a worker of its own."""

    def compile_model(data: bytes, options: "Options", limit: int) -> "Plan":
        module = _import("nnpa_server.network.remote_plan")
        plan: Plan = module.compile_published(pool, data, options, limit, shortcuts)
        return plan

    return compile_model


def make_service(
    store: Store,
    repository: Repository,
    loader: "Loader | None",
    shortcuts: frozenset[str] = frozenset(SHORTCUTS),
    pool: Pool | None = None,
) -> "NetworkService":
    """Return the service; `loader` lets clients publish, `pool` gives workers that compile.

    Raises CallRefused without onnx.
    """
    service: type[NetworkService] = _import("nnpa_server.network.service").NetworkService
    return service(store, repository, loader, shortcuts, pool)


def _import(name: str) -> "ModuleType":
    """Return a module that needs onnx; raise CallRefused without it."""
    try:
        return import_module(name)
    except ImportError as error:
        text = "this server was installed without the packages for ONNX: pip install 'nnpa[onnx]'"
        raise CallRefused(wire.ERROR_REASON_EXTENSION_NOT_OFFERED, text, field="onnx") from error


def add_to(
    server: grpc.Server,
    store: Store,
    repository: Repository,
    loader: Callable[[], "Loader | None"],
    shortcuts: frozenset[str] = frozenset(SHORTCUTS),
    pool: Pool | None = None,
) -> None:
    """Serve hosted networks; the service is constructed by the first call."""
    service = Lazy(lambda: make_service(store, repository, loader(), shortcuts, pool))
    lazy.add_to(server, _DESCRIPTOR, service.get)
