# SPDX-License-Identifier: Apache-2.0
"""Random lists of operations give the same bytes with and without the client's shortcuts.

One server runs each program once for every choice of shortcuts: all, none, and all but one. Half of
the programs come from the server's property test, unchanged; the other half calls verbs on arrays
that travel within messages, beside them and in chunks.
NNPA_PROPERTY_LISTS is the number of lists (100, and 500 where heavy tests run), NNPA_PROPERTY_SEED
the first program's number.
"""

import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from google.protobuf.message import Message
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_client import NnpaError, Session, TransportError, ZdnnError, Ztensor, zdnn
from nnpa_client._server.methods import READ_TENSOR, UPDATE_SESSION, WRITE_TENSOR, Upload
from nnpa_client._server.shortcuts import SHORTCUTS, with_shortcuts
from nnpa_client._server.transport import GrpcTransport
from nnpa_client.config import Endpoint

from tests.client.server_process import serving
from tests.server.accelerator.random_operands import Step
from tests.server.accelerator.random_programs import LISTS, program

CHOSEN = os.environ.get("NNPA_PROPERTY_LISTS")
COUNTS = [int(CHOSEN)] if CHOSEN else [100, pytest.param(500, marks=pytest.mark.heavy)]
SEED = int(os.environ.get("NNPA_PROPERTY_SEED", "1"))
LEFT_OUT: list[list[str]] = [[], *([name] for name in SHORTCUTS)]
FLAGS = ("--allow-faults", "--max-session-tensors", "300")
MESSAGE = ("--max-message", "512KiB")  # arrays above 128 KiB travel in chunks
SHAPES = ((2, 3), (65,), (1, 33, 5), (2, 1, 4, 3), (130, 130), (130, 130), (200, 300))
TYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
NUMBERS = (0.0, 0.5, -1.0, 1.0, 3.0, -60.0, 6e4)
UNARY = (zdnn.relu, zdnn.exp, zdnn.sqrt, zdnn.log, zdnn.sigmoid)
BINARY = (zdnn.add, zdnn.sub, zdnn.mul, zdnn.div, zdnn.max)
_ERROR = b"error: "
Outcome: TypeAlias = list[bytes]
"""What a list gave: its answers, its error, its warnings."""


def outcome_of(name: str, run: Callable[[], Iterable[bytes | memoryview]]) -> Outcome:
    """Run a list; return its outcome. The session's name, which is random, is blotted out."""
    outcome: Outcome = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome.extend(map(bytes, run()))
        except (NnpaError, TypeError, ValueError) as error:
            outcome += _facts(error)
    outcome += [str(warning.message).encode() for warning in caught]
    return [answer.replace(name.encode(), b"*") for answer in outcome]


def _facts(error: Exception) -> Iterator[bytes]:
    yield _ERROR + f"{type(error).__name__}: {error}".encode()
    if isinstance(error, TransportError):
        yield f"{error.code} {error.reason} {sorted(error.metadata.items())}".encode()
    if isinstance(error, ZdnnError):
        yield f"{int(error.status)} at {error.operation_index}".encode()
        yield from map(_bytes, filter(None, (error.refusal, error.violation, error.result)))


def _kind(outcome: Outcome) -> str:
    """Return the class of an outcome's error, OK without one."""
    errors = (answer for answer in outcome if answer.startswith(_ERROR))
    return next(errors, b"error: OK").decode().split(": ")[1]


