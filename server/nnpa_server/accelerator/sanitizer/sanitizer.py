# SPDX-License-Identifier: Apache-2.0
"""The sanitizer of a session: the history of each tensor, and reports of misuse.

The operations of a sanitized session run through `Sanitizer.watch`. Reports are attached to the
answer of the operation, or to the error that ends the call. They change no result.
Source of the reports: nnpa/zdnn/v1/sanitizer.proto.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, tensor_pb2
from nnpa.zdnn.v1 import sanitizer_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import Guest, Outcome, Status
from nnpa_emulator.diagnostics import Kind, Stream
from nnpa_emulator.status import ProgramCheck

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.operation_specs import OPERATION_SPECS, OperationSpec
from nnpa_server.accelerator.sanitizer import padding
from nnpa_server.accelerator.sanitizer.reports import (
    Finding,
    History,
    Report,
    Site,
    attach,
    read_site,
    report,
    shorten,
    site_of,
)
from nnpa_server.accelerator.seams import Tensors
from nnpa_server.errors import CallRefused, from_exception
from nnpa_server.sessions.store import Session

_MAX_REPORTS = 1000  # of a call; source: nnpa/zdnn/v1/sanitizer.proto
_MAX_REMEMBERED = 1 << 14  # tensors with a history; the same number of freed ones
_ALLOCATES = "allochelper_ztensor"
_REFUSE_TRANSFORMED = ("transform_ztensor", "transform_quantized", "reshape_ztensor")  # and so on


@dataclass(slots=True, eq=False)
class _CallInFlight:
    """The tensors of a running call: a site that uses each one, a writer if there is one."""

    users: dict[int, Site] = field(default_factory=dict[int, Site])
    written: set[int] = field(default_factory=set[int])

    def add(self, number: int, site: Site, writes: bool) -> None:
        """Note that an operation of the call uses a tensor."""
        if number not in self.users or (writes and number not in self.written):
            self.users[number] = site
        if writes:
            self.written.add(number)


class Sanitizer:
    """The histories of a session's tensors. All but calls in flight is used under its lock."""

    def __init__(self) -> None:
        self._histories: dict[int, History] = {}
        self._freed: OrderedDict[int, History] = OrderedDict()
        self._flights: list[_CallInFlight] = []
        self._lock = threading.Lock()
        self._left = _MAX_REPORTS

    def close(self) -> None:
        """Do nothing: the histories end with their session."""

    def watch(
        self, session: Session, step: Step, tensors: Tensors, run: Callable[[], Outcome]
    ) -> Outcome:
        """Run an operation, and add reports to its outcome or error."""
        use = site_of(step.spec.name, step.origin)
        reports = list(self._misused(step, tensors, use))
        inputs = _saved(session, step, tensors)
        try:
            outcome = run()
        except (ProgramCheck, CallRefused) as error:
            if not reports:
                raise
            refused = from_exception(error)
            attach(refused, reports)
            raise refused from error
        if outcome.valid and inputs is not None:
            reports += self._padding_read(session.guest, step, tensors, inputs, use)
        if outcome.status == Status.ZDNN_INVALID_STATE:
            reports += self._transformed_twice(step, tensors, use)
        self._remember(step, tensors, outcome, use)
        reports = reports[: self._left]
        self._left -= len(reports)
        if not reports:
            return outcome
        findings = (
            Finding(Stream.STDERR, Kind.SANITIZER, report.text, report) for report in reports
        )
        return replace(outcome, diagnostics=(*outcome.diagnostics, *findings))

    def _misused(self, step: Step, tensors: Tensors, use: Site) -> Generator[Report]:
        """Yield the findings that are visible before an operation runs."""
        spec = step.spec
        for name in spec.tensors:
            provenance = _provenance(step, name)
            history = self._history(step, name)
            number = step.ids.get(name, 0) or provenance.freed_id
            if history.free is not None and (_touches(spec, name) or spec.frees):
                yield report(pb.MISUSE_USE_AFTER_FREE, use, name, number, history, history.free)
            if provenance.HasField("concurrent"):
                concurrent = read_site(provenance.concurrent)
                yield report(pb.MISUSE_CONCURRENT_USE, use, name, number, history, concurrent)
            tensor = tensors[name]
            if name in spec.read and not history.written and tensor.buffer is not None:
                yield report(pb.MISUSE_NEVER_WRITTEN, use, name, number, history, None)

    def _padding_read(
        self, guest: Guest, step: Step, tensors: Tensors, inputs: padding.Inputs, use: Site
    ) -> Generator[Report]:
        """Yield a finding for each input on whose padding the results depend."""
        outputs = [output for output in step.spec.filled if padding.is_whole(tensors[output])]
        for name in inputs.find_significant(guest, step, tensors, outputs):
            history, number = self._history(step, name), step.ids.get(name, 0)
            yield report(pb.MISUSE_PADDING_READ, use, name, number, history, history.writing)

    def _transformed_twice(self, step: Step, tensors: Tensors, use: Site) -> Generator[Report]:
        """Yield a finding for each tensor that the library refused to transform a second time."""
        if not step.spec.name.startswith(_REFUSE_TRANSFORMED):
            return
        for name in step.spec.filled:
            history = self._history(step, name)
            if tensors[name].is_transformed:
                number, writer = step.ids.get(name, 0), history.writing
                yield report(pb.MISUSE_TRANSFORMED_TWICE, use, name, number, history, writer)

    def _history(self, step: Step, name: str) -> History:
        """Return the server's history of an operand, or else the client's."""
        number, provenance = step.ids.get(name, 0), _provenance(step, name)
        history = self._histories.get(number) or self._freed.get(provenance.freed_id) or History()
        allocation = read_site(provenance.allocation) if provenance.HasField("allocation") else None
        free = read_site(provenance.free) if provenance.HasField("free") else None
        return History(
            allocation or history.allocation,
            history.writing,
            free or history.free,
            history.written and not provenance.never_written,
        )

    def _remember(self, step: Step, tensors: Tensors, outcome: Outcome, use: Site) -> None:
        """Update the histories of an operation's tensors; fill the padding of written ones."""
        if not outcome.valid and outcome.status != Status.ZDNN_CONVERT_FAILURE:
            return
        if step.creates:
            self._begin(step.creates, History())
        for name in step.spec.filled:
            if name in step.new_ids:
                self._begin(step.new_ids[name], History(use))
            number = step.new_ids.get(name) or step.ids.get(name, 0)
            history = self._histories.get(number, History())
            if step.spec.name == _ALLOCATES:
                history.allocation, history.writing, history.written = use, None, False
                continue
            history.writing, history.written = use, True
            if padding.is_whole(tensors[name]):
                padding.pad(tensors[name])
        if step.spec.frees and outcome.valid:
            for number in step.ids.values():
                self._end(number, use)

    def _begin(self, number: int, history: History) -> None:
        self._freed.pop(number, None)
        if len(self._histories) < _MAX_REMEMBERED:
            self._histories[number] = history

    def _end(self, number: int, use: Site) -> None:
        history = self._histories.pop(number, None)
        if history is not None:
            history.free = use
            self._freed[number] = history
            while len(self._freed) > _MAX_REMEMBERED:
                self._freed.popitem(last=False)

    def received(self, target: accelerator_pb2.WriteSticks) -> None:
        """Note that WriteTensor created a tensor or wrote its sticks."""
        use = Site(operation="write_sticks", at=shorten(target.site))
        cached = target.new_ztensor.WhichOneof("contents") == "cached"
        if target.HasField("new_ztensor"):
            self._begin(target.id, History(use, written=False))
        if target.total_bytes or cached:
            history = self._histories.get(target.id, History())
            history.writing, history.written = use, True

    def explain(self, refused: CallRefused, operations: Sequence[operation_pb2.Operation]) -> None:
        """Add the history of a freed tensor that the last of the operations names."""
        if refused.reason != wire.ERROR_REASON_TENSOR_NOT_FOUND:
            return
        number, last = int(refused.metadata["tensor"]), operations[-1]
        history = self._freed.get(number)
        for operation in operations[:-1]:
            if operation.free_ztensor_buffer.ztensor.id == number:
                history = replace(self._histories.get(number, History()))
                history.free = site_of("free_ztensor_buffer", operation)
        if history is not None:
            name, operand = refused.metadata["field"].split(".")[1:3]
            use = site_of(name, last)
            gone = report(pb.MISUSE_USE_AFTER_FREE, use, operand, number, history, history.free)
            attach(refused, [gone])

    @contextmanager
    def in_flight(self, operations: Iterable[operation_pb2.Operation]) -> Generator[None]:
        """Register a call until it ends; mark tensors that other running calls use."""
        mine = _CallInFlight()
        with self._lock:
            for operation in operations:
                spec = OPERATION_SPECS.get(operation.WhichOneof("operation") or "")
                if spec is not None:
                    self._register(mine, operation, spec)
            self._flights.append(mine)
        try:
            yield
        finally:
            with self._lock:
                self._flights.remove(mine)
                self._left = _MAX_REPORTS

    def _register(
        self, mine: _CallInFlight, operation: operation_pb2.Operation, spec: OperationSpec
    ) -> None:
        for name in spec.tensors:
            ref = getattr(getattr(operation, spec.name), name)
            if ref.id:
                self._mark_concurrent(ref, name in spec.written)
                mine.add(ref.id, site_of(spec.name, operation), name in spec.written)

    def _mark_concurrent(self, ref: tensor_pb2.TensorRef, writes: bool) -> None:
        """Mark a reference whose tensor another running call uses."""
        for flight in self._flights:
            user = flight.users.get(ref.id)
            if user is not None and (writes or ref.id in flight.written):
                ref.provenance.concurrent.CopyFrom(user)


def _saved(session: Session, step: Step, tensors: Tensors) -> padding.Inputs | None:
    """Return copies of an operation's inputs; None without padding, or without room for them."""
    if not step.spec.compute:
        return None
    names = [name for name in step.spec.tensors if name in step.spec.read]
    read = {name: tensors[name] for name in names if padding.is_whole(tensors[name])}
    try:
        session.reserve(padding.copy_bytes(read.values()))
        return padding.save(read, session.guest.sequence)
    except (CallRefused, MemoryError):
        return None


def _touches(spec: OperationSpec, name: str) -> bool:
    """Return True if an operation reads or writes the present sticks of an operand."""
    return name in spec.read or (name in spec.filled and spec.name != _ALLOCATES)


def _provenance(step: Step, name: str) -> pb.Provenance:
    """Return the client's provenance of an operand."""
    if step.origin is None:
        return pb.Provenance()
    provenance: pb.Provenance = getattr(getattr(step.origin, step.spec.name), name).provenance
    return provenance
