# SPDX-License-Identifier: Apache-2.0
"""The answers of the accelerator: zDNN statuses, and the reasons for them.

Source: zDNN API Reference 1.2.0, "zDNN Statuses"; numbers from `zdnn.h`.

    Refused       a call that ends with a zdnn_status, raised by a check, caught by the pipeline
    ProgramCheck  a call that would end the program on the machine
    NotInLibrary  a call of a function that the chosen library version does not export
    Malformed     a call that C could not express, such as too few bytes of user data
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, TypeAlias


class Status(IntEnum):
    """`zdnn_status`: 0x0002 warning, 0x0004 parameter, 0x0010 data, 0x000C hardware."""

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


ZDNN_WARNING = 0x00020000
ZDNN_HW_ERROR = 0x000C0000
_CLASS_MASK = 0xFFFF0000

# zdnn_get_status_message of zDNN 1.2.0: text after "NAME: ".
_TEXTS: dict[Status, str] = {
    Status.ZDNN_OK: "Success.",
    Status.ZDNN_ELEMENT_RANGE_VIOLATION: "One or more output tensor values were not valid.",
    Status.ZDNN_INVALID_SHAPE: "Invalid shape in one (or more) of the input/output tensor(s).",
    Status.ZDNN_INVALID_LAYOUT: "Invalid layout in one (or more) of the input/output tensor(s).",
    Status.ZDNN_INVALID_TYPE: "Invalid type in one (or more) of the input/output tensor(s).",
    Status.ZDNN_INVALID_FORMAT: "Invalid format in one (or more) of the input/output tensor(s).",
    Status.ZDNN_INVALID_DIRECTION: "Invalid RNN direction.",
    Status.ZDNN_INVALID_CONCAT_INFO: "Invalid concatenation info.",
    Status.ZDNN_INVALID_STRIDE_PADDING: (
        "Padding type is not valid for the current stride inputs."
    ),
    Status.ZDNN_INVALID_STRIDES: "Invalid stride height or width.",
    Status.ZDNN_MISALIGNED_PARMBLOCK: "NNPA parameter block is not on doubleword boundary.",
    Status.ZDNN_INVALID_CLIPPING_VALUE: "Invalid clipping for the specified operation.",
    Status.ZDNN_INVALID_ADJUSTMENT_FACTOR: "Invalid adjustment for the specified operation.",
    Status.ZDNN_INVALID_EPSILON: "Invalid epsilon for the specified operation.",
    Status.ZDNN_INVALID_TRANSFORM_TYPE: "Invalid transformation type.",
    Status.ZDNN_INVALID_BETA: "Invalid beta value for the specified operation.",
    Status.ZDNN_INVALID_GAMMA: "Invalid gamma value for the specified operation.",
    Status.ZDNN_INVALID_BESSEL_CORRECTION: (
        "Invalid bessel correction value for the specified operation."
    ),
    Status.ZDNN_INVALID_SCALE: "Invalid scale value for the specified operation.",
    Status.ZDNN_INVALID_OFFSET: "Invalid offset value for the specified operation.",
    Status.ZDNN_ALLOCATION_FAILURE: "Can not allocate storage.",
    Status.ZDNN_INVALID_BUFFER: (
        "Buffer address is NULL or not on 4K-byte boundary, or insufficient buffer size."
    ),
    Status.ZDNN_CONVERT_FAILURE: "Floating point data conversion failure.",
    Status.ZDNN_INVALID_STATE: "Invalid zTensor state.",
    Status.ZDNN_UNSUPPORTED_AIU_EXCEPTION: "zAIU operation returned an unexpected exception.",
    Status.ZDNN_UNSUPPORTED_PARMBLOCK: (
        "NNPA parameter block format is not supported by the model."
    ),
    Status.ZDNN_UNAVAILABLE_FUNCTION: (
        "Specified NNPA function is not defined or installed on the machine."
    ),
    Status.ZDNN_UNSUPPORTED_FORMAT: "Specified tensor data layout format is not supported.",
    Status.ZDNN_UNSUPPORTED_TYPE: "Specified tensor data type is not supported.",
    Status.ZDNN_EXCEEDS_MDIS: "Tensor dimension exceeds maximum dimension index size (MDIS).",
    Status.ZDNN_EXCEEDS_MTS: (
        "Total number of elements in tensor exceeds maximum tensor size (MTS)."
    ),
    Status.ZDNN_MISALIGNED_TENSOR: "Tensor address is not on 4K-byte boundary.",
    Status.ZDNN_MISALIGNED_SAVEAREA: (
        "Function specific save area address is not on 4K-byte boundary."
    ),
} | {
    Status(ZDNN_HW_ERROR + rc): f"Function specific response code ({rc:04X})."
    for rc in range(0xF000, 0xF00A)
}


def get_status_message(status: int) -> str:
    """Return "NAME: text" of a status, as `zdnn_get_status_message` does."""
    try:
        number = Status(status)
    except ValueError:
        return "(Status string is not defined.)"
    return f"{number.name}: {_TEXTS[number]}"


def status_name(status: int) -> str:
    """Return the mnemonic of a status, or its hexadecimal form where it has none."""
    try:
        return Status(status).name
    except ValueError:
        return f"0x{status:08X}"


def is_warning(status: int) -> bool:
    """Tell whether a status is a warning: the call ran and its output is valid."""
    return status & _CLASS_MASK == ZDNN_WARNING


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call was refused: the field, its value and the limit that it broke.

    `status` is 0 where the machine ends the program without one. `constraint` is the label of the
    numbered constraint in the function's docstring ("add_c1"). `sentence` replaces "field is
    value, must be limit".
    """

    status: int
    field: str
    value: str
    limit: str
    constraint: str = ""
    sentence: str = ""

    def __str__(self) -> str:
        """Say it in one sentence."""
        label = f" [{self.constraint}]" if self.constraint else ""
        status = f"{status_name(self.status)}: " if self.status else ""
        sentence = self.sentence or f"{self.field} is {self.value}, must be {self.limit}"
        return f"{status}{sentence}{label}"


