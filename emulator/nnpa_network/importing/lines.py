# SPDX-License-Identifier: Apache-2.0
"""Programs for further sizes, made from lowered ones. Shortcut further-sizes.

Three lowered programs of sizes on one line (a past of 5, 6, 7 rows, a mask of 6, 7, 8) that differ
in nothing but sizes, affine in the place on the line, give the program of any other place, equal
to the one that lowering gives there. For that
1. no operator that reads a growing value, and no function of the accelerator over one, rounds,
   clamps or bounds sizes (`_FOLLOWING`, `_ARITHMETIC`, `_VERBS`);
2. shapes that differ in the lowered programs differ at the new place, where no growing size is 1,
   and sizes do that a Reshape divides into others: lowering compares those;
3. every tensor fits the machine, and every value the limit of bytes.
Lowering answers wherever one of these does not hold.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from nnpa_emulator import Guest, Ztensor
from nnpa_emulator import run as call
from nnpa_emulator.status import Malformed, ProgramCheck
from nnpa_emulator.ztensor import LAYOUT_GATES, DataTypes, getsize_ztensor

from nnpa_network.building.arrangement import NotMapped, require_fits
from nnpa_network.building.constants import stickify
from nnpa_network.importing.shapes import Concrete
from nnpa_network.program import AcceleratorStep, Array, Node, Program, TensorInfo, used

Sizes: TypeAlias = tuple[int, ...]
_Pairs: TypeAlias = tuple[tuple[int, int], ...]
"""Sizes at the first two places of a line."""
_Make: TypeAlias = Callable[[int], Any]
"""Makes a part of a program for a size."""

POINTS = 3
"""Lowered programs that a line takes: two to draw it, one to check it.

Products of two affine numbers that are equal at three places are equal everywhere.
"""
_MAX_VARYING = 2  # dims of one value: the degree of its number of elements
_LARGEST_ELEMENT = 16  # bytes
_LARGEST_INDEX = 64  # elements of a constant that may be sizes, axes or bounds
_FOLLOWING = frozenset(
    ("Abs", "Add", "And", "Attention", "Cast", "Clip", "Concat", "Cos", "Div", "Dropout", "Equal",
     "Erf", "Exp", "Expand", "Gather", "Gelu", "Gemm", "Greater", "GreaterOrEqual", "Identity",
     "IsNaN", "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "Log", "MatMul", "Max",
     "Min", "Mul", "Neg", "Not", "Or", "Pow", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum",
     "Relu", "Reciprocal", "Reshape", "Shape", "Sigmoid", "Sin", "Softmax", "Softplus", "Sqrt",
     "Squeeze", "Sub", "Sum", "Tanh", "Transpose", "Unsqueeze", "Where", "Xor")
)  # fmt: skip
"""Operators whose outputs have sizes that are affine in those of their inputs, without exception.

A Reshape divides, and does not fit where its quotient is no integer.
"""
_ARITHMETIC = frozenset(
    ("Add", "Concat", "Gather", "Identity", "Mul", "Neg", "Reshape", "Squeeze", "Sub", "Unsqueeze")
)
"""Operators of constants that follow from sizes, whose results are affine in them."""
_REDUCING = frozenset(
    ("Attention", "Gemm", "LayerNormalization", "MatMul", "ReduceMax", "ReduceMean", "ReduceMin",
     "ReduceSum", "Softmax")
)  # fmt: skip
"""Operators that make values of sizes: of constants that grow, other constants at each size."""
_TAKING_SIZES = frozenset(("ConstantOfShape", "Expand", "Reshape"))
_ENCLOSING = frozenset(("If", "Loop", "Scan", "SequenceMap"))
_NO_SIZES = frozenset(
    ("format", "id", "index", "input_ids", "layout", "order", "output_ids", "steps", "type")
)
"""Fields of a program and its parts that are integers and no sizes, or have such."""
_VERBS = frozenset(
    ("add", "div", "exp", "gelu", "invsqrt", "layernorm", "leaky_relu", "log", "matmul_bcast_op",
     "matmul_op", "matmul_transpose_op", "max", "min", "moments", "mul", "norm", "reduce", "relu",
     "reshape_ztensor", "sigmoid", "softmax", "sqrt", "sub", "tanh", "transform_origtensor",
     "transform_ztensor", "transform_ztensor_with_saturation")
)  # fmt: skip
"""Functions that bound no size but by the machine's greatest dims and tensors."""


class NotAffine(ValueError):
    """Programs between which there is no line, or a size to which it does not lead."""


