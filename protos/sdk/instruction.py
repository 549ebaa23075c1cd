# SPDX-License-Identifier: Apache-2.0
"""The functions of the NNPA instruction: tables for the emulator and for the trap."""

from collections.abc import Iterable

from nnpa.zdnn.v1 import options_pb2 as pb

from sdk.rendering import ROOT, File, Sdk
from sdk.verbs import Constant, Enum


def function_codes(enums: Iterable[Enum]) -> list[Constant]:
    """Return the functions that take operands from the parameter block."""
    codes = next(enum.constants for enum in enums if enum.name == "NnpaFunctionCode")
    return [code for code in codes if code.options.forms]


def lowest_format(form: pb.CodeForm, code: Constant) -> int:
    """Return the lowest format of the parameter block that has a form of a function."""
    return max(form.parmblk_format, code.options.parmblk_format)


def names(operands: Iterable[str]) -> str:
    """Return a tuple of names in Python."""
    quoted = [f'"{name}"' for name in operands]
    return f"({quoted[0]},)" if len(quoted) == 1 else f"({', '.join(quoted)})"


def field(parameter: pb.CodeField) -> str:
    """Return a function specific parameter as the emulator has it."""
    text = f'"{parameter.name}", {parameter.word}, {parameter.bits}'
    text += f", right={parameter.right}" if parameter.right else ""
    return text + (", signed=True" if parameter.signed else "")


def operand_counts(code: Constant) -> str:
    """Return the numbers of inputs, outputs and save areas, which all forms have in common."""
    counts = {
        (len(form.inputs), len(form.outputs), int(form.save_area)) for form in code.options.forms
    }
    if len(counts) != 1:
        raise SystemExit(f"{code.name}: forms differ in their operands, which the trap reads first")
    return ", ".join(map(str, *counts))


EMULATOR = Sdk(
    name="emulator",
    home=ROOT / "emulator" / "nnpa_emulator",
    files=(
        File("function_codes.py", "emulator_codes.py.j2"),
        File("function_forms.py", "emulator_forms.py.j2"),
    ),
    filters={
        "field": field,
        "function_codes": function_codes,
        "lowest_format": lowest_format,
        "names": names,
    },
)

TRAP = Sdk(
    name="trap",
    home=ROOT / "client" / "trap",
    files=(File("src/functions.gen.h", "trap_functions.h.j2"),),
    filters={"function_codes": function_codes, "operand_counts": operand_counts},
)
