# SPDX-License-Identifier: Apache-2.0
"""Random calls, valid and not, on aliased and sliced buffers, against the emulator in process.

All ztensors of a sequence lie in one arena, at random pages, so their buffers overlap. The emulator
gets what the arena holds, its answer is written into a copy, and after the C call both are the same
byte for byte.
"""

import ctypes
import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as accelerator
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2 as tensors
from nnpa_client import TransportError
from nnpa_client._server.methods import CREATE_SESSION
from nnpa_client._server.transport import EXECUTE, Request
from nnpa_client.status import status_name
from nnpa_server.config import Limits
from nnpa_server.sessions.store import Store

from tests.client.in_process import InProcessTransport
from tests.libzdnn.binding import PAGE, CZtensor, Memory, Program, desc_of
from tests.libzdnn.scenes import MAKERS, Scene, Shape
from tests.libzdnn.toolchain import PLAIN, TRANSFERS, Prefix

ARENA_PAGES = 48
STEPS = 10
MANY = int(os.environ.get("NNPA_RANDOM_SEQUENCES", "300"))
"""Sequences of the heavy test; `.ci/full` asks for more."""
SHORTCUTS = ("stream", "plain-socket", "content-cache", "shared-memory")
PLAIN_NAMES = ("1",) if PLAIN else ("0", *SHORTCUTS, "1")
"""What sequences go without: ZDNN_PLAIN."""
SIZES = (1, 1, 2, 3, 33, 64, 65)
OTHERS = (
    *("reshape_ztensor", "getrange_ztensor", "transform_ztensor", "transform_origtensor"),
    *("transform_ztensor_with_saturation", "transform_quantized_ztensor"),
)
NAMES = (*MAKERS, *OTHERS)
LARGEST = 24  # pages of a ztensor
ERRORS = 0x0003FFFF  # statuses above are errors, below it warnings
FLOATS = (0.0, 0.5, 1.0, -1.0, 6.0, float("inf"))
WITHOUT_ANSWER = {"FIELD_INVALID": 0x00100005, "DATA_SIZE_MISMATCH": 0x00100005}
ELEMENT = {tensors.FP32: 4, tensors.FP16: 2, tensors.BFLOAT: 2, tensors.INT8: 1}