class Line:
    """A program for each place on the line through three lowered ones."""

    def __init__(
        self, points: Sequence[tuple[Concrete, Program]], guest: Guest, max_bytes: int
    ) -> None:
        """Raise `NotAffine` if the programs are not of one line."""
        self._guest, self._max_bytes = guest, max_bytes
        self._ports = [(name, len(shape)) for name, shape in points[0][0]]
        if any(self._ports != [(name, len(shape)) for name, shape in at] for at, _ in points):
            raise NotAffine("other inputs")
        one, other, last = (_flat(concrete) for concrete, _ in points)
        self._ends = [*zip(one, other, strict=True)]
        self._at = next((at for at, (a, b) in enumerate(self._ends) if a != b), -1)
        if self._at < 0 or last[self._at] in self._ends[self._at]:
            raise NotAffine("the same sizes")
        self._third = self._place(points[2][0])
        programs = [program for _, program in points]
        tables = [program.constants for program in programs]
        if any([*table] != [*tables[0]] for table in tables):
            raise NotAffine("other constants")
        parts = [replace(program, constants={}) for program in programs]
        self._made: dict[str, _Make] = {}
        self._make: _Make = self._part(*parts) or (lambda _place: parts[0])
        self._constants = {
            number: self._constant([table[number] for table in tables]) for number in tables[0]
        }
        self._tensors, _ = _growing(*programs[:2])
        _require_following(*programs[:2])
        self._shapes = {*map(_pairs, *map(_shapes, programs[:2]))}
        self._divided = [*_divided(*programs[:2])]

    def program(self, concrete: Concrete) -> Program | None:
        """Return the program for inputs of these shapes, None where lowering has to tell."""
        try:
            place = self._place(concrete)
            self._require_distinct(place)
            program: Program = self._make(place)
            self._require_fits(program)
            constants = {
                number: constant(place) if callable(constant) else constant
                for number, constant in self._constants.items()
            }
        except (NotAffine, NotMapped, OverflowError):
            return None
        return replace(program, constants=constants)

    def _place(self, concrete: Concrete) -> int:
        """Return where inputs of these shapes are on the line."""
        sizes = _flat(concrete)
        if [(name, len(shape)) for name, shape in concrete] != self._ports:
            raise NotAffine("other inputs")
        place = sizes[self._at]
        if sizes != tuple(self._number(first, second, place) for first, second in self._ends):
            raise NotAffine("beside the line")
        return place

    def _number(self, first: int, second: int, place: int) -> int:
        """Return the number at a place which is `first` and `second` at the first two."""
        base, end = self._ends[self._at]
        steps, rest = divmod((second - first) * (place - base), end - base)
        if rest:
            raise NotAffine("a number between integers")
        return first + steps

    def _require_distinct(self, place: int) -> None:
        """Require that what differs on the line differs at a place."""
        shapes = {self._shape(pairs, place) for pairs in self._shapes}
        groups = ({*self._shape(pairs, place)} for pairs in self._divided)
        if len(shapes) < len(self._shapes) or any(
            len(sizes) < len({*pairs}) for sizes, pairs in zip(groups, self._divided, strict=True)
        ):
            raise NotAffine("two shapes or sizes are the same")

    def _shape(self, pairs: _Pairs, place: int) -> Sizes:
        """Return the sizes at a place; none that grows may be less than 2."""
        shape = tuple(a if a == b else self._number(a, b, place) for a, b in pairs)
        if any(size < 2 and a != b for size, (a, b) in zip(shape, pairs, strict=True)):
            raise NotAffine("a size of 1 or less")
        return shape

    def _require_fits(self, program: Program) -> None:
        shapes = chain.from_iterable(node.output_shapes for node in program.nodes)
        arrays = (info.shape for info in program.arrays.values())
        largest = max(map(math.prod, (*shapes, *arrays)), default=0) * _LARGEST_ELEMENT
        for number in self._tensors:
            desc = program.tensors[number].transformed_desc
            require_fits(self._guest.machine, desc)
            largest = max(largest, getsize_ztensor(desc))
        if largest > self._max_bytes:
            raise NotAffine("beyond the limit of bytes")

    # Parts of programs.

    def _part(self, *parts: Any) -> _Make | None:
        """Return what makes a part from the same part of each program; None where it is the same.

        Raise `NotAffine` where parts differ in more than integers, or those are not affine.
        """
        first, *others = parts
        if all(type(first) is type(other) and first == other for other in others):
            return None
        if not isinstance(first, Program | Mapping):  # of the same sizes there are many
            key = repr(parts)  # 1 and 1.0 are equal
            if key not in self._made:
                self._made[key] = _once(self._different(*parts))
            return self._made[key]
        return self._different(*parts)

    def _different(self, *parts: Any) -> _Make:
        """Return what makes a part that is not the same in each program."""
        first, *others = parts
        if type(first) is int and all(type(other) is int for other in others):
            second, third = others
            if self._number(first, second, self._third) != third:
                raise NotAffine("a number that is not affine")
            return lambda place: self._number(first, second, place)
        if is_dataclass(first) and not isinstance(first, type) and len({*map(type, parts)}) == 1:
            names = [field.name for field in fields(first)]
            if any(getattr(first, name) != getattr(other, name)
                   for name in _NO_SIZES.intersection(names) for other in others):  # fmt: skip
                raise NotAffine("programs of different forms")
            makes = self._makes(names, [[getattr(part, name) for name in names] for part in parts])
            return lambda place: replace(
                first, **{name: make(place) for name, make in makes.items()}
            )
        if isinstance(first, tuple) and len({*map(len, parts)}) == 1:
            elements: tuple[Any, ...] = first
            makes = self._makes(range(len(elements)), parts)
            return lambda place: tuple(
                makes[at](place) if at in makes else each for at, each in enumerate(elements)
            )
        if isinstance(first, Mapping) and all([*first] == [*other] for other in others):
            table: Mapping[Any, Any] = first
            makes = self._makes([*table], [[*part.values()] for part in parts])
            return lambda place: {
                **table, **{key: make(place) for key, make in makes.items()}
            }  # fmt: skip
        raise NotAffine("programs of different forms")

    def _makes(self, keys: Sequence[Any], parts: Sequence[Sequence[Any]]) -> dict[Any, _Make]:
        """Return what makes those elements that are not the same, by key."""
        made = zip(keys, map(self._part, *parts), strict=True)
        return {key: make for key, make in made if make is not None}

    def _constant(self, constants: Sequence[Any]) -> Array | Ztensor | _Make:
        """Return a constant, or what makes it."""
        first: Array | Ztensor = constants[0]
        if all(_same(first, other) for other in constants[1:]):
            return first
        if isinstance(first, Ztensor):
            return self._filled(constants)
        if first.dtype.kind != "i" or len({each.shape for each in constants}) > 1:
            raise NotAffine("a constant that follows from a size, and is none")
        make = self._part(*(tuple(each.reshape(-1).tolist()) for each in constants))
        assert make is not None
        return lambda place: np.array(make(place), first.dtype).reshape(first.shape)

    def _filled(self, tensors: Sequence[Ztensor]) -> _Make:
        """Return what makes a constant of sticks that grows; all of its elements are the same."""
        values = {self._value(tensor).tobytes() for tensor in tensors}
        make = self._part(*(_info(tensor) for tensor in tensors))
        if len(values) > 1 or make is None:
            raise NotAffine("a constant that grows, and has several values")
        value = np.frombuffer(values.pop(), np.float32)
        return lambda place: self._fill(make(place), value)

    def _value(self, tensor: Ztensor) -> Array:
        """Return the one value of a constant."""
        types = tensor.pre_transformed_desc.type, tensor.transformed_desc.type
        is_plain = types == (DataTypes.FP32, DataTypes.ZDNN_DLFLOAT16)
        if not is_plain or tensor.transformed_desc.layout in LAYOUT_GATES:
            raise NotAffine("a constant of another type grows")
        try:
            dense = call(self._guest, "transform_origtensor", {"ztensor": tensor}).value
        except (Malformed, ProgramCheck) as error:
            raise NotAffine(str(error)) from error
        bits = np.asarray(dense, np.float32).reshape(-1).view(np.uint32)
        if dense is None or (bits != bits[0]).any():
            raise NotAffine("a constant that grows has several values")
        return bits[:1].view(np.float32)

    def _fill(self, info: TensorInfo, value: Array) -> Ztensor:
        require_fits(self._guest.machine, info.transformed_desc)
        dims = [dim for dim in info.pre_transformed_desc.dims if dim]
        if math.prod(dims) != math.prod(info.transformed_desc.dims):
            raise NotAffine("sticks of another number of elements")
        return stickify(self._guest, [np.full(dims, value)], "transform_ztensor", {}, info)