def _bytes(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def run_program(session: Session, seed: int) -> Iterator[Outcome]:
    """Do the steps of a random program of wire messages; yield each step's outcome."""
    for step in program(seed).steps:
        yield outcome_of(session.name, partial(_step, session, step))


def _step(session: Session, step: Step) -> Iterator[bytes]:
    match step:
        case pb.ExecuteRequest():
            yield from map(_bytes, session.execute(step.operations))
        case pb.UpdateSessionRequest():
            request = pb.UpdateSessionRequest()
            request.CopyFrom(step)
            request.session.name = session.name
            session.transport.unary(UPDATE_SESSION, request)
        case _:
            upload = pb.WriteTensorRequest(header=step)
            upload.header.session = session.name
            uploads: list[Upload] = [upload]
            yield _bytes(session.transport.send_stream(WRITE_TENSOR, uploads))


@dataclass
class Verbs:
    """A program that calls verbs on arrays, in pipelines and alone."""

    session: Session
    random: Random
    tensors: list[Ztensor] = field(default_factory=list[Ztensor])

    def run(self) -> Iterator[Outcome]:
        """Run the lists; yield each list's outcome."""
        for _ in range(LISTS):
            yield outcome_of(self.session.name, self._list)

    def _list(self) -> Iterator[bytes | memoryview]:
        """Call a few verbs, mostly in a pipeline."""
        count = self.random.randint(1, 4)
        if self.random.random() < 0.4:
            for _ in range(count):
                yield from self._call()
            return
        with self.session.pipeline() as pipeline:
            answers = [answer for _ in range(count) for answer in self._call()]
        yield from answers
        yield from map(_bytes, pipeline.results)

    def _call(self) -> Sequence[bytes | memoryview]:
        """Call a verb; return the bytes that come back, which a pipeline may fill later."""
        random, chance = self.random, self.random.random()
        if not self.tensors or chance < 0.25:
            self.tensors.append(self.session.ztensor(self._array()))
        elif chance < 0.4:
            self.tensors.append(random.choice(UNARY)(random.choice(self.tensors)))
        elif chance < 0.6:
            verb, (a, b) = random.choice(BINARY), random.choices(self.tensors, k=2)
            self.tensors.append(verb(a, b))
        elif chance < 0.7:
            dropped = self.tensors.pop(random.randrange(len(self.tensors)))
            if random.random() < 0.5:
                zdnn.free_ztensor_buffer(dropped)
        else:
            return self._transfer(random.choice(self.tensors))
        return ()

    def _transfer(self, ztensor: Ztensor) -> Sequence[bytes | memoryview]:
        """Move a ztensor's contents."""
        chance = self.random.random()
        if chance < 0.3:
            return (ztensor.numpy().tobytes(),)
        if chance < 0.6:
            array = np.zeros(self.random.choice(SHAPES), np.float32)
            zdnn.transform_origtensor(ztensor, array)
            return (array.data.cast("B"),)
        if chance < 0.7:
            sticks = ztensor.read_sticks()
            self.tensors.append(self.session.put_ztensor(ztensor.structure, sticks.tobytes()))
            return (sticks.tobytes(),)
        if chance < 0.8:
            ztensor.write_sticks(self.random.randbytes(8) * (ztensor.buffer_size // 8))
        elif chance < 0.9:
            zdnn.reset_ztensor(ztensor)
        else:
            zdnn.transform_ztensor(ztensor, self._array())
        return ()

    def _array(self) -> npt.NDArray[np.generic]:
        few = [self.random.choice(NUMBERS) for _ in range(self.random.randint(1, 24))]
        return np.resize(np.array(few), self.random.choice(SHAPES)).astype(
            self.random.choice(TYPES)
        )


def contents(session: Session, verbs: Verbs | None) -> Iterator[bytes]:
    """Yield the session's tensors, or the tensors that verbs have kept, and the sticks of each."""
    for tensor in session.list_tensors():
        if verbs is not None and tensor.id not in [ztensor.id for ztensor in verbs.tensors]:
            continue  # freed at some time after its object is collected
        yield _bytes(tensor)
        request = pb.ReadTensorRequest(session=session.name, sticks=pb.ReadSticks(id=tensor.id))
        for part in session.transport.receive_stream(READ_TENSOR, request):
            yield bytes(part) if isinstance(part, memoryview) else _bytes(part)


def run(target: str, plain: bool | list[str], seed: int) -> list[Outcome]:
    """Run a program in a session of its own; return its lists' outcomes, then its tensors."""
    transport = with_shortcuts(GrpcTransport(Endpoint(target)), plain)
    options = pb.Session(precheck=seed % 4 == 1) if seed % 2 else program(seed // 2).options
    with Session(transport, options) as session:
        verbs = Verbs(session, Random(seed)) if seed % 2 else None
        lists = run_program(session, seed // 2) if verbs is None else verbs.run()
        return [*lists, outcome_of(session.name, lambda: contents(session, verbs))]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Unix socket of a server that has every way to take operations."""
    socket = tmp_path_factory.mktemp("nnpa") / "nnpa.sock"
    with serving([f"unix:{socket}"], *FLAGS, *MESSAGE) as targets:
        yield targets[0]


@pytest.mark.shortcut
@pytest.mark.parametrize("count", COUNTS)
def test_the_clients_shortcuts_change_no_byte(target: str, count: int) -> None:
    """Answers, arrays, errors, warnings and tensors are the same for every choice of shortcuts."""
    met: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(SEED, SEED + -(-count // LISTS)):
        plain = run(target, True, seed)
        for outcome in plain:
            met[_kind(outcome)] += 1
        for left_out in LEFT_OUT:
            outcomes = run(target, left_out, seed)
            for index, (outcome, expected) in enumerate(zip(outcomes, plain, strict=True)):
                where = f"NNPA_PROPERTY_SEED={seed} NNPA_PROPERTY_LISTS=1: list {index}, {left_out}"
                assert outcome == expected, where
    print(f"seed {SEED}, {count:,} lists, {time.monotonic() - began:.1f} s: {dict(met)}")
    assert {"OK", ZdnnError.__name__, "ProgramCheck", "TransportError"} <= met.keys() or count < 500
