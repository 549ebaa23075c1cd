# SPDX-License-Identifier: Apache-2.0
"""Host operators of our own, in place of ONNX Runtime: on the plain path too, there is one answer.

They compute depthwise convolutions and hard activations of FP32 as `reference.host_operators` of
the emulator defines them; others only move elements. An image may lie with its channels last: it
is (N, C, H, W) by its shape, and (N, H, W, C) in memory, as sticks have it. Operators take arrays
that lie either way, and leave images as they lie; a result may be a view of an operand.
Source: ONNX operators of the names given.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from nnpa_emulator.kernels import host_operators as kernels
from nnpa_emulator.reference.host_operators import Window

from nnpa_network.program import Array, DType
from nnpa_network.running.host import HostError, Kernel

Pair: TypeAlias = tuple[int, int]
Dims: TypeAlias = tuple[int, int, int, int]

_FP32 = np.dtype(np.float32)
CHANNELS_LAST, CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Permutations of images (N, C, H, W) into (N, H, W, C), and back."""
MOVES = frozenset(("Concat", "Expand", "Gather", "Pad", "Reshape", "Slice", "Split", "Transpose"))
"""Operators that only move elements, of any type."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A node: attributes, of each input the declared shape and the constant, number of outputs."""

    attributes: Mapping[str, Any]
    shapes: Sequence[tuple[int, ...]]
    constants: Sequence[Array | None]
    outputs: int


Prepare: TypeAlias = Callable[[Operation], Kernel | None]
"""Returns what computes an operation, None where it is for ONNX Runtime."""


def own_kernel(
    node: onnx.NodeProto,
    dtypes: Sequence[DType],
    shapes: Sequence[tuple[int, ...]],
    constants: Sequence[Array | None],
) -> Kernel | None:
    """Return the kernel of a node, None if ONNX Runtime computes it. See `Operation`."""
    prepare = _OPERATORS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if prepare is None or len(dtypes) != len(node.input):
        return None
    if len(node.output) != 1 and node.op_type != "Split":
        return None
    if any(dtype != _FP32 and (node.op_type not in MOVES or dtype.kind == "O") for dtype in dtypes):
        return None
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    try:
        return prepare(Operation(attributes, shapes, constants, len(node.output)))
    except (TypeError, ValueError, IndexError):  # attributes that are none: ONNX Runtime says why
        return None


def has_channels_last(array: Array) -> bool:
    """Tell whether an image lies with its channels last, and not the other way as well."""
    return array.ndim == 4 and not array.flags.c_contiguous and _last(array).flags.c_contiguous


def _fitting(compute: Kernel) -> Kernel:
    """Return a kernel that raises `HostError` for operands that do not fit, or are too large."""

    def kernel(arrays: Sequence[Array]) -> list[Array]:
        try:
            return compute(arrays)
        except (TypeError, ValueError, IndexError, OverflowError, MemoryError) as error:
            raise HostError(str(error)) from error

    return kernel


def _empty(shape: Sequence[int], like: Array) -> Array:
    """Return a new array of a shape, an image that lies as another one does."""
    if not has_channels_last(like):
        return np.empty(shape, like.dtype)
    return _first(np.empty([shape[axis] for axis in CHANNELS_LAST], like.dtype))


def _last(array: Array) -> Array:
    return array.transpose(CHANNELS_LAST)


def _first(array: Array) -> Array:
    return array.transpose(CHANNELS_FIRST)


# Depthwise convolution.


def convolved(operation: Operation) -> tuple[Window, Dims] | None:
    """Return the window of a depthwise convolution and its result (N, H, W, C); None for others."""
    attributes, (image, weights) = operation.attributes, operation.shapes[:2]
    groups = int(attributes.get("group", 1))
    if groups < 2 or len(image) != 4 or len(weights) != 4 or -1 in image:
        return None
    size, kernel = (image[2], image[3]), (weights[2], weights[3])
    strides, dilations = (_pair(attributes, name) for name in ("strides", "dilations"))
    if min(*strides, *dilations) < 1:
        return None
    before, after = _ends(attributes, size, kernel, strides, dilations)
    counts = [
        (size[axis] + before[axis] + after[axis] - (kernel[axis] - 1) * dilations[axis] - 1)
        // strides[axis] + 1
        for axis in (0, 1)
    ]  # fmt: skip
    depthwise = image[1] == groups and weights[:2] == (groups, 1)
    declared = tuple(attributes.get("kernel_shape", kernel)) == kernel
    if not (depthwise and declared and min(counts) > 0 and min(*before, *after) >= 0):
        return None
    return (*kernel, *strides, *before, *dilations), (image[0], counts[0], counts[1], groups)


