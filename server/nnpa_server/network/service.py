# SPDX-License-Identifier: Apache-2.0
"""NetworkService: each method of nnpa/network/v1/network.proto in a few lines.

Methods raise `CallRefused`, which the interceptor turns into a gRPC error. Errors of the client API
are fields of the responses.
"""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from nnpa.network.v1 import network_pb2 as pb
from nnpa.network.v1 import network_pb2_grpc
from nnpa_network.client_api.buffer_format import Buffer
from nnpa_network.client_api.creation import require_compatible
from nnpa_network.client_api.errors import NetworkRefused
from nnpa_network.client_api.instances import NOT_RUN
from nnpa_network.client_api.network import Network, RunResult
from nnpa_network.client_api.observer import Event, EventFlag, EventQueue, Observer
from nnpa_network.importing.plan import Plan
from nnpa_network.importing.shapes import names_of
from nnpa_network.program import ModelRefused, Program
from nnpa_network.running.results import Result
from nnpa_network.shortcuts import SHORTCUTS

from nnpa_server.accelerator.messages import timestamp
from nnpa_server.config import MIB
from nnpa_server.errors import invalid
from nnpa_server.network import messages
from nnpa_server.network.hosting import Hosted, calls_of, hosted_by
from nnpa_server.network.measuring import measure_accuracy, probe_network
from nnpa_server.network.memory import require_message
from nnpa_server.network.pools import Pools
from nnpa_server.network.programs import encode_program, refused_model
from nnpa_server.network.refusals import not_ready, refusing
from nnpa_server.network.sources import Sources
from nnpa_server.network.uploads import receive_header
from nnpa_server.network.worker_plan import WorkerPlan
from nnpa_server.open_inference.loading import Loader
from nnpa_server.open_inference.reading import output_bytes
from nnpa_server.open_inference.repository import Repository, executor_of
from nnpa_server.open_inference.tensors import raw_size
from nnpa_server.rpc.budget import expect_answer
from nnpa_server.sessions.cancellation import Context
from nnpa_server.sessions.pagination import make_token, page_size, read_token
from nnpa_server.sessions.store import Store

_EXPORT_CHUNK = MIB
_MAX_EVENTS, _MAX_EVENT_BYTES = 1024, 16 * MIB  # waiting for the reader of one stream
_POLL_SECONDS = 0.25  # seconds between looks whether an observer is still wanted
_ALL_EVENTS = EventFlag.INIT | EventFlag.PRE | EventFlag.POST


