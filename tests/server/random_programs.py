# SPDX-License-Identifier: Apache-2.0
"""Random programs: a session, and what is done in it, valid and not.

A program is made of a number alone, so that it can be made anew. It revolves around two random
calls that fit together and mutates them: operands by id, new, inline, cached; lists that come again
as they were, or with other operands; scalars and descriptors that are wrong; options that change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import TypeAlias

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2 as tensors
from nnpa.zdnn.v1.fault_pb2 import FaultRule

from tests import vector_runner
from tests.libzdnn.scenes import MAKERS, Scene, Shape
from tests.server.wire import STICK_PAGE as PAGE
from tests.server.wire import number as enum_number
from tests.strategies import EDGES

LISTS = 10
"""Lists of a program; as many more are sent again."""

Step: TypeAlias = pb.ExecuteRequest | pb.UpdateSessionRequest | pb.WriteTensorHeader
"""What is done: a list, new options, or zeros written into a tensor."""

MAX_PAGES = 6
FAMILIES = tuple(MAKERS)
ENVIRONMENT = tuple(
    arm.name for arm in wire.Operation.DESCRIPTOR.oneofs[0].fields if arm.number >= 100
)
TRANSFORMS = (
    *("transform_ztensor", "transform_ztensor_with_saturation", "transform_quantized_ztensor"),
    *("transform_origtensor", "getrange_ztensor", "reshape_ztensor", "reset_ztensor"),
)
TYPES = (tensors.FP32, tensors.FP32, tensors.FP32, tensors.FP16, tensors.BFLOAT, tensors.INT8)
BYTES_OF: Mapping[int, int] = {
    tensors.FP32: 4,
    tensors.INT32: 4,
    tensors.FP16: 2,
    tensors.BFLOAT: 2,
    tensors.INT8: 1,
}
CELLS: Mapping[int, int] = {tensors.ZDNN_BINARY_INT8: 128, tensors.ZDNN_BINARY_INT32: 32}
"""Cells of a stick, where they are not 64."""
SCALARS: Mapping[int, tuple[float, ...]] = {
    FieldDescriptor.CPPTYPE_FLOAT: (0.0, 0.5, 1.0, -1.0, 6.0, float("inf"), float("nan")),
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
    FieldDescriptor.CPPTYPE_INT32: (-129, -128, -5, 0, 5, 127),
}
NUMBERS = (0, 0, 1, 1, 2, 3, 9)
UPDATES = ("precheck", "machine_spec", "program_check_action", "accumulate", "status_diag")


@dataclass(frozen=True, slots=True)
class Program:
    """A session's options and what is done in it; requests name no session."""

    seed: int
    options: pb.Session
    steps: list[Step]

    def without(self, steps: range) -> "Program":
        """Return the same program, some steps left out."""
        kept = [step for index, step in enumerate(self.steps) if index not in steps]
        return Program(self.seed, self.options, kept)


def program(seed: int) -> Program:
    """Return the program of a number."""
    random = Random(seed)
    author = _Author(random, [FAMILIES[seed % len(FAMILIES)], random.choice(FAMILIES)])
    for _ in range(LISTS):
        author.write()
    return Program(seed, _options(random), author.steps)


def _options(random: Random) -> pb.Session:
    """Return a session: both Telums, prechecks, ways to count, logs, small machines, faults."""
    session = pb.Session(
        machine_spec=_machine(random),
        precheck=random.random() < 0.5,
        library_version=random.choice(("1.2.0",) * 19 + ("1.0.0",)),
        program_check_action=enum_number(random.choice((1, 2, 2))),
        log_level=enum_number(random.choice((0,) * 8 + (1, 4, 7))),
        accumulate=enum_number(random.choice((0, 0, 0, 2))),
        sanitize=random.random() < 0.04,
    )
    if random.random() < 0.1:
        session.numerics, session.jitter_seed = pb.NUMERICS_JITTER, 7
    if random.random() < 0.05:
        session.status_diag = 0x00040003
    if random.random() < 0.05:
        rule = FaultRule(every=random.randint(2, 5))
        rule.status = "ZDNN_INVALID_SHAPE"
        session.fault_rules.append(rule)
    return session


def _machine(random: Random) -> pb.MachineSpec:
    if random.random() < 0.03:
        without_nnpa = pb.MACHINE_MODEL_Z15, pb.MACHINE_MODEL_TELUM1_NONNPA
        return pb.MachineSpec(model=random.choice(without_nnpa))
    models = (pb.MACHINE_MODEL_TELUM1, *[pb.MACHINE_MODEL_TELUM2] * 3)
    spec = pb.MachineSpec(model=random.choice(models))
    if random.random() < 0.1:
        spec.max_dim_idx_size = random.choice((2, 33))
    return spec