def _convolution(operation: Operation) -> Kernel | None:
    """Convolve images of at least two channels, each with a kernel of its own."""
    sizes = convolved(operation)
    if sizes is None:
        return None
    (window, out), (image, weights) = sizes, operation.shapes[:2]
    groups = image[1]
    arranged = [
        None if constant is None else _arranged(constant) for constant in operation.constants[1:]
    ]
    dims = image[0], image[2], image[3], image[1]

    def convolve(arrays: Sequence[Array]) -> list[Array]:
        shapes = [array.shape for array in arrays]
        if shapes[:2] != [image, weights] or shapes[2:] not in ([], [(groups,)]):
            raise ValueError(f"operands of shapes {shapes}, not {[image, weights, (groups,)]}")
        lines = [
            line if line is not None else _arranged(array)
            for line, array in zip(arranged, arrays[1:], strict=True)
        ]
        bias = lines[1] if len(lines) > 1 else np.zeros(groups, np.float32)
        target = np.empty(out, np.float32)
        source = _line(_last(arrays[0]))
        kernels.depthwise(source, lines[0], bias, target.ravel(), dims, out[1:3], window)
        return [_first(target)]

    return _fitting(convolve)


def _arranged(array: Array) -> Array:
    """Return weights (C, 1, kh, kw) as a line of (kh, kw, C), and a bias as it is."""
    return (array.transpose(2, 3, 1, 0) if array.ndim == 4 else array).flatten()


def _line(array: Array) -> Array:
    """Return elements as a line that a compiled kernel takes: it is compiled for none but these."""
    line = array.ravel()
    return line if line.flags.writeable else line.copy()


def _pair(attributes: Mapping[str, Any], name: str) -> Pair:
    first, second = attributes.get(name, (1, 1))
    return int(first), int(second)


