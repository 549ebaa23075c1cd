# SPDX-License-Identifier: Apache-2.0
"""A network and its life: create, init, run, get_error, get_info, destroy.

    ABSENT -> create -> CREATED -> init -> READY -> run -> READY -> destroy -> ABSENT

Every refusal has a type and a code; the first one stays in the network's slot until it is read.
Source: X-CUBE-AI 7.0 Embedded Inference Client API 1.1.0, ai_<name>_create to ai_<name>_get_info.
ST documents that calls fail, seldom with which pair; where it does not, the pairs below are our
reading, and they are normative here. So is that `run` answers -1, and 0 for an invalid handle.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import starmap

from nnpa_network.client_api.activations import Activations, place, working_bytes
from nnpa_network.client_api.batches import Batch, read_inputs, require_outputs, write_output
from nnpa_network.client_api.bhwc import IoTensor, io_tensor, quantisation
from nnpa_network.client_api.buffer_format import Buffer, Format, FormatFlag
from nnpa_network.client_api.creation import (
    Caller,
    NetworkParams,
    Options,
    Provenance,
    require_compatible,
)
from nnpa_network.client_api.errors import AiError, ErrorCode, ErrorLatch, ErrorType, NetworkRefused
from nnpa_network.client_api.observer import EventFlag, NodeInfo, Observer
from nnpa_network.client_api.one_batch import Uncompiled, one_batch
from nnpa_network.client_api.report import Report
from nnpa_network.client_api.watch import Watch, describe_nodes
from nnpa_network.client_api.weights import given_weights, layout
from nnpa_network.importing.plan import Plan
from nnpa_network.program import ModelRefused, Port
from nnpa_network.running.executor import ProgramRunner
from nnpa_network.running.results import StepFailed, Violation

_TYPE, _CODE = ErrorType, ErrorCode


@dataclass(frozen=True, slots=True)
class RunResult:
    """The answer of a run: batches processed, or -1; outputs with their data; warnings."""

    n_batches: int
    outputs: tuple[Buffer, ...] = ()
    violations: tuple[Violation, ...] = ()


FAILED = RunResult(-1)


class Network:
    """One instance of a model. Methods may be called from several threads."""

    def __init__(
        self, plan: Plan, provenance: Provenance, options: Options, caller: Caller
    ) -> None:
        require_compatible(caller, options)
        self.plan, self.provenance, self.options = plan, provenance, options
        self.ready = False
        self.runs = 0
        self._executor = one_batch(plan, options)
        self.weights = plan.weights()
        self.weights_size = layout(self.weights)[1]
        names = frozenset(weight.name for weight in self.weights)
        self.nodes = describe_nodes(self._executor.program, names)
        self.inputs, self.outputs = _io(plan, self._executor, options)
        self._slots, self.activations_size = self._place()
        self._activations: Activations | None = None
        self._error = ErrorLatch()
        self._busy = threading.Lock()
        self._observer: Observer | None = None

    def _place(self) -> tuple[int, int]:
        """Give inputs and outputs their places; return the bytes of these, and of everything."""
        end = 0
        if self.options.allocate_inputs:
            self.inputs, end = place(self.inputs, end)
        if self.options.allocate_outputs:
            self.outputs, end = place(self.outputs, end)
        return end, end + working_bytes(self._executor.program)

    @property
    def nbytes(self) -> int:
        """Bytes that it holds: its plan, and inputs and outputs in activations of its own."""
        return self.plan.nbytes + self._slots

    @property
    def executor(self) -> ProgramRunner:
        """The executor of one batch."""
        return self._executor

    def require_sizes(self) -> None:
        """Raise `ModelRefused` where free dims have no sizes, so that nothing runs one batch."""
        if isinstance(self._executor, Uncompiled):
            raise self._executor.refused

    def init(
        self,
        params: NetworkParams | None,
        signature: str = "",
        shared: Activations | None = None,
        within: AbstractContextManager[object] | None = None,
    ) -> bool:
        """Bind weights and activations: ai_<name>_init; `shared` instead of memory of its own.

        Every step runs, inside `within`; the first error stays, and the network is not ready.
        """
        steps: list[Callable[[], None]] = [lambda: self._check_signature(signature)]
        if params is None:
            steps.append(_no_params)
        else:
            steps.append(lambda: self._bind_weights(params.params))
            steps.append(lambda: self._bind_activations(params.activations, shared))
        with self._busy, within or nullcontext():
            self.ready = not [step for step in steps if not self._succeeds(step)]
        if self.ready and self._observer is not None:
            Watch(self._observer, self.nodes, 0, 0).init()
        return self.ready

    def _succeeds(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except NetworkRefused as refused:
            self._error.set(refused.error)
            return False
        return True

    def _check_signature(self, signature: str) -> None:
        if signature and signature != self.plan.signature:
            text = f"model_signature is {signature[:32]!r}, must be {self.plan.signature}"
            raise NetworkRefused(_TYPE.INVALID_SIGNATURE, _CODE.NETWORK, text)

    def _bind_weights(self, buffer: Buffer) -> None:
        """Replace the model's weights by the caller's, unless they are equal."""
        parts = given_weights(self.weights, buffer, self.options.split_weights)
        if parts is not None:
            self.plan = self.plan.with_weights(parts)
            self._executor = one_batch(self.plan, self.options)
            self.weights = self.plan.weights()

    def _bind_activations(self, buffer: Buffer, shared: Activations | None) -> None:
        size = buffer.channels if shared is None else len(shared.memory)
        kind, code = _TYPE.INIT_FAILED, _CODE.NETWORK_ACTIVATIONS
        if buffer.data is None and shared is None:
            raise NetworkRefused(kind, code, "activations.data is NULL")
        if size < self.activations_size:
            text = f"activations.channels is {size}, must be at least {self.activations_size}"
            raise NetworkRefused(kind, code, text)
        self._activations = Activations(self._slots) if shared is None else shared

    def run(
        self,
        inputs: Sequence[Buffer] | None,
        outputs: Sequence[Buffer] | None,
        within: AbstractContextManager[object] | None = None,
    ) -> RunResult:
        """Process the batches of the inputs: ai_<name>_run.

        `within` is entered after the checks of the call, and holds the resources of the run.
        """
        return self._run(inputs, outputs, False, within or nullcontext())

    def forward(
        self,
        inputs: Sequence[Buffer] | None,
        within: AbstractContextManager[object] | None = None,
    ) -> RunResult:
        """Process the batches of the inputs and drop the outputs: ai_<name>_forward."""
        return self._run(inputs, None, True, within or nullcontext())

    def _run(
        self,
        inputs: Sequence[Buffer] | None,
        outputs: Sequence[Buffer] | None,
        forward: bool,
        within: AbstractContextManager[object],
    ) -> RunResult:
        try:
            with ExitStack() as stack:
                self._claim(stack)
                memory = self._require_ready()
                self._require_compiled()
                batches = read_inputs(self.inputs, inputs, memory.memory)
                targets: Sequence[Buffer] = ()
                if not forward:
                    targets = require_outputs(self.outputs, outputs, len(batches))
                stack.enter_context(within)
                return self._process(batches, targets, memory)
        except NetworkRefused as refused:
            self._error.set(refused.error)
            return FAILED

    def _claim(self, stack: ExitStack) -> None:
        """Reserve the network, and activations that it shares, for this run."""
        self._take(stack, self._busy)
        if self._activations is not None:  # init may have changed them until the network was ours
            self._take(stack, self._activations.lock)

    def _take(self, stack: ExitStack, lock: threading.Lock) -> None:
        if not lock.acquire(blocking=not self.options.strict):
            raise NetworkRefused(_TYPE.INVALID_STATE, _CODE.IN_USE, "a run is under way")
        stack.callback(lock.release)

    def _require_ready(self) -> Activations:
        if not self.ready or self._activations is None:
            text = "init was not called, or failed"
            raise NetworkRefused(_TYPE.INVALID_STATE, _CODE.MISSED_INIT, text)
        return self._activations

    def _require_compiled(self) -> None:
        try:
            self.require_sizes()
        except ModelRefused as refused:
            raise NetworkRefused(_TYPE.INVALID_STATE, _CODE.NETWORK, str(refused)) from refused

    def _process(
        self, batches: Sequence[Batch], targets: Sequence[Buffer], memory: Activations
    ) -> RunResult:
        """Run batch by batch; `targets` is where outputs go, empty to drop them."""
        self.runs += 1
        contents: list[list[bytes]] = [[] for _ in targets]
        violations: list[Violation] = []
        for number, batch in enumerate(batches):
            feeds = {
                tensor.port.name: tensor.to_model(batch[tensor.port.name]) for tensor in self.inputs
            }
            try:
                result = self._executor.run(feeds, self._watch(number))
            except StepFailed as failed:
                raise NetworkRefused(_TYPE.INVALID_STATE, _CODE.LAYER, str(failed)) from failed
            violations += result.violations
            for tensor, parts in zip(self.outputs, contents, strict=False):
                parts.append(tensor.from_model(result.outputs[tensor.port.name]))
        written = tuple(
            write_output(tensor, buffer, parts, memory.memory)
            for tensor, buffer, parts in zip(self.outputs, targets, contents, strict=False)
        )
        return RunResult(len(batches), written, tuple(violations))

    def _watch(self, batch: int) -> Watch | None:
        """Return an observer for the executor, None without a registered one or a failing node."""
        failing = self.options.failing_node
        if self._observer is None and failing is None:
            return None
        return Watch(self._observer, self.nodes, self.runs, batch, failing)

    def get_error(self, sequence: int = 0) -> AiError:
        """Return the first error and clear the slot: ai_<name>_get_error; see `ErrorLatch`."""
        return self._error.take(sequence)

    def register(self, observer: Observer) -> bool:
        """Register the one observer: ai_platform_observer_register; False: see `get_error`."""
        if not observer.events & (EventFlag.INIT | EventFlag.PRE | EventFlag.POST):
            return self._fail(_TYPE.INVALID_PARAM, _CODE.NETWORK, "events is 0, must name any")
        if self._observer is not None:
            return self._fail(_TYPE.INVALID_STATE, _CODE.IN_USE, "an observer is registered")
        self._observer = observer
        return True

    def unregister(self, observer: Observer) -> bool:
        """Remove the observer, whose callback and cookie must be those that were registered."""
        mine = self._observer
        if mine is None or (mine.callback, mine.cookie) != (observer.callback, observer.cookie):
            return self._fail(_TYPE.INVALID_PARAM, _CODE.NETWORK, "that observer is not registered")
        self._observer = None
        return True

    def node_info(self, c_idx: int) -> NodeInfo | None:
        """Describe a node: ai_platform_observer_node_info; None: see `get_error`."""
        if not self.ready:
            self._fail(_TYPE.INVALID_STATE, _CODE.MISSED_INIT, "init was not called, or failed")
            return None
        if not 0 <= c_idx < len(self.nodes):
            text = f"c_idx is {c_idx}, must be below {len(self.nodes)}"
            self._fail(_TYPE.INVALID_PARAM, _CODE.OUT_OF_RANGE, text)
            return None
        return self.nodes[c_idx]

    def _fail(self, kind: ErrorType, code: ErrorCode, text: str) -> bool:
        self._error.set(AiError(kind, code, text))
        return False

    def get_info(self) -> Report:
        """Describe the network: ai_<name>_get_info; before init no buffer has an address."""
        address = b"" if self.ready else None
        origin = self.provenance
        return Report(
            model_name=origin.c_name,
            model_signature=self.plan.signature,
            model_datetime=origin.model_datetime,
            compile_datetime=origin.compile_datetime,
            runtime_revision=origin.revision,
            runtime_version=origin.version,
            tool_revision=origin.revision,
            n_macc_64=self._executor.program.macc,
            inputs=tuple(self._described(tensor) for tensor in self.inputs),
            outputs=tuple(self._described(tensor) for tensor in self.outputs),
            activations=Buffer(Format.U8, channels=self.activations_size, data=address),
            params=Buffer(Format.U8 | FormatFlag.CONST, channels=self.weights_size, data=address),
            n_nodes=len(self.nodes),
        )

    def _described(self, tensor: IoTensor) -> Buffer:
        inside = self.ready and tensor.offset is not None
        return tensor.describe(
            data=b"" if inside else None,
            offset=tensor.offset if inside else None,
            meta_info=tensor.meta_info,
        )

    def destroy(self) -> bool:
        """End the network's life; False when it runs and is strict: see `get_error`."""
        if not self._busy.acquire(blocking=not self.options.strict):
            return self._fail(_TYPE.DEALLOCATION_FAILED, _CODE.NETWORK, "a run is under way")
        self.ready = False
        self._observer = self._activations = None
        self._busy.release()
        return True


def _no_params() -> None:
    raise NetworkRefused(_TYPE.INIT_FAILED, _CODE.NETWORK_PARAMS, "params is NULL")


def _io(
    plan: Plan, executor: ProgramRunner, options: Options
) -> tuple[tuple[IoTensor, ...], tuple[IoTensor, ...]]:
    """Describe inputs and outputs of one batch; refuse formats that they cannot have."""
    program = executor.program
    formats = quantisation(plan, program.nodes)

    def tensor(port: Port, concrete: Port) -> IoTensor:
        word, meta = options.formats.get(port.name, (None, formats.get(port.name)))
        try:
            return io_tensor(port, tuple(max(dim, 1) for dim in concrete.shape), word, meta)
        except ValueError as error:
            raise NetworkRefused(_TYPE.INVALID_PARAM, _CODE.INVALID_FORMAT, str(error)) from error

    inputs = zip(plan.inputs, program.inputs, strict=True)
    outputs = zip(plan.outputs, program.outputs, strict=True)
    return tuple(starmap(tensor, inputs)), tuple(starmap(tensor, outputs))
