# SPDX-License-Identifier: Apache-2.0
"""The functions of the NNPA instruction, and the machines: tables for emulator and trap."""

from collections.abc import Iterable

from nnpa.zdnn.v1 import options_pb2 as pb

from sdk.machines import Machine, machines, names
from sdk.rendering import ROOT, File, Sdk
from sdk.verbs import Constant, Enum


def function_codes(enums: Iterable[Enum]) -> list[Constant]:
    """Return the functions that take operands from the parameter block."""
    codes = next(enum.constants for enum in enums if enum.name == "NnpaFunctionCode")
    return [code for code in codes if code.options.forms]


def lowest_format(form: pb.CodeForm, code: Constant) -> int:
    """Return the lowest format of the parameter block that has a form of a function."""
    return max(form.parmblk_format, code.options.parmblk_format)


def numbers(listed: Iterable[int]) -> str:
    """Return a tuple of numbers in Python."""
    return str(tuple(listed))


def field(parameter: pb.CodeField) -> str:
    """Return a function specific parameter as the emulator has it."""
    text = f'"{parameter.name}", {parameter.word}, {parameter.bits}'
    text += f", right={parameter.right}" if parameter.right else ""
    return text + (", signed=True" if parameter.signed else "")


def operand_counts(code: Constant) -> str:
    """Return the numbers of inputs, outputs and save areas; all forms must agree."""
    counts = {
        (len(form.inputs), len(form.outputs), int(form.save_area)) for form in code.options.forms
    }
    if len(counts) != 1:
        raise SystemExit(f"{code.name}: forms differ in their operands, which the trap reads first")
    return ", ".join(map(str, *counts))


def without_nnpa(machine: Machine) -> str:
    """Return the emulator's entry of a machine without the instruction."""
    arguments = [*machine.arguments, str(machine.options.vector_nnp), "QueryResult()"]
    return f"        Machine({', '.join(arguments)}),"


EMULATOR = Sdk(
    name="emulator",
    home=ROOT / "emulator" / "nnpa_emulator",
    files=(
        File("function_codes.py", "emulator_codes.py.j2"),
        File("function_forms.py", "emulator_forms.py.j2"),
        File("machine.py", "emulator_machines.py.j2", "machines"),
    ),
    filters={
        "field": field,
        "function_codes": function_codes,
        "lowest_format": lowest_format,
        "machines": machines,
        "names": names,
        "numbers": numbers,
        "without_nnpa": without_nnpa,
    },
)

TRAP = Sdk(
    name="trap",
    home=ROOT / "client" / "trap",
    files=(File("src/functions.gen.h", "trap_functions.h.j2"),),
    filters={"function_codes": function_codes, "operand_counts": operand_counts},
)