def _ends(
    attributes: Mapping[str, Any], size: Pair, kernel: Pair, strides: Pair, dilations: Pair
) -> tuple[Pair, Pair]:
    """Return the padding before and after, each (height, width)."""
    auto = attributes.get("auto_pad", b"NOTSET")
    if auto not in (b"SAME_UPPER", b"SAME_LOWER"):
        pads = attributes.get("pads", (0, 0, 0, 0)) if auto == b"NOTSET" else (0, 0, 0, 0)
        top, left, bottom, right = (int(pad) for pad in pads)
        return (top, left), (bottom, right)
    totals = [
        max((-(-size[axis] // strides[axis]) - 1) * strides[axis] + reach + 1 - size[axis], 0)
        for axis, reach in enumerate((kernel[axis] - 1) * dilations[axis] for axis in (0, 1))
    ]
    small = totals[0] // 2, totals[1] // 2
    large = totals[0] - small[0], totals[1] - small[1]
    return (small, large) if auto == b"SAME_UPPER" else (large, small)


# Activations.


def _hard_sigmoid(operation: Operation) -> Kernel:
    alpha = np.float32(operation.attributes.get("alpha", 0.2))
    beta = np.float32(operation.attributes.get("beta", 0.5))
    return _elementwise(lambda source, out: kernels.hard_sigmoid(source, out, alpha, beta))


def _hard_swish(_operation: Operation) -> Kernel:
    return _elementwise(lambda source, out: kernels.hard_swish(source, out))


def _elementwise(compute: Callable[[Array, Array], None]) -> Kernel:
    """Return a kernel that computes element by element, in the order in memory."""

    def kernel(arrays: Sequence[Array]) -> list[Array]:
        turned = has_channels_last(arrays[0])
        source = _last(arrays[0]) if turned else arrays[0]
        out = np.empty(source.shape, np.float32)
        compute(_line(source), out.ravel())
        return [_first(out) if turned else out]

    return kernel


# Moves.


def _transpose(operation: Operation) -> Kernel:
    axes = operation.attributes.get("perm")
    return _fitting(lambda arrays: [arrays[0].transpose(axes)])


def _expand(operation: Operation) -> Kernel | None:
    """Repeat along axes of size 1, up to a constant shape."""
    shape, target = operation.shapes[0], operation.constants[1]
    if target is None or -1 in shape:
        return None
    whole = np.broadcast_shapes(shape, tuple(target.tolist()))
    return _fitting(lambda arrays: [np.broadcast_to(arrays[0], whole)])


def _reshape(operation: Operation) -> Kernel | None:
    """Give elements a constant shape; 0 is the size of the axis, unless `allowzero` is set."""
    target = operation.constants[1]
    if target is None:
        return None
    dims, is_size = target.tolist(), operation.attributes.get("allowzero", 0)

    def reshape(arrays: Sequence[Array]) -> list[Array]:
        (array, _), sizes = arrays, dims
        if 0 in dims and not is_size:
            sizes = [size or array.shape[axis] for axis, size in enumerate(dims)]
        return [array.reshape(sizes)]

    return _fitting(reshape)


def _gather(operation: Operation) -> Kernel:
    axis = operation.attributes.get("axis", 0)
    return _fitting(lambda arrays: [np.asarray(np.take(arrays[0], arrays[1], axis))])


def _concat(operation: Operation) -> Kernel | None:
    axis = operation.attributes.get("axis")
    if axis is None:
        return None
    return _fitting(lambda arrays: [np.concatenate(arrays, axis)])


def _slice(operation: Operation) -> Kernel | None:
    """Cut between constant starts and ends, both inputs since opset 10."""
    bounds = operation.constants[1:]
    if len(bounds) < 2 or any(bound is None for bound in bounds):
        return None

    def cut(arrays: Sequence[Array]) -> list[Array]:
        array, starts, ends, *more = arrays
        axes = more[0] if more else np.arange(starts.size)
        steps = more[1] if len(more) > 1 else np.ones(starts.size, np.int64)
        index = [slice(None)] * array.ndim
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            index[int(axis)] = slice(int(start), int(end), int(step))
        return [array[tuple(index)]]

    return _fitting(cut)


def _pad(operation: Operation) -> Kernel | None:
    """Put one number around, cut where ends are negative; constant ends of all axes."""
    rank, operands = len(operation.shapes[0]), operation.constants
    ends = operands[1] if len(operands) in (2, 3) else None
    mode = operation.attributes.get("mode", b"constant")
    if mode != b"constant" or ends is None or ends.size != 2 * rank:
        return None
    before, after = ends[:rank].tolist(), ends[rank:].tolist()

    def pad(arrays: Sequence[Array]) -> list[Array]:
        array = arrays[0]
        sides = list(zip(before, array.shape, after, strict=True))
        kept = tuple(slice(max(-first, 0), size + min(last, 0)) for first, size, last in sides)
        inner = tuple(
            slice(max(first, 0), size + first + min(last, 0)) for first, size, last in sides
        )
        out = _empty([first + size + last for first, size, last in sides], array)
        out[...] = arrays[2].reshape(()) if len(arrays) > 2 else 0
        out[inner] = array[kept]
        return [out]

    return _fitting(pad)


def _split(operation: Operation) -> Kernel | None:
    """Cut into parts of constant sizes, an input since opset 13."""
    attributes, operands = operation.attributes, operation.constants
    sizes = operands[1] if len(operands) == 2 else attributes.get("split")
    if sizes is None or len(sizes) != operation.outputs or min(sizes) < 0:
        return None
    axis, bounds = attributes.get("axis", 0), np.cumsum(sizes)

    def split(arrays: Sequence[Array]) -> list[Array]:
        if arrays[0].shape[axis] != bounds[-1]:
            raise ValueError(f"axis {axis} has {arrays[0].shape[axis]} elements, not {bounds[-1]}")
        return list(np.split(arrays[0], bounds[:-1], axis))

    return _fitting(split)


_OPERATORS: Mapping[str, Prepare] = {
    "Concat": _concat,
    "Conv": _convolution,
    "Expand": _expand,
    "Gather": _gather,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Transpose": _transpose,
}