def _once(make: _Make) -> _Make:
    """Return what makes a part, and keeps it until another place is asked for."""
    kept: list[tuple[int, Any]] = [(-1, None)]

    def once(place: int) -> Any:
        at, part = kept[0]
        if at != place:
            part = make(place)
            kept[0] = place, part
        return part

    return once


def concrete_of(program: Program) -> Concrete:
    """Return the shapes of a program's inputs."""
    return tuple((port.name, port.shape) for port in program.inputs)


def _flat(concrete: Concrete) -> Sizes:
    return tuple(chain.from_iterable(shape for _, shape in concrete))


def _info(tensor: Ztensor) -> TensorInfo:
    return TensorInfo(tensor.pre_transformed_desc, tensor.transformed_desc)


def _same(first: Any, other: Any) -> bool:
    """Tell whether two constants are the same."""
    if first is other or type(first) is not type(other):
        return first is other
    if isinstance(first, Ztensor):
        return _info(first) == _info(other) and np.array_equal(first.sticks, other.sticks)
    if first.dtype != other.dtype or first.shape != other.shape:
        return False
    return bool(first.tobytes() == other.tobytes() if first.dtype != object
                else first.tolist() == other.tolist())  # fmt: skip


def _pairs(first: Sizes, second: Sizes) -> _Pairs:
    """Return the sizes of a shape in two programs, without axes of 1 and unused dims."""
    return tuple(pair for pair in zip(first, second, strict=True) if pair not in ((0, 0), (1, 1)))


