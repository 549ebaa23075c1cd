# SPDX-License-Identifier: Apache-2.0
"""Statuses of zDNN, with the library's names, numbers and texts.

Source: zDNN API Reference 1.2.0, "zDNN Statuses" and zdnn_get_status_message.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

__all__ = [
    "ZDNN_DATA_ERROR",
    "ZDNN_HW_ERROR",
    "ZDNN_PARAMETER_ERROR",
    "ZDNN_WARNING",
    "Status",
    "as_status",
    "get_status_message",
    "is_warning",
    "status_name",
]

ZDNN_WARNING = 0x00020000
ZDNN_PARAMETER_ERROR = 0x00040000
ZDNN_DATA_ERROR = 0x00100000
ZDNN_HW_ERROR = 0x000C0000
_CLASS_MASK = 0xFFFF0000


class Status(IntEnum):
    """`zdnn_status`. The upper half is the class: warning, parameter, data or hardware."""

    ZDNN_OK = 0x00000000
    ZDNN_ELEMENT_RANGE_VIOLATION = 0x00020001
    ZDNN_INVALID_SHAPE = 0x00040001
    ZDNN_INVALID_LAYOUT = 0x00040002
    ZDNN_INVALID_TYPE = 0x00040003
    ZDNN_INVALID_FORMAT = 0x00040004
    ZDNN_INVALID_DIRECTION = 0x00040005
    ZDNN_INVALID_CONCAT_INFO = 0x00040006
    ZDNN_INVALID_STRIDE_PADDING = 0x00040007
    ZDNN_INVALID_STRIDES = 0x00040008
    ZDNN_MISALIGNED_PARMBLOCK = 0x00040009
    ZDNN_INVALID_CLIPPING_VALUE = 0x0004000A
    ZDNN_INVALID_ADJUSTMENT_FACTOR = 0x0004000B
    ZDNN_INVALID_EPSILON = 0x0004000C
    ZDNN_INVALID_TRANSFORM_TYPE = 0x0004000D
    ZDNN_INVALID_BETA = 0x0004000E
    ZDNN_INVALID_GAMMA = 0x0004000F
    ZDNN_INVALID_BESSEL_CORRECTION = 0x00040010
    ZDNN_INVALID_SCALE = 0x00040011
    ZDNN_INVALID_OFFSET = 0x00040012
    ZDNN_ALLOCATION_FAILURE = 0x00100001
    ZDNN_INVALID_BUFFER = 0x00100002
    ZDNN_CONVERT_FAILURE = 0x00100003
    ZDNN_INVALID_STATE = 0x00100004
    ZDNN_UNSUPPORTED_AIU_EXCEPTION = 0x00100005
    ZDNN_UNSUPPORTED_PARMBLOCK = 0x000C0001
    ZDNN_UNAVAILABLE_FUNCTION = 0x000C0002
    ZDNN_UNSUPPORTED_FORMAT = 0x000C0010
    ZDNN_UNSUPPORTED_TYPE = 0x000C0011
    ZDNN_EXCEEDS_MDIS = 0x000C0012
    ZDNN_EXCEEDS_MTS = 0x000C0013
    ZDNN_MISALIGNED_TENSOR = 0x000C0014
    ZDNN_MISALIGNED_SAVEAREA = 0x000C0015
    ZDNN_FUNC_RC_F000 = 0x000CF000
    ZDNN_FUNC_RC_F001 = 0x000CF001
    ZDNN_FUNC_RC_F002 = 0x000CF002
    ZDNN_FUNC_RC_F003 = 0x000CF003
    ZDNN_FUNC_RC_F004 = 0x000CF004
    ZDNN_FUNC_RC_F005 = 0x000CF005
    ZDNN_FUNC_RC_F006 = 0x000CF006
    ZDNN_FUNC_RC_F007 = 0x000CF007
    ZDNN_FUNC_RC_F008 = 0x000CF008
    ZDNN_FUNC_RC_F009 = 0x000CF009


_TENSORS = "in one (or more) of the input/output tensor(s)."
_FOR_OPERATION = "for the specified operation."
_TEXTS: Mapping[int, str] = MappingProxyType(
    {
        Status.ZDNN_OK: "Success.",
        Status.ZDNN_ELEMENT_RANGE_VIOLATION: "One or more output tensor values were not valid.",
        Status.ZDNN_INVALID_SHAPE: f"Invalid shape {_TENSORS}",
        Status.ZDNN_INVALID_LAYOUT: f"Invalid layout {_TENSORS}",
        Status.ZDNN_INVALID_TYPE: f"Invalid type {_TENSORS}",
        Status.ZDNN_INVALID_FORMAT: f"Invalid format {_TENSORS}",
        Status.ZDNN_INVALID_DIRECTION: "Invalid RNN direction.",
        Status.ZDNN_INVALID_CONCAT_INFO: "Invalid concatenation info.",
        Status.ZDNN_INVALID_STRIDE_PADDING: "Padding type is not valid for the current stride "
        "inputs.",
        Status.ZDNN_INVALID_STRIDES: "Invalid stride height or width.",
        Status.ZDNN_MISALIGNED_PARMBLOCK: "NNPA parameter block is not on doubleword boundary.",
        Status.ZDNN_INVALID_CLIPPING_VALUE: f"Invalid clipping {_FOR_OPERATION}",
        Status.ZDNN_INVALID_ADJUSTMENT_FACTOR: f"Invalid adjustment {_FOR_OPERATION}",
        Status.ZDNN_INVALID_EPSILON: f"Invalid epsilon {_FOR_OPERATION}",
        Status.ZDNN_INVALID_TRANSFORM_TYPE: "Invalid transformation type.",
        Status.ZDNN_INVALID_BETA: f"Invalid beta value {_FOR_OPERATION}",
        Status.ZDNN_INVALID_GAMMA: f"Invalid gamma value {_FOR_OPERATION}",
        Status.ZDNN_INVALID_BESSEL_CORRECTION: f"Invalid bessel correction value {_FOR_OPERATION}",
        Status.ZDNN_INVALID_SCALE: f"Invalid scale value {_FOR_OPERATION}",
        Status.ZDNN_INVALID_OFFSET: f"Invalid offset value {_FOR_OPERATION}",
        Status.ZDNN_ALLOCATION_FAILURE: "Can not allocate storage.",
        Status.ZDNN_INVALID_BUFFER: "Buffer address is NULL or not on 4K-byte boundary, or "
        "insufficient buffer size.",
        Status.ZDNN_CONVERT_FAILURE: "Floating point data conversion failure.",
        Status.ZDNN_INVALID_STATE: "Invalid zTensor state.",
        Status.ZDNN_UNSUPPORTED_AIU_EXCEPTION: "zAIU operation returned an unexpected exception.",
        Status.ZDNN_UNSUPPORTED_PARMBLOCK: "NNPA parameter block format is not supported by the "
        "model.",
        Status.ZDNN_UNAVAILABLE_FUNCTION: "Specified NNPA function is not defined or installed on "
        "the machine.",
        Status.ZDNN_UNSUPPORTED_FORMAT: "Specified tensor data layout format is not supported.",
        Status.ZDNN_UNSUPPORTED_TYPE: "Specified tensor data type is not supported.",
        Status.ZDNN_EXCEEDS_MDIS: "Tensor dimension exceeds maximum dimension index size (MDIS).",
        Status.ZDNN_EXCEEDS_MTS: "Total number of elements in tensor exceeds maximum tensor size "
        "(MTS).",
        Status.ZDNN_MISALIGNED_TENSOR: "Tensor address is not on 4K-byte boundary.",
        Status.ZDNN_MISALIGNED_SAVEAREA: "Function specific save area address is not on 4K-byte "
        "boundary.",
    }
    | {
        ZDNN_HW_ERROR + rc: f"Function specific response code ({rc:04X})."
        for rc in range(0xF000, 0xF00A)
    }
)


def get_status_message(status: int) -> str:
    """Return the text of a status, for example "ZDNN_OK: Success.".

    Unknown numbers give "(Status string is not defined.)".
    Source: zDNN API Reference 1.2.0, zdnn_get_status_message.
    """
    text = _TEXTS.get(status)
    return f"{Status(status).name}: {text}" if text else "(Status string is not defined.)"


def as_status(number: int) -> int:
    """Return the number as a `Status`, or unchanged when it is a response code without a name."""
    try:
        return Status(number)
    except ValueError:
        return number


def status_name(number: int) -> str:
    """Return zDNN's name of a status, or its hexadecimal number when it has none."""
    named = as_status(number)
    return named.name if isinstance(named, Status) else f"0x{number:08X}"


def is_warning(status: int) -> bool:
    """Tell whether a status is of the warning class; ZDNN_OK is not."""
    return status & _CLASS_MASK == ZDNN_WARNING
