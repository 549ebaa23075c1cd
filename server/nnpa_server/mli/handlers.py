# SPDX-License-Identifier: Apache-2.0
"""Register MliService, which the first call imports with its kernels."""

from typing import TYPE_CHECKING

import grpc
from nnpa.mli.v1 import mli_pb2 as pb

from nnpa_server.config import Limits
from nnpa_server.rpc import lazy
from nnpa_server.rpc.lazy import Lazy

if TYPE_CHECKING:
    from nnpa_server.mli.service import MliService

_DESCRIPTOR = pb.DESCRIPTOR.services_by_name["MliService"]
SERVICE = _DESCRIPTOR.full_name


def add_to(server: grpc.Server, limits: Limits, calls: int) -> "Lazy[MliService]":
    """Serve MliService with at most `calls` calls at a time; return the lazy service."""

    def construct() -> "MliService":
        from nnpa_server.mli.service import MliService

        return MliService(limits, calls)

    service = Lazy(construct)
    lazy.add_to(server, _DESCRIPTOR, service.get)
    return service