class Placed:
    """A ztensor whose buffer is a part of the arena."""

    def __init__(self, random: Random, arena: Memory, like: tensors.Ztensor | None = None) -> None:
        self.message = _described(random) if like is None else like
        tidy = like is not None and random.random() < 0.8
        desc = self.message.transformed_desc
        self._descs = (desc_of(self.message.pre_transformed_desc), desc_of(desc))
        self.size = _stick_bytes(desc)
        self.page = random.randrange(ARENA_PAGES - self.size // PAGE)
        self.shift = 128 if not tidy and random.random() < 0.06 else 0
        claimed = self.size - (PAGE if not tidy and random.random() < 0.1 else 0)
        self.structure = CZtensor(
            ctypes.pointer(self._descs[0]),
            ctypes.pointer(self._descs[1]),
            claimed,
            arena.address + self.page * PAGE + self.shift,
            random.random() < 0.5,
            b"",
            random.choice((1.0, 0.25) if tidy else (0.0, 1.0, 0.25)),
            random.choice((0.0, 3.0)),
            b"",
        )

    def as_message(self, held: bytes, read: bool) -> tensors.Ztensor:
        """Return the message that the emulator gets; `held` is the arena's contents."""
        message = tensors.Ztensor()
        message.CopyFrom(self.message)
        message.buffer_size = self.structure.buffer_size
        message.is_transformed = self.structure.is_transformed
        message.rec_scale, message.offset = self.structure.rec_scale, self.structure.offset
        if read:
            message.sticks = held[self.start : self.start + self.size]
        return message

    @property
    def start(self) -> int:
        """Where the buffer begins in the arena, bytes."""
        return self.page * PAGE + self.shift


def _described(random: Random) -> tensors.Ztensor:
    """Return descriptors that fit each other, mostly; sticks of at most 16 pages."""
    while True:
        dims = [random.choice(SIZES) for _ in range(4)]
        ztensor = tensors.Ztensor()
        pre, desc = ztensor.pre_transformed_desc, ztensor.transformed_desc
        pre.layout, desc.layout = tensors.ZDNN_NHWC, tensors.ZDNN_NHWC
        pre.type = random.choice((tensors.FP32, tensors.FP32, tensors.FP16, tensors.BFLOAT))
        desc.format, desc.type = tensors.ZDNN_FORMAT_4DFEATURE, tensors.ZDNN_DLFLOAT16
        for descriptor in (pre, desc):
            descriptor.dim4, descriptor.dim3, descriptor.dim2, descriptor.dim1 = dims
        if random.random() < 0.08:
            desc.type = random.choice((tensors.ZDNN_BINARY_INT8, tensors.ZDNN_BINARY_INT32))
        if random.random() < 0.05:
            pre.type = random.choice((tensors.INT8, tensors.ZDNN_DLFLOAT16))
        if random.random() < 0.05:
            desc.format = random.choice(
                (tensors.ZDNN_FORMAT_4DKERNEL, tensors.ZDNN_FORMAT_4DWEIGHTS)
            )
        if 0 < _stick_bytes(desc) <= 16 * PAGE:
            return ztensor


def _stick_bytes(desc: tensors.TensorDesc) -> int:
    cells = {tensors.ZDNN_BINARY_INT8: 128, tensors.ZDNN_BINARY_INT32: 32}.get(desc.type, 64)
    rows = desc.dim2
    if desc.format == tensors.ZDNN_FORMAT_4DWEIGHTS and desc.type == tensors.ZDNN_BINARY_INT8:
        cells, rows = 64, (rows + 1) // 2
    return desc.dim4 * desc.dim3 * -(-rows // 32) * -(-desc.dim1 // cells) * PAGE


def _scalar(random: Random, field: Any) -> Any:
    kind = field.cpp_type
    if kind == field.CPPTYPE_FLOAT:
        return random.choice(FLOATS)
    if kind == field.CPPTYPE_BOOL:
        return random.random() < 0.5
    if kind == field.CPPTYPE_INT32:
        return random.choice((-128, -5, 0, 5, 127))
    return random.choice((0, 0, 1, 1, 2, 3, 9))


class Sequence:
    """One program: an arena, ztensors in it, and the calls."""

    def __init__(
        self, random: Random, program: Program, oracle: "Oracle", met: Counter[tuple[str, int]]
    ) -> None:
        self.met = met
        self._random, self._program, self._oracle = random, program, oracle
        self._arena = Memory(ARENA_PAGES * PAGE + 128)
        self._arena.write(b"".join(_page(random) for _ in range(ARENA_PAGES)))
        self._placed = [Placed(random, self._arena) for _ in range(4)]

    def _choose(self, like: Placed | None) -> Placed:
        """Return a ztensor: mostly one of the shape given, else any."""
        if like is None or self._random.random() < 0.3:
            return self._random.choice(self._placed)
        return Placed(self._random, self._arena, like.message)

    def step(self) -> None:
        """Make one call, both ways, and compare."""
        name = self._random.choice(NAMES)
        operation, held = wire.Operation(), self._arena.read()
        arm = getattr(operation, name)
        arm.SetInParent()
        scene = self._scene(name) if name in MAKERS and self._random.random() < 0.8 else None
        chosen: dict[str, Placed] = {}
        spoiled = scene is None or self._random.random() < 0.25
        for field in arm.DESCRIPTOR.fields:
            if field.message_type is not None and field.message_type.name == "TensorRef":
                chosen[field.name] = self._operand(field.name, scene, chosen, spoiled)
            elif field.name != "data":
                self._set_scalar(arm, field, scene, spoiled)
        for operand, placed in chosen.items():
            read = not _is_written(name, operand)
            getattr(arm, operand).inline_ztensor.CopyFrom(placed.as_message(held, read))
        operation.buffer_misaligned = any(placed.shift for placed in chosen.values())
        data = self._data(name, arm, chosen)
        self._compare(operation, chosen, held, data)

    def _scene(self, name: str) -> Scene:
        """Return a call that fits together, and into the arena."""
        while True:
            scene = MAKERS[name](self._random)
            sizes = [_stick_bytes(shape.message().transformed_desc) for shape in _shapes(scene)]
            if max(sizes) <= LARGEST * PAGE:
                return scene

    def _operand(
        self, name: str, scene: Scene | None, chosen: dict[str, Placed], spoiled: bool
    ) -> Placed:
        if scene is None or (spoiled and self._random.random() < 0.3):
            return self._choose(next(iter(chosen.values()), None))
        return Placed(self._random, self._arena, scene.operands[name].message())

    def _set_scalar(self, arm: Any, field: Any, scene: Scene | None, spoiled: bool) -> None:
        if field.name == "clipping_value" and self._random.random() < 0.3:
            return
        if (
            scene is None
            or field.name not in scene.scalars
            or (spoiled and self._random.random() < 0.3)
        ):
            setattr(arm, field.name, _scalar(self._random, field))
        else:
            setattr(arm, field.name, scene.scalars[field.name])

    def _data(self, name: str, arm: Any, chosen: dict[str, Placed]) -> bytes:
        """Give a transform exactly the bytes that the descriptors require."""
        if not name.startswith("transform_") or name == "transform_origtensor":
            return b""
        message = chosen["ztensor"].message
        desc = message.transformed_desc
        width = ELEMENT.get(message.pre_transformed_desc.type, 0)
        data = self._random.randbytes(desc.dim4 * desc.dim3 * desc.dim2 * desc.dim1 * width)
        arm.data.append(data)
        return data

    def _compare(
        self, operation: wire.Operation, chosen: dict[str, Placed], held: bytes, data: bytes
    ) -> None:
        expected, after = self._oracle.answer(operation), bytearray(held)
        states = {operand: placed.structure.is_transformed for operand, placed in chosen.items()}
        if isinstance(expected, wire.OperationResult):
            for info in expected.outputs:
                placed = chosen[info.operand]
                if info.ztensor.WhichOneof("contents"):
                    after[placed.start : placed.start + placed.size] = info.ztensor.sticks
                for operand, candidate in chosen.items():
                    if candidate is placed:
                        states[operand] = info.ztensor.is_transformed
        got = self._program.call(operation, chosen)
        places = {operand: (placed.start, placed.size) for operand, placed in chosen.items()}
        where = f"{operation.WhichOneof('operation')} {len(data)} {places}"
        assert self._arena.read() == bytes(after), where
        for operand, state in states.items():
            assert chosen[operand].structure.is_transformed == state, f"{where} {operand}"
        if isinstance(expected, int):
            assert got.zdnn_status == expected, where
            return
        self.met[operation.WhichOneof("operation") or "", expected.zdnn_status] += 1
        assert got.zdnn_status == expected.zdnn_status, where
        if operation.WhichOneof("operation") != "getrange_ztensor":
            assert got.fp_flags == expected.fp_flags, where
        if expected.HasField("data"):
            assert got.data[: len(expected.data)] == expected.data, where


def _shapes(scene: Scene) -> Iterable[Shape]:
    return scene.operands.values()


def _page(random: Random) -> bytes:
    """Return a page of anything, of moderate numbers, or of moderate positive ones."""
    kind = random.randrange(4)
    if kind == 0:
        return random.randbytes(PAGE)
    signs = (0,) if kind == 1 else (0, 0x8000)
    cells = (random.randrange(0x3A00, 0x4200) | random.choice(signs) for _ in range(PAGE // 2))
    return struct.pack(f"<{PAGE // 2}H", *cells)


def _is_written(name: str, operand: str) -> bool:
    if name in ("transform_origtensor", "getrange_ztensor"):
        return False
    return operand.startswith("output") or operand in ("hn_output", "cf_output", "dest", "ztensor")


class Oracle:
    """The emulator in process, in a session with the program's options."""

    def __init__(self, store: Store, precheck: bool) -> None:
        self._transport = InProcessTransport(store)
        options = accelerator.Session(
            precheck=precheck, program_check_action=accelerator.PROGRAM_CHECK_ACTION_STATUS
        )
        request = accelerator.CreateSessionRequest(session=options)
        self._name = self._transport.unary(CREATE_SESSION, request).name

    def answer(self, operation: wire.Operation) -> wire.OperationResult | int:
        """Return the result, or a status where the emulator gives no result."""
        request = accelerator.ExecuteRequest(session=self._name, operations=[operation])
        try:
            return self._transport.unary(EXECUTE, Request(request)).whole()[0]
        except TransportError as error:
            return WITHOUT_ANSWER[error.reason]


@pytest.fixture(scope="module")
def oracles() -> Iterator[dict[bool, Oracle]]:
    """The emulator with precheck off and on."""
    store = Store(Limits())
    yield {precheck: Oracle(store, precheck) for precheck in (False, True)}
    store.close()


@pytest.fixture(scope="module")
def program(prefix: Prefix, server: str) -> Iterator[Program]:
    """A program that survives program checks: this process."""
    before = dict(os.environ)
    os.environ.update(ZDNN_SERVER=server, ZDNN_PROGRAM_CHECK="status", ZDNN_LOGLEVEL="off")
    yield Program(prefix)
    os.environ.clear()
    os.environ.update(before)


def _run(
    program: Program, oracles: dict[bool, Oracle], seed: int, met: Counter[tuple[str, int]]
) -> None:
    random, precheck = Random(seed), seed % 2 == 1
    transfer = TRANSFERS[seed // 2 % len(TRANSFERS)]
    plain = PLAIN_NAMES[seed // 2 // len(TRANSFERS) % len(PLAIN_NAMES)]
    options = {"ZDNN_ENABLE_PRECHECK": str(precheck).lower(), "ZDNN_TRANSFER": transfer}
    program.configure(**options, ZDNN_PLAIN=plain)
    sequence = Sequence(random, program, oracles[precheck], met)
    for _ in range(STEPS):
        sequence.step()


@pytest.mark.parametrize("seed", range(50))
def test_random_sequence(program: Program, oracles: dict[bool, Oracle], seed: int) -> None:
    """A sequence gives the same statuses, flags and bytes through C as in process."""
    _run(program, oracles, seed, Counter())


@pytest.mark.heavy
def test_many_random_sequences(program: Program, oracles: dict[bool, Oracle]) -> None:
    """Hundreds of sequences agree; each function is OK and meets two error statuses at least."""
    met: Counter[tuple[str, int]] = Counter()
    for seed in range(50, 50 + MANY):
        _run(program, oracles, seed, met)
    print()
    for name in NAMES:
        statuses = {status: count for (function, status), count in met.items() if function == name}
        tally = (f"{status_name(status)} {count}" for status, count in sorted(statuses.items()))
        print(f"{name}: {', '.join(tally)}")
        assert statuses.get(0), f"{name} is never OK"
        assert len([status for status in statuses if status > ERRORS]) >= 2, f"{name}: {statuses}"
