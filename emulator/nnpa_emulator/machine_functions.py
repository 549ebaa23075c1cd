# SPDX-License-Identifier: Apache-2.0
"""The functions of the NNPA instruction and their operations, by code and format of the block.

`function_forms` has their operands and parameters. A function that came with format 1 does not
exist in format 0: our reading, as is that all others take both formats.
Sources: nnpa.h of zDNN 1.2.0; zDNN API Reference 1.2.0, "NNPA function codes".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from nnpa_emulator.function_codes import FunctionCode
from nnpa_emulator.function_forms import FORMS
from nnpa_emulator.instruction import Operation
from nnpa_emulator.matmul_shapes import is_quantized
from nnpa_emulator.ops import matmul, quantized
from nnpa_emulator.ops.transform_function import TRANSFORM
from nnpa_emulator.parameter_block import Form
from nnpa_emulator.pipeline import FUNCTIONS
from nnpa_emulator.recurrent_activation import ACTIVATIONS, GRU, LSTM
from nnpa_emulator.ztensor import Ztensor


@dataclass(frozen=True, slots=True)
class MachineFunction:
    """A function: its operation, and its form in the parameter block."""

    operation: Operation
    form: Form


# Operations that no function of the library has, or several codes have, by name and code.
_OPERATIONS: Mapping[str, Mapping[FunctionCode, Operation]] = {
    "lstmact": {FunctionCode.NNPA_LSTMACT: ACTIVATIONS[LSTM]},
    "gruact": {FunctionCode.NNPA_GRUACT: ACTIVATIONS[GRU]},
    "transform": {TRANSFORM.code: TRANSFORM},
    "matmul_transpose_op": matmul.TRANSPOSING,
    "quantized_matmul_op": quantized.OPERATIONS,
}


def find_function(code: int, number: int, *operands: Ztensor) -> MachineFunction | None:
    """Return the function of a code in a format of the block, None where there is none.

    `operands` are the inputs and the first output: of a product in format 1 their types decide.
    """
    functions = functions_of(code, number)
    if len(functions) < 2:
        return functions[0] if functions else None
    name = "quantized_matmul_op" if is_quantized(*operands) else "matmul_transpose_op"
    return next(function for function in functions if function.form.operation == name)


@lru_cache(maxsize=1024)
def functions_of(code: int, number: int) -> tuple[MachineFunction, ...]:
    """Return the functions of a code whose form has the highest format up to `number`."""
    forms = [form for form in FORMS.get(code, ()) if form.parmblk_format <= number]
    return tuple(
        MachineFunction(_operation(code, form.operation), form)
        for form in forms
        if form.parmblk_format == forms[-1].parmblk_format
    )


def _operation(code: int, name: str) -> Operation:
    if name in _OPERATIONS:
        return _OPERATIONS[name][FunctionCode(code)]
    operation = FUNCTIONS[name].operation
    if operation is None:
        raise LookupError(f"{name} issues no instruction of its own")
    return operation