@dataclass
class _Author:
    """Writes the steps of one program, and remembers the tensors that it should have made."""

    random: Random
    families: list[str]
    steps: list[Step] = field(default_factory=list[Step])
    lists: list[pb.ExecuteRequest] = field(default_factory=list[pb.ExecuteRequest])
    shapes: dict[int, Shape] = field(default_factory=dict[int, Shape])
    names: list[bytes] = field(default_factory=list[bytes])
    last_id: int = 0

    def __post_init__(self) -> None:
        self.scenes = [(family, self._scene(family)) for family in self.families]

    def write(self) -> None:
        """Write a list: of its own, an earlier one's exact copy, or one with other operands."""
        random = self.random
        if random.random() < 0.12:
            self._update()
        request = pb.ExecuteRequest()
        if self.lists and random.random() < 0.45:
            request.CopyFrom(random.choice(self.lists))
            if random.random() < 0.5:
                self._renew(request)
            self.steps += [request] * random.choice((1, 1, 2, 3))
            return
        for _ in range(random.randint(1, 4)):
            request.operations.extend(self._operations())
        self.lists.append(request)
        self.steps.append(request)

    def _update(self) -> None:
        request = pb.UpdateSessionRequest(session=_options(self.random))
        request.update_mask.paths.append(self.random.choice(UPDATES))
        self.steps.append(request)

    def _renew(self, request: pb.ExecuteRequest) -> None:
        """Give a list other contents in the same form."""
        for operation in request.operations:
            arm = getattr(operation, operation.WhichOneof("operation") or "init")
            for described, ref in arm.ListFields():
                if isinstance(ref, tensors.TensorRef):
                    self._renew_operand(ref)
                elif described.name == "data":
                    arm.data[:] = [self.random.randbytes(len(array)) for array in arm.data]
                elif self.random.random() < 0.1 and described.message_type is None:
                    self._set_scalar(arm, described)

    def _renew_operand(self, ref: tensors.TensorRef) -> None:
        if ref.inline_ztensor.sticks:
            ref.inline_ztensor.sticks = self._bytes(len(ref.inline_ztensor.sticks))
        elif ref.id in self.shapes:
            shape = self.shapes[ref.id]
            alike = [number for number, other in self.shapes.items() if other == shape]
            ref.id = self.random.choice(alike)
        elif ref.new_id:
            ref.new_id = self._next_id()

    def _operations(self) -> list[wire.Operation]:
        chance = self.random.random()
        if chance < 0.62:
            return self._call(*self.random.choice(self.scenes))
        if chance < 0.84:
            return self._conversion()
        if chance < 0.9:
            return [self._any(self.random.choice(ENVIRONMENT))]
        if chance < 0.95:
            return [self._any(self.random.choice(_arms()))]
        return [self._of_a_vector()]

    def _scene(self, family: str) -> Scene:
        while True:
            scene = MAKERS[family](self.random)
            if all(pages_of(shape) <= MAX_PAGES for shape in scene.operands.values()):
                return scene

    def _call(self, name: str, scene: Scene) -> list[wire.Operation]:
        """Return a call of a scene, and what frees tensors that it makes."""
        operation = wire.Operation()
        arm = getattr(operation, name)
        arm.SetInParent()
        spoiled = self.random.random() < 0.25
        freed: list[int] = []
        for described in arm.DESCRIPTOR.fields:
            if described.message_type is None:
                self._set_scalar(arm, described, scene, spoiled)
                continue
            shape = scene.operands[described.name]
            if spoiled and self.random.random() < 0.25:
                self._spoil_operand(getattr(arm, described.name), shape)
                continue
            written = is_written(described.name)
            self._operand(getattr(arm, described.name), shape, written, freed)
        if self.random.random() < 0.04:
            flag = self.random.choice(("buffer", "save_area", "work_area"))
            setattr(operation, f"{flag}_misaligned", True)
        after = [_free(number) for number in freed]
        return [operation, *after]

    def _operand(
        self, ref: tensors.TensorRef, shape: Shape, written: bool, freed: list[int]
    ) -> None:
        """Choose how an operand travels."""
        chance = self.random.random()
        if chance < 0.5:
            self._by_id(ref, shape, written)
        elif written and chance < 0.75:
            ref.new_id = self._next_id()
            if self.random.random() < 0.8:
                freed.append(ref.new_id)
            else:
                self.shapes[ref.new_id] = shape
        else:
            self._inline(ref.inline_ztensor, shape, written)

    def _by_id(self, ref: tensors.TensorRef, shape: Shape, written: bool) -> None:
        """Refer to a tensor of this shape, which a list before this one makes if there is none."""
        alike = [number for number, other in self.shapes.items() if other == shape]
        if alike and self.random.random() < 0.85:
            ref.id = self.random.choice(alike)
            return
        ref.id = self._next_id()
        self.shapes[ref.id] = shape
        ztensor = shape.message()
        if not written and not _takes_floats(shape):
            self._write_zeros(ref.id, ztensor)
            return
        operations = [
            self._init(ref.id, ztensor),
            wire.Operation(allochelper_ztensor=wire.AllochelperZtensor(ztensor=_by_id(ref.id))),
        ]
        if not written:
            transform = wire.TransformZtensor(ztensor=_by_id(ref.id), data=[self._floats(shape)])
            operations.append(wire.Operation(transform_ztensor=transform))
        request = pb.ExecuteRequest(operations=operations)
        self.steps.append(request)
        if self.random.random() < 0.1:
            self.lists.append(request)

    def _init(self, number: int, ztensor: tensors.Ztensor) -> wire.Operation:
        """Return what creates a tensor, quantized or not."""
        descs = (ztensor.pre_transformed_desc, ztensor.transformed_desc)
        names = dict(zip(("pre_transformed_desc", "transformed_desc"), descs, strict=True))
        if self.random.random() < 0.8:
            return wire.Operation(init_ztensor=wire.InitZtensor(ztensor=number, **names))
        scale = self.random.choice((0.0, 1.0, 4.0))
        init = wire.InitQuantizedZtensor(ztensor=number, scale=scale, offset=1.0, **names)
        return wire.Operation(init_quantized_ztensor=init)

    def _write_zeros(self, number: int, ztensor: tensors.Ztensor) -> None:
        """Stream zeros into a new tensor: what no transform makes."""
        ztensor.is_transformed = True
        sticks = pb.WriteSticks(id=number, new_ztensor=ztensor, total_bytes=0)
        self.steps.append(pb.WriteTensorHeader(sticks=sticks))

    def _inline(self, ztensor: tensors.Ztensor, shape: Shape, written: bool) -> None:
        ztensor.CopyFrom(shape.message())
        random = self.random
        if random.random() < 0.15:
            ztensor.byte_order = tensors.BYTE_ORDER_BIG_ENDIAN
        if written:
            if random.random() < 0.3:
                ztensor.cache_as = self._name()
            return
        ztensor.is_transformed = random.random() < 0.95
        if self.names and random.random() < 0.15:
            ztensor.cached = random.choice(self.names)
            return
        ztensor.sticks = self._bytes(pages_of(shape) * PAGE)
        if random.random() < 0.2:
            ztensor.cache_as = self._name()

    def _spoil_operand(self, ref: tensors.TensorRef, shape: Shape) -> None:
        """Refer to a tensor that does not fit, is not there, or is not one."""
        random, ztensor = self.random, ref.inline_ztensor
        mistake = random.randrange(8)
        if mistake == 0:
            ref.Clear()
        elif mistake == 1:
            ref.id = random.choice((0, 999, *self.shapes))
        elif mistake == 2:
            ref.new_id = random.choice((0, *self.shapes))
        else:
            self._inline(ztensor, shape, written=mistake == 3)
        if mistake == 4:
            ztensor.sticks += b"\0" * PAGE
        elif mistake == 5:
            ztensor.transformed_desc.dim1 += 1
        elif mistake == 6:
            ztensor.null_buffer = True
        elif mistake == 7:
            ztensor.transformed_desc.type = enum_number(random.choice(NUMBERS))

    def _conversion(self) -> list[wire.Operation]:
        """Return a transform of a tensor by id or inline, or a life-cycle operation."""
        random = self.random
        operation = wire.Operation()
        if random.random() < 0.2 and self.shapes:
            number = random.choice([*self.shapes] * 9 + [999])
            name = random.choice(("reset_ztensor", "allochelper_ztensor", "free_ztensor_buffer"))
            getattr(operation, name).ztensor.id = number
            if name == "free_ztensor_buffer":
                self.shapes.pop(number, None)
            return [operation]
        return self._transform(operation, random.choice(TRANSFORMS))

    def _transform(self, operation: wire.Operation, name: str) -> list[wire.Operation]:
        random, arm = self.random, getattr(operation, name)
        shape = Shape(random.choice(((1, 1, 2, 3), (1, 2, 33, 5), (2, 1, 1, 65), (1, 1, 1, 64))))
        if random.random() < 0.3:
            shape = Shape(shape.dims, type=tensors.ZDNN_BINARY_INT8)
        first, reads = name == "reshape_ztensor", name in TRANSFORMS[3:6]
        refs = (arm.src, arm.dest) if first else (arm.ztensor,)
        for ref in refs:
            if random.random() < 0.5 and self.shapes:
                ref.id = random.choice(list(self.shapes))
                shape = self.shapes[ref.id]
            else:
                self._inline(ref.inline_ztensor, shape, written=not reads)
                pre = ref.inline_ztensor.pre_transformed_desc
                pre.type = random.choice(TYPES)
                ref.inline_ztensor.rec_scale = random.choice((0.0, 1.0, 0.25))
            reads = False
        if name == "reset_ztensor":
            arm.ztensor.id = random.choice([*self.shapes] * 9 or [999])
        before: list[wire.Operation] = []
        if name not in TRANSFORMS[3:5] and refs[-1].id and random.random() < 0.7:
            before.append(
                wire.Operation(reset_ztensor=wire.ResetZtensor(ztensor=_by_id(refs[-1].id)))
            )
        for described in arm.DESCRIPTOR.fields:
            if described.name == "data":
                kind = refs[0].inline_ztensor.pre_transformed_desc.type or tensors.FP32
                arm.data.append(self._floats(shape, kind, random.random() < 0.08))
            elif described.message_type is None:
                self._set_scalar(arm, described)
        return [*before, operation]

    def _any(self, name: str) -> wire.Operation:
        """Return an operation with fields by chance: of the environment, mostly valid."""
        operation = wire.Operation()
        arm = getattr(operation, name)
        arm.SetInParent()
        for described in arm.DESCRIPTOR.fields:
            if described.message_type is None and described.name != "data":
                if self.random.random() < 0.95:
                    self._set_scalar(arm, described)
            elif described.message_type is not None and described.message_type.name == "TensorRef":
                getattr(arm, described.name).id = self.random.choice((1, 2, 3, 999))
        return operation

    def _of_a_vector(self) -> wire.Operation:
        operation = wire.Operation()
        operation.CopyFrom(self.random.choice(_operations_of_vectors()))
        return operation

    def _set_scalar(
        self,
        arm: Message,
        described: FieldDescriptor,
        scene: Scene | None = None,
        spoiled: bool = True,
    ) -> None:
        """Set a scalar as the scene has it, or to any number."""
        if scene is not None and not (spoiled and self.random.random() < 0.3):
            if described.name in scene.scalars:
                setattr(arm, described.name, scene.scalars[described.name])
            return
        if not described.is_repeated and self.random.random() < 0.95:
            choices = SCALARS.get(described.cpp_type, NUMBERS)
            setattr(arm, described.name, self.random.choice(choices))

    def _floats(self, shape: Shape, kind: int = tensors.FP32, wrong: bool = False) -> bytes:
        """Return an array that a transform reads: numbers, sometimes too large, or any bytes."""
        count = int(np.prod(shape.dims)) + wrong
        rng = np.random.default_rng(self.random.getrandbits(32))
        if kind != tensors.FP32 or self.random.random() < 0.1:
            return rng.bytes(count * BYTES_OF.get(kind, 4))
        scale = self.random.choice((1.0, 1.0, 1.0, 1e12))
        return (rng.standard_normal(count) * scale).astype("<f4").tobytes()

    def _bytes(self, size: int) -> bytes:
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

    def _name(self) -> bytes:
        if self.names and self.random.random() < 0.3:
            return self.random.choice(self.names)
        self.names.append(self.random.randbytes(16))
        return self.names[-1]

    def _next_id(self) -> int:
        """Return an id never used, mostly."""
        if self.shapes and self.random.random() < 0.02:
            return self.random.choice(list(self.shapes))
        self.last_id += 1
        return self.last_id


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
    plain = (tensors.ZDNN_NHWC, tensors.ZDNN_FORMAT_4DFEATURE, tensors.ZDNN_DLFLOAT16)
    return (shape.layout, shape.format, shape.type) == plain


def _by_id(number: int) -> tensors.TensorRef:
    return tensors.TensorRef(id=number)


def _free(number: int) -> wire.Operation:
    return wire.Operation(free_ztensor_buffer=wire.FreeZtensorBuffer(ztensor=_by_id(number)))


@cache
def _arms() -> tuple[str, ...]:
    return tuple(arm.name for arm in wire.Operation.DESCRIPTOR.oneofs[0].fields)


@cache
def _operations_of_vectors() -> list[wire.Operation]:
    """Return the operations of the vectors, small ones, their tensors inline."""
    return [
        operation
        for vector in vector_runner.load()
        for operation in vector_runner.operations(vector)
        if operation.ByteSize() < 3 * PAGE
    ]
