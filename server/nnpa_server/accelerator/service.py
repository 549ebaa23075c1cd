# SPDX-License-Identifier: Apache-2.0
"""AcceleratorService: each method of nnpa/zdnn/v1/accelerator.proto in a few lines.

Methods raise `CallRefused`; the interceptor turns it into a gRPC error.
"""

import heapq
import os
import threading
import time
from collections.abc import Collection, Generator, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial

import grpc
from google.protobuf import empty_pb2
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2
from nnpa_emulator import MACHINES, find_machine, machine_names

from nnpa_server.accelerator.composition import compose
from nnpa_server.accelerator.decode import Request
from nnpa_server.accelerator.execute import describe_ztensor, path_of
from nnpa_server.accelerator.messages import describe_machine, describe_session
from nnpa_server.accelerator.observers import sanitizing
from nnpa_server.accelerator.observers.trace_records import join, traced
from nnpa_server.accelerator.options import (
    apply_options,
    chosen_options,
    make_guest,
    model_name,
    updated_options,
)
from nnpa_server.accelerator.shortcuts.placed_operands import PlacedMemory
from nnpa_server.accelerator.streaming import Download, Upload, read_tensor, write_tensor
from nnpa_server.config import SHORTCUTS
from nnpa_server.errors import CallRefused, beyond, invalid
from nnpa_server.faults import change_faults, faults_of, read_rules
from nnpa_server.rpc.codec import Response
from nnpa_server.sessions.audit import Trail
from nnpa_server.sessions.cancellation import CallContext, Context, PlainContext
from nnpa_server.sessions.leases import End
from nnpa_server.sessions.pagination import make_token, page_size, read_token
from nnpa_server.sessions.shared_memory import HOLDING, MappedMemory, open_for, shared_of
from nnpa_server.sessions.shared_objects import ObjectAccess
from nnpa_server.sessions.store import Session, Store
from nnpa_server.sessions.tokens import caller
from nnpa_server.sessions.traces import Traces

SERVICE = pb.DESCRIPTOR.services_by_name["AcceleratorService"].full_name


