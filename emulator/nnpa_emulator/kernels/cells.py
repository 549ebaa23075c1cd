# SPDX-License-Identifier: Apache-2.0
"""Conversion of DLFLOAT16 cells and arithmetic on them, sixteen or 32 side by side in registers.

Most of the work is done on halves of FP32 values, which are as wide as cells: shifts and zeros take
half the registers. Halves are interleaved and results packed within 128 bits, as processors do it.
LLVM finds neither in a loop over cells, which takes 2.5 times as long, and finds the extremes of a
run anew for each of its sticks.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from nnpa_emulator.kernels.convert import Codes
from nnpa_emulator.kernels.jit import kernel
from nnpa_emulator.kernels.registers import (
    FEATURES,
    Builder,
    Context,
    Signature,
    Totals,
    Turn,
    Typed,
    Value,
    loop,
)  # fmt: skip

Run: TypeAlias = Callable[..., np.uint16]
Vector: TypeAlias = Any
"""A value with its type, which no checker finds in llvmlite's class."""

_AVX512 = "avx512bw" in FEATURES
_AVX2 = "avx2" in FEATURES and not _AVX512
_CELLS = 32 if _AVX512 else 16
"""Cells of a turn of the loop."""
_HALF, _WORD, _INDEX = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_HALVES, _WORDS = ir.VectorType(_HALF, _CELLS), ir.VectorType(_WORD, _CELLS // 2)
_VALUES = ir.VectorType(ir.FloatType(), _CELLS // 2)
_PLACE = types.uintp
_LEVEL, _EXTREMES = map(types.Tuple, ([_PLACE] * 3, [types.uint32] * 2))
_MAGNITUDE = 0x7FFF
"""Bits of a code without its sign; NINF."""
_LOW = [first + lane for first in range(0, _CELLS, 8) for lane in range(4)]
"""Cells whose values are in the first register; each next four are in the second."""
_ORDER = [*_LOW, *(cell + 4 for cell in _LOW)]
_SPREAD = [_ORDER.index(cell) for cell in range(_CELLS)]
"""Orders that undo those of `pack` and of `joined`."""


def _all(vector: ir.VectorType, value: int) -> Value:
    return ir.Constant(vector, [value] * vector.count)


def _places(numbers: Sequence[int]) -> Value:
    return ir.Constant(ir.VectorType(_WORD, len(numbers)), list(numbers))


class _Cells:
    """The code of vectors of cells."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def call(self, name: str, result: ir.Type, *operands: Vector) -> Value:
        """Call a function of LLVM."""
        kind = ir.FunctionType(result, [operand.type for operand in operands])
        module = self.builder.module
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(function, operands)

    def extreme(self, name: str, left: Vector, right: Value) -> Value:
        """Return the larger or smaller elements: `name` is umax, smax, umin or smin."""
        kind = left.type
        return self.call(f"llvm.{name}.v{kind.count}i{kind.element.width}", kind, left, right)

    def reduced(self, name: str, vector: Vector) -> Value:
        """Return the extreme of a vector's elements."""
        kind = vector.type
        name = f"llvm.vector.reduce.{name}.v{kind.count}i{kind.element.width}"
        return self.call(name, kind.element, vector)

    def place(self, array: Value, index: Value, kind: ir.VectorType) -> Value:
        """Return the address of a vector in an array."""
        return self.builder.bitcast(self.builder.gep(array, [index]), kind.as_pointer())

    def sticks(
        self, places: Sequence[Value], levels: Sequence[Value], totals: Totals, turn: Turn
    ) -> Totals:
        """Generate loops over sticks, the last level innermost, from the first word and cell."""
        if not levels:
            return turn(*places, totals)
        count, *steps = (self.builder.extract_value(levels[0], n) for n in range(3))

        def level(index: Value, *totals: Value) -> Totals:
            moved = [
                self.builder.add(place, self.builder.mul(index, step))
                for place, step in zip(places, steps, strict=True)
            ]
            return self.sticks(moved, levels[1:], list(totals), turn)

        return loop(self.builder, _INDEX(0), count, 1, totals, level)[1:]

    def halves(self, codes: Value) -> tuple[Value, Value, Value]:
        """Return the magnitudes of codes, and both halves of the values; NINF is a number."""
        builder, line = self.builder, _all(_HALVES, 0x3000)
        magnitude = builder.and_(codes, _all(_HALVES, _MAGNITUDE))
        if _AVX2:  # one instruction, not two: 3000 where there is a magnitude
            start = self.call("llvm.x86.avx2.psign.w", _HALVES, line, magnitude)
        else:
            nothing = _all(_HALVES, 0)
            is_zero = builder.icmp_unsigned("==", magnitude, nothing)
            start = builder.select(is_zero, nothing, line)
        kept = builder.and_(builder.ashr(codes, _all(_HALVES, 2)), _all(_HALVES, 0x9FFF))
        return magnitude, builder.shl(codes, _all(_HALVES, 14)), builder.add(kept, start)

    def joined(self, low: Value, high: Value) -> list[Value]:
        """Return words in two registers: of the cells `_LOW`, and of those four behind them."""
        words: list[Value] = []
        for first in (0, 4):
            pairs = [n for cell in _LOW for n in (cell + first, _CELLS + cell + first)]
            joined = self.builder.shuffle_vector(low, high, _places(pairs))
            words.append(self.builder.bitcast(joined, _WORDS))
        return words

    def pack(self, words: list[Value]) -> Value:
        """Narrow signed words, as `joined` has them, to cells, which stop at 16 bits' limits."""
        if _AVX512:  # LLVM would take three instructions, not one
            return self.call("llvm.x86.avx512.packssdw.512", _HALVES, *words)
        wide: Vector = self.builder.shuffle_vector(*words, _places(_ORDER))
        for name, limit in (("smin", 0x7FFF), ("smax", -0x8000)):
            wide = self.extreme(name, wide, _all(wide.type, limit))
        return self.builder.trunc(wide, _HALVES)

    def encode(self, words: list[Value], magnitudes: list[Value]) -> tuple[Value, Value]:
        """Round FP32 bits of these magnitudes to magnitudes of codes, and signs."""
        builder = self.builder
        starts = [builder.sub(word, _all(_WORDS, 0x2FFFE000)) for word in magnitudes]
        places = self.pack([builder.ashr(word, _all(_WORDS, 14)) for word in starts])
        sign = builder.and_(self.pack(words), _all(_HALVES, 0x8000))
        return self.extreme("smax", places, _all(_HALVES, 0)), sign

    def combine(self, operation: str, left: Value, right: Value) -> Value:
        """Return the codes of the results; NINF and a division by zero give 7FFF."""
        builder = self.builder
        (dividend, *first), (divisor, *second) = self.halves(left), self.halves(right)
        words: list[Value] = []
        for pair in zip(self.joined(*first), self.joined(*second), strict=True):
            result = getattr(builder, operation)(*(builder.bitcast(v, _VALUES) for v in pair))
            words.append(builder.bitcast(result, _WORDS))
        magnitude, sign = self.encode(words, [self.magnitude(word) for word in words])
        infinite = self.extreme("umax", dividend, divisor)
        marked = builder.icmp_unsigned("==", infinite, _all(_HALVES, _MAGNITUDE))
        if operation == "fdiv":
            zero = builder.icmp_unsigned("==", divisor, _all(_HALVES, 0))
            marked = builder.or_(marked, zero)
        return builder.select(marked, _all(_HALVES, _MAGNITUDE), builder.or_(magnitude, sign))

    def magnitude(self, words: Value) -> Value:
        """Return FP32 bits without their signs."""
        return self.builder.and_(words, _all(_WORDS, 0x7FFFFFFF))


def _data(context: Context, builder: Builder, kind: types.Type, array: Value) -> Value:
    """Return the address of an array's elements."""
    return context.make_array(kind)(context, builder, array).data


def _make_run(operation: str) -> Run:
    """Return the code of a loop over cells; its arguments are `combine`'s without the operation."""

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore] # numba ships no types
    def run(
        _typing: object, a: types.Type, b: types.Type, out: types.Type, start: object, end: object
    ) -> Signature:
        del start, end

        def generate(
            context: Context, builder: Builder, signature: Typed, arguments: Sequence[Value]
        ) -> Value:
            code, kinds, (*_, start, end) = _Cells(builder), signature.args, arguments
            arrays = [_data(context, builder, kinds[n], arguments[n]) for n in range(3)]

            def turn(cell: Value, largest: Value) -> Totals:
                left, right, place = (code.place(array, cell, _HALVES) for array in arrays)
                operands = (builder.load(codes, align=2) for codes in (left, right))
                result = code.combine(operation, *operands)
                builder.store(result, place, align=2)
                magnitude = builder.and_(result, _all(_HALVES, _MAGNITUDE))
                return [code.extreme("umax", largest, magnitude)]

            _, largest = loop(builder, start, end, _CELLS, [_all(_HALVES, 0)], turn)
            return code.reduced("umax", largest)

        return types.uint16(a, b, out, _PLACE, _PLACE), generate

    intrinsic_run: Run = run
    return intrinsic_run


_add, _subtract, _multiply, _divide = map(_make_run, ("fadd", "fsub", "fmul", "fdiv"))


@kernel
def combine(
    operation: int, a: Codes, b: Codes, out: Codes, start: np.uintp, end: np.uintp
) -> np.uint16:
    """Add, subtract, multiply or divide (0 to 3) cells; return the largest magnitude of a result.

    A multiple of 32 cells from `start` up to `end`; nothing is checked.
    """
    if operation == 0:
        return _add(a, b, out, start, end)
    if operation == 1:
        return _subtract(a, b, out, start, end)
    if operation == 2:
        return _multiply(a, b, out, start, end)
    return _divide(a, b, out, start, end)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore] # numba ships no types
