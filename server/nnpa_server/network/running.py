# SPDX-License-Identifier: Apache-2.0
"""The program of workers that run programs and measure models. Its jobs:

    load     keep a program under a key
    run      run a program once
    begin    begin an observed run; next continues to an event, read returns a value there
    measure  compare a model with FP32; probe runs it at edge sizes
    batch    measure rows of a dataset, or write the report of measurements

Each may name keys of programs to forget. An answer begins with a byte that names its kind. JSON
follows.
"""

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass

from nnpa_emulator import Guest, widened
from nnpa_emulator.machine import Memory, page_memory
from nnpa_network.importing.lines import Line, concrete_of
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.importing.plan import requiring_fit
from nnpa_network.importing.shapes import Concrete
from nnpa_network.program import Array, ModelRefused
from nnpa_network.reporting.accuracy_page import page_template
from nnpa_network.running.executor import Executor
from nnpa_network.running.host import draw_from
from nnpa_network.running.observed import NodeEvent
from nnpa_network.running.results import Result, StepFailed

from nnpa_server.network.compiling import (
    DONE,
    REFUSED,
    decode_job,
    load_kernels,
    load_late_files,
    refusal_facts,
)
from nnpa_server.network.program_codec import Decoder, pack, unpack
from nnpa_server.network.programs import refusing_misfits
from nnpa_server.network.reports import Reports
from nnpa_server.network.result_codec import encode_result
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.worker import Handler
from nnpa_server.tuning.process import give_back

FAILED, UNKNOWN = b"\x02", b"\x03"
_MAX_PROGRAMS = 256
_NO_TEXTS: Mapping[str, list[int]] = {}


@dataclass(slots=True)
class _ObservedRun:
    """An observed run that waits at an event."""

    events: Generator[NodeEvent, None, Result]
    event: NodeEvent | None = None


class Runner:
    """Answers jobs; keeps the last programs. `allocate` provides storage for sticks."""

    def __init__(self, allocate: Callable[[int], Memory | None] = page_memory) -> None:
        self._allocate = allocate
        self._executors: OrderedDict[str, Executor] = OrderedDict()
        self._lines: dict[tuple[str, ...], Line] = {}
        self._derived = set[str]()
        self._observed: dict[str, _ObservedRun] = {}
        reports = Reports(allocate)
        self._reports: Mapping[str, Callable[..., Sequence[object]]] = {
            "measure": reports.measure,
            "probe": reports.probe,
            "batch": reports.batch,
        }

    def __call__(self, message: Message) -> Message:
        """Return the answer to a job, or the reason of its refusal or failure."""
        verb, facts = decode_job(message.text)
        self._forget(facts.pop("freed", ()))
        try:
            match verb:
                case "load":
                    return self._load(message.arrays, **facts)
                case "measure" | "probe" | "batch":
                    return self._report(verb, message.arrays, **facts)
                case _:
                    with requiring_fit():
                        return self._run(verb, message.arrays, **facts)
        except ModelRefused as refused:
            return Message(REFUSED + refusal_facts(refused))
        except StepFailed as failed:
            reasons = (failed.node, failed.verb, int(failed.status), failed.reason)
            return Message(FAILED + json.dumps(reasons).encode())

    def _load(
        self, arrays: Sequence[Array], key: str, guest: Guest, shortcuts: Collection[str]
    ) -> Message:
        guest.allocate = self._allocate
        message, *contents = arrays
        program = Decoder(borrowed=True).decode(message.tobytes(), contents, guest)
        self._observed.clear()
        with refusing_misfits():
            self._keep(key, Executor(program, guest, shortcuts))
        return Message(DONE)

    def _derive(self, key: str, sources: tuple[str, ...], concrete: Concrete) -> None:
        """Keep the program for these shapes, derived from kept ones, if they lead to it."""
        executors = [self._executors[source] for source in sources if source in self._executors]
        if len(executors) < len(sources):
            return
        first = executors[0]
        if sources not in self._lines:
            points = [(concrete_of(each.program), each.program) for each in executors]
            self._lines[sources] = Line(points, first.guest, ImportOptions().max_bytes)
        program = self._lines[sources].program(concrete)
        if program is not None:
            self._derived.add(key)
            self._keep(key, Executor(program, first.guest, first.shortcuts, executors))

    def _keep(self, key: str, executor: Executor) -> None:
        self._executors[key] = executor
        while len(self._executors) > _MAX_PROGRAMS:
            self._executors.popitem(last=False)

    def _forget(self, keys: Sequence[str]) -> None:
        """Drop programs, and give memory back, unless the next program on a line needs it."""
        for key in keys:
            self._executors.pop(key, None)
            self._observed.pop(key, None)
        for sources in [each for each in self._lines if not set(keys).isdisjoint(each)]:
            del self._lines[sources]
        if not self._derived.issuperset(keys):
            give_back()
        self._derived.difference_update(keys)

    def _report(
        self,
        verb: str,
        arrays: Sequence[Array],
        options: ImportOptions,
        texts: Mapping[str, list[int]],
        **facts: object,
    ) -> Message:
        """Return the parts of a report on the model whose file is the first array."""
        model, *contents = arrays
        parts = self._reports[verb](model.tobytes(), options, unpack(contents, texts), **facts)
        return Message(DONE + json.dumps(parts).encode())

    def _run(
        self,
        verb: str,
        arrays: Sequence[Array],
        key: str,
        texts: Mapping[str, list[int]] = _NO_TEXTS,
        name: str = "",
        sources: Sequence[str] = (),
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Message:
        if key not in self._executors and sources:
            self._derive(key, tuple(sources), tuple((shapes or {}).items()))
        executor = self._executors.get(key)
        if executor is None:
            return Message(UNKNOWN)
        self._executors.move_to_end(key)
        names = [port.name for port in executor.program.inputs]
        if verb == "run":
            return _encoded(executor.run(dict(zip(names, unpack(arrays, texts), strict=True))))
        if verb == "begin":
            copied = unpack([array.copy() for array in arrays], texts)
            feeds = dict(zip(names, copied, strict=True))
            self._observed = {key: _ObservedRun(executor.run_by_node(feeds))}
            return Message(DONE)
        run = self._observed.get(key)
        if run is None:
            return Message(UNKNOWN)
        return self._next(key, run) if verb == "next" else _read(run, name)

    def _next(self, key: str, run: _ObservedRun) -> Message:
        """Continue a run to its next event; at its end, return the result."""
        try:
            run.event = next(run.events)
        except StopIteration as ended:
            del self._observed[key]
            return _encoded(ended.value)
        facts = {"node": run.event.node, "phase": run.event.phase}
        return Message(DONE + json.dumps(facts).encode())


def _encoded(result: Result) -> Message:
    facts, arrays = encode_result(result)
    return Message(DONE + json.dumps(facts).encode(), arrays)


def _read(run: _ObservedRun, name: str) -> Message:
    array = None if run.event is None else run.event.read(name)
    arrays, texts = pack(() if array is None else (array,))
    return Message(DONE + json.dumps({"texts": texts}).encode(), arrays)


def start(shortcuts: str) -> Handler:
    """Prepare the process, and return the handler of its jobs.

    `shortcuts` are names separated by commas. Workers that are forked from this process draw
    random numbers of their own: older ONNX Runtimes (1.20) take a seed when they are loaded.
    """
    os.register_at_fork(after_in_child=lambda: draw_from(int.from_bytes(os.urandom(4))))
    if "widened-operands" not in shortcuts.split(","):
        widened.disable()
    load_kernels(shortcuts)
    load_late_files()
    page_template()
    return Runner()
