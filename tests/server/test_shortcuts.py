# SPDX-License-Identifier: Apache-2.0
"""Random lists of operations are answered the same with every shortcut and without any."""

import random
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import tensor_pb2
from nnpa_server.accelerator import AcceleratorService
from nnpa_server.accelerator.handlers import codec_of
from nnpa_server.config import SHORTCUTS, Limits
from nnpa_server.errors import CallRefused
from nnpa_server.sessions.store import Store

from tests.client.in_process import Waiting
from tests.server.wire import New, Operation, desc, op, pre_desc

Reply: TypeAlias = pb.ExecuteResponse | tuple[str, dict[str, str]]
SHAPES = ((2, 3), (3, 2), (40, 64))
LARGE = (512, 64)  # 128 KiB as FP32: passes beside its message
BINARY = ("add", "sub", "mul", "max")
LISTS, LISTS_OF_A_SESSION = 2_000, 25
MANY_LISTS = 100_000


class Side:
    """A service with some shortcuts, and its present session."""

    def __init__(self, shortcuts: frozenset[str]) -> None:
        self.service = AcceleratorService(Store(Limits()), shortcuts=shortcuts)
        self.codec = codec_of(shortcuts)
        self.session = ""

    def begin(self, options: pb.Session) -> None:
        """Go on with a new session."""
        if self.session:
            self.service.DeleteSession(pb.DeleteSessionRequest(name=self.session), Waiting())
        request = pb.CreateSessionRequest(session=options)
        self.session = self.service.CreateSession(request, Waiting()).name

    def run(self, operations: list[Operation]) -> Reply:
        """Return the answer to a list as it travels, or the error."""
        request = pb.ExecuteRequest(session=self.session, operations=operations)
        try:
            parsed = self.codec.parse(request.SerializeToString())
            raw = self.codec.serialize(self.service.execute(parsed, Waiting()))
        except CallRefused as refused:
            return refused.name, refused.metadata
        return pb.ExecuteResponse.FromString(raw)


class Writer:
    """Writes lists that look like a program's, with what a program would do wrong."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.group = 0
        self.lists: list[list[Operation]] = []
        self.names = [number.to_bytes(16, "big") for number in range(1, 7)]

    def next(self) -> list[Operation]:
        """Return a list: one that came before, byte for byte or nearly, or a new one."""
        if self.lists and self.choose.random() < 0.7:
            return self.choose.choice(self.lists)
        count = self.choose.choice((1, 1, 1, 2, 3, 8))
        operations = [self.operation() for _ in range(count)]
        self.lists.append(operations)
        return operations

    def operation(self) -> Operation:
        """Return an operation, most often on tensors that fit each other."""
        self.group = self.choose.randrange(len(SHAPES))
        kind = self.choose.choice(("load", "binary", "binary", "relu", "read", "reset", "named"))
        match kind:
            case "load":
                return self.transform()
            case "binary":
                output = New(9) if self.rarely() else self.id()
                verb = self.choose.choice(BINARY)
                return op(verb, input_a=self.id(), input_b=self.id(), output=output)
            case "relu":
                clip = self.choose.choice((0.0, 1.5))
                return op("relu", input=self.id(), output=self.id(), clipping_value=clip)
            case "read":
                return op("transform_origtensor", ztensor=self.id())
            case "reset":
                return op("reset_ztensor", ztensor=self.id())
            case _:
                shape = SHAPES[self.group]
                sources = [self.ztensor(shape, cached=self.name()) for _ in range(2)]
                cached = self.ztensor(shape, cache_as=self.name())
                return op(self.choose.choice(BINARY), input_a=sources[0], input_b=sources[1],
                          output=cached)  # fmt: skip

    def transform(self) -> Operation:
        """Return a transform into a tensor of the session, or inline by name."""
        is_inline = self.choose.random() < 0.5
        shape = LARGE if is_inline and self.rarely() else SHAPES[self.group]
        scale = 8e9 if self.rarely() else 2.0  # the first leaves DLFLOAT16's range
        array = np.arange(shape[0] * shape[1], dtype=np.float32) * scale
        target: int | tensor_pb2.Ztensor = self.id()
        if is_inline:
            target = self.ztensor(shape, cache_as=self.name())
        return op("transform_ztensor", ztensor=target, data=[array.tobytes()])

    def rarely(self) -> bool:
        """Tell, one time in twenty, to do something unusual."""
        return self.choose.random() < 0.05

    def id(self) -> int:
        """Return the id of a tensor of the group, now and then of another, or of none."""
        if self.rarely():
            return self.choose.choice((1, 2, 3, 77))
        return self.group + 1 + self.choose.choice((0, len(SHAPES)))

    def name(self) -> bytes:
        """Return a name of contents of the group, now and then of another."""
        group = self.choose.randrange(len(SHAPES)) if self.rarely() else self.group
        return self.names[group + self.choose.choice((0, len(SHAPES)))]

    def ztensor(self, shape: tuple[int, int], **fields: bytes) -> tensor_pb2.Ztensor:
        """Return an inline tensor."""
        message = tensor_pb2.Ztensor(
            pre_transformed_desc=pre_desc(*shape, layout=1), transformed_desc=desc(1, 1, *shape)
        )
        message.is_transformed = "cached" in fields
        for name, contents in fields.items():
            setattr(message, name, contents)
        return message


def first_tensors(writer: Writer) -> Iterator[Operation]:
    """Yield what makes two tensors of each shape, and caches two contents of each."""
    for number in range(2 * len(SHAPES)):
        shape = SHAPES[number % len(SHAPES)]
        descs = {"pre_transformed_desc": pre_desc(*shape), "transformed_desc": desc(*shape)}
        ones = [np.ones(shape, np.float32).tobytes()]
        cached = writer.ztensor(shape, cache_as=writer.names[number])
        yield op("init_ztensor", ztensor=number + 1, **descs)
        yield op("allochelper_ztensor", ztensor=number + 1)
        yield op("transform_ztensor", ztensor=number + 1, data=ones)
        yield op("transform_ztensor", ztensor=cached, data=ones)


def compare(lists: int, seed: int) -> None:
    """Run so many lists on both sides."""
    choose = random.Random(seed)
    plain, quick = Side(frozenset()), Side(frozenset(SHORTCUTS))
    writer = Writer(choose)
    for number in range(lists):
        if number % LISTS_OF_A_SESSION == 0:
            options = pb.Session(precheck=choose.random() < 0.5)
            writer = Writer(choose)
            for side in (plain, quick):
                side.begin(options)
                side.run(list(first_tensors(writer)))
        operations = writer.next()
        expected, answer = plain.run(operations), quick.run(operations)
        assert answer == expected, (seed, number, operations)


def test_shortcuts_change_no_answer() -> None:
    """Two thousand lists in sessions of 25 have the same answers and errors on both sides."""
    compare(LISTS, seed=1)


@pytest.mark.heavy
def test_shortcuts_change_no_answer_of_many() -> None:
    """So do a hundred thousand, from a seed that a failure shows."""
    compare(MANY_LISTS, seed=random.SystemRandom().randrange(1 << 32))
