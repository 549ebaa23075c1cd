# SPDX-License-Identifier: Apache-2.0
"""The builder of a program: steps, ids, and conversions between arrays and tensors.

A value stays on the accelerator until a step on the host reads it. A conversion is emitted once,
when a step first needs the other form. A transposition is a view, free where its reader takes the
other order.
"""

from collections.abc import Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from nnpa_emulator import FUNCTIONS, Guest, TensorDesc, Ztensor
from nnpa_emulator.dlfloat import MAX_VALUE
from nnpa_emulator.machine import FORMAT_0, LIBRARY_VERSIONS, FunctionCode, name_chips
from nnpa_emulator.ztensor import DataLayouts, DataTypes, getsize_ztensor
from onnx import NodeProto

from nnpa_network.building.added_nodes import HELPER_OPSET, added_node, output_of, work_of
from nnpa_network.building.arrangement import (
    ELEMENT_TYPES,
    FLOATS,
    Arrangement,
    NotMapped,
    axes_of,
    describe,
    is_channels_last,
    regrouped,
    require_fits,
    whole,
)
from nnpa_network.building.constants import evaluate, stickify, transform_to
from nnpa_network.building.contents import digest, limited
from nnpa_network.building.type_inference import OnnxNode, Value, View
from nnpa_network.program import (
    ABSENT,
    ANY_RANK,
    BOUNDARY,
    AcceleratorStep,
    Array,
    ArrayInfo,
    HostStep,
    ModelRefused,
    Step,
    TensorInfo,
)

_CLIPPABLE = (np.dtype(np.float32), np.dtype(np.float16))
_Forms: TypeAlias = tuple[int, dict[Arrangement, int], View | None]


