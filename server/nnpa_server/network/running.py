# SPDX-License-Identifier: Apache-2.0
"""What runs programs in a worker: the other program of `nnpa_server.sandbox` that knows ONNX.

    load     takes a program, which its key names from then on, until drop
    run      runs a program once
    begin    begins a run that is observed; next goes on to an event, read reads a value there
    measure  compares a model with FP32; probe runs it over edge sizes
    batch    measures rows of a dataset, or writes the report of what was measured

A job is a line of JSON, which the server wrote, with arrays. An answer begins with a byte that says
what it is; then comes JSON.
"""

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypedDict

from nnpa_emulator import widened
from nnpa_emulator.kernels import use_reference
from nnpa_emulator.kernels.jit import compile_no_more
from nnpa_emulator.machine import Memory, page_memory
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.importing.plan import requiring_fit
from nnpa_network.program import Array, ModelRefused
from nnpa_network.reporting.accuracy import as_json, measure
from nnpa_network.reporting.accuracy_page import as_html, page_template
from nnpa_network.reporting.accuracy_text import as_text
from nnpa_network.reporting.probe import probe
from nnpa_network.running.executor import Executor
from nnpa_network.running.host import draw_from
from nnpa_network.running.observed import NodeEvent
from nnpa_network.running.results import Result, StepFailed

from nnpa_server.network.compiling import (
    DONE,
    REFUSED,
    GuestFacts,
    Options,
    load_late_files,
    make_guest,
    refusal_facts,
)
from nnpa_server.network.program_codec import Decoder, pack, unpack
from nnpa_server.network.programs import refusing_misfits
from nnpa_server.network.reports import BatchFacts, Reports, split_arrays
from nnpa_server.network.result_codec import encode_result
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.worker import Handler
from nnpa_server.tuning import kernel_cache, warmup
from nnpa_server.tuning.process import give_back

FAILED, UNKNOWN = b"\x02", b"\x03"
_MAX_PROGRAMS = 256


class ProgramJob(TypedDict):
    """A program as `load` takes it; the arrays are its message, then `program_codec.encode`'s."""

    verb: str
    key: str
    guest: GuestFacts
    shortcuts: list[str]


class RunJob(TypedDict):
    """A run, or a step of an observed one; `texts` are shapes of inputs of text by place."""

    verb: str
    key: str
    texts: dict[str, list[int]]
    name: str


class ReportJob(TypedDict):
    """A report on a model, which is the first array; so many samples of `inputs` follow."""

    verb: str
    machines: list[str]
    options: Options
    inputs: list[str]
    samples: int
    texts: dict[str, list[int]]
    sizes: list[int]
    html: bool


class BatchJob(TypedDict):
    """A batch of a dataset: the model, arrays of `inputs`, labels, and earlier measurements."""

    verb: str
    options: Options
    inputs: list[str]
    texts: dict[str, list[int]]
    labels: bool
    facts: BatchFacts


@dataclass(slots=True)
class _ObservedRun:
    """A run that waits at an event."""

    events: Generator[NodeEvent, None, Result]
    event: NodeEvent | None = None


