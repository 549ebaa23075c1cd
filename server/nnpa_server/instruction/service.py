# SPDX-License-Identifier: Apache-2.0
"""InstructionService: each method of nnpa/instruction/v1/instruction.proto in a few lines.

Methods raise `CallRefused`; the interceptor turns it into a gRPC error.
"""

import os
from collections.abc import Generator, Iterator
from functools import partial

from nnpa.instruction.v1 import instruction_pb2 as pb
from nnpa.instruction.v1 import instruction_pb2_grpc

from nnpa_server.errors import invalid
from nnpa_server.instruction.answers import Answer
from nnpa_server.instruction.frames import CONTENT_TYPE, Frame, decode_frame, place_storage
from nnpa_server.instruction.issue import issue
from nnpa_server.instruction.messages import encode_answer, read_instruction, read_storage
from nnpa_server.rpc.call import SESSION
from nnpa_server.sessions.cancellation import Context, PlainContext
from nnpa_server.sessions.shared_memory import MappedMemory
from nnpa_server.sessions.store import Store


class InstructionService(instruction_pb2_grpc.InstructionServiceServicer):
    """Implements InstructionService; `shares_memory` says that it takes descriptors."""

    def __init__(self, store: Store, shares_memory: bool) -> None:
        self._store = store
        self._shares_memory = shares_memory

    def Issue(self, request: pb.IssueRequest, context: Context) -> pb.IssueResponse:  # noqa: N802 - the contract's name
        """Issue one instruction."""
        return self._issue(request, context, bounded=True)

    def IssueStream(  # noqa: N802
        self, request_iterator: Iterator[pb.IssueRequest], context: Context
    ) -> Generator[pb.IssueResponse]:
        """Issue instructions as they arrive."""
        yield from map(partial(self._issue, context=context, bounded=False), request_iterator)

    def _issue(self, request: pb.IssueRequest, context: Context, bounded: bool) -> pb.IssueResponse:
        instruction = read_instruction(request)
        with (
            self._store.using(request.session, bounded) as session,
            session.running(context.time_remaining()),
        ):
            storage = read_storage(session, request.operands, instruction)
            memories = {role: operand.memory for role, operand in storage.items()}
            answer = issue(session, instruction, memories, context)
            return encode_answer(session, answer, storage)

    def converse(self, frames: Iterator[Frame], context: PlainContext) -> Generator[Answer]:
        """Issue instructions in frames as they arrive; operands lie in the connection's memory."""
        metadata = dict(context.invocation_metadata())
        name = str(metadata.get(SESSION, ""))
        if (kind := metadata.get("content-type")) != CONTENT_TYPE:
            raise invalid("content-type", kind, CONTENT_TYPE)
        file = context.take_memory()
        memory = None if file is None else self._map(name, file)
        try:
            for frame in frames:
                instruction, places = decode_frame(frame)
                storage = place_storage(places, None if memory is None else memory.contents)
                with (
                    self._store.using(name, bounded=False) as session,
                    session.running(context.time_remaining()),
                ):
                    answer = issue(session, instruction, storage, context)
                yield answer
        finally:
            if memory is not None:
                memory.close()

    def _map(self, name: str, file: int) -> MappedMemory:
        """Map the memory of a connection, and close its descriptor."""
        try:
            if not self._shares_memory:
                raise invalid("memory", "sent", "none: this server does not share memory")
            with self._store.using(name, bounded=False) as session:
                most = session.limits.max_session_bytes
        except BaseException:
            os.close(file)
            raise
        return MappedMemory(file, most)
