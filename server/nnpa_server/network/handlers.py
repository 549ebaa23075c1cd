# SPDX-License-Identifier: Apache-2.0
"""Serve NetworkService, and compile models for publication.

The first call imports the network runtime. So a server without the packages of the extra `onnx`
serves everything else, and a server that hosts no network starts as quickly.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import grpc
from nnpa.network.v1 import network_pb2 as pb

from nnpa_server.network.pools import PLACES, Pools
from nnpa_server.open_inference.repository import Repository
from nnpa_server.rpc import lazy
from nnpa_server.rpc.lazy import Lazy
from nnpa_server.rpc.methods import Conversation, one_by_one
from nnpa_server.sessions.store import Store

if TYPE_CHECKING:
    from nnpa_network.importing.plan import Plan

    from nnpa_server.network.service import NetworkService
    from nnpa_server.open_inference.loading import Compile, Loader, Share
    from nnpa_server.open_inference.sources import Options

_DESCRIPTOR = pb.DESCRIPTOR.services_by_name["NetworkService"]
_INFER = _DESCRIPTOR.methods_by_name["InferNetwork"]
SERVICE = _DESCRIPTOR.full_name
INFER = f"/{SERVICE}/{_INFER.name}"


def compile_in(pools: Pools | None, shortcuts: frozenset[str]) -> "Compile":
    """Return a function that compiles a model for publication, in workers of its own."""

    def compile_model(data: bytes, options: "Options", limit: int) -> "Plan":
        from nnpa_server.network.worker_plan import compile_published

        return compile_published(pools, data, options, limit, shortcuts)

    return compile_model


def share_in(pools: Pools | None) -> "Share":
    """Return a function whose context makes many models that are loaded in turn share workers.

    If there are few models, each keeps its own workers, so that its first request finds them.
    """

    def share(models: int) -> AbstractContextManager[None]:
        if pools is None or models <= PLACES:
            return nullcontext()
        from nnpa_server.network.workers import shared_workers

        return shared_workers(pools)

    return share


def add_to(
    server: grpc.Server,
    store: Store,
    repository: Repository,
    loader: "Callable[[], Loader | None]",
    shortcuts: frozenset[str],
    pools: Pools | None,
) -> Conversation:
    """Serve NetworkService lazily; return InferNetwork as a conversation for plain sockets."""

    def construct() -> "NetworkService":
        from nnpa_server.network.service import NetworkService

        return NetworkService(store, repository, loader(), shortcuts, pools)

    service = Lazy(construct)
    lazy.add_to(server, _DESCRIPTOR, service.get)
    return one_by_one(_INFER, lazy.method_of(_INFER, service.get))
