# SPDX-License-Identifier: Apache-2.0
"""Run whole programs in workers, if they have nodes that only the host can run."""

import json
import secrets
import weakref
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

import numpy as np
from nnpa_emulator import Guest
from nnpa_emulator.interruption import go_on
from nnpa_emulator.ztensor import getsize_ztensor
from nnpa_network.importing.lines import POINTS
from nnpa_network.importing.plan import ForeignExecutor
from nnpa_network.nodes import holds_subgraph
from nnpa_network.program import AcceleratorStep, Array, HostStep, Program, Step, fits, reads
from nnpa_network.running.arrays import check_feed
from nnpa_network.running.declared_steps import only_declared
from nnpa_network.running.executor import ProgramRunner
from nnpa_network.running.observed import NodeEvent, Observer
from nnpa_network.running.results import Result, StepFailed

from nnpa_server.network.compiling import DONE, REFUSED, encode_job
from nnpa_server.network.program_codec import NotProgram, encode, pack, read_type, unpack
from nnpa_server.network.result_codec import decode_result
from nnpa_server.network.running import FAILED, UNKNOWN
from nnpa_server.network.workers import BROKEN, MALFORMED, Workers, refusal_of
from nnpa_server.open_inference.reading import run_bytes
from nnpa_server.sandbox.frames import Message


class LoadProgram(Protocol):
    """A function that prepares a program for a guest; it raises `ModelRefused`, CallRefused."""

    def __call__(
        self, program: Program, guest: Guest, sources: Sequence[ProgramRunner] = ()
    ) -> ProgramRunner:
        """Return what runs it; `sources` run the programs from which it was derived."""
        ...


_MAX_TEXT = 1000
_PHASES = {"before", "after"}


def program_loader(
    workers: Workers, shortcuts: Collection[str], max_bytes: int, *, lazily: bool = False
) -> LoadProgram:
    """Return a function that prepares programs, to run here or in a worker.

    A program runs in a worker if values may be larger than declared, or if all values of a run are
    declared with more than `max_bytes`. If `lazily`, a worker gets the program when it first runs,
    except for nodes with subgraphs, which only a runner checks.
    """

    def load(
        program: Program, guest: Guest, sources: Sequence[ProgramRunner] = ()
    ) -> ProgramRunner:
        if only_declared(program) and run_bytes(program) <= max_bytes:
            here = [source for source in sources if isinstance(source, ForeignExecutor)]
            return ForeignExecutor(program, guest, shortcuts, here)
        there = [source for source in sources if isinstance(source, WorkerExecutor)]
        executor = WorkerExecutor(program, guest, shortcuts, workers, there)
        if not there and (not lazily or any(map(_has_subgraph, program.steps))):
            executor.load()
        return executor

    return load


