# SPDX-License-Identifier: Apache-2.0
"""The seams of the plain path: the functions that shortcuts, guards and observers may wrap."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from nnpa.zdnn.v1 import operation_pb2
from nnpa_emulator import Outcome, Ztensor

from nnpa_server.accelerator.decode import Request, Step
from nnpa_server.rpc.codec import Array, Response
from nnpa_server.sessions.cancellation import Context
from nnpa_server.sessions.store import Session

Result: TypeAlias = operation_pb2.OperationResult
Tensors: TypeAlias = Mapping[str, Ztensor]
Sticks: TypeAlias = Mapping[int, Array]
PATH = "call path"


class Answer(NamedTuple):
    """The answer to an operation; `sticks` holds inline outputs by number, beside the result."""

    outcome: Outcome
    result: Result
    sticks: Sticks


Hold: TypeAlias = Callable[[Session, Request, Context], AbstractContextManager[None]]
Decode: TypeAlias = Callable[[Session, Request], Sequence[Step]]
Run: TypeAlias = Callable[[Session, Sequence[Step], Context], Response]
RunStep: TypeAlias = Callable[[Session, Step], Answer]
CallFunction: TypeAlias = Callable[[Session, Step, Tensors], Outcome]
EncodeResult: TypeAlias = Callable[[Session, Step, Tensors, Outcome], tuple[Result, Sticks]]


@dataclass(slots=True)
class CallPath:
    """The functions that a session's calls go through, plain or wrapped.

    `run_with_contents` runs steps whose answer carries an array or sticks. `run_chunked` runs steps
    whose array comes or goes in chunks; metrics do not count these.
    """

    hold: Hold
    decode: Decode
    call_function: CallFunction
    encode_result: EncodeResult
    run_step: RunStep = field(init=False)
    run_with_contents: RunStep = field(init=False)
    run_chunked: RunStep = field(init=False)
    run: Run = field(init=False)

    def close(self) -> None:
        """Break the cycle of references between the path and its functions."""
        del self.run_step, self.run_with_contents, self.run_chunked, self.run
