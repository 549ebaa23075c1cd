# SPDX-License-Identifier: Apache-2.0
"""The instruction that a program issues, and its answer."""

from collections.abc import Mapping
from dataclasses import dataclass

from nnpa_emulator import TensorDesc
from nnpa_emulator.execution import Completion
from nnpa_emulator.function_codes import FunctionCode
from nnpa_emulator.instruction import operand_bytes
from nnpa_emulator.parameter_block import BLOCK_BYTES, SAVE_AREA_BYTES, Role, decode_block
from nnpa_emulator.status import ZDNN_HW_ERROR, ProgramCheck, Refusal, Status

# Source: z/Architecture Principles of Operation, "Program Interruption".
_INTERRUPTION_CODES: Mapping[str, int] = {
    "operation": 1,
    "access": 4,
    "specification": 6,
    "data": 7,
}
_FUNCTIONS = {int(code): code.name for code in FunctionCode}
_NO_FUNCTION = "NNPA"  # the name in metrics for a function code without a name
_PROGRAM_CHECK = "PROGRAM_CHECK"  # the status in metrics for an interruption, as for a call's


@dataclass(frozen=True, slots=True)
class Instruction:
    """Both general registers, and the accessible bytes of the parameter block."""

    general_register_0: int
    general_register_1: int
    block: bytes

    @property
    def name(self) -> str:
        """The name of the function code, for metrics and fault rules."""
        return _FUNCTIONS.get(self.general_register_0 & 0xFF, _NO_FUNCTION)

    @property
    def descriptors(self) -> Mapping[Role, TensorDesc]:
        """The descriptors in the block; empty for a block that is cut short."""
        return decode_block(self.block).descriptors if len(self.block) == BLOCK_BYTES else {}

    @property
    def operand_sizes(self) -> Mapping[Role, int]:
        """The most bytes of each role's storage by the block; empty if it is cut short."""
        sizes = {role: operand_bytes(desc) for role, desc in self.descriptors.items()}
        return {**sizes, Role.SAVE_AREA: SAVE_AREA_BYTES} if sizes else {}


@dataclass(frozen=True, slots=True)
class Interruption:
    """A program interruption: its code, the address that could not be accessed, and the reason.

    It does not hold the exception, which would keep storage until the answer is sent.
    """

    code: int
    address: int
    refusal: Refusal
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of an instruction: its completion, or a program interruption."""

    completion: Completion
    interruption: Interruption | None = None

    @property
    def refusal(self) -> Refusal | None:
        """The refusal of an instruction that was not executed, or None."""
        interruption = self.interruption
        return self.completion.refusal if interruption is None else interruption.refusal

    @property
    def status(self) -> int | str:
        """The library's status for the condition code, or the reason that ends the call."""
        if self.interruption is not None:
            return _PROGRAM_CHECK
        completion = self.completion
        if completion.condition_code:
            return ZDNN_HW_ERROR + completion.response_code
        flags = completion.exception_flags
        return int(Status.ZDNN_ELEMENT_RANGE_VIOLATION if flags else Status.ZDNN_OK)


def interrupted(instruction: Instruction, check: ProgramCheck) -> Answer:
    """Return the answer of an instruction that ends by a program check."""
    code, address = _INTERRUPTION_CODES[check.kind], check.address % (1 << 64)
    interruption = Interruption(code, address, check.refusal, str(check))
    return Answer(Completion(instruction.general_register_0), interruption)
