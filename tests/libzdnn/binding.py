# SPDX-License-Identifier: Apache-2.0
"""zDNN's C functions, called as a C program calls them: own structures, own aligned memory.

`Program` runs operations of the wire contract through `libzdnn.so.0`, so that the shared vectors
test the C library. The arms' fields are the C parameters in C order.
"""

import ctypes
import os
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_bool, c_char, c_float, c_int, c_int8, c_uint32, c_uint64
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2 as tensors

from tests.libzdnn.toolchain import Prefix

PAGE = 4096
SHIFT = 128
_SCALARS: Mapping[int, Any] = {
    FieldDescriptor.CPPTYPE_ENUM: c_uint32,
    FieldDescriptor.CPPTYPE_UINT32: c_uint32,
    FieldDescriptor.CPPTYPE_INT32: c_int8,
    FieldDescriptor.CPPTYPE_BOOL: c_bool,
    FieldDescriptor.CPPTYPE_FLOAT: c_float,
}
_AREA_AFTER = {"softmax": "input", "softmax_mask": "input", "reduce": "input"} | {
    "lstm": "direction",
    "gru": "direction",
    "quantized_matmul_op": "pre_computed",
}
# Functions that return what they are asked, and what type that is.
_RESULTS: Mapping[str, Any] = {
    "is_nnpa_installed": c_bool,
    "is_nnpa_function_installed": c_bool,
    "is_nnpa_parmblk_fmt_installed": c_bool,
    "is_nnpa_datatype_installed": c_bool,
    "is_nnpa_layout_fmt_installed": c_bool,
    "is_nnpa_conversion_installed": c_bool,
    "is_version_runnable": c_bool,
    "get_nnpa_max_dim_idx_size": c_uint32,
    "get_max_for_dim": c_uint32,
    "get_max_runnable_version": c_uint32,
    "get_nnpa_max_tensor_size": c_uint64,
}
NUMBERS = frozenset(_RESULTS)
_ELEMENT = {tensors.FP32: 4, tensors.INT32: 4, tensors.FP16: 2, tensors.BFLOAT: 2, tensors.INT8: 1}
# <fenv.h> of x86-64, and the bits of the contract. Source: System V ABI, MXCSR exception flags.
_FLAGS = {0x01: 1, 0x08: 2, 0x10: 4}
_DESC = ("layout", "format", "type", "dim4", "dim3", "dim2", "dim1")


class Desc(ctypes.Structure):
    """`zdnn_tensor_desc`."""

    _fields_ = [(name, c_uint32) for name in _DESC]


class CZtensor(ctypes.Structure):
    """`zdnn_ztensor`."""

    _fields_ = [
        ("pre_transformed_desc", POINTER(Desc)),
        ("transformed_desc", POINTER(Desc)),
        ("buffer_size", c_uint64),
        ("buffer", ctypes.c_void_p),
        ("is_transformed", c_bool),
        ("reserved", c_char * 3),
        ("rec_scale", c_float),
        ("offset", c_float),
        ("reserved2", c_char * 20),
    ]


def desc_of(message: tensors.TensorDesc) -> Desc:
    """Return the structure of a descriptor."""
    values = [getattr(message, name) & 0xFFFFFFFF for name in _DESC]
    return Desc(*values)


class Memory:
    """Bytes on a 4 KiB boundary, or `shift` bytes behind one."""

    def __init__(self, size: int, shift: int = 0) -> None:
        self._raw = ctypes.create_string_buffer(size + PAGE + shift)
        start = ctypes.addressof(self._raw)
        self.address = start + -start % PAGE + shift
        self.size = size

    def read(self) -> bytes:
        """Return a copy of the bytes."""
        return ctypes.string_at(self.address, self.size)

    def write(self, data: bytes) -> None:
        """Fill the bytes from the first one on."""
        ctypes.memmove(self.address, data, len(data))


