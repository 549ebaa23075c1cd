# SPDX-License-Identifier: Apache-2.0
"""Random calls; some break a condition or two."""

from mli_emulator import FxParams, RnnCellCfg, SaParams, SubTensorCfg, Tensor
from mli_emulator.tensor import derived_strides

from tests.libmli.calls import Call
from tests.libmli.random_calls import NUMBERS, Arguments, Generator

_SPOILED = 0.3


class SpoiledGenerator:
    """Makes the calls of a seed: most of them valid."""

    def __init__(self, seed: int) -> None:
        self._make = Generator(seed)

    def call(self) -> Call:
        """Make the next call."""
        call = self._make.call()
        if not self._make.chance(_SPOILED):
            return call
        arguments = dict(call.arguments)
        for _ in range(self._make.between(1, 2)):
            self._break(arguments)
        spoiled = Call(call.function, arguments)
        return call if _is_unspecified(spoiled) else spoiled

    def _break(self, arguments: Arguments) -> None:
        """Change an argument."""
        names = sorted(arguments)
        name = names[self._make.below(len(names))]
        argument = arguments[name]
        if isinstance(argument, RnnCellCfg):
            arguments[name] = self._broken_cfg(argument)
        elif isinstance(argument, SubTensorCfg):
            arguments[name] = self._broken_slice(argument)
        elif isinstance(argument, int):
            arguments[name] = self._make.choice((7, 300, 0x7FFFFFFF))
        elif isinstance(argument, Tensor) and self._make.chance(0.06):
            arguments[name] = None
        elif isinstance(argument, Tensor) and self._make.chance(0.1):
            self._make.share(arguments, name, names[self._make.below(len(names))])
        elif isinstance(argument, Tensor):
            arguments[name] = self._broken_tensor(argument, name == "out")

    def _broken_cfg(self, cfg: RnnCellCfg) -> RnnCellCfg | None:
        mode, act, ir = cfg.mode, cfg.act, cfg.ir_tsr
        choice = self._make.below(5)
        if choice == 0:
            return None
        if choice == 1:
            return RnnCellCfg(self._make.between(-1, 3), act, ir)
        if choice == 2:
            return RnnCellCfg(mode, self._make.between(-1, 3), ir)
        if choice == 3 or ir is None:
            return RnnCellCfg(mode, act, None)
        return RnnCellCfg(mode, act, self._broken_tensor(ir, True))

    def _broken_slice(self, cfg: SubTensorCfg) -> SubTensorCfg | None:
        if self._make.chance(0.1):
            return None
        offset, size, rank = list(cfg.offset), list(cfg.size), cfg.sub_tensor_rank
        if not size or self._make.chance(0.3):
            return SubTensorCfg(cfg.offset, cfg.size, self._make.between(0, 5))
        values = offset if self._make.chance(0.5) else size
        values[self._make.below(len(values))] = self._make.choice((0, 1, 4, 0xFFFFFFFF))
        return SubTensorCfg(tuple(offset), tuple(size), rank)

    def _broken_tensor(self, tensor: Tensor, written: bool) -> Tensor:
        """Copy a tensor with another field; the memory is the same, or a part of it."""
        copy = Tensor(
            tensor.data,
            tensor.capacity,
            tensor.shape,
            tensor.rank,
            tensor.el_type,
            tensor.el_params,
            tensor.mem_stride,
        )
        spoilers = [
            self._break_data,
            self._break_rank,
            self._break_shape,
            self._break_strides,
            self._break_params,
        ]
        if not written:
            spoilers.append(self._break_type)
        spoilers[self._make.below(len(spoilers))](copy)
        return copy

    def _break_data(self, tensor: Tensor) -> None:
        if self._make.chance(0.2) or tensor.data is None:
            tensor.data = None
            return
        tensor.capacity = self._make.below(tensor.capacity + 1)
        tensor.data = tensor.data[: tensor.capacity]

    def _break_rank(self, tensor: Tensor) -> None:
        tensor.rank = self._make.between(0, 5)

    def _break_shape(self, tensor: Tensor) -> None:
        shape = list(tensor.shape) or [1]
        extents = [0, 1, 0xFFFFFFFF, *(min(n, 0xFFFFFFFF) for n in (shape[0] + 1, shape[0] * 2))]
        shape[self._make.below(len(shape))] = extents[self._make.below(len(extents))]
        tensor.shape = tuple(shape)

    def _break_strides(self, tensor: Tensor) -> None:
        strides = list((tensor.mem_stride + (0,) * 4)[:4])
        strides[self._make.below(4)] = self._make.choice((-1, 0, 1, 2, 9, 0x7FFFFFFF))
        tensor.mem_stride = tuple(strides)

    def _break_params(self, tensor: Tensor) -> None:
        params = tensor.el_params
        if isinstance(params, SaParams):
            scale = list(params.scale)
            scale[self._make.below(len(scale))] = self._make.between(-1, 0)
            tensor.el_params = SaParams(
                params.zero_point, tuple(scale), params.scale_frac_bits, params.dim
            )
        elif isinstance(params, FxParams):
            tensor.el_params = FxParams(self._make.choice((-128, -1, 0, 16, 200, 255)))

    def _break_type(self, tensor: Tensor) -> None:
        tensor.el_type = self._make.choice(NUMBERS)
        tensor.el_params = self._make.params(tensor.el_type, tensor.shape, -1)


def _is_unspecified(call: Call) -> bool:
    """Tell whether two values are written to one place: the surviving value is unspecified."""
    source = call.arguments.get("in_", call.arguments.get("src"))
    out = call.arguments.get("out", call.arguments.get("dst"))
    element_wise = any(name in call.function for name in ("convert", "tanh", "sigm"))
    if not element_wise or not isinstance(source, Tensor) or not isinstance(out, Tensor):
        return False
    return _overlaps_itself(source, source) or _overlaps_itself(source, out)


def _overlaps_itself(source: Tensor, tensor: Tensor) -> bool:
    """Tell whether a tensor with derived strides has two elements of source's shape in one place.

    A tensor with all strides is refused for that.
    """
    rank = source.rank
    shape, strides = ((t + (0,) * rank)[:rank] for t in (source.shape, tensor.mem_stride))
    if all(strides) or min(strides) < 0:
        return False
    derived = derived_strides(shape, strides)
    inner = (*(n * s for n, s in zip(shape[1:], derived[1:], strict=True)), 1)
    return any(s < i for s, i in zip(derived, inner, strict=True))
