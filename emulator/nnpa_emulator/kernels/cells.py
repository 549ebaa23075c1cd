# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on DLFLOAT16 cells, sixteen or 32 side by side in registers.

Most of the work is done on halves of FP32 values, which are as wide as cells: shifts and zeros take
half the registers. Halves are interleaved and results packed within 128 bits, as processors do it.
LLVM finds neither in a loop over cells, which takes 2.5 times as long.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from nnpa_emulator.kernels.convert import Codes
from nnpa_emulator.kernels.jit import kernel
from nnpa_emulator.kernels.registers import FEATURES, Builder, Context, Signature, Typed, Value

Run: TypeAlias = Callable[..., np.uint16]

_AVX512 = "avx512bw" in FEATURES
_AVX2 = "avx2" in FEATURES and not _AVX512
_CELLS = 32 if _AVX512 else 16
"""Cells of a turn of the loop."""
_HALF, _WORD, _INDEX = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_HALVES, _WORDS = ir.VectorType(_HALF, _CELLS), ir.VectorType(_WORD, _CELLS // 2)
_VALUES = ir.VectorType(ir.FloatType(), _CELLS // 2)
_LOW = [first + lane for first in range(0, _CELLS, 8) for lane in range(4)]
"""Cells whose values are in the first register; each next four are in the second."""


def _all(vector: ir.VectorType, value: int) -> Value:
    return ir.Constant(vector, [value] * vector.count)


def _places(numbers: Sequence[int]) -> Value:
    return ir.Constant(ir.VectorType(_WORD, len(numbers)), list(numbers))


class _Cells:
    """The code of one turn."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def call(self, name: str, result: ir.Type, *operands: Value) -> Value:
        """Call a function of LLVM."""
        kind = ir.FunctionType(result, [operand.type for operand in operands])
        module = self.builder.module
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(function, operands)

    def decode(self, codes: Value) -> tuple[Value, list[Value]]:
        """Return the magnitudes of the codes, and the values; NINF counts as a number."""
        builder, line = self.builder, _all(_HALVES, 0x3000)
        magnitude = builder.and_(codes, _all(_HALVES, 0x7FFF))
        if _AVX2:  # one instruction, not two: 3000 where there is a magnitude
            start = self.call("llvm.x86.avx2.psign.w", _HALVES, line, magnitude)
        else:
            nothing = _all(_HALVES, 0)
            is_zero = builder.icmp_unsigned("==", magnitude, nothing)
            start = builder.select(is_zero, nothing, line)
        kept = builder.and_(builder.ashr(codes, _all(_HALVES, 2)), _all(_HALVES, 0x9FFF))
        high, low = builder.add(kept, start), builder.shl(codes, _all(_HALVES, 14))
        values: list[Value] = []
        for first in (0, 4):
            pairs = [n for cell in _LOW for n in (cell + first, _CELLS + cell + first)]
            words = builder.shuffle_vector(low, high, _places(pairs))
            values.append(builder.bitcast(words, _VALUES))
        return magnitude, values

    def pack(self, words: list[Value]) -> Value:
        """Narrow signed words to cells, which stop at the limits of 16 bits."""
        if _AVX512:  # LLVM would take three instructions, not one
            return self.call("llvm.x86.avx512.packssdw.512", _HALVES, *words)
        wide = self.builder.shuffle_vector(*words, _places([*_LOW, *(n + 4 for n in _LOW)]))
        for name, limit in (("smin", 0x7FFF), ("smax", -0x8000)):
            bound = _all(wide.type, limit)
            wide = self.call(f"llvm.{name}.v{_CELLS}i32", wide.type, wide, bound)
        return self.builder.trunc(wide, _HALVES)

    def encode(self, values: list[Value]) -> Value:
        """Round numbers to codes."""
        builder = self.builder
        words = [builder.bitcast(value, _WORDS) for value in values]
        places: list[Value] = []
        for word in words:
            magnitude = builder.and_(word, _all(_WORDS, 0x7FFFFFFF))
            place = builder.sub(magnitude, _all(_WORDS, 0x2FFFE000))
            places.append(builder.ashr(place, _all(_WORDS, 14)))
        code = self.larger("smax", self.pack(places), _all(_HALVES, 0))
        return builder.or_(code, builder.and_(self.pack(words), _all(_HALVES, 0x8000)))

    def larger(self, name: str, left: Value, right: Value) -> Value:
        """Return the larger cells, signed or not."""
        return self.call(f"llvm.{name}.v{_CELLS}i16", _HALVES, left, right)

    def combine(self, operation: str, left: Value, right: Value) -> Value:
        """Return the codes of the results; NINF and a division by zero give 7FFF."""
        builder = self.builder
        (dividend, first), (divisor, second) = self.decode(left), self.decode(right)
        compute: Callable[[Value, Value], Value] = getattr(builder, operation)
        codes = self.encode([compute(*pair) for pair in zip(first, second, strict=True)])
        infinite = self.larger("umax", dividend, divisor)
        marked = builder.icmp_unsigned("==", infinite, _all(_HALVES, 0x7FFF))
        if operation == "fdiv":
            zero = builder.icmp_unsigned("==", divisor, _all(_HALVES, 0))
            marked = builder.or_(marked, zero)
        return builder.select(marked, _all(_HALVES, 0x7FFF), codes)


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
            arrays = [
                context.make_array(kind)(context, builder, value).data
                for kind, value in zip(signature.args[:3], arguments, strict=False)
            ]
            return _generate(builder, operation, arrays, *arguments[3:])

        return types.uint16(a, b, out, types.uintp, types.uintp), generate

    intrinsic_run: Run = run
    return intrinsic_run


def _generate(
    builder: Builder, operation: str, arrays: list[Value], start: Value, end: Value
) -> Value:
    """Generate a loop of turns; return the largest magnitude."""
    code, before = _Cells(builder), builder.block
    head, body, behind = (builder.append_basic_block(name) for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    cell, largest = builder.phi(_INDEX), builder.phi(_HALVES)
    builder.cbranch(builder.icmp_unsigned("<", cell, end), body, behind)
    builder.position_at_end(body)
    left, right, place = (
        builder.bitcast(builder.gep(array, [cell]), _HALVES.as_pointer()) for array in arrays
    )
    result = code.combine(operation, *(builder.load(codes, align=2) for codes in (left, right)))
    builder.store(result, place, align=2)
    met = code.larger("umax", largest, builder.and_(result, _all(_HALVES, 0x7FFF)))
    following = builder.add(cell, _INDEX(_CELLS))
    builder.branch(head)
    for phi, first, new in ((cell, start, following), (largest, _all(_HALVES, 0), met)):
        phi.add_incoming(first, before)
        phi.add_incoming(new, body)
    builder.position_at_end(behind)
    return code.call(f"llvm.vector.reduce.umax.v{_CELLS}i16", _HALF, largest)


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
