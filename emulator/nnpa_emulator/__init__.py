# SPDX-License-Identifier: Apache-2.0
"""The emulated accelerator: NNPA, DLFLOAT16 and the zDNN library above them.

`run(guest, name, arguments)` calls a function by its C name without the prefix; `FUNCTIONS` is the
table of them; a `Guest` is a program on a `Machine`. Two shortcuts are on: compiled kernels, until
`kernels.use_reference()`, and the cache of widened operands, until `widened.disable()`.
"""

from nnpa_emulator import ops as ops
from nnpa_emulator import widened
from nnpa_emulator.instruction import ALIGNED, Alignment
from nnpa_emulator.machine import MACHINES, Guest, Machine, find_machine, machine_names
from nnpa_emulator.pipeline import FUNCTIONS, OK, Outcome, run
from nnpa_emulator.status import (
    Malformed,
    NotInLibrary,
    ProgramCheck,
    Refusal,
    Refused,
    Status,
    get_status_message,
)
from nnpa_emulator.ztensor import (
    DataFormats,
    DataLayouts,
    DataTypes,
    QuantizedTransformTypes,
    TensorDesc,
    Ztensor,
)

__all__ = [
    "ALIGNED",
    "FUNCTIONS",
    "MACHINES",
    "OK",
    "Alignment",
    "DataFormats",
    "DataLayouts",
    "DataTypes",
    "Guest",
    "Machine",
    "Malformed",
    "NotInLibrary",
    "Outcome",
    "ProgramCheck",
    "QuantizedTransformTypes",
    "Refusal",
    "Refused",
    "Status",
    "TensorDesc",
    "Ztensor",
    "find_machine",
    "get_status_message",
    "machine_names",
    "run",
]

widened.enable()