class NetworkService(network_pb2_grpc.NetworkServiceServicer):
    """Implements NetworkService; `loader` lets clients publish models, `pools` give it workers."""

    def __init__(
        self,
        store: Store,
        repository: Repository,
        loader: Loader | None,
        shortcuts: frozenset[str] = SHORTCUTS,
        pools: Pools | None = None,
    ) -> None:
        self.store, self.repository, self._pools = store, repository, pools
        self._sources = Sources(repository, loader, shortcuts)

    @contextmanager
    def _hosted(self, session: str) -> Generator[Hosted]:
        with self.store.using(session) as open_session:
            yield hosted_by(open_session)

    def CreateNetwork(
        self, request_iterator: Iterator[pb.CreateNetworkRequest], context: Context
    ) -> pb.CreateNetworkResponse:
        """Create a network from an uploaded file or a published model."""
        header = receive_header(request_iterator, context)
        with self.store.using(header.session) as session:
            hosted = hosted_by(session)
            try:
                require_compatible(
                    messages.read_caller(header), messages.read_options(header.options)
                )
                signature, make = self._sources.read(
                    header, session, request_iterator, context, hosted.workers(self._pools)
                )
                handle = hosted.create(header, signature, make, context)
            except NetworkRefused as refused:
                return pb.CreateNetworkResponse(error=messages.encode_error(refused.error))
            except ModelRefused as refused:
                raise refused_model(refused) from refused
            self.store.return_memory()  # used between the file and the network
            network = _encode_network(hosted, handle, hosted.find(handle))
            return pb.CreateNetworkResponse(network=network)

    def InitNetwork(
        self, request: pb.InitNetworkRequest, context: Context
    ) -> pb.InitNetworkResponse:
        """Bind the weights and activations of a network."""
        with self._hosted(request.session) as hosted:
            network = hosted.instances.find(request.network)
            if network is None:
                return pb.InitNetworkResponse(ok=False)
            params = messages.read_params(request)
            with hosted.memory.running(context):
                size = params.activations.channels if params else 0
                shared = hosted.shared(request.shared_activations, size)
            within = hosted.memory.running(context)
            try:
                ok = network.init(params, request.model_signature, shared, within)
            except ModelRefused as refused:
                raise refused_model(refused) from refused
            with hosted.memory.running(context):
                hosted.count(request.network)
            return pb.InitNetworkResponse(ok=ok)

    def RunNetwork(self, request: pb.RunNetworkRequest, context: Context) -> pb.RunNetworkResponse:
        """Run a network over batches."""
        with self._hosted(request.session) as hosted:
            network = hosted.instances.find(request.network)
            result = NOT_RUN if network is None else self._run(network, hosted, request, context)
            program = None if network is None else network.executor.program
            if program is not None and result.n_batches > 0:
                hosted.note(calls_of(program, result.n_batches), result.violations)
            violations = messages.encode_violations(result.violations, program) if program else ()
            return pb.RunNetworkResponse(
                n_batches=result.n_batches,
                outputs=map(messages.encode_buffer, result.outputs),
                violations=violations,
            )

    def _run(
        self, network: Network, hosted: Hosted, request: pb.RunNetworkRequest, context: Context
    ) -> RunResult:
        inputs = [messages.read_buffer(buffer) for buffer in request.inputs] or None
        within = hosted.memory.running(context)
        if request.forward:
            with hosted.model_run(network):
                return network.forward(inputs, within)
        outputs = [messages.read_buffer(buffer) for buffer in request.outputs] or _inside(network)
        size = sum(tensor.nbytes for tensor in network.outputs) * max(
            (buffer.n_batches for buffer in outputs or ()), default=0
        )
        with hosted.memory.answering(size), hosted.model_run(network):
            return network.run(inputs, outputs, within)

    def InferNetwork(
        self, request: pb.InferNetworkRequest, context: Context
    ) -> pb.InferNetworkResponse:
        """Run a network once over inputs by the model's names and in its shapes."""
        with self._hosted(request.session) as hosted:
            network = hosted.find(request.network)
            if not network.ready:
                raise not_ready(request.network, "init was not called, or failed")
            hosted.memory.require(messages.text_bytes(request.inputs))
            feeds = messages.read_feeds(request.inputs, "inputs")
            with hosted.memory.running(context), refusing():
                shapes = {name: array.shape for name, array in feeds.items()}
                executor = executor_of(network.plan, _known(network.plan, shapes))
                size = sum(output_bytes(executor.program).values())
                require_message(size)
                expect_answer(size or None)
                hosted.memory.require(size)
                with hosted.model_run(network):
                    result = executor.run(feeds)
                    hosted.note(result.calls, result.violations)
                hosted.count(request.network)
            with hosted.memory.answering(sum(map(raw_size, result.outputs.values()))):
                return _encode_result(result, executor.program)

    def GetNetworkError(
        self, request: pb.GetNetworkErrorRequest, context: object
    ) -> pb.GetNetworkErrorResponse:
        """Return the first error of a network, and clear it."""
        with self._hosted(request.session) as hosted:
            error = hosted.instances.get_error(request.network, request.sequence)
            return pb.GetNetworkErrorResponse(error=messages.encode_error(error))

    def GetNetworkInfo(
        self, request: pb.GetNetworkInfoRequest, context: object
    ) -> pb.GetNetworkInfoResponse:
        """Describe a network."""
        with self._hosted(request.session) as hosted:
            network = hosted.instances.find(request.network)
            if network is None:
                return pb.GetNetworkInfoResponse(ok=False)
            return pb.GetNetworkInfoResponse(ok=True, report=messages.encode_report(network))

    def GetNodeInfo(
        self, request: pb.GetNodeInfoRequest, context: object
    ) -> pb.GetNodeInfoResponse:
        """Describe a node in the form that observers get."""
        with self._hosted(request.session) as hosted:
            network = hosted.instances.find(request.network)
            node = None if network is None else network.node_info(request.c_idx)
            if node is None:
                return pb.GetNodeInfoResponse(ok=False)
            return pb.GetNodeInfoResponse(ok=True, node=messages.encode_observed(node))

    def ObserveNetwork(
        self, request: pb.ObserveNetworkRequest, context: Context
    ) -> Generator[pb.ObserveNetworkResponse]:
        """Register an observer and send its events until the caller cancels."""
        with self._hosted(request.session) as hosted:
            network = hosted.instances.find(request.network)
            queue = EventQueue(_MAX_EVENTS, _MAX_EVENT_BYTES, block=request.block)
            observer = _observer(request, queue)
            ok = network is not None and network.register(observer)
            yield pb.ObserveNetworkResponse(registered=pb.Registered(ok=ok))
            if network is None or not ok:
                return
            try:
                for event in queue.read(_POLL_SECONDS):
                    if event is not None:
                        message = messages.encode_event(event, queue.dropped())
                        yield pb.ObserveNetworkResponse(event=message)
                    elif not context.is_active() or not hosted.instances.find(request.network):
                        return
            finally:
                queue.close()
                network.unregister(observer)

    def ListNetworks(
        self, request: pb.ListNetworksRequest, context: object
    ) -> pb.ListNetworksResponse:
        """List the networks of a session and the names of published models."""
        first = read_token(f"networks of {request.session}", request.page_token) + 1
        count = page_size(request.page_size)
        with self._hosted(request.session) as hosted:
            networks = list(hosted.instances.all().items())
            page = networks[first : first + count]
            last = first + len(page)
            token = f"networks of {request.session}"
            published = {model.name for model in self.repository.models()}
            return pb.ListNetworksResponse(
                networks=[_encode_network(hosted, handle, network) for handle, network in page],
                next_page_token=make_token(token, last - 1) if last < len(networks) else "",
                published=() if first else sorted(published),
            )

    def DestroyNetwork(
        self, request: pb.DestroyNetworkRequest, context: object
    ) -> pb.DestroyNetworkResponse:
        """Destroy a network."""
        with self._hosted(request.session) as hosted:
            error = hosted.destroy(request.network)
            self.store.return_memory()
            if not error:
                return pb.DestroyNetworkResponse()
            message = messages.encode_error(error)
            return pb.DestroyNetworkResponse(network=request.network, error=message)

    def MeasureAccuracy(
        self, request: pb.MeasureAccuracyRequest, context: Context
    ) -> pb.MeasureAccuracyResponse:
        """Compare a network with its model in FP32 over the same data."""
        with self._hosted(request.session) as hosted:
            network = hosted.find(request.network)
            plan = _with_model(request.network, network)
            with hosted.memory.running(context), refusing():
                return measure_accuracy(request, plan, network, hosted.memory)

    def ProbeNetwork(
        self, request: pb.ProbeNetworkRequest, context: Context
    ) -> pb.ProbeNetworkResponse:
        """Compile and run a model at edge sizes, over inputs without meaning."""
        with self._hosted(request.session) as hosted:
            plan = _with_model(request.network, hosted.find(request.network))
            with hosted.memory.running(context), refusing():
                return probe_network(request, plan)

    def ExportProgram(
        self, request: pb.ExportProgramRequest, context: Context
    ) -> Generator[pb.ExportProgramResponse]:
        """Return the compiled program of a network, in chunks."""
        with self.store.using(request.session) as session:
            hosted = hosted_by(session)
            network = hosted.find(request.network)
            shapes = messages.read_shapes(request.shapes, "shapes")
            with hosted.memory.running(context):
                try:
                    program = _program(network, shapes)
                except ModelRefused as refused:
                    raise refused_model(refused) from refused
                message = encode_program(program, contents=not request.without_contents)
                data = message.SerializeToString(deterministic=True)
            with session.staged(len(data)):
                yield pb.ExportProgramResponse(total_bytes=len(data))
                for start in range(0, len(data), _EXPORT_CHUNK):
                    yield pb.ExportProgramResponse(chunk=data[start : start + _EXPORT_CHUNK])


