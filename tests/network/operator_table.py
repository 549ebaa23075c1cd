# SPDX-License-Identifier: Apache-2.0
"""The table of operators in the manual, as the rules make it."""

from nnpa_emulator import FUNCTIONS
from nnpa_emulator.machine import FORMAT_1
from nnpa_network.operators import OPERATORS
from nnpa_network.operators.spelled_out import PATTERNS

# What a spelling that is found from an operator spells out.
_SPELLED_OUT = {"Erf": "Gelu", "Tanh": "Gelu", "Sqrt": "LayerNormalization"}


def markdown() -> str:
    """Return the table, one row per operator."""
    lines = [
        "| ONNX operator | placement | zDNN functions | taken when, and what the host does |",
        "|---|---|---|---|",
    ]
    for name in sorted(OPERATORS):
        operator = OPERATORS[name]
        functions = ", ".join(_named(function) for function in operator.functions) or "none"
        placement = "`all`" if operator.beyond else "`compiler`"
        lines.append(f"| {name} | {placement} | {functions} | {operator.doc} |")
    for found_from, find in PATTERNS.items():
        op_type, doc = _SPELLED_OUT[found_from], " ".join((find.__doc__ or "").split())
        functions = ", ".join(map(_named, OPERATORS[op_type].functions))
        lines.append(f"| {op_type}, spelled out | `all` | {functions} | {doc} |")
    return "\n".join(lines) + "\n"


def _named(function: str) -> str:
    """Return a function's name, marked where it takes parameter block format 1 (Telum II)."""
    operation = FUNCTIONS[function].operation
    newer = function == "quantized_matmul_op" or (
        operation is not None and operation.parmblk_format == FORMAT_1
    )
    return f"`{function}`*" if newer else f"`{function}`"