def _shapes(program: Program) -> Iterator[Sizes]:
    """Yield the shapes that a program has."""
    yield from (port.shape for port in (*program.inputs, *program.outputs))
    yield from (info.shape for info in program.arrays.values())
    for tensor in program.tensors.values():
        yield from (tensor.pre_transformed_desc.dims, tensor.transformed_desc.dims)
    for constant in program.constants.values():
        if isinstance(constant, np.ndarray):
            is_index = constant.dtype.kind == "i" and constant.size <= _LARGEST_INDEX
            yield tuple(constant.reshape(-1).tolist()) if is_index else constant.shape
    for node in program.nodes:
        yield from node.output_shapes


def _divided(first: Program, second: Program) -> Iterator[_Pairs]:
    """Yield the sizes before and after each change of shape."""
    ports = zip(first.inputs, second.inputs, strict=True)
    shapes = {port.name: _pairs(port.shape, twin.shape) for port, twin in ports}
    for node, twin in zip(first.nodes, second.nodes, strict=True):
        pairs = map(_pairs, node.output_shapes, twin.output_shapes)
        shapes |= zip(node.outputs, pairs, strict=True)
        if node.op_type in ("Flatten", "Reshape", "Squeeze", "Unsqueeze"):
            before, after = (shapes.get(name, ()) for name in (node.inputs[0], node.outputs[0]))
            if before != after:
                yield before + after


def _growing(first: Program, second: Program) -> tuple[set[int], set[int]]:
    """Return the tensors and the arrays that differ; of each, few dims do."""
    tensors = {at for at, info in first.tensors.items() if info != second.tensors[at]}
    arrays = {at for at, info in first.arrays.items() if info != second.arrays[at]}
    shapes = [(first.arrays[at].shape, second.arrays[at].shape) for at in arrays]
    for infos in ((first.tensors[at], second.tensors[at]) for at in tensors):
        shapes += zip(*((info.pre_transformed_desc.dims, info.transformed_desc.dims)
                        for info in infos), strict=True)  # fmt: skip
    for shape, other in shapes:
        if sum(a != b for a, b in zip(shape, other, strict=True)) > _MAX_VARYING:
            raise NotAffine("a value that grows in too many dims")
    return tensors, arrays


def _require_following(first: Program, second: Program) -> None:
    """Require operators and functions whose sizes follow from those of their inputs."""
    growing = {port.name for port, other in zip(first.inputs, second.inputs, strict=True)
               if port.shape != other.shape}  # fmt: skip
    computed = set[str]()
    for node, other in zip(first.nodes, second.nodes, strict=True):
        _require_node(node, growing, computed)
        if node.output_shapes != other.output_shapes:
            growing.update(node.outputs)
    numbers = set[int]().union(*_growing(first, second))
    for step in first.steps:
        is_growing = not numbers.isdisjoint(used(step))
        if isinstance(step, AcceleratorStep) and is_growing and step.verb not in _VERBS:
            raise NotAffine(f"{step.verb} may bound sizes")


def _require_node(node: Node, growing: set[str], computed: set[str]) -> None:
    """Require that a node follows growing inputs; `computed` are constants made of their sizes."""
    sizes = computed.intersection(node.inputs)
    grows = bool(sizes) or not growing.isdisjoint(node.inputs)
    follows = node.domain in ("", "ai.onnx") and node.op_type in _FOLLOWING | _TAKING_SIZES
    follows = follows and (node.device != "folded" or node.op_type not in _REDUCING)
    if sizes and not _takes_sizes(node, sizes):
        follows = node.device == "folded" and node.op_type in _ARITHMETIC
        follows = follows and (node.op_type != "Gather" or node.inputs[1] not in sizes)
        follows = follows and (node.op_type != "Mul" or len(sizes) == 1)
        computed.update(node.outputs)
    if node.op_type == "Shape" and grows:
        computed.update(node.outputs)
    if node.op_type in _ENCLOSING or (grows and not follows):
        raise NotAffine(f"{node.op_type} may round or bound sizes")


def _takes_sizes(node: Node, sizes: Collection[str]) -> bool:
    """Tell whether a node gives a value, or a number, the sizes that another input has."""
    is_shape = node.op_type == "ConstantOfShape" or node.inputs[0] not in sizes
    return node.op_type in _TAKING_SIZES and is_shape
