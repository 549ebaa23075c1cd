# SPDX-License-Identifier: Apache-2.0
"""Sums of products of dense rows with a panel of columns, in the registers of the host.

A panel holds `width` columns (64, or 48) of the right matrix for each row of it, one row after the
other. A tile is up to `ROWS` rows of sums over the panel's columns; every sum is made in the order
of the inner dimension, each addition rounded to FP32 once. Products of two DLFLOAT16 values are
exact in FP32, so that fused operations change nothing: a sum has the same bits on every host,
whatever is computed beside it. `VECTORS` vectors of `LANES` sums fill the registers beside the
factors.
Source: K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM
Transactions on Mathematical Software 34 (3), 2008: the kernel of panels and registers.
"""

import platform
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from llvmlite import binding, ir
from numba import types
from numba.core import config
from numba.extending import intrinsic

from nnpa_emulator.kernels.jit import inlined, kernel
from nnpa_emulator.kernels.tiles import ROWS
from nnpa_emulator.reference.layout import Singles

Value: TypeAlias = ir.Value
Builder: TypeAlias = Any
"""The builder of llvmlite, whose methods are made by decorators that no checker follows."""
Signature: TypeAlias = tuple[object, Callable[..., Value]]
"""What an intrinsic returns: its signature, and the function that generates its code."""


Totals: TypeAlias = list[Value]
"""Values that a loop carries from turn to turn."""
Turn: TypeAlias = Callable[..., Totals]
"""Generates a turn of an index and the totals so far, and returns the new totals."""


class Array(Protocol):
    """An array in generated code."""

    data: Value


class Typed(Protocol):
    """The types of a call in generated code."""

    args: tuple[types.Type, ...]
    return_type: types.Type


class Context(Protocol):
    """The generator of code for arrays."""

    def make_array(self, kind: types.Type, /) -> "Callable[[Context, Builder, Value], Array]":
        """Return the function that makes an array of a value."""
        ...

    def make_tuple(self, builder: Builder, kind: types.Type, values: Sequence[Value], /) -> Value:
        """Return a tuple of values."""
        ...

    def get_dummy_value(self) -> Value:
        """Return the value of a call without a result."""
        ...


def _features() -> frozenset[str]:
    """Return the features of the processor that Numba compiles for: this one unless it is set."""
    features: str | None = vars(config)["CPU_FEATURES"]
    if features is not None:
        return frozenset(feature[1:] for feature in features.split(",") if feature.startswith("+"))
    return frozenset(
        name for name, available in binding.get_host_cpu_features().items() if available
    )


FEATURES: Final = _features()
"""Features of the processor, in LLVM's words."""
_WIDE, _HALF = "avx512f" in FEATURES, "avx" in FEATURES
_ARM = platform.machine().lower() in ("aarch64", "arm64")

LANES: Final = 16 if _WIDE else 8 if _HALF else 4
"""FP32 values of a vector register: AVX-512, AVX, or NEON and SSE."""
VECTORS: Final = 4 if _WIDE or _ARM else 2
"""Vectors of a row of a tile: with 6 rows 24 sums in 32 registers, or 12 in 16."""
STEP: Final = LANES * VECTORS
"""Columns of a tile."""
UNROLLED: Final = 4
"""Rows of the panel that are taken in one turn of the loop."""

_FLOAT, _INDEX = ir.FloatType(), ir.IntType(64)
_CONTRACT = ("contract",)


