# SPDX-License-Identifier: Apache-2.0
"""Errors of a network: the record, its types and codes, and the slot that keeps the first one.

Source: X-CUBE-AI 7.0 Embedded Inference Client API 1.1.0, ai_<name>_get_error; names and numbers as
its public header has them. Which pair a refusal gets is in `runtime`.
"""

from dataclasses import dataclass
from enum import IntEnum


class ErrorType(IntEnum):
    """The type of an error: AI_ERROR_XXX, 8 bits."""

    NONE = 0x00
    TOOL_PLATFORM_API_MISMATCH = 0x01
    TYPES_MISMATCH = 0x02
    INVALID_HANDLE = 0x10
    INVALID_STATE = 0x11
    INVALID_INPUT = 0x12
    INVALID_OUTPUT = 0x13
    INVALID_PARAM = 0x14
    INVALID_SIGNATURE = 0x15
    INIT_FAILED = 0x30
    ALLOCATION_FAILED = 0x31
    DEALLOCATION_FAILED = 0x32
    CREATE_FAILED = 0x33


class ErrorCode(IntEnum):
    """The place of an error: AI_ERROR_CODE_XXX, 24 bits."""

    NONE = 0x00
    NETWORK = 0x10
    NETWORK_PARAMS = 0x11
    NETWORK_WEIGHTS = 0x12
    NETWORK_ACTIVATIONS = 0x13
    LAYER = 0x14
    TENSOR = 0x15
    ARRAY = 0x16
    INVALID_PTR = 0x17
    INVALID_SIZE = 0x18
    INVALID_FORMAT = 0x19
    OUT_OF_RANGE = 0x20
    INVALID_BATCH = 0x21
    MISSED_INIT = 0x30
    IN_USE = 0x40


@dataclass(frozen=True, slots=True)
class AiError:
    """A type and a code: `ai_error`. `text` names field, value and limit."""

    type: ErrorType = ErrorType.NONE
    code: ErrorCode = ErrorCode.NONE
    text: str = ""

    @property
    def word(self) -> int:
        """The record as C packs it: type in bits 0 to 7, code in bits 8 to 31."""
        return self.type | self.code << 8

    def __bool__(self) -> bool:
        """Return whether it is an error."""
        return self.type != ErrorType.NONE

    def __str__(self) -> str:
        """Return "INVALID_INPUT / INVALID_SIZE (0x12, 0x18): text"."""
        named = f"{self.type.name} / {self.code.name} (0x{self.type:02X}, 0x{self.code:02X})"
        return f"{named}: {self.text}" if self.text else named


NO_ERROR = AiError()


class NetworkRefused(Exception):
    """A call of the client API fails; `error` goes into the network's slot."""

    def __init__(self, kind: ErrorType, code: ErrorCode, text: str) -> None:
        self.error = AiError(kind, code, text)
        super().__init__(str(self.error))


class ErrorLatch:
    """The slot of one network: it keeps the first error until it is read.

    Reading clears the slot. A reader that lost the answer repeats the call with the same
    `sequence`, not 0, and gets the same error.
    """

    def __init__(self) -> None:
        self._error = NO_ERROR
        self._answered = (0, NO_ERROR)

    def set(self, error: AiError) -> bool:
        """Keep an error; False when an earlier one is kept instead."""
        if self._error:
            return False
        self._error = error
        return True

    def take(self, sequence: int = 0) -> AiError:
        """Return the first error and clear the slot."""
        if sequence and sequence == self._answered[0]:
            return self._answered[1]
        error, self._error = self._error, NO_ERROR
        self._answered = sequence, error
        return error