def _with_model(handle: str, network: Network) -> WorkerPlan:
    """Return the plan of a network that was compiled from ONNX; refuse any other network."""
    if not isinstance(network.plan, WorkerPlan):
        raise not_ready(handle, "it was made from a program, so that there is no reference")
    return network.plan


def _observer(request: pb.ObserveNetworkRequest, queue: EventQueue) -> Observer:
    """Return the observer for a stream of events; its cookie is the queue."""

    def take(event: Event) -> None:
        queue.offer(replace(event, time_ns=time.monotonic_ns()))

    flags = EventFlag(request.events & int(_ALL_EVENTS)) if request.events else _ALL_EVENTS
    nodes = frozenset(request.nodes) or None
    return Observer(take, flags, request.tensors, nodes, queue)


def _inside(network: Network) -> Sequence[Buffer] | None:
    """Return descriptors of the outputs if all lie in activations, else None for C's NULL."""
    if any(tensor.offset is None for tensor in network.outputs):
        return None
    return [tensor.describe() for tensor in network.outputs]


def _encode_network(hosted: Hosted, handle: str, network: Network) -> pb.Network:
    plan = network.plan
    return pb.Network(
        name=handle,
        c_name=network.provenance.c_name,
        state=pb.STATE_READY if network.ready else pb.STATE_CREATED,
        inputs=map(messages.encode_port, plan.inputs),
        outputs=map(messages.encode_port, plan.outputs),
        model_signature=plan.signature,
        stored_bytes=hosted.memory.kept(handle),
        create_time=timestamp(network.provenance.created),
        machine=network.executor.program.machine,
    )


def _program(network: Network, shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Return the program for these shapes, or for one batch without any; raise `ModelRefused`."""
    if shapes:
        return executor_of(network.plan, shapes).program
    network.require_sizes()
    return network.executor.program


def _known(plan: Plan, shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a plan's inputs; refuse unknown names."""
    names = {port.name for port in (*plan.inputs, *plan.optional)}
    for name in shapes:
        if name not in names:
            limit = f"one of {names_of(plan.inputs, plan.optional)}"
            raise invalid("inputs", repr(name[:64]), limit)
    return shapes


def _encode_result(result: Result, program: Program) -> pb.InferNetworkResponse:
    return pb.InferNetworkResponse(
        outputs=[messages.named(name, array) for name, array in result.outputs.items()],
        violations=messages.encode_violations(result.violations, program),
        nans=result.nans,
        calls=result.calls,
    )
