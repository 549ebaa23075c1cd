# SPDX-License-Identifier: Apache-2.0
"""Random operands of random programs: by id, new, inline, cached, and wrong ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeAlias

import numpy as np
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2 as tensors

from tests.libzdnn.scenes import Shape
from tests.server.wire import STICK_PAGE as PAGE
from tests.server.wire import number as enum_number
from tests.strategies import EDGES

Step: TypeAlias = pb.ExecuteRequest | pb.UpdateSessionRequest | pb.WriteTensorHeader
"""A step of a program: a list, new options, or zeros written into a tensor."""
Style: TypeAlias = Literal["mixed", "ids", "cached"]
"""How the operands of a list travel: in every way, or as Python's lists, or as C programs' do."""

MISSING_ID = 999
TYPES_OF_ELEMENTS = (0, 1, 2, 3, 9)
BYTES_OF: Mapping[int, int] = {
    tensors.FP32: 4,
    tensors.INT32: 4,
    tensors.FP16: 2,
    tensors.BFLOAT: 2,
    tensors.INT8: 1,
}
CELLS: Mapping[int, int] = {tensors.ZDNN_BINARY_INT8: 128, tensors.ZDNN_BINARY_INT32: 32}
"""Cells of a stick, where they are not 64."""


@dataclass
class Operands:
    """The operands of one program; it remembers the tensors and contents that should exist.

    `steps` is the program so far, to which it adds lists that make tensors.
    """

    random: Random
    steps: list[Step]
    shapes: dict[int, Shape] = field(default_factory=dict[int, Shape])
    cached: dict[bytes, Shape] = field(default_factory=dict[bytes, Shape])
    last_id: int = 0

    def choose(
        self, ref: tensors.TensorRef, shape: Shape, written: bool, style: Style
    ) -> list[wire.Operation]:
        """Choose how an operand travels; return the operations that free it afterwards."""
        chance = self.random.random()
        if style == "cached":
            self._name_contents(ref.inline_ztensor, shape, written)
        elif style == "ids" or chance < 0.5:
            self.refer(ref, shape, written)
        elif written and chance < 0.75:
            ref.new_id = self._next_id()
            if self.random.random() < 0.8:
                return [freeing(ref.new_id)]
            self.shapes[ref.new_id] = shape
        else:
            self.inline(ref.inline_ztensor, shape, written)
        return []

    def refer(self, ref: tensors.TensorRef, shape: Shape, written: bool) -> None:
        """Refer to a tensor of this shape, which a list before this one makes if there is none."""
        alike = self._alike(shape)
        if alike and self.random.random() < 0.85:
            ref.id = self.random.choice(alike)
            return
        ref.id = self._next_id()
        self.shapes[ref.id] = shape
        ztensor = self._described(shape)
        if not written and not _takes_floats(shape):
            ztensor.is_transformed = True
            zeros = pb.WriteSticks(id=ref.id, new_ztensor=ztensor, total_bytes=0)
            self.steps.append(pb.WriteTensorHeader(sticks=zeros))
            return
        operations = [
            self._init(ref.id, ztensor),
            wire.Operation(allochelper_ztensor=wire.AllochelperZtensor(ztensor=by_id(ref.id))),
        ]
        if not written:
            transform = wire.TransformZtensor(ztensor=by_id(ref.id), data=[self.floats(shape)])
            operations.append(wire.Operation(transform_ztensor=transform))
        self.steps.append(pb.ExecuteRequest(operations=operations))

    def _described(self, shape: Shape) -> tensors.Ztensor:
        """Return a ztensor of a shape, without contents, quantized mostly."""
        ztensor = shape.message()
        ztensor.rec_scale = self.random.choice((0.0, 0.25, 1.0, 1.0))
        return ztensor

    def _alike(self, shape: Shape) -> list[int]:
        return [number for number, like in self.shapes.items() if like == shape]

    def _init(self, number: int, ztensor: tensors.Ztensor) -> wire.Operation:
        """Return the operation that creates a tensor, quantized or not."""
        descs = (ztensor.pre_transformed_desc, ztensor.transformed_desc)
        names = dict(zip(("pre_transformed_desc", "transformed_desc"), descs, strict=True))
        if self.random.random() < 0.65:
            return wire.Operation(init_ztensor=wire.InitZtensor(ztensor=number, **names))
        scale = self.random.choice((0.0, 1.0, 4.0))
        init = wire.InitQuantizedZtensor(ztensor=number, scale=scale, offset=1.0, **names)
        return wire.Operation(init_quantized_ztensor=init)

    def inline(self, ztensor: tensors.Ztensor, shape: Shape, written: bool) -> None:
        """Describe a tensor that travels, with its sticks or a name, or as an output."""
        ztensor.CopyFrom(self._described(shape))
        random = self.random
        if random.random() < 0.15:
            ztensor.byte_order = tensors.BYTE_ORDER_BIG_ENDIAN
        if written:
            if random.random() < 0.3:
                ztensor.cache_as = self._new_name(shape)
            return
        ztensor.is_transformed = random.random() < 0.95
        if self.cached and random.random() < 0.1:
            ztensor.cached = random.choice(list(self.cached))
            return
        ztensor.sticks = self._sticks(pages_of(shape) * PAGE)
        if random.random() < 0.3:
            ztensor.cache_as = self._new_name(shape)

    def _name_contents(self, ztensor: tensors.Ztensor, shape: Shape, written: bool) -> None:
        """Name contents of the session's cache, as C programs do; bring those that are new."""
        ztensor.CopyFrom(self._described(shape))
        names = [name for name, like in self.cached.items() if like == shape]
        if written:
            ztensor.cache_as = self._new_name(shape)
            if names and self.random.random() < 0.3:
                ztensor.cache_instead_of = self.random.choice(names)
            return
        ztensor.is_transformed = True
        if names and self.random.random() < 0.9:
            ztensor.cached = self.random.choice(names)
            return
        ztensor.sticks = self._sticks(pages_of(shape) * PAGE)
        ztensor.cache_as = self._new_name(shape)

    def spoil(self, ref: tensors.TensorRef, shape: Shape) -> None:
        """Refer to a tensor that does not fit, to a missing one, or to no tensor at all."""
        random, ztensor = self.random, ref.inline_ztensor
        mistake = random.randrange(8)
        if mistake == 0:
            ref.Clear()
        elif mistake == 1:
            ref.id = random.choice((0, MISSING_ID, *self.shapes))
        elif mistake == 2:
            ref.new_id = random.choice((0, *self.shapes))
        else:
            self.inline(ztensor, shape, written=mistake == 3)
        if mistake == 4:
            ztensor.sticks += b"\0" * PAGE
        elif mistake == 5:
            ztensor.transformed_desc.dim1 += 1
        elif mistake == 6:
            ztensor.null_buffer = True
        elif mistake == 7:
            ztensor.transformed_desc.type = enum_number(random.choice(TYPES_OF_ELEMENTS))

    def renew(self, ref: tensors.TensorRef) -> None:
        """Give an operand other contents in the same form."""
        ztensor = ref.inline_ztensor if ref.HasField("inline_ztensor") else tensors.Ztensor()
        if ztensor.sticks:
            ztensor.sticks = self._sticks(len(ztensor.sticks))
        elif ztensor.cached:
            shape = self.cached.get(ztensor.cached)
            names = [name for name, like in self.cached.items() if like == shape]
            ztensor.cached = self.random.choice(names or [self.random.randbytes(16)])
        if ztensor.cache_as:
            shape = self.cached.get(ztensor.cache_as)
            ztensor.cache_as = self.random.randbytes(16) if not shape else self._new_name(shape)
        if ztensor.cache_instead_of:
            ztensor.cache_instead_of = self.random.choice(list(self.cached))
        if ref.id in self.shapes:
            ref.id = self.random.choice(self._alike(self.shapes[ref.id]))
        elif ref.new_id:
            ref.new_id = self._next_id()

    def disturb(self, number: int) -> None:
        """Free a tensor, and mostly make another one of that id: of its shape, or of another."""
        operations = [freeing(number)]
        shape = self.shapes.pop(number, None)
        if shape is not None and self.random.random() < 0.7:
            if self.random.random() < 0.3:
                shape = self.random.choice([shape, *self.shapes.values()])
            self.shapes[number] = shape
            operations.append(self._init(number, self._described(shape)))
            if self.random.random() < 0.8:
                allocate = wire.AllochelperZtensor(ztensor=by_id(number))
                operations.append(wire.Operation(allochelper_ztensor=allocate))
        self.steps.append(pb.ExecuteRequest(operations=operations))

    def any_id(self) -> int:
        """Return the id of a tensor, mostly."""
        return self.random.choice([*self.shapes] * 9 + [MISSING_ID])

    def floats(self, shape: Shape, kind: int = tensors.FP32, wrong: bool = False) -> bytes:
        """Return an array that a transform reads: numbers, sometimes too large, or any bytes."""
        count = int(np.prod(shape.dims)) + wrong
        rng = np.random.default_rng(self.random.getrandbits(32))
        if kind != tensors.FP32 or self.random.random() < 0.1:
            return rng.bytes(count * BYTES_OF.get(kind, 4))
        scale = self.random.choice((1.0, 1.0, 1.0, 1e12))
        return (rng.standard_normal(count) * scale).astype("<f4").tobytes()

    def _sticks(self, size: int) -> bytes:
        """Return sticks of any bits, of edges, or of moderate numbers, positive or not."""
        rng, kind = np.random.default_rng(self.random.getrandbits(32)), self.random.randrange(10)
        if kind == 0:
            return rng.bytes(size)
        if kind == 1:
            return rng.choice(np.array(EDGES, "<u2"), size // 2).tobytes()
        codes = rng.integers(0x3A00, 0x4200, size // 2).astype("<u2")
        if kind < 5:
            codes |= rng.integers(0, 2, size // 2).astype("<u2") << 15
        return codes.tobytes()

    def _new_name(self, shape: Shape) -> bytes:
        """Return a name of contents of this shape, seldom one that others have."""
        if self.cached and self.random.random() < 0.1:
            return self.random.choice(list(self.cached))
        name = self.random.randbytes(16)
        self.cached[name] = shape
        return name

    def _next_id(self) -> int:
        """Return an id never used, mostly."""
        if self.shapes and self.random.random() < 0.02:
            return self.random.choice(list(self.shapes))
        self.last_id += 1
        return self.last_id


def by_id(number: int) -> tensors.TensorRef:
    """Refer to a tensor of the session."""
    return tensors.TensorRef(id=number)


def freeing(number: int) -> wire.Operation:
    """Return the operation that frees a tensor of the session."""
    return wire.Operation(free_ztensor_buffer=wire.FreeZtensorBuffer(ztensor=by_id(number)))


def is_written(operand: str) -> bool:
    """Tell whether an operation of a family writes an operand, by its name."""
    return operand.startswith("output") or operand in ("hn_output", "cf_output")


def pages_of(shape: Shape) -> int:
    """Return the pages of sticks that a shape takes."""
    cells = CELLS.get(shape.type, 64)
    d4, d3, rows, columns = shape.dims
    if shape.format == tensors.ZDNN_FORMAT_4DWEIGHTS:
        cells, rows = 64, (rows + 1) // 2
    return d4 * d3 * -(-rows // 32) * -(-columns // cells)


def _takes_floats(shape: Shape) -> bool:
    """Tell whether a plain transform from FP32 fills a shape."""
    filled = (tensors.ZDNN_NHWC, tensors.ZDNN_FORMAT_4DFEATURE, tensors.ZDNN_DLFLOAT16)
    return (shape.layout, shape.format, shape.type) == filled