class AcceleratorService:
    """Serves the sessions of a store; `allow_faults` lets sessions have fault rules."""

    def __init__(
        self,
        store: Store,
        objects: ObjectAccess | None = None,
        allow_faults: bool = False,
        shortcuts: Collection[str] = SHORTCUTS,
    ) -> None:
        self.store = store
        self.shortcuts = shortcuts
        self._allow_faults = allow_faults
        self._objects = objects
        self.traces = Traces()
        self.plain_suffix = ""
        """The suffix of plain sockets that clients on this host are told, "" if none is open."""

    def ListMachines(  # noqa: N802 - the names of methods are the contract's
        self,
        request: pb.ListMachinesRequest,
        context: Context,  # noqa: ARG002 - gRPC's signature
    ) -> pb.ListMachinesResponse:
        """List the machines, in a fixed order."""
        first = read_token("machines", request.page_token) + 1
        names = list(MACHINES)
        last = min(first + page_size(request.page_size), len(names))
        token = make_token("machines", last - 1) if last < len(names) else ""
        machines = [describe_machine(MACHINES[name], name) for name in names[first:last]]
        return pb.ListMachinesResponse(machines=machines, next_page_token=token)

    def GetMachine(self, request: pb.GetMachineRequest, context: Context) -> pb.Machine:  # noqa: N802, ARG002
        """Get a machine by its name or an alias, in any case of letters."""
        prefix, _, name = request.name.partition("/")
        try:
            machine = find_machine(name if prefix == "machines" else "")
        except KeyError:
            names = ", ".join(f"machines/{name}" for name in MACHINES)
            text = f"machine is {(name or prefix)[:64]!r}, must be one of {machine_names()}"
            reason = wire.ERROR_REASON_MACHINE_NOT_FOUND
            raise beyond(reason, text, "name", request.name[:64], names) from None
        return describe_machine(machine, machine.name)

    def CreateSession(self, request: pb.CreateSessionRequest, context: Context) -> pb.Session:  # noqa: N802
        """Create a session."""
        options = chosen_options(request.session)
        rules = read_rules(options.fault_rules, self._allow_faults)
        origin = Trail(caller().name, context.peer(), model_name(options.machine_spec))
        session = self.store.create(make_guest(options), options, origin)
        change_faults(session, rules)
        sanitizing.begin(session)
        if self._objects is not None and request.session.HasField("shared_memory"):
            named = request.session.shared_memory
            memory = open_for(self._objects, context.peer(), named.name, named.size)
            if memory is not None:
                session.holdings[HOLDING] = memory
        join(session, self.traces)
        compose(session, self.shortcuts)
        return self._describe(session, context)

    def GetSession(self, request: pb.GetSessionRequest, context: Context) -> pb.Session:  # noqa: N802
        """Get a session with its present use."""
        with self.store.using(request.name) as session:
            return self._describe(session, context)

    def UpdateSession(self, request: pb.UpdateSessionRequest, context: Context) -> pb.Session:  # noqa: N802
        """Change options of a session; the query result that its library holds stays the same."""
        with self.store.using(request.session.name) as session, _running(session, context):
            options = updated_options(session.options, request)
            rules = read_rules(options.fault_rules, self._allow_faults)
            apply_options(session.guest, options)
            change_faults(session, rules)
            session.options = options
            session.trail.machine = model_name(options.machine_spec)
            join(session, self.traces)
            compose(session, self.shortcuts)
            return self._describe(session, context)

    def DeleteSession(self, request: pb.DeleteSessionRequest, context: Context) -> empty_pb2.Empty:  # noqa: N802, ARG002
        """Delete a session and all its tensors."""
        self.store.delete(request.name)
        return empty_pb2.Empty()

    def HoldSession(  # noqa: N802
        self, request: pb.HoldSessionRequest, context: CallContext, end: End
    ) -> None:
        """Hold a session's lease until the call ends, without keeping a thread."""
        opening = threading.Lock()

        def end_in_turn(refusal: CallRefused | None) -> None:
            with opening:
                end(refusal)

        with opening:
            release = self.store.hold(request.name, end_in_turn)
            if not context.add_callback(release):  # the client has gone meanwhile
                release()
                return
            with suppress(grpc.RpcError):
                context.send_initial_metadata(())

    vars(HoldSession)["experimental_non_blocking"] = True  # where gRPC looks for it

    def Execute(self, request: Request, context: Context) -> Response:  # noqa: N802
        """Run operations in order; the arrays of the results stay beside them."""
        try:
            with self.store.using(request.session) as session:
                path = path_of(session)
                with path.hold(session, request, context):
                    return path.run(session, path.decode(session, request), context)
        except CallRefused:
            len(request.operations)  # bytes that are no message are refused as such
            raise

    def ExecuteStream(  # noqa: N802
        self, lists: Iterator[Request], context: Context
    ) -> Generator[Response]:
        """Run lists of operations as they arrive."""
        yield from map(partial(self.Execute, context=context), lists)

    def converse(self, lists: Iterator[Request], context: PlainContext) -> Generator[Response]:
        """Run lists as ExecuteStream does; a list that comes with memory only names its session."""
        for listed in lists:
            memory = context.take_memory()
            if memory is None:
                yield self.Execute(listed, context)
            else:
                self._share(listed, memory)
                yield Response((), {})
            del listed

    def _share(self, listed: Request, file: int) -> None:
        """Map a descriptor's memory for a list's session; close the descriptor if that fails."""
        try:
            if self._objects is None:
                raise invalid("memory", "sent", "none: this server does not share memory")
            if count := len(listed.operations):
                raise invalid("operations", f"{count} of them", "none in the list beside memory")
            with self.store.using(listed.session) as session, session.running(None):
                if shared_of(session) is not None:
                    raise invalid("memory", "sent", "none: the session shares some already")
                placed = "placed-operands" in self.shortcuts and not session.options.sanitize
                kind = PlacedMemory if placed else MappedMemory
                file, mapped = -1, file
                session.holdings[HOLDING] = kind(mapped, session.limits.max_session_bytes)
        finally:
            if file >= 0:
                os.close(file)

    def WriteTensor(  # noqa: N802
        self, request_iterator: Iterator[Upload], context: Context
    ) -> pb.WriteTensorResponse:
        """Fill one tensor with data too large for a message."""
        return pb.WriteTensorResponse(result=write_tensor(self.store, request_iterator, context))

    def ReadTensor(  # noqa: N802
        self, request: pb.ReadTensorRequest, context: Context
    ) -> Generator[Download]:
        """Read one tensor: a header message, then the bytes of each chunk."""
        return read_tensor(self.store, request, context)

    def _describe(self, session: Session, context: Context) -> pb.Session:
        name = session.guest.machine.name  # a fault may have moved the guest
        model = name if name in MACHINES else model_name(session.options.machine_spec)
        traced(session)  # so that a trace that has ended is left out
        message = describe_session(session, model, time.time())
        if self.plain_suffix and context.peer().startswith("unix:"):
            message.plain_socket.suffix = self.plain_suffix
            message.plain_socket.takes_memory = self._objects is not None
        if (faults := faults_of(session)) is not None:
            message.injected_faults.extend(list(faults.injected))  # calls may add to it
        return message

    def ListTensors(  # noqa: N802
        self, request: pb.ListTensorsRequest, context: Context
    ) -> pb.ListTensorsResponse:
        """List the tensors of a session by ascending id."""
        last = read_token(request.session, request.page_token)
        count = page_size(request.page_size)
        with self.store.using(request.session) as session, _running(session, context):
            ids = heapq.nsmallest(
                count + 1, (number for number in session.tensors if number > last)
            )
            listed = [
                tensor_pb2.ZtensorInfo(id=number, ztensor=describe_ztensor(session.tensors[number]))
                for number in ids[:count]
            ]
        token = make_token(request.session, ids[count - 1]) if len(ids) > count else ""
        return pb.ListTensorsResponse(tensors=listed, next_page_token=token)


def _running(session: Session, context: Context) -> AbstractContextManager[None]:
    return session.running(context.time_remaining())