def encode_sticks(
    _typing: object, words: types.Type, word: object, sticks: types.Type, cell: object,
    outer: object, inner: object, limit: object,
) -> Signature:  # fmt: skip
    """Round whole sticks as `convert.encode_run` does a run, from a first word and a first cell on.

    Two loops are given by their count, and by how far apart their words and their cells are.
    """
    del word, cell, outer, inner, limit

    def generate(
        context: Context, builder: Builder, signature: Typed, arguments: Sequence[Value]
    ) -> Value:
        code, (_, word, _, cell, outer, inner, limit) = _Cells(builder), arguments
        source, target = (_data(context, builder, signature.args[n], arguments[n]) for n in (0, 2))
        last = builder.lshr(builder.sub(limit, _WORD(0x2FFFE000)), _WORD(14))
        last = builder.insert_element(_all(_HALVES, 0), builder.trunc(last, _HALF), _WORD(0))
        last = builder.shuffle_vector(last, last, _places([0] * _CELLS))

        def turn(word: Value, cell: Value, totals: Totals) -> Totals:
            largest, smallest = totals
            for start in range(0, 64, _CELLS):
                at = [builder.add(word, _INDEX(start + n)) for n in (0, _CELLS // 2)]
                words = [builder.load(code.place(source, n, _WORDS), align=4) for n in at]
                magnitudes = [code.magnitude(value) for value in words]
                for value in magnitudes:
                    less = builder.sub(value, _all(_WORDS, 1))
                    largest = code.extreme("umax", largest, value)
                    smallest = code.extreme("umin", smallest, less)
                magnitude, sign = code.encode(words, magnitudes)
                codes = builder.or_(code.extreme("smin", magnitude, last), sign)
                codes = builder.shuffle_vector(codes, codes, _places(_ORDER))
                place = code.place(target, builder.add(cell, _INDEX(start)), _HALVES)
                builder.store(codes, place, align=2)
            return [largest, smallest]

        totals = [_all(_WORDS, 0), _all(_WORDS, -1)]
        largest, smallest = code.sticks((word, cell), (outer, inner), totals, turn)
        met = code.reduced("umax", largest), code.reduced("umin", smallest)
        return context.make_tuple(builder, signature.return_type, met)

    arguments = words, _PLACE, sticks, _PLACE, _LEVEL, _LEVEL, types.uint32
    return _EXTREMES(*arguments), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore] # numba ships no types
def decode_sticks(
    _typing: object, words: types.Type, word: object, sticks: types.Type, cell: object,
    outer: object, inner: object,
) -> Signature:  # fmt: skip
    """Widen whole sticks as `convert.decode_run` does a run; arguments as of `encode_sticks`."""
    del word, cell, outer, inner

    def generate(
        context: Context, builder: Builder, signature: Typed, arguments: Sequence[Value]
    ) -> Value:
        code, (_, word, _, cell, outer, inner) = _Cells(builder), arguments
        target, source = (_data(context, builder, signature.args[n], arguments[n]) for n in (0, 2))

        def turn(word: Value, cell: Value, totals: Totals) -> Totals:
            (largest,) = totals
            for start in range(0, 64, _CELLS):
                place = code.place(source, builder.add(cell, _INDEX(start)), _HALVES)
                codes = builder.load(place, align=2)
                codes = builder.shuffle_vector(codes, codes, _places(_SPREAD))
                magnitude, low, high = code.halves(codes)
                largest = code.extreme("umax", largest, magnitude)
                is_ninf = builder.icmp_unsigned("==", magnitude, _all(_HALVES, _MAGNITUDE))
                low = builder.select(is_ninf, _all(_HALVES, 0), low)
                high = builder.select(is_ninf, _all(_HALVES, 0x7FC0), high)
                for number, words in enumerate(code.joined(low, high)):
                    to = builder.add(word, _INDEX(start + number * _CELLS // 2))
                    builder.store(words, code.place(target, to, _WORDS), align=4)
            return [largest]

        totals = [_all(_HALVES, 0)]
        (largest,) = code.sticks((word, cell), (outer, inner), totals, turn)
        return code.reduced("umax", largest)

    return types.uint16(words, _PLACE, sticks, _PLACE, _LEVEL, _LEVEL), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore] # numba ships no types
def turn(
    _typing: object, source: types.Type, start: object, target: types.Type, to: object
) -> Signature:
    """Let eight rows of eight cells be columns; rows of both arrays are 64 cells apart."""
    del start, to

    def generate(
        context: Context, builder: Builder, signature: Typed, arguments: Sequence[Value]
    ) -> Value:
        code, kind = _Cells(builder), ir.VectorType(_HALF, 8)
        data = [_data(context, builder, signature.args[n], arguments[n]) for n in (0, 2)]
        left, right = (
            [code.place(data[n], builder.add(arguments[2 * n + 1], _INDEX(64 * row)), kind)
             for row in range(8)] for n in (0, 1)
        )  # fmt: skip
        rows = [builder.load(place, align=2) for place in left]
        for _ in range(3):
            rows = [
                builder.shuffle_vector(rows[row], rows[row + 4], _places(pairs))
                for row in range(4)
                for pairs in ([0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15])
            ]
        for row, place in zip(rows, right, strict=True):
            builder.store(row, place, align=2)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp), generate
