# SPDX-License-Identifier: Apache-2.0
"""The interface of a session that networks, traces and faults use."""

from collections.abc import Sequence
from typing import Protocol

from nnpa.zdnn.v1 import accelerator_pb2
from nnpa.zdnn.v1.operation_pb2 import Operation, OperationResult

from nnpa_client._server.transport import Transport

__tracebackhide__ = True  # pytest shows the line that called, not these


class OpenSession(Protocol):
    """A session, as `nnpa_client.Session` is."""

    @property
    def name(self) -> str:
        """The resource name."""
        ...

    @property
    def transport(self) -> Transport:
        """The connection."""
        ...

    def new_id(self) -> int:
        """Return an id that no tensor of the session has had."""
        ...

    def update(self) -> None:
        """Run the calls that a pipeline has queued."""
        ...

    def status(self) -> accelerator_pb2.Session:
        """Ask the server for the session as it is now."""
        ...

    def execute(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Run operations of the wire contract as they are, and return their answers."""
        ...