class Refused(Exception):
    """A check failed; `refusal` says which and with what status the call ends."""

    def __init__(
        self, status: int, field: str, value: object, limit: str, constraint: str = ""
    ) -> None:
        self.refusal = Refusal(status, field, str(value), limit, constraint)
        super().__init__(str(self.refusal))


CheckKind: TypeAlias = Literal["data", "access", "operation", "specification"]


class ProgramCheck(Exception):
    """The machine would end the program.

    `kind` is "data" (SIGILL on Linux: operands that contradict each other), "access" (SIGSEGV: no
    storage behind an operand), "operation" (SIGILL: the machine has no such instruction) or
    "specification" (SIGILL: the parameter block is not on a doubleword boundary). `address` is the
    address of the first byte without storage, 0 if unknown.

    Source: zDNN API Reference 1.2.0, "Runtime Environment Variables" (prechecks exist to debug
    "hardware exceptions that otherwise would result in abnormal program termination").
    """

    def __init__(self, kind: CheckKind, refusal: Refusal, address: int = 0) -> None:
        self.kind: CheckKind = kind
        self.refusal = refusal
        self.address = address
        super().__init__(f"{kind} exception: {refusal}")


class NotInLibrary(Exception):
    """The chosen library version does not export the function."""

    def __init__(self, function: str, since: str, version: str) -> None:
        self.function, self.since, self.version = function, since, version
        super().__init__(f"zdnn_{function} exists since zDNN {since}, the session chose {version}")


class Malformed(Exception):
    """The caller's arguments are no call in C: `field` is `value`, must be `limit`."""

    def __init__(self, field: str, value: object, limit: str) -> None:
        self.field, self.value, self.limit = field, str(value), limit
        super().__init__(f"{field} is {value}, must be {limit}")