def loop(
    builder: Builder, first: Value, end: Value, step: int, totals: Sequence[Value], turn: Turn
) -> Totals:
    """Generate a loop up to `end`; return the index behind it, and the totals."""
    before, values = builder.block, list[Any]((first, *totals))
    head, body, behind = (builder.append_basic_block(name) for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    phis = [builder.phi(value.type) for value in values]
    builder.cbranch(builder.icmp_signed("<", phis[0], end), body, behind)
    builder.position_at_end(body)
    made = [builder.add(phis[0], ir.Constant(_INDEX, step)), *turn(*phis)]
    after = builder.block
    builder.branch(head)
    for phi, value, new in zip(phis, values, made, strict=True):
        phi.add_incoming(value, before)
        phi.add_incoming(new, after)
    builder.position_at_end(behind)
    return phis


class _Tile:
    """The code of one tile: pointers to rows of sums and of the left matrix, and to the panel."""

    def __init__(
        self, builder: Builder, rows: int, vectors: int, lanes: int, operands: list[Value]
    ) -> None:
        sums, at, left, start, stride, panels, panel, self.width, self.count, self.fresh = operands
        self.builder, self.vectors, self.lanes = builder, vectors, lanes
        self.vector = ir.VectorType(_FLOAT, lanes)
        numbers = [ir.Constant(_INDEX, row) for row in range(rows)]
        self.sums = [self._at(sums, at, builder.mul(row, self.width)) for row in numbers]
        self.left = [self._at(left, start, builder.mul(row, stride)) for row in numbers]
        self.panel = builder.gep(panels, [panel])

    def _at(self, data: Value, *offsets: Value) -> Value:
        """Return the address of an element."""
        for offset in offsets:
            data = self.builder.gep(data, [offset])
        return data

    def places(self) -> list[Value]:
        """Return the addresses of all vectors of sums."""
        columns = [ir.Constant(_INDEX, self.lanes * number) for number in range(self.vectors)]
        addresses = [self._at(row, column) for row in self.sums for column in columns]
        return [self.builder.bitcast(address, self.vector.as_pointer()) for address in addresses]

    def begin(self) -> list[Value]:
        """Load the sums so far, or take zeros where they are fresh."""
        zero = ir.Constant(self.vector, None)
        loaded = [self.builder.load(address, align=4) for address in self.places()]
        return [self.builder.select(self.fresh, zero, vector) for vector in loaded]

    def add(self, sums: list[Value], k: Value) -> list[Value]:
        """Add the products of one row of the panel."""
        builder = self.builder
        row = builder.gep(self.panel, [builder.mul(k, self.width)])
        columns = [ir.Constant(_INDEX, self.lanes * number) for number in range(self.vectors)]
        pointers = [
            builder.bitcast(builder.gep(row, [column]), self.vector.as_pointer())
            for column in columns
        ]
        right = [builder.load(pointer, align=4) for pointer in pointers]
        added: list[Value] = []
        for number, left in enumerate(self.left):
            factor = self._spread(builder.load(builder.gep(left, [k])))
            for column, total in zip(right, sums[number * self.vectors :], strict=False):
                product = builder.fmul(factor, column, flags=_CONTRACT)
                added.append(builder.fadd(product, total, flags=_CONTRACT))
        return added

    def _spread(self, value: Value) -> Value:
        """Put a value into every lane."""
        nothing = ir.Constant(self.vector, ir.Undefined)
        vector = self.builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
        first = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), None)
        return self.builder.shuffle_vector(vector, nothing, first)

    def loop(
        self, sums: list[Value], first: Value, limit: Value, step: int
    ) -> tuple[list[Value], Value]:
        """Add rows of the panel from `first` while `step` are left; return where it ended."""

        def turn(k: Value, *added: Value) -> Totals:
            totals = list(added)
            for number in range(step):
                totals = self.add(totals, self.builder.add(k, ir.Constant(_INDEX, number)))
            return totals

        end = self.builder.sub(limit, ir.Constant(_INDEX, step - 1))
        k, *totals = loop(self.builder, first, end, step, sums, turn)
        return totals, k

    def finish(self, sums: list[Value]) -> None:
        """Store the sums."""
        for total, place in zip(sums, self.places(), strict=True):
            self.builder.store(total, place, align=4)


def make_tile(rows: int, vectors: int, lanes: int = LANES) -> Callable[..., None]:
    """Return the code of a tile for kernels; its arguments are `accumulate`'s without the rows."""

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore] # numba ships no types
    def tile(
        _typing: object, sums: types.Type, at: object, left: types.Type, start: object,
        stride: object, panels: types.Type, panel: object, width: object, count: object,
        fresh: object,
    ) -> Signature:  # fmt: skip
        index = types.intp
        operands = sums, index, left, index, index, panels, index, index, index, types.boolean
        del at, start, stride, panel, width, count, fresh

        def generate(
            context: Context, builder: Builder, signature: Typed, arguments: Sequence[Value]
        ) -> Value:
            values = list(arguments)
            for number in (0, 2, 5):
                array = context.make_array(signature.args[number])
                values[number] = array(context, builder, values[number]).data
            code = _Tile(builder, rows, vectors, lanes, values)
            sums, k = code.loop(code.begin(), ir.Constant(_INDEX, 0), code.count, UNROLLED)
            sums, _ = code.loop(sums, k, code.count, 1)
            code.finish(sums)
            return context.get_dummy_value()

        return types.void(*operands), generate

    intrinsic_tile: Callable[..., None] = tile
    return intrinsic_tile