@dataclass(slots=True)
class Builder:
    """The state of an import for one set of shapes.

    `stickified` keeps constants across programs of the same model. `node` is the node being
    placed, `functions` are its calls so far. `moved` are nodes whose work the host does; `images`
    are values that the host computes from images.
    """

    guest: Guest
    saturate: bool
    opsets: Mapping[str, int]
    stickified: dict[tuple[object, ...], Ztensor]
    max_bytes: int
    steps: list[Step] = field(default_factory=list[Step])
    arrays: dict[int, ArrayInfo] = field(default_factory=dict[int, ArrayInfo])
    tensors: dict[int, TensorInfo] = field(default_factory=dict[int, TensorInfo])
    constants: dict[int, Array | Ztensor] = field(default_factory=dict[int, "Array | Ztensor"])
    node: int = BOUNDARY
    functions: list[str] = field(default_factory=list[str])
    views: dict[Value, int] = field(default_factory=dict[Value, int])
    moved: set[int] = field(default_factory=set[int])
    images: set[Value] = field(default_factory=set[Value])
    _last: int = 0
    _turned: int = 0
    _added: dict[Hashable, Value] = field(default_factory=dict[Hashable, Value])
    _touched: dict[Value, _Forms] = field(default_factory=dict[Value, "_Forms"])

    @contextmanager
    def attempt(self, node: int) -> Generator[None]:
        """Place a node on the accelerator; undo its emitted steps on `NotMapped`, which goes on."""
        self.node, self.functions = node, []
        self._touched.clear()
        steps, last, stickified = len(self.steps), self._last, len(self.stickified)
        moved = set(self.moved)
        try:
            yield
        except NotMapped:
            del self.steps[steps:]
            for value, (array, tensors, view) in self._touched.items():
                value.array, value.tensors, value.view = array, tensors, view
            for table in (self.arrays, self.tensors, self.constants):
                for number in range(last + 1, self._last + 1):
                    table.pop(number, None)
            for key in list(self.stickified)[stickified:]:
                del self.stickified[key]
            self.functions = []
            self.moved = moved
            self._added = {
                work: output for work, output in self._added.items() if 0 < output.array <= last
            }
            raise

    def touch(self, value: Value) -> None:
        """Record the state of a value before it changes, so that an attempt can be undone."""
        self._touched.setdefault(value, (value.array, dict(value.tensors), value.view))

    def _number(self) -> int:
        self._last += 1
        return self._last

    # What the machine has.

    def require(self, verb: str) -> None:
        """Refuse where the machine or the library lacks a function."""
        function, guest = FUNCTIONS[verb], self.guest
        if LIBRARY_VERSIONS[function.since] > guest.library_version:
            text = f"zdnn_{verb} needs library {function.since}"
            raise NotMapped(f"{text}; the model is placed for {guest.library}")
        operation = function.operation
        if operation is not None:
            self.require_code(operation.code, operation.parmblk_format, verb)
        else:
            self.require_code(FunctionCode.NNPA_QAF, FORMAT_0, verb)

    def require_code(self, code: FunctionCode, parmblk_format: int, verb: str) -> None:
        """Refuse where the machine lacks a function code or a parameter block format."""
        machine = self.guest.machine
        if not (machine.qaf.has_function(code) and machine.qaf.has_parmblk_format(parmblk_format)):
            needed = f"zdnn_{verb} needs {name_chips(code, parmblk_format)}"
            raise NotMapped(f"{needed}; the model is placed for {machine.label}")

    # Arrays.

    def array(self, value: Value) -> int:
        """Return the id of a value as an array, converting it if need be."""
        if value.array:
            return value.array
        self.touch(value)
        if value.constant is not None:
            value.array = self._number()
            self.constants[value.array] = value.constant
            self.arrays[value.array] = ArrayInfo(value.constant.dtype, value.constant.shape)
        elif value.is_view_of_sticks and (tensor := self._readable(value)):
            value.bounded = True
            self.query("transform_origtensor", tensor, value)
        elif value.view is not None:
            value.array = self.array(self._carried_out(value, *value.view))
        else:
            value.array = self._untransform(value)
        return value.array

    def _readable(self, value: Value) -> int:
        """Return a tensor whose transformation back gives a view's elements in order, or ABSENT."""
        for layout, number in self.available(value).items():
            if layout.plain and self.in_order(number):
                return number
        return ABSENT

    def in_order(self, tensor: int) -> bool:
        """Return whether transform_origtensor gives the elements in the order of the sticks."""
        layout = self.tensors[tensor].pre_transformed_desc.layout
        return layout not in (DataLayouts.ZDNN_NCHW, DataLayouts.ZDNN_4DS)

    def _carried_out(self, value: Value, source: Value, permutation: Sequence[int] | None) -> Value:
        """Emit the host step that carries out a view."""
        if permutation == tuple(range(len(value.dims))):
            return source
        self.moved.add(self.views.get(value, BOUNDARY))
        if permutation is None:
            return self.host("Reshape", [source, self.integers(*value.dims)], allowzero=1)
        return self.host("Transpose", [source], perm=list(permutation))

    def new_array(self, value: Value) -> int:
        """Return the id of a new array for a value that a step is about to make."""
        if value.nbytes > self.max_bytes:
            limit = f"must be at most {self.max_bytes}"
            raise ModelRefused(f"{value.name} takes {value.nbytes} bytes, {limit}")
        number = self._number()
        shape = value.shape if value.shape is not None else ANY_RANK
        dtype = value.dtype if value.dtype is not None else np.dtype(np.float32)
        self.arrays[number] = ArrayInfo(dtype, shape)
        self.touch(value)
        value.array = number
        return number

    def _untransform(self, value: Value) -> int:
        if not value.tensors:
            raise ValueError(f"{value.name} exists in no form")
        chosen = min(
            value.tensors, key=lambda arrangement: (not arrangement.plain, arrangement.order)
        )
        direct = chosen.plain or is_channels_last(value.dims, chosen)
        permutation = whole(value.dims, chosen.order)
        shape = value.dims if direct else tuple(value.dims[axis] for axis in permutation)
        stored = Value(value.name, value.dtype, shape, bounded=True)
        value.bounded = True
        self.query("transform_origtensor", value.tensors[chosen], stored)
        if direct:
            return stored.array
        back = [int(axis) for axis in np.argsort(permutation)]
        return self.array(self.host("Transpose", [stored], perm=back))

    def query(self, verb: str, tensor: int, value: Value) -> None:
        """Emit a function of one tensor whose answer becomes a value's array."""
        number = self.new_array(value)
        self.steps.append(AcceleratorStep(self.node, verb, {"ztensor": tensor}, number))

    def constant(self, array: Array, name: str = "") -> Value:
        """Return a value known at import."""
        return Value(name or f"constant_{self._last}", array.dtype, array.shape, constant=array)

    def host(self, op_type: str, inputs: Sequence[Value | None], **attributes: object) -> Value:
        """Return the one output of a node that the import adds, computed at once if it can be.

        If an earlier added node computes the same, its output is returned.
        """
        proto = added_node(op_type, inputs, attributes)
        work = work_of(proto, inputs)
        if work in self._added:
            return self._added[work]
        try:
            output = output_of(proto, inputs, f"{op_type}_{self._last}")
        except ModelRefused as refused:  # operands that do not fit: ONNX Runtime says so
            raise NotMapped(refused.reason) from refused
        if output.nbytes > self.max_bytes:
            limit = f"must be at most {self.max_bytes}"
            raise NotMapped(f"{op_type} would take {output.nbytes} bytes, {limit}")
        if all(value is None or value.constant is not None for value in inputs):
            return self.constant(evaluate(proto, HELPER_OPSET, inputs)[0])
        self._host_step(proto, inputs, [output], HELPER_OPSET)
        self._added[work] = output
        return output

    def integers(self, *numbers: int) -> Value:
        """Return a one-dimensional INT64 constant, such as axes or pads."""
        return self.constant(np.array(numbers, np.int64))

    # Tensors.

    def available(self, value: Value) -> dict[Arrangement, int]:
        """Return the tensors that hold a value or, where it is a view, the viewed value."""
        tensors = dict(value.tensors)
        if value.view is not None:
            source, permutation = value.view
            for layout, number in self.available(source).items():
                if permutation is not None:
                    order = tuple(permutation.index(axis) for axis in layout.order)
                elif (carried := regrouped(layout.order, source.dims, value.dims)) is not None:
                    order = carried
                else:
                    continue
                tensors.setdefault(Arrangement(order, layout.dims), number)
        return tensors

    def tensor(self, value: Value, arrangement: Arrangement) -> int:
        """Return the id of a tensor that holds a value as arranged, converting it if need be."""
        tensors = self.available(value)
        if arrangement in tensors:
            return tensors[arrangement]
        self.touch(value)
        for layout, number in tensors.items():
            same = layout.order == arrangement.order
            by_rows = layout.dims[3] == arrangement.dims[3]
            if same and (by_rows or (layout.plain and self.in_order(number))):
                reshaped = self.new_tensor(value, arrangement)
                arguments = {"src": number, "dest": reshaped}
                self.steps.append(AcceleratorStep(self.node, "reshape_ztensor", arguments))
                return reshaped
        number = self._stickify(value, arrangement)
        value.tensors[arrangement] = number
        return number

    def _stickify(self, value: Value, arrangement: Arrangement) -> int:
        """Transform a value's array, or the array of which it is a view."""
        if value.view is not None and not value.array:
            source, permutation = value.view
            if permutation is not None:
                order = tuple(permutation[axis] for axis in arrangement.order)
                before = self._turned
                moved = self.tensor(source, Arrangement(order, arrangement.dims))
                if self._turned > before:
                    self.moved.add(self.views.get(value, BOUNDARY))
                return moved
            if arrangement.plain:
                arrangement = Arrangement(axes_of(source.dims), arrangement.dims)
                return self.tensor(source, arrangement)
        shape, data = value.dims, value
        descriptors = self._describe(value, arrangement)
        if not (arrangement.plain or is_channels_last(shape, arrangement)):
            self._turned += 1
            data = self.host("Transpose", [value], perm=whole(shape, arrangement.order))
        return self.sticks([data], *descriptors)

    def _describe(self, value: Value, arrangement: Arrangement) -> tuple[TensorDesc, TensorDesc]:
        if value.dtype is None or value.dtype not in ELEMENT_TYPES:
            raise NotMapped(f"element type is {value.dtype}, must be {FLOATS}")
        pre, transformed = describe(value.dims, arrangement, value.dtype)
        require_fits(self.guest.machine, transformed)
        return pre, transformed

    def new_tensor(self, value: Value, arrangement: Arrangement) -> int:
        """Return the id of a new tensor for a value that a step is about to make."""
        self.touch(value)
        number = self.declare(*self._describe(value, arrangement))
        value.tensors[arrangement] = number
        return number

    def declare(self, pre: TensorDesc, transformed: TensorDesc, scale: float = 0.0) -> int:
        """Return the id of a new tensor with these descriptors, checked against the machine."""
        require_fits(self.guest.machine, transformed)
        if (size := getsize_ztensor(transformed)) > self.max_bytes:
            raise NotMapped(f"the tensor would take {size} bytes, must be at most {self.max_bytes}")
        number = self._number()
        self.tensors[number] = TensorInfo(pre, transformed, scale)
        return number

    def sticks(
        self, data: Sequence[Value], pre: TensorDesc, transformed: TensorDesc, scale: float = 0.0
    ) -> int:
        """Return a tensor filled from arrays: at import where all are constants, else by a step."""
        require_fits(self.guest.machine, transformed)
        if self.saturate and transformed.type == DataTypes.ZDNN_DLFLOAT16:
            data = [self._clipped(piece) for piece in data]
        verb, options = transform_to(transformed, self.guest, self.saturate)
        if all(piece.constant is not None for piece in data):
            return self._constant_tensor(data, verb, options, TensorInfo(pre, transformed, scale))
        numbers = tuple(self.array(piece) for piece in data)
        number = self.declare(pre, transformed, scale)
        arguments = {"ztensor": number, **options, "data": numbers}
        self.steps.append(AcceleratorStep(self.node, verb, arguments))
        return number

    def _clipped(self, value: Value) -> Value:
        """Limit a value to DLFLOAT16's range, infinities too; NaN stays.

        zdnn_transform_ztensor_with_saturation leaves infinities, and gates have no such transform.
        """
        if value.constant is not None:
            return self.constant(limited(value.constant))
        if value.bounded or value.dtype not in _CLIPPABLE:
            return value
        most = min(MAX_VALUE, float(np.finfo(value.dtype).max))
        ends = [self.constant(np.array(end, value.dtype)) for end in (-most, most)]
        return self.host("Clip", [value, *ends])

    def _constant_tensor(
        self, data: Sequence[Value], verb: str, options: Mapping[str, int], info: TensorInfo
    ) -> int:
        arrays = [piece.constant for piece in data if piece.constant is not None]
        key = (tuple(map(digest, arrays)), verb, info)
        if key not in self.stickified:
            whole_arrays = list(map(np.ascontiguousarray, arrays))
            self.stickified[key] = stickify(self.guest, whole_arrays, verb, options, info)
        tensor = self.stickified[key]
        for number, constant in self.constants.items():
            if constant is tensor:
                return number
        number = self._number()
        self.constants[number], self.tensors[number] = tensor, info
        return number

    # Calls.

    def call(self, verb: str, **arguments: object) -> None:
        """Emit an operation of the accelerator; tensors are ids."""
        self.functions.append(verb)
        self.steps.append(AcceleratorStep(self.node, verb, arguments))

    def host_node(self, node: OnnxNode, opset: int) -> None:
        """Emit a node of the model for the host, in the opset that the host takes it in."""
        self._host_step(node.proto, node.inputs, node.outputs, opset)
        operands = (value for value in node.inputs if value is not None and value.is_known)
        if node.op_type == "Conv" or any(map(self.is_image, operands)):
            outputs = (value for value in node.outputs if value is not None and value.is_known)
            self.images.update(value for value in outputs if len(value.dims) == 4)

    def is_image(self, value: Value) -> bool:
        """Tell whether a value lies channels last in sticks, or comes from one that does."""
        lies = (is_channels_last(value.dims, layout) for layout in self.available(value))
        return value in self.images or any(lies)

    def _host_step(
        self,
        proto: NodeProto,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value | None],
        opset: int,
    ) -> None:
        read = tuple(ABSENT if value is None else self.array(value) for value in inputs)
        written = tuple(ABSENT if value is None else self.new_array(value) for value in outputs)
        self.steps.append(HostStep(self.node, proto.SerializeToString(), read, written, opset))
