# SPDX-License-Identifier: Apache-2.0
"""Fill, change and compare the cells of stick buffers that hold no element.

Padding are the cells behind dim1 and dim2. Gaps are cells inside the transformed dims: between the
gates of a concatenated tensor, between the halves of its rows, and between the directions of a
bidirectional layer's output; they are zero, and a layer's matrices rely on that.
Source: zDNN API Reference 1.2.0, "Stickified tensors", "Concatenated tensors", zdnn_lstm.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from nnpa_emulator import DataLayouts, DataTypes, Guest, Ztensor, run, stick
from nnpa_emulator.dlfloat import NINF
from nnpa_emulator.machine import Memory
from nnpa_emulator.ztensor import LAYOUT_GATES, padded, stick_bytes

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.seams import Tensors

Mask: TypeAlias = npt.NDArray[np.bool_]

_COPIES: Final = 3  # of an operation's inputs: saved, disturbed, and their masks
_DIRECTIONS: Final = 2
_HALVED: Final = frozenset((DataLayouts.ZDNN_BIDIR_FICO, DataLayouts.ZDNN_BIDIR_ZRH))
_INTEGERS: Final[dict[int, type[np.signedinteger[Any]]]] = {
    DataTypes.ZDNN_BINARY_INT8: np.int8,
    DataTypes.ZDNN_BINARY_INT32: np.int32,
}
_ONE_TWO_DLFLOAT: Final = (0x3E00, 0x4000)  # 1 and 2: exponent bias 31, 9 bits of fraction


def fill(memory: Memory) -> None:
    """Fill new memory with the pattern: NINF in every half word."""
    memory.view(np.uint16)[:] = NINF


def is_whole(tensor: Ztensor) -> bool:
    """Return True if a tensor has a buffer of the size of its descriptor."""
    buffer = tensor.buffer
    return buffer is not None and 0 < buffer.nbytes == stick_bytes(tensor.transformed_desc)


def pad(tensor: Ztensor) -> None:
    """Fill the padding of a tensor, not its gaps, with the pattern."""
    pattern = np.full(tensor.sticks.nbytes // 2, NINF, np.uint16)
    cells = _cells(tensor)
    np.copyto(cells, pattern.view(cells.dtype), where=stick.padding(tensor.transformed_desc))


def _without_element(tensor: Ztensor) -> Mask:
    """Return a mask over the cells in memory order: True for padding and gaps."""
    desc, cells = tensor.transformed_desc, _cells(tensor)
    dense = np.ones(desc.dims, cells.dtype)
    dense[:, :, _gap_rows(tensor), :] = 0
    dense[:, :, :, _gap_columns(tensor)] = 0
    memory = np.zeros(cells.nbytes, np.uint8)
    stick.write_cells(dense, desc, memory, fresh=True)
    mask: Mask = memory.view(cells.dtype) == 0
    return mask


def _gap_columns(tensor: Ztensor) -> Mask:
    """Return a mask over dim1: True for positions in a gap."""
    pre, desc = tensor.pre_transformed_desc, tensor.transformed_desc
    parts = LAYOUT_GATES.get(desc.layout, 1)
    if pre.layout == DataLayouts.ZDNN_4DS and pre.dim3 == _DIRECTIONS:
        parts = _DIRECTIONS
    return _gap(desc.dim1, parts, pre.dim1)


def _gap_rows(tensor: Ztensor) -> Mask:
    """Return a mask over dim2: True for positions in a gap."""
    pre, desc = tensor.pre_transformed_desc, tensor.transformed_desc
    parts = _DIRECTIONS if desc.layout in _HALVED else 1
    return _gap(desc.dim2, parts, pre.dim2 // _DIRECTIONS)


def _gap(size: int, parts: int, filled: int) -> Mask:
    """Return a mask over `size` positions in equal parts: True behind the `filled` first of a part.

    No position is True if the user's descriptor does not fit the tensor: its gaps are unknown.
    """
    width = size // parts
    if parts == 1 or not width or width != padded(filled):
        return np.zeros(size, np.bool_)
    gap: Mask = np.arange(size) % width >= filled
    return gap


@dataclass(frozen=True, slots=True)
class Inputs:
    """Copies of an operation's inputs before it ran, with masks of the cells without an element.

    `sequence` is the guest's count of jittered calls before the operation.
    """

    sticks: Mapping[str, Memory]
    masks: Mapping[str, Mask]
    sequence: int

    def find_significant(
        self, guest: Guest, step: Step, tensors: Tensors, outputs: Sequence[str]
    ) -> list[str]:
        """Return the inputs on whose padding the outputs of an operation depend.

        The operation is computed again with other values in the padding.
        """
        nothing = np.zeros(1, np.bool_)

        def is_same(masks: Mapping[str, Mask]) -> bool:
            """Return True if the outputs stay the same with other padding in some inputs."""
            copies = {
                operand: _disturbed(tensors[operand], sticks, masks.get(operand, nothing))
                for operand, sticks in self.sticks.items()
            }
            blank = {
                output: _disturbed(tensors[output], tensors[output].sticks, nothing)
                for output in outputs
            }
            guest.sequence = self.sequence
            run(guest, step.spec.name, {**step.values, **tensors, **copies, **blank})
            return all(_same_elements(tensors[output], blank[output]) for output in outputs)

        try:
            if is_same(self.masks):
                return []
            return [name for name, mask in self.masks.items() if not is_same({name: mask})]
        except MemoryError:
            return []


def copy_bytes(read: Iterable[Ztensor]) -> int:
    """Return the most bytes that copies of tensors and computations with them take."""
    return _COPIES * sum(tensor.sticks.nbytes for tensor in read)


def save(read: Mapping[str, Ztensor], sequence: int) -> Inputs | None:
    """Return copies of the inputs of an operation, or None if they have no padding."""
    masks = {name: _without_element(tensor) for name, tensor in read.items()}
    masks = {name: mask for name, mask in masks.items() if mask.any()}
    if not masks:
        return None
    return Inputs({name: tensor.sticks.copy() for name, tensor in read.items()}, masks, sequence)


def _disturbed(tensor: Ztensor, sticks: Memory, mask: Mask) -> Ztensor:
    """Return a copy of a tensor with other finite values in the cells of the mask."""
    copy = replace(tensor, buffer=sticks.copy())
    cells = _cells(copy)
    unit, two = (1, 2) if tensor.transformed_desc.type in _INTEGERS else _ONE_TWO_DLFLOAT
    changed = np.where(cells == unit, cells.dtype.type(two), cells.dtype.type(unit))
    np.copyto(cells, changed, where=mask)
    return copy


def _same_elements(left: Ztensor, right: Ztensor) -> bool:
    """Return True if two tensors of one shape have the same bits in every element."""
    same = _cells(left) == _cells(right)
    return bool(np.all(same | _without_element(left)))


def _cells(tensor: Ztensor) -> npt.NDArray[Any]:
    return tensor.sticks.view(_INTEGERS.get(tensor.transformed_desc.type, np.uint16))
