# SPDX-License-Identifier: Apache-2.0
"""Random programs: a session and its steps, valid and not.

A program is made of a number alone, so that it can be made anew. It revolves around two random
calls that fit together and mutates them: operands by id, new, inline, cached; lists that come again
as they were, or with other operands; scalars and descriptors that are wrong; options that change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2 as tensors
from nnpa.zdnn.v1.fault_pb2 import FaultRule

from tests import vector_runner
from tests.libzdnn.scenes import MAKERS, Scene, Shape
from tests.server.accelerator.random_operands import (
    MISSING_ID,
    Operands,
    Step,
    Style,
    by_id,
    is_written,
    pages_of,
)
from tests.server.wire import STICK_PAGE as PAGE
from tests.server.wire import number as enum_number

LISTS = 10
"""Lists of a program; about the same number of them is repeated."""

STYLES: tuple[Style, ...] = ("mixed", "mixed", "ids", "cached")
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
SCALARS: Mapping[int, tuple[float, ...]] = {
    FieldDescriptor.CPPTYPE_FLOAT: (0.0, 0.5, 1.0, -1.0, 6.0, float("inf"), float("nan")),
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
    FieldDescriptor.CPPTYPE_INT32: (-129, -128, -5, 0, 5, 127),
}
NUMBERS = (0, 0, 1, 1, 2, 3, 9)
SMALLEST = pb.MachineSpec(model=pb.MACHINE_MODEL_TELUM1, max_dim_idx_size=2)
UPDATES = (
    "precheck",
    "machine_spec",
    "machine_spec",
    "program_check_action",
    "accumulate",
    "status_diag",
)


@dataclass(frozen=True, slots=True)
class Program:
    """A session's options and the steps in it; requests name no session."""

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
    """Writes the steps of one program."""

    random: Random
    families: list[str]
    steps: list[Step] = field(default_factory=list[Step])
    lists: list[pb.ExecuteRequest] = field(default_factory=list[pb.ExecuteRequest])

    def __post_init__(self) -> None:
        self.operands = Operands(self.random, self.steps)
        self.scenes = [(family, self._scene(family)) for family in self.families]

    def write(self) -> None:
        """Write a list: of its own, an earlier one's exact copy, or one with other operands."""
        random = self.random
        if self.lists and random.random() < 0.5:
            earlier = random.choice(self.lists)
            if random.random() < 0.6:
                self._disturb(earlier)
            self._send(earlier, renewed=random.random() < 0.4)
            return
        request, style = pb.ExecuteRequest(), random.choice(STYLES)
        for _ in range(random.randint(1, 4 if style == "mixed" else 2)):
            request.operations.extend(self._operations(style))
        self.lists.append(request)
        self._send(request, renewed=style == "cached" and random.random() < 0.5)

    def _send(self, request: pb.ExecuteRequest, *, renewed: bool) -> None:
        """Send a list up to four times, as it is or renewed, so that caches are used."""
        self.steps.append(request)
        for _ in range(self.random.choice((0, 1, 3))):
            repeated = pb.ExecuteRequest()
            repeated.CopyFrom(request)
            if renewed:
                self._renew(repeated)
            self.steps.append(repeated)

    def _disturb(self, request: pb.ExecuteRequest) -> None:
        """Change the session's options or a tensor that a list depends on."""
        arms = [
            getattr(operation, operation.WhichOneof("operation") or "init")
            for operation in request.operations
        ]
        refs = [ref for arm in arms for _, ref in arm.ListFields()]
        ids = [ref.id for ref in refs if isinstance(ref, tensors.TensorRef) and ref.id]
        if not ids or self.random.random() < 0.5:
            self._update()
        else:
            self.operands.disturb(self.random.choice(ids))

    def _update(self) -> None:
        request = pb.UpdateSessionRequest(session=_options(self.random))
        if self.random.random() < 0.4:
            request.session.machine_spec.CopyFrom(SMALLEST)
        request.update_mask.paths.append(self.random.choice(UPDATES))
        self.steps.append(request)

    def _renew(self, request: pb.ExecuteRequest) -> None:
        """Give a list other contents in the same form."""
        for operation in request.operations:
            arm = getattr(operation, operation.WhichOneof("operation") or "init")
            for described, ref in arm.ListFields():
                if isinstance(ref, tensors.TensorRef):
                    self.operands.renew(ref)
                elif described.name == "data":
                    arm.data[:] = [self.random.randbytes(len(array)) for array in arm.data]
                elif self.random.random() < 0.1 and described.message_type is None:
                    self._set_scalar(arm, described)

    def _operations(self, style: Style) -> list[wire.Operation]:
        chance = self.random.random()
        if chance < 0.62 or style != "mixed":
            return self._call(*self.random.choice(self.scenes), style)
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

    def _call(self, name: str, scene: Scene, style: Style) -> list[wire.Operation]:
        """Return a call of a scene, and the operations that free its new tensors."""
        operation = wire.Operation()
        arm = getattr(operation, name)
        arm.SetInParent()
        spoiled = self.random.random() < (0.25 if style == "mixed" else 0.1)
        after: list[wire.Operation] = []
        for described in arm.DESCRIPTOR.fields:
            if described.message_type is None:
                self._set_scalar(arm, described, scene, spoiled)
                continue
            shape = scene.operands[described.name]
            if spoiled and self.random.random() < 0.25:
                self.operands.spoil(getattr(arm, described.name), shape)
                continue
            written = is_written(described.name)
            after += self.operands.choose(getattr(arm, described.name), shape, written, style)
        if self.random.random() < 0.04:
            flag = self.random.choice(("buffer", "save_area", "work_area"))
            setattr(operation, f"{flag}_misaligned", True)
        return [operation, *after]

    def _conversion(self) -> list[wire.Operation]:
        """Return a transform of a tensor by id or inline, or a life-cycle operation."""
        random = self.random
        operation = wire.Operation()
        if random.random() < 0.2:
            number = self.operands.any_id()
            name = random.choice(("reset_ztensor", "allochelper_ztensor", "free_ztensor_buffer"))
            getattr(operation, name).ztensor.id = number
            if name == "free_ztensor_buffer":
                self.operands.shapes.pop(number, None)
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
            if random.random() < 0.5 and self.operands.shapes:
                ref.id = random.choice(list(self.operands.shapes))
                shape = self.operands.shapes[ref.id]
            else:
                self.operands.inline(ref.inline_ztensor, shape, written=not reads)
                pre = ref.inline_ztensor.pre_transformed_desc
                pre.type = random.choice(TYPES)
                ref.inline_ztensor.rec_scale = random.choice((0.0, 1.0, 0.25))
            reads = False
        if name == "reset_ztensor":
            arm.ztensor.id = self.operands.any_id()
        before: list[wire.Operation] = []
        if name not in TRANSFORMS[3:5] and refs[-1].id and random.random() < 0.7:
            reset = wire.ResetZtensor(ztensor=by_id(refs[-1].id))
            before.append(wire.Operation(reset_ztensor=reset))
        for described in arm.DESCRIPTOR.fields:
            if described.name == "data":
                kind = refs[0].inline_ztensor.pre_transformed_desc.type or tensors.FP32
                arm.data.append(self.operands.floats(shape, kind, random.random() < 0.08))
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
                getattr(arm, described.name).id = self.random.choice((1, 2, 3, MISSING_ID))
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
