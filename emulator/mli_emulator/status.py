# SPDX-License-Identifier: Apache-2.0
"""Status codes, debug levels and refusals of the embARC MLI library.

Source: embARC Machine Learning Inference Library documentation, "Error Codes" and "Debug Modes".
"""

from dataclasses import dataclass
from enum import IntEnum


class MliStatus(IntEnum):
    """``mli_status``, with the library's own spelling and numbers (``mli_types.h``)."""

    MLI_STATUS_OK = 0
    MLI_STATUS_BAD_TENSOR = 1
    MLI_STATUS_SHAPE_MISMATCH = 2
    MLI_STATUS_INCOMPATEBLE_TENSORS = 3
    MLI_STATUS_BAD_FUNC_CFG = 4
    MLI_STATUS_NOT_ENGH_MEM = 5
    MLI_STATUS_NOT_SUPPORTED = 6
    MLI_STATUS_SPEC_PARAM_MISMATCH = 7
    MLI_STATUS_ARGUMENT_ERROR = 8
    MLI_STATUS_LENGTH_ERROR = 9
    MLI_STATUS_SIZE_MISMATCH = 10
    MLI_STATUS_RANK_MISMATCH = 11
    MLI_STATUS_TYPE_MISMATCH = 12
    MLI_STATUS_MEM_BANK_MISMATCH = 13
    MLI_STATUS_MISALIGNMENT_ERROR = 14
    MLI_STATUS_LARGE_ENUM = 0x02000000


class DebugLevel(IntEnum):
    """``MLI_DEBUG_MODE``: how a build of the library answers a violated condition.

    RELEASE always answers OK. There the library computes on with whatever it finds; here it
    writes nothing and the outcome names the condition, but for a bias with too many fractional
    bits, which is well defined and computed. RET_CODES (the default here) returns status codes.
    ASSERT and above stop at the first violation. DEBUG and above also give messages. FULL also
    asserts inside the loops (here: accumulator overflow).
    """

    RELEASE = 0
    RET_CODES = 1
    ASSERT = 2
    DEBUG = 3
    FULL = 4


@dataclass(frozen=True, slots=True)
class Refusal:
    """One violated constraint: its status and number, and the field, its value and the limit."""

    status: MliStatus
    constraint: str
    field: str
    value: str
    limit: str

    def __str__(self) -> str:
        return (
            f"{self.status.name} ({self.constraint}): "
            f"{self.field} is {self.value}, must be {self.limit}"
        )


class Refused(Exception):
    """A condition does not hold; raised before anything is written."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Asserted(Exception):
    """The library of debug level ASSERT and above aborts here; nothing has been written."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of one kernel.

    ``status`` is the C function's result. ``refusal`` names the violated constraint, also
    under RELEASE, where the status is OK and nothing is written. ``accumulator_overflow`` says
    that a partial sum left the accumulator's width, which the library's manual leaves undefined.
    ``messages`` are the remarks of debug level DEBUG and above.
    """

    status: MliStatus
    refusal: Refusal | None = None
    accumulator_overflow: bool = False
    messages: tuple[str, ...] = ()


def require(
    holds: bool, constraint: str, status: MliStatus, field: str, value: object, limit: object
) -> None:
    """Raise Refused with the constraint's number and status unless the condition holds."""
    if not holds:
        raise Refused(Refusal(status, constraint, field, str(value), str(limit)))
