# SPDX-License-Identifier: Apache-2.0
"""Plans of models that workers compile; the server keeps the file and checked programs."""

import json
import math
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, replace
from threading import Lock

import numpy as np
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import Guest
from nnpa_emulator.interruption import go_on
from nnpa_emulator.machine import MACHINES
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.importing.plan import Weight, signature_of
from nnpa_network.importing.pool import Pool
from nnpa_network.importing.shapes import Concrete, concrete_shapes
from nnpa_network.program import Array, ModelRefused, Program
from nnpa_network.running.executor import ProgramRunner

from nnpa_server.errors import CallRefused
from nnpa_server.network.compiling import encode_job
from nnpa_server.network.messages import read_shape
from nnpa_server.network.pools import Pools
from nnpa_server.network.program_codec import Decoder, NotProgram, decode_facts, pack, read_type
from nnpa_server.network.programs import refusing_misfits
from nnpa_server.network.worker_executor import program_loader
from nnpa_server.network.workers import BROKEN, MALFORMED, Workers, make_workers
from nnpa_server.open_inference.sources import Options
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.jobs import taking_turn
from nnpa_server.tuning.process import give_back


class WorkerPlan:
    """The `Plan` of a model that a worker compiles for a guest's machine."""

    def __init__(self, data: bytes, guest: Guest, options: ImportOptions, workers: Workers) -> None:
        self.data, self.guest, self.options = data, guest, options
        self.signature = self.digest = signature_of(data)  # of the first and the present weights
        self._workers = workers
        self._decoder = Decoder()
        self._pool: Pool[ProgramRunner] = Pool(guest, options)
        self._lock, self._turn = Lock(), Lock()
        self._weights: tuple[Weight, ...] | None = None
        answer = self._ask("facts")
        with self._checking():
            facts = decode_facts(answer.text)
        self.name, self.outputs = facts.name, facts.outputs
        self.inputs, self.optional = facts.inputs, facts.optional

    @property
    def nbytes(self) -> int:
        """Bytes held by the plan: the file, the initializers as arrays, constants of programs."""
        return 2 * len(self.data) + self._decoder.nbytes

    def weights(self) -> tuple[Weight, ...]:
        """Return the initializers in graph order."""
        if self._weights is not None:
            return self._weights
        answer = self._ask("weights")
        with self._checking():
            contents = iter(answer.arrays)
            weights = tuple(_weight(row, self.data, contents) for row in json.loads(answer.text))
            if next(contents, None) is not None:
                raise NotProgram("contents of no weight")
        self._weights = weights
        return weights

    def with_weights(self, parts: Sequence[bytes]) -> "WorkerPlan":
        """Return the model with other initializers of the same sizes and the same signature."""
        contents = tuple(np.frombuffer(part, np.uint8) for part in parts)
        answer = self._ask("with_weights", contents)
        with self._checking():
            (data,) = answer.arrays
        plan = WorkerPlan(data.tobytes(), self.guest, self.options, self._workers)
        plan.signature = self.signature
        return plan

    def lent(self, guest: Guest, workers: Workers) -> "WorkerPlan":
        """Return the plan with the storage of another guest and the workers of its owner."""
        plan = copy(self)
        plan.guest = replace(self.guest, allocate=guest.allocate, reserve=guest.reserve)
        plan._workers = workers
        plan._pool = Pool(plan.guest, plan.options)
        plan._lock, plan._turn = Lock(), Lock()
        plan._decoder = Decoder(self._decoder.constants)
        return plan

    @property
    def dropped(self) -> int:
        """How many programs were dropped for others."""
        return self._pool.dropped

    def retire(self) -> None:
        """End the workers as soon as they are idle."""
        self._workers.retire()

    def executor(self, shapes: Mapping[str, tuple[int, ...]]) -> ProgramRunner:
        """Return the executor for inputs of these shapes; raise `ModelRefused`, CallRefused."""
        concrete = concrete_shapes(self.inputs, self.optional, shapes)
        executor = self._compiled(concrete)
        if executor is None:
            with taking_turn(self._turn, go_on):  # runs of shapes that were compiled do not wait
                executor = self._compiled(concrete) or self._make(concrete)
        return executor

    def _compiled(self, concrete: Concrete) -> ProgramRunner | None:
        """Return the executor for these shapes if they were compiled, else None."""
        with self._lock:
            return self._pool.find(concrete)

    def _make(self, concrete: Concrete) -> ProgramRunner:
        """Return a new executor, and keep it; its program is derived from others, or compiled."""
        derived = self._pool.derive(concrete)
        program, sources = derived or (self._compile(concrete), ())
        options, is_guessed = self.options, any(-1 in port.shape for port in self.inputs)
        load = program_loader(
            self._workers, options.shortcuts, options.max_bytes, lazily=is_guessed
        )
        with refusing_misfits():
            executor = load(program, self.guest, sources)
        with self._lock:
            self._decoder.hold(program)
            if self._pool.keep(concrete, executor, lowered=derived is None):
                self._decoder.keep_only(self._pool.programs())
        return executor

    def _compile(self, concrete: Concrete) -> Program:
        """Return the program that a worker makes; raise `ModelRefused`, CallRefused."""
        shapes = dict(concrete)
        answer = self._ask("program", (), shapes)
        with self._checking():
            program = self._decoder.decode(answer.text, answer.arrays, self.guest)
            _require_ends(program, [*shapes], [port.name for port in self.outputs])
        del answer
        give_back()  # constants that came in it are the guest's now
        return program

    def _ask(
        self,
        verb: str,
        arrays: tuple[Array, ...] = (),
        shapes: dict[str, tuple[int, ...]] | None = None,
    ) -> Message:
        facts = {"guest": self.guest, "options": self.options, "digest": self.digest}
        text = encode_job(verb, **facts, shapes=shapes or {})
        job = Message(text, (np.frombuffer(self.data, np.uint8), *arrays))
        return self._workers.compile(job, self.options.max_bytes)

    def report(self, verb: str, arrays: Sequence[Array] = (), **facts: object) -> Sequence[object]:
        """Return the parts of a report on the model; raise `ModelRefused`, CallRefused."""
        contents, texts = pack(arrays)
        text = encode_job(verb, options=self.options, texts=texts, **facts)
        model = np.frombuffer(self.data, np.uint8)
        answer = self._workers.load(Message(text, (model, *contents)))
        with self._checking():
            parts = json.loads(answer.text)
            if not isinstance(parts, list):
                raise NotProgram("a report without parts")
            return parts

    @contextmanager
    def _checking(self) -> Generator[None]:
        """End the worker and raise `ModelRefused` if its answer is not valid."""
        try:
            yield
        except ModelRefused:
            raise
        except MALFORMED as error:
            reason = error.reason if isinstance(error, CallRefused) else None
            if reason == wire.ERROR_REASON_TENSOR_QUOTA_EXCEEDED:
                raise
            self._workers.end_broken(error)
            raise ModelRefused(BROKEN) from error