def _adding(vectors: int) -> Callable[..., None]:
    """Return a function that adds the products of a tile; arguments as of `accumulate`."""
    tile_1, tile_2, tile_3, tile_4, tile_5, tile_6 = (
        make_tile(n + 1, vectors) for n in range(ROWS)
    )

    @inlined
    def add(
        sums: Singles, at: int, left: Singles, start: int, stride: int, panels: Singles, panel: int,
        width: int, count: int, rows: int, fresh: bool,
    ) -> None:  # fmt: skip
        if rows == 6:
            tile_6(sums, at, left, start, stride, panels, panel, width, count, fresh)
        elif rows == 5:
            tile_5(sums, at, left, start, stride, panels, panel, width, count, fresh)
        elif rows == 4:
            tile_4(sums, at, left, start, stride, panels, panel, width, count, fresh)
        elif rows == 3:
            tile_3(sums, at, left, start, stride, panels, panel, width, count, fresh)
        elif rows == 2:
            tile_2(sums, at, left, start, stride, panels, panel, width, count, fresh)
        else:
            tile_1(sums, at, left, start, stride, panels, panel, width, count, fresh)

    return add


_add_full = _adding(VECTORS)
_add_one, _add_two, _add_three = (_adding(min(VECTORS, number)) for number in (1, 2, 3))


@kernel
def _add_narrow(
    sums: Singles, at: int, left: Singles, start: int, stride: int, panels: Singles, panel: int,
    width: int, columns: int, count: int, rows: int, fresh: bool,
) -> None:  # fmt: skip
    """Add the products of a tile of at most 48 columns."""
    if columns > 32:
        _add_three(sums, at, left, start, stride, panels, panel, width, count, rows, fresh)
    elif columns > 16:
        _add_two(sums, at, left, start, stride, panels, panel, width, count, rows, fresh)
    else:
        _add_one(sums, at, left, start, stride, panels, panel, width, count, rows, fresh)


@kernel
def accumulate(
    sums: Singles, at: int, left: Singles, start: int, stride: int, panels: Singles, panel: int,
    width: int, columns: int, count: int, rows: int, fresh: bool,
) -> None:  # fmt: skip
    """Add the products of `rows` rows of the left matrix with a panel of `width` columns.

    `sums` has its rows from index `at`, `width` apart; the left matrix begins at `start`, its rows
    `stride` apart; the panel begins at `panel` and has `count` rows. With `fresh` the sums so far
    are zero, whatever is stored. The first `columns` columns are summed, and more to fill the
    registers. `rows` is 1 to 6, `width` 64 or 48; nothing is checked.
    """
    if STEP > 16 and columns <= 48:
        _add_narrow(
            sums, at, left, start, stride, panels, panel, width, columns, count, rows, fresh
        )
        return
    for first in range(0, columns, STEP):
        _add_full(
            sums, at + first, left, start, stride, panels, panel + first, width, count, rows, fresh
        )


@intrinsic  # type: ignore[untyped-decorator, unused-ignore] # numba ships no types
def prefetch(_typing: object, codes: types.Type, index: object) -> Signature:
    """Ask for the cache line of an element that is going to be read, inside the array or not."""

    def generate(
        context: Context, builder: Builder, signature: Typed, arguments: Sequence[Value]
    ) -> Value:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(array.data, [arguments[1]])
        byte = builder.bitcast(address, ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte.type, number, number, number])
        ask = builder.module.declare_intrinsic("llvm.prefetch.p0", (), kind)
        read, soon, data = number(0), number(3), number(1)
        builder.call(ask, [byte, read, soon, data])
        return context.get_dummy_value()

    del index
    return types.void(codes, types.intp), generate