class Operand:
    """One ztensor of a program, made from a message."""

    def __init__(
        self, library: ctypes.CDLL, message: tensors.Ztensor, read: bool, shift: int
    ) -> None:
        self._descs = (
            desc_of(message.pre_transformed_desc),
            desc_of(message.transformed_desc),
        )
        size = int(library.zdnn_getsize_ztensor(byref(self._descs[1])))
        filled = message.WhichOneof("contents") is not None
        too_large = max(getattr(self._descs[1], f"dim{n}") for n in range(1, 5)) > 32768
        absent = message.null_buffer or (read and not filled and not too_large)
        self.memory = None if absent else Memory(PAGE if too_large and not filled else size, shift)
        if self.memory is not None and filled:
            self.memory.write(message.sticks)
        self.structure = CZtensor(
            ctypes.pointer(self._descs[0]),
            ctypes.pointer(self._descs[1]),
            message.buffer_size if message.HasField("buffer_size") else size,
            None if self.memory is None else self.memory.address,
            message.is_transformed,
            b"",
            message.rec_scale,
            message.offset,
            b"",
        )

    def info(self, operand: str) -> tensors.ZtensorInfo:
        """Return what the program sees of the ztensor now."""
        info = tensors.ZtensorInfo(operand=operand)
        info.ztensor.is_transformed = self.structure.is_transformed
        if self.memory is not None:
            info.ztensor.sticks = self.memory.read()
        return info


class Program:
    """A program that is linked with libzdnn."""

    def __init__(self, prefix: Prefix) -> None:
        self.library = ctypes.CDLL(str(prefix.shared))
        self.library.zdnn_getsize_ztensor.restype = c_uint64
        self._math = ctypes.CDLL("libm.so.6")

    def configure(self, **variables: str) -> None:
        """Set environment variables and have the library read them."""
        os.environ.update(variables)
        self.library.zdnn_init()

    def execute(self, operation: wire.Operation) -> wire.OperationResult:
        """Run one operation whose tensors are all inline."""
        name = operation.WhichOneof("operation")
        assert name is not None
        operands = self._operands(operation, name)
        result = self.call(operation, operands)
        result.outputs.extend(ztensor.info(operand) for operand, ztensor in operands.items())
        return result

    def _operands(self, operation: wire.Operation, name: str) -> dict[str, Operand]:
        arm = getattr(operation, name)
        read = {"input", "kernel", "bias", "src", "h0", "c0", *_inputs(name)}
        shift = SHIFT if operation.buffer_misaligned else 0
        return {
            field.name: Operand(
                self.library, value.inline_ztensor, _is_read(field.name, read), shift
            )
            for field, value in arm.ListFields()
            if isinstance(value, tensors.TensorRef)
        }

    def call(self, operation: wire.Operation, operands: Mapping[str, Any]) -> wire.OperationResult:
        """Call the function with the scalars of an operation and structures of the program."""
        name = operation.WhichOneof("operation")
        assert name is not None
        arm = getattr(operation, name)
        special = getattr(self, f"_{name}", None)
        function = getattr(self.library, f"zdnn_{name}")
        function.restype = _RESULTS.get(name, c_uint32)
        if special is not None:
            result: wire.OperationResult = special(function, arm, operands)
            return result
        return self._plain(function, name, arm, operands, operation)

    def _plain(
        self, function: Any, name: str, arm: Any, operands: Mapping[str, Operand], operation: Any
    ) -> wire.OperationResult:
        """Call with the fields in order; a lent area where C has one."""
        area = Memory(1, 8 if operation.save_area_misaligned else 16)
        lent = operation.save_area_misaligned or operation.work_area_misaligned
        arguments: list[Any] = []
        for field in arm.DESCRIPTOR.fields:
            if field.name != "all_timesteps":
                arguments.append(_argument(field, arm, operands))
            if _AREA_AFTER.get(name) == field.name:
                arguments.append(ctypes.c_void_p(area.address) if lent else None)
        return self._answer(name, function(*arguments))

    def _answer(self, name: str, value: Any) -> wire.OperationResult:
        kind = _RESULTS.get(name)
        if kind is c_bool:
            return wire.OperationResult(boolean=value)
        if kind is not None:
            return wire.OperationResult(number=value)
        return wire.OperationResult(zdnn_status=value)

    def _flagged(self, status: int) -> wire.OperationResult:
        raised = self._math.fetestexcept(0x3D)
        flags = sum(bit for mask, bit in _FLAGS.items() if raised & mask)
        return wire.OperationResult(zdnn_status=status, fp_flags=flags)

    def _init(self, function: Any, _arm: Any, _operands: Any) -> wire.OperationResult:
        function()
        return wire.OperationResult()

    def _transform(self, function: Any, arm: Any, operands: Mapping[str, Operand]) -> Any:
        data = [ctypes.c_char_p(array) for array in arm.data]
        return self._flagged(function(byref(operands["ztensor"].structure), *data))

    _transform_ztensor = _transform
    _transform_ztensor_with_saturation = _transform

    def _transform_quantized_ztensor(
        self, function: Any, arm: Any, operands: Mapping[str, Operand]
    ) -> wire.OperationResult:
        data = ctypes.c_char_p(arm.data[0]) if arm.data else None
        clips = (c_int8(arm.clip_min), c_int8(arm.clip_max))
        structure = byref(operands["ztensor"].structure)
        return self._flagged(function(structure, c_bool(arm.saturation_control), *clips, data))

    def _transform_origtensor(
        self, function: Any, arm: Any, operands: Mapping[str, Operand]
    ) -> wire.OperationResult:
        size = _array_bytes(arm.ztensor.inline_ztensor)
        array = ctypes.create_string_buffer(size + 8)
        result = self._flagged(function(byref(operands["ztensor"].structure), array))
        result.data = array.raw[:size]
        return result

    def _reshape_ztensor(
        self, function: Any, _arm: Any, operands: Mapping[str, Operand]
    ) -> wire.OperationResult:
        structures = (byref(operands["src"].structure), byref(operands["dest"].structure))
        return self._flagged(function(*structures))

    def _getrange_ztensor(
        self, function: Any, _arm: Any, operands: Mapping[str, Operand]
    ) -> wire.OperationResult:
        low, high = c_float(), c_float()
        status = function(byref(operands["ztensor"].structure), byref(low), byref(high))
        result = wire.OperationResult(zdnn_status=status)
        result.range.min, result.range.max = low.value, high.value
        return result

    def _is_nnpa_function_installed(self, function: Any, arm: Any, _: Any) -> wire.OperationResult:
        return _installed(function, arm, arm.function_codes)

    def _is_nnpa_parmblk_fmt_installed(
        self, function: Any, arm: Any, _: Any
    ) -> wire.OperationResult:
        return _installed(function, arm, arm.format_codes)