def _require_ends(program: Program, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Raise `NotProgram` if the names of inputs or outputs are not the model's."""
    for ports, expected in ((program.inputs, inputs), (program.outputs, outputs)):
        if [port.name for port in ports] != expected:
            raise NotProgram("inputs or outputs of another model")


def _weight(row: Sequence[object], file: bytes, contents: Iterator[Array]) -> Weight:
    """Return a weight, with data of the file or of `contents`; raise ValueError, CallRefused."""
    name, dtype, shape, place = row
    if not isinstance(name, str) or not isinstance(dtype, str) or not isinstance(shape, list):
        raise NotProgram("a weight without name, type and shape")
    if not isinstance(place, int):
        raise NotProgram("a weight without a place")
    dims = read_shape(shape, "weights")
    size = math.prod(dims) * read_type(dtype, "weights").itemsize
    if place < 0:
        array = next(contents, None)
        data = memoryview(b"") if array is None or array.dtype != np.uint8 else array.data
    else:
        data = memoryview(file)[place : place + size]
    if data.nbytes != size:
        raise NotProgram(f"a weight of {data.nbytes} bytes, not {size}")
    return Weight(name, dtype, dims, data)


def compile_published(
    pools: Pools | None, data: bytes, options: Options, limit: int, shortcuts: frozenset[str]
) -> WorkerPlan:
    """Return the plan of a model for publication; its workers end with it."""
    facts = asdict(options)
    machine = MACHINES[facts.pop("machine")]
    chosen = ImportOptions(**facts, max_bytes=limit, shortcuts=shortcuts)
    workers = make_workers(pools, room=lambda: limit)
    plan = WorkerPlan(data, Guest(machine), chosen, workers)
    weakref.finalize(plan, workers.retire).atexit = False
    return plan