class WorkerExecutor:
    """Runs a program in a worker: one job for a run, one job per event of an observed run."""

    def __init__(
        self,
        program: Program,
        guest: Guest,
        shortcuts: Collection[str],
        workers: Workers,
        sources: "Sequence[WorkerExecutor]" = (),
    ) -> None:
        self.program = program
        self._guest, self._shortcuts, self._workers = guest, shortcuts, workers
        self._key = secrets.token_hex(8)
        steps = [step for step in program.steps if isinstance(step, AcceleratorStep)]
        self._calls = Counter(step.verb for step in steps)
        self._facts: dict[str, object] = {"key": self._key}
        self._least_bytes = _largest_call(program)
        self._was_sent = len(sources) == POINTS  # the worker derives the program when it runs
        if self._was_sent:
            self._facts["sources"] = [source._key for source in sources]
            self._facts["shapes"] = {port.name: port.shape for port in program.inputs}
        weakref.finalize(self, workers.freed.append, self._key).atexit = False

    def run(self, inputs: Mapping[str, Array], observer: Observer | None = None) -> Result:
        """Run once over named inputs; raise `ModelRefused`, `StepFailed`, CallRefused.

        If the thread's check raises, the worker ends.
        """
        feeds = [check_feed(port.name, port.dtype, port.shape, inputs)
                 for port in self.program.inputs]  # fmt: skip
        self._workers.reserve(self._least_bytes)
        self._workers.note_run(self._calls, self._least_bytes)
        if observer is not None:
            with self._workers.runner.turn(go_on):
                return self._run_observed(feeds, observer)
        return self._result(self._ask_loaded("run", feeds))

    def _run_observed(self, feeds: Sequence[Array], observer: Observer) -> Result:
        self._ask_loaded("begin", feeds)
        while True:
            answer = self._ask("next")
            with self._checking():
                facts = json.loads(answer.text)
                is_event = "node" in facts
            if not is_event:
                return self._result(answer)
            with self._checking():
                node, phase = facts["node"], facts["phase"]
                if node not in range(len(self.program.nodes)) or phase not in _PHASES:
                    raise NotProgram("an event of no node")
            observer(NodeEvent(node, phase, self._read))

    def _read(self, name: str) -> Array | None:
        """Return a named value of the observed run, or None."""
        answer = self._ask("read", name=name)
        with self._checking():
            arrays = unpack(answer.arrays, json.loads(answer.text)["texts"])
            for array in arrays[:1]:
                read_type(array.dtype.name, "value")
                places = self.program.places.get(name, ())
                if not any(fits(array.shape, place.shape) for place in places):
                    raise NotProgram(f"a value of shape {array.shape}")
                return array
            return None

    def _result(self, answer: Message) -> Result:
        with self._checking():
            return decode_result(json.loads(answer.text), answer.arrays, self.program, self._calls)

    def _freed(self) -> list[str]:
        """Return the keys of programs that nobody uses any more, for the worker to forget."""
        keys = list[str]()
        with suppress(IndexError):  # the last one, which another thread may have taken
            while True:
                keys.append(self._workers.freed.popleft())
        return keys

    def load(self) -> None:
        """Send the program to the worker; raise `ModelRefused`, CallRefused."""
        self._was_sent = True
        message, arrays = encode(self.program)
        shortcuts = sorted(self._shortcuts)
        job = encode_job(
            "load", key=self._key, guest=self._guest, shortcuts=shortcuts, freed=self._freed()
        )
        program = np.frombuffer(message, np.uint8)
        self._workers.load(Message(job, (program, *arrays)))

    def _ask_loaded(self, verb: str, feeds: Sequence[Array]) -> Message:
        """Run a job of the program; load the program first if the worker is a new one."""
        if not self._was_sent:
            self.load()
        arrays, texts = pack(feeds)
        text = encode_job(verb, **self._facts, texts=texts, freed=self._freed())
        job = Message(text, arrays)
        kind, answer = self._workers.run(job)
        if kind == UNKNOWN:
            self.load()
            kind, answer = self._workers.run(job)
        return self._require_done(kind, answer)

    def _ask(self, verb: str, **facts: object) -> Message:
        job = Message(encode_job(verb, key=self._key, **facts))
        return self._require_done(*self._workers.run(job))

    def _require_done(self, kind: bytes, answer: Message) -> Message:
        """Return an answer that is done; raise the refusal or failure that it carries."""
        if kind == DONE:
            return answer
        if kind == REFUSED:
            raise refusal_of(answer.text)
        with self._checking():
            if kind != FAILED:
                raise NotProgram("no answer of a known kind")
            node, verb, status, reason = json.loads(answer.text)
            failed = StepFailed(
                str(node)[:_MAX_TEXT], str(verb)[:_MAX_TEXT], int(status), str(reason)[:_MAX_TEXT]
            )
        raise failed

    @contextmanager
    def _checking(self) -> Generator[None]:
        """End the worker and raise `StepFailed` if its answer is not valid."""
        try:
            yield
        except MALFORMED as error:
            self._workers.end_broken(error)
            raise StepFailed("", "host", 0, BROKEN) from error


def _has_subgraph(step: Step) -> bool:
    return isinstance(step, HostStep) and holds_subgraph(step.onnx)


def _largest_call(program: Program) -> int:
    """Return the most bytes of sticks that a single call uses: a run takes no less."""
    sizes = {
        number: getsize_ztensor(info.transformed_desc)
        for number, info in program.tensors.items()
        if number not in program.constants
    }
    steps = (step for step in program.steps if isinstance(step, AcceleratorStep))
    return max(
        (sum(sizes.get(number, 0) for number in {*reads(step)}) for step in steps), default=0
    )