def _installed(function: Any, arm: Any, codes: Sequence[int]) -> wire.OperationResult:
    count = arm.count if arm.HasField("count") else len(codes)
    return wire.OperationResult(boolean=function(c_int(count), *map(c_int, codes)))


def _inputs(name: str) -> tuple[str, ...]:
    """Return the parameters that a function reads if it calls its ztensor `ztensor`."""
    return ("ztensor",) if name in ("transform_origtensor", "getrange_ztensor") else ()


def _is_read(operand: str, read: set[str]) -> bool:
    return operand in read or operand.startswith(("input_", "weights", "biases", "hidden_"))


def _argument(field: Any, arm: Any, operands: Mapping[str, Operand]) -> Any:
    if field.name in operands:
        return byref(operands[field.name].structure)
    if field.name == "clipping_value":
        return byref(c_float(arm.clipping_value)) if arm.HasField("clipping_value") else None
    return _SCALARS[field.cpp_type](getattr(arm, field.name))


def _array_bytes(ztensor: tensors.Ztensor) -> int:
    """Return the bytes of the user's array, by the pre-transformed descriptor."""
    pre, ranks = ztensor.pre_transformed_desc, {0: 1, 1: 2, 2: 2, 3: 3, 4: 3}
    count = 1
    for dimension in range(1, ranks.get(pre.layout, 4) + 1):
        count *= getattr(pre, f"dim{dimension}")
    return min(count, 1 << 24) * _ELEMENT.get(pre.type, 4)
