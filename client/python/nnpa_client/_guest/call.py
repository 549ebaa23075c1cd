# SPDX-License-Identifier: Apache-2.0
"""One call of a C function, and the interface of the ztensors that it names."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from nnpa.zdnn.v1 import tensor_pb2
from nnpa.zdnn.v1.operation_pb2 import Operation, OperationResult

from nnpa_client._guest.sink import Sink

__tracebackhide__ = True  # pytest shows the line that called, not these


class Tensor(Protocol):
    """A ztensor as calls see it; `Ztensor` is the only implementation."""

    id: int
    """Its id in the session, 0 while the session does not hold it."""
    held: tensor_pb2.Ztensor | None
    """Its structure without contents, None before an operation has created it."""
    missing: str
    """Why it does not exist, if it does not."""
    freed_id: int
    flags: int
    finalizer: "weakref.finalize[[int], Tensor] | None"

    @property
    def structure(self) -> tensor_pb2.Ztensor:
        """The structure; raises NnpaError if it does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a C function: its name without prefix, and its operation on the wire.

    `tensors` are its ztensors by C parameter name, kept alive until it has run; the answer may
    change their structure. `creates` are the ztensors that exist only when the answer says so.
    `read` is called with the answer. `arrays` are user arrays that travel beside the operation;
    `sink` receives the array that it returns.
    """

    name: str
    operation: Operation
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    creates: Sequence[Tensor] = ()
    read: Callable[[OperationResult], None] | None = None
    arrays: Sequence[memoryview] = ()
    sink: Sink | None = None

    def size(self) -> int:
        """Return about how many bytes the call adds to a message."""
        return self.operation.ByteSize() + sum(array.nbytes for array in self.arrays)

    def with_copies(self) -> "Call":
        """Return the call with copies of its arrays, which their owner may then change."""
        if not self.arrays:
            return self
        return replace(self, arrays=[memoryview(bytes(array)) for array in self.arrays])