class Runner:
    """Runs programs, and keeps those that ran last; `allocate` provides storage for sticks."""

    def __init__(self, allocate: Callable[[int], Memory | None] = page_memory) -> None:
        self._allocate = allocate
        self._executors: OrderedDict[str, Executor] = OrderedDict()
        self._observed: dict[str, _ObservedRun] = {}
        self._reports = Reports()

    def __call__(self, message: Message) -> Message:
        """Return what was asked for, or why it is refused or failed."""
        job = json.loads(message.text)
        try:
            match job["verb"]:
                case "load":
                    return self._load(job, message.arrays)
                case "drop":
                    self._executors.pop(job["key"], None)
                    self._observed.pop(job["key"], None)
                    give_back()
                    return Message(DONE)
                case "measure":
                    return self._measure(job, message.arrays)
                case "probe":
                    return self._probe(job, message.arrays)
                case "batch":
                    return self._batch(job, message.arrays)
                case _:
                    with requiring_fit():
                        return self._run(job, message.arrays)
        except ModelRefused as refused:
            return Message(REFUSED + refusal_facts(refused))
        except StepFailed as failed:
            facts = (failed.node, failed.verb, int(failed.status), failed.reason)
            return Message(FAILED + json.dumps(facts).encode())

    def _batch(self, job: BatchJob, arrays: Sequence[Array]) -> Message:
        model, *contents = arrays
        values = unpack(contents, job["texts"])
        rows, labels, earlier = split_arrays(values, job["inputs"], with_labels=job["labels"])
        options = ImportOptions(**job["options"])
        data = model.tobytes()
        parts = self._reports.answer(
            job["facts"], data, options, rows, labels, earlier, self._allocate
        )
        return Message(DONE + json.dumps(parts).encode())

    def _measure(self, job: ReportJob, arrays: Sequence[Array]) -> Message:
        model, *contents = arrays
        values, names = unpack(contents, job["texts"]), job["inputs"]
        samples: list[Mapping[str, Array]] = [
            dict(zip(names, values[number * len(names) :], strict=False))
            for number in range(job["samples"])
        ]
        options = ImportOptions(**job["options"])
        report = measure(model.tobytes(), samples, job["machines"], options, self._allocate)
        pages = [as_json(report), as_text(report), as_html(report) if job["html"] else ""]
        return Message(DONE + json.dumps(pages).encode())

    def _probe(self, job: ReportJob, arrays: Sequence[Array]) -> Message:
        options, data = ImportOptions(**job["options"]), arrays[0].tobytes()
        rows = probe(data, job["machines"], job["sizes"], options, self._allocate)
        return Message(DONE + json.dumps([asdict(row) for row in rows]).encode())

    def _load(self, job: ProgramJob, arrays: Sequence[Array]) -> Message:
        guest = make_guest(job["guest"], self._allocate)
        message, *contents = arrays
        program = Decoder(borrowed=True).decode(message.tobytes(), contents, guest)
        self._observed.clear()
        with refusing_misfits():
            self._executors[job["key"]] = Executor(program, guest, job["shortcuts"])
        while len(self._executors) > _MAX_PROGRAMS:
            self._executors.popitem(last=False)
        return Message(DONE)

    def _run(self, job: RunJob, arrays: Sequence[Array]) -> Message:
        key = job["key"]
        executor = self._executors.get(key)
        if executor is None:
            return Message(UNKNOWN)
        self._executors.move_to_end(key)
        match job["verb"]:
            case "run":
                return _encoded(executor.run(_feeds(executor, job, arrays)))
            case "begin":
                copied = [array.copy() for array in arrays]
                self._observed.clear()
                self._observed[key] = _ObservedRun(
                    executor.run_by_node(_feeds(executor, job, copied))
                )
                return Message(DONE)
            case verb:
                run = self._observed.get(key)
                if run is None:
                    return Message(UNKNOWN)
                return self._next(key, run) if verb == "next" else _read(run, job["name"])

    def _next(self, key: str, run: _ObservedRun) -> Message:
        """Go on to the next event; the result is the answer to the last question."""
        try:
            run.event = next(run.events)
        except StopIteration as ended:
            del self._observed[key]
            return _encoded(ended.value)
        facts = {"node": run.event.node, "phase": run.event.phase}
        return Message(DONE + json.dumps(facts).encode())


def _feeds(executor: Executor, job: RunJob, arrays: Sequence[Array]) -> dict[str, Array]:
    names = [port.name for port in executor.program.inputs]
    return dict(zip(names, unpack(arrays, job["texts"]), strict=True))


def _encoded(result: Result) -> Message:
    facts, arrays = encode_result(result)
    return Message(DONE + json.dumps(facts).encode(), arrays)


def _read(run: _ObservedRun, name: str) -> Message:
    array = None if run.event is None else run.event.read(name)
    arrays, texts = pack(() if array is None else (array,))
    return Message(DONE + json.dumps({"texts": texts}).encode(), arrays)


def start(shortcuts: str) -> Handler:
    """Return what answers jobs, with these shortcuts of the server's, separated by commas.

    Kernels are taken from the cache now: later no file can be opened. Workers that are forked from
    this process draw random numbers of their own: older ONNX Runtimes (1.20) take a seed when they
    are loaded.
    """
    os.register_at_fork(after_in_child=lambda: draw_from(int.from_bytes(os.urandom(4))))
    names = shortcuts.split(",")
    if "widened-operands" not in names:
        widened.disable()
    if "compiled-kernels" in names:
        kernel_cache.leave_out_scipy()
        kernel_cache.key_by_sources()
        kernel_cache.only_read()
        warmup.load_kernels()
        compile_no_more()
    else:
        use_reference()
    load_late_files()
    page_template()
    return Runner()
