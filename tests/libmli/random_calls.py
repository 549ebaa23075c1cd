# SPDX-License-Identifier: Apache-2.0
"""Random valid calls of every function."""

from collections.abc import Callable, Sequence

import numpy as np
from mli_emulator import (
    ElParams,
    ElType,
    FxParams,
    RnnCellCfg,
    RnnMode,
    SaParams,
    SubTensorCfg,
    Tensor,
)
from mli_emulator.tensor import FX_TYPES, SA_TYPES, derived_strides, element_size, extent

from tests.libmli.calls import FUNCTIONS, Call
from tests.mli.golden_records import TYPES

Arguments = dict[str, object]
Shape = tuple[int, ...]
NUMBERS = (*(int(t) for t in ElType), 0, 3, 0x02000000)


class Generator:
    """Makes the calls of a seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def call(self) -> Call:
        """Make the next call."""
        function = FUNCTIONS[self.below(len(FUNCTIONS))]
        family, _, variant = function.rpartition("_")
        make: dict[str, Callable[[str], Arguments]] = {
            "krn_fully_connected": self._fully_connected,
            "krn_basic_rnn_cell": self._basic_rnn,
            "krn_lstm_cell": self._lstm,
            "krn_tanh": self._activation,
            "krn_sigm": self._activation,
        }
        if family in make:
            arguments = make[family](variant)
        elif "convert" in function:
            arguments = self._convert("safx" not in function)
        elif "subtensor" in function:
            arguments = self._subtensor()
        else:
            arguments = self._question(function)
        return Call(function, arguments)

    def below(self, limit: int) -> int:
        """Draw an integer from 0 on, below the limit."""
        return int(self._random.integers(limit))

    def between(self, low: int, high: int) -> int:
        """Draw an integer between two limits, both included."""
        return int(self._random.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        """Draw a truth."""
        return bool(self._random.random() < probability)

    def choice(self, values: Sequence[int]) -> int:
        """Draw a value."""
        return values[self.below(len(values))]

    def _data(self, count: int, el_type: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """Bytes of elements: any, small ones, or the corners of the container."""
        size = max(1, element_size(el_type))
        kind = self.below(4)
        if el_type == ElType.MLI_EL_FP_32 and kind < 3:
            spread = 2.0 ** self.between(-3, 20)
            return (self._random.standard_normal(count) * spread).astype("<f4").view(np.uint8)
        high = (1 << (8 * size - 1)) - 1
        low = -high - 1
        if kind == 0:
            values = self._random.choice([low, low + 1, -1, 0, 1, high - 1, high], count)
        elif kind == 1:
            values = self._random.integers(-9, 10, count)
        else:
            values = self._random.integers(low, high, count, endpoint=True)
        return values.astype(f"<i{size}").view(np.uint8)

    def _bits(self, el_type: int = ElType.MLI_EL_FX_16) -> int:
        """Fractional bits: mostly the container's, sometimes any number of a byte."""
        if self.chance(0.05):
            return self.between(0, 255)
        return self.between(0, 8 * max(1, element_size(el_type)) - 1 + 3 * self.below(2))

    def _fx(self, shape: Shape, el_type: ElType) -> Tensor:
        """A dense tensor, its strides given or not."""
        data = self._data(int(np.prod(shape)), el_type)
        strides = derived_strides(shape, (0,) * len(shape)) if self.chance(0.2) else ()
        params = FxParams(self._bits(el_type))
        return Tensor(data, data.nbytes, shape, len(shape), el_type, params, strides)

    def _output(self, count: int, el_type: ElType) -> Tensor:
        """Memory with the bytes of a result or a few more, and fields that mean nothing yet."""
        data = self._data(count + 2 * self.below(2), el_type)
        rank = self.between(0, 4)
        shape = tuple(self.between(0, 5) for _ in range(rank))
        any_type = self.choice(NUMBERS)
        return Tensor(data, data.nbytes, shape, rank, any_type, FxParams(self._bits(el_type)))

    def _factored(self, n: int) -> Shape:
        """A shape of n elements."""
        divisors = [d for d in range(1, n + 1) if n % d == 0]
        d = divisors[self.below(len(divisors))]
        return ((n,), (d, n // d), (1, d, n // d))[self.below(3)]

    def _fully_connected(self, variant: str) -> Arguments:
        io, weight_type = TYPES[variant]
        m, n = self.between(1, 5), self.between(1, 12)
        weights = self._fx((m, n), weight_type)
        if self.chance(0.3):
            pitch = n + self.below(4)
            weights.data = self._data(pitch * m, weight_type)
            weights.capacity = weights.data.nbytes
            weights.mem_stride = (pitch, self.below(2))
        return {
            "in_": self._fx(self._factored(n), io),
            "weights": weights,
            "bias": self._fx((m,), weight_type),
            "out": self._output(m, io),
        }

    def _recurrent(self, variant: str, mode: int, gates: Shape, m: int) -> Arguments:
        """The tensors of a cell, without its configuration."""
        io, weight_type = TYPES[variant]
        n, frames = self.between(1, 6), self.between(1, 4)
        shape = self._factored(n)
        batch = mode != RnnMode.RNN_ONE_TO_ONE
        count = m * (frames if batch else 1) * (gates[0] if len(gates) == 1 else 1)
        arguments: Arguments = {
            "in_": self._fx((frames, *shape) if batch else shape, io),
            "prev_out": self._fx((m,), io),
            "weights": self._fx((*gates, m, n + m), weight_type),
            "bias": self._fx((*gates, m), weight_type),
            "out": self._output(count, io),
        }
        if self.chance(0.3):
            self.share(arguments, "out", "prev_out")
        return arguments

    def _basic_rnn(self, variant: str) -> Arguments:
        io, mode, m = TYPES[variant][0], self.below(3), self.between(1, 5)
        stacked = mode == RnnMode.RNN_ONE_TO_ONE and self.chance(0.4)
        gates = (self.between(1, 3),) if stacked else ()
        arguments = self._recurrent(variant, mode, gates, m)
        ir = None if mode != RnnMode.RNN_BATCH_TO_LAST else self._output(m, io)
        return arguments | {"cfg": RnnCellCfg(mode, self.below(3), ir)}

    def _lstm(self, variant: str) -> Arguments:
        io, mode, m = TYPES[variant][0], self.below(3), self.between(1, 4)
        arguments = self._recurrent(variant, mode, (4,), m)
        cfg = RnnCellCfg(mode, self.below(3), self._output(4 * m, io))
        return arguments | {"cell": self._fx((m,), io), "cfg": cfg}

    def _activation(self, variant: str) -> Arguments:
        io = TYPES[variant][0]
        x = self._strided(self._shape(), io, FxParams(self._bits(io)))
        out = self._output(0, io)
        out.data = self._data(x.capacity // element_size(io), io)
        out.capacity = out.data.nbytes
        if self.chance(0.2):
            out.data, out.capacity = x.data, x.capacity
        return {"in_": x, "out": x if self.chance(0.05) else out}

    def _shape(self) -> Shape:
        return tuple(self.between(1, 4) for _ in range(self.between(0, 4)))

    def _strided(self, shape: Shape, el_type: ElType, params: ElParams) -> Tensor:
        """A tensor with all strides, some, or none; each stride covers the dimensions inside it."""
        strides: list[int] = []
        step = 1
        for length in reversed(shape):
            strides.insert(0, step)
            step = step * length + self.below(3)
        if self.chance(0.5):
            strides = [0 if self.chance(0.5) else stride for stride in strides]
        partial = tuple(strides)
        reach = extent(shape, derived_strides(shape, partial))
        data = self._data(reach + self.below(2), el_type)
        return Tensor(data, data.nbytes, shape, len(shape), el_type, params, partial)

    def params(self, el_type: int, shape: Shape, dim: int) -> ElParams:
        """Parameters of a type's kind; per axis if dim is not negative."""
        if el_type not in SA_TYPES:
            return FxParams(self.between(-128, 127)) if el_type in FX_TYPES else None
        slices = 1 if dim < 0 else (shape[dim] if dim < len(shape) else 1) + self.below(2)
        narrow = self.chance(0.7)
        limit = 100 if narrow else (1 << 15) - 1
        return SaParams(
            tuple(self.between(-limit, limit) for _ in range(slices)),
            tuple(self.between(1, limit) for _ in range(slices)),
            tuple(self.between(*((0, 15) if narrow else (-128, 127))) for _ in range(slices)),
            dim if dim >= 0 else -1,
        )

    def _convert(self, floats: bool) -> Arguments:
        types = [t for t in ElType if t in FX_TYPES | SA_TYPES or (floats and element_size(t) == 4)]
        source, target = (types[self.below(len(types))] for _ in range(2))
        shape = self._shape()
        axis = self.below(len(shape) + 1) if self.chance(0.4) else -1
        dims = [axis if self.chance(0.6) else -1 for _ in range(2)]
        src = self._strided(shape, source, self.params(source, shape, dims[0]))
        dst = self._strided(shape, target, self.params(target, shape, dims[1]))
        for tensor in (src, dst):
            if isinstance(tensor.el_params, FxParams) and self.chance(0.8):
                tensor.el_params = FxParams(self.between(-2, 15))
        if self.chance(0.5):
            dst.shape, dst.rank = self._shape(), self.below(5)
        if self.chance(0.15):
            dst.data, dst.capacity, dst.mem_stride = src.data, src.capacity, src.mem_stride
            dst.shape, dst.rank = shape, len(shape)
        return {"src": src, "dst": dst}

    def _any_tensor(self) -> Tensor:
        """A tensor of any type that functions take."""
        types = [t for t in ElType if element_size(t)]
        el_type, shape = types[self.below(len(types))], self._shape()
        dim = self.below(len(shape) + 1) if self.chance(0.5) else -1
        return self._strided(shape, el_type, self.params(el_type, shape, dim))

    def _subtensor(self) -> Arguments:
        x = self._any_tensor()
        offset = tuple(self.below(length) for length in x.shape)
        size = tuple(
            1 if self.chance(0.5) else self.between(1, length - start)
            for start, length in zip(offset, x.shape, strict=True)
        )
        cfg = SubTensorCfg(offset, size, x.rank - self.below(size.count(1) + 1))
        out = self._output(1, ElType.MLI_EL_FX_8)
        out.el_type = ElType.MLI_EL_FX_8
        return {"in_": x, "cfg": cfg, "out": out}

    def _question(self, function: str) -> Arguments:
        x = self._any_tensor()
        if function == "hlp_tensor_element_size":
            return {"in_": x}
        if function == "hlp_count_elem_num":
            return {"in_": x, "start_dim": self.below(x.rank + 2)}
        return {"in_": x, "idx": self.below(5)}

    def share(self, arguments: Arguments, written: str, read: str) -> None:
        """Put a tensor into the memory of another tensor, at the start or further on."""
        source, target = arguments[read], arguments[written]
        if not isinstance(source, Tensor) or not isinstance(target, Tensor):
            return
        if source.data is None or target.data is None:
            return
        offset = self.below(2) * self.below(4) * 2
        memory = np.zeros(max(len(source.data), len(target.data)) + offset, np.uint8)
        memory[: len(source.data)] = source.data
        source.data = memory[: len(source.data)]
        target.data = memory[offset : offset + len(target.data)]
