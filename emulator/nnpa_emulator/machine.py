# SPDX-License-Identifier: Apache-2.0
"""The machines, with the answer of NNPA-QAF on each.

A `Machine` is a fact. A guest is a program on a machine with a zDNN library: it reads the query
block when it is initialised or refreshed, and uses that copy afterwards.

Sources: zDNN API Reference 1.2.0, "Validating the environment at runtime" and the query functions;
QAF contents are the hardware signatures of the zDNN library and the per-machine constants of
onnx-mlir.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from nnpa_emulator.function_codes import FORMAT_0 as FORMAT_0
from nnpa_emulator.function_codes import FORMAT_1 as FORMAT_1
from nnpa_emulator.function_codes import FunctionCode as FunctionCode

QAF_BYTES = 256
PAGE = 4096


def msb_mask(bits: Iterable[int], width: int) -> int:
    """Return the mask of `width` bits with bit 0 on the left, as the architecture counts."""
    return sum(1 << (width - 1 - bit) for bit in set(bits))


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer of NNPA-QAF: masks count bit 0 from the left, sizes are elements or bytes.

    `max_dims` is (dim4, dim3, dim2, dim1); 0 where the machine does not store the field.
    `max_dim_idx_size` is MDIS (elements), `max_tensor_size` MTS (bytes).
    """

    functions: int = 0
    parmblk_formats: int = 0
    data_types: int = 0
    layout_formats: int = 0
    max_dim_idx_size: int = 0
    max_tensor_size: int = 0
    conversions: int = 0
    max_dims: tuple[int, int, int, int] = (0, 0, 0, 0)

    def block(self) -> bytes:
        """Return the 256-byte block as the instruction stores it, big-endian."""
        raw = bytearray(QAF_BYTES)
        raw[0:32] = self.functions.to_bytes(32, "big")
        raw[32:48] = self.parmblk_formats.to_bytes(16, "big")
        struct.pack_into(">H", raw, 48, self.data_types)
        struct.pack_into(">I", raw, 52, self.layout_formats)
        struct.pack_into(">I", raw, 60, self.max_dim_idx_size)
        struct.pack_into(">Q", raw, 64, self.max_tensor_size)
        struct.pack_into(">H", raw, 72, self.conversions)
        struct.pack_into(">4I", raw, 88, *self.max_dims)
        return bytes(raw)

    def has_function(self, code: int) -> bool:
        """Tell whether function `code` (0 to 255) is installed."""
        return bool(self.functions >> (255 - code) & 1)

    def has_parmblk_format(self, number: int) -> bool:
        """Tell whether parameter block format `number` (0 to 127) is installed."""
        return bool(self.parmblk_formats >> (127 - number) & 1)

    def has_data_type(self, code: int) -> bool:
        """Tell whether data type `code` is installed; codes above 15 never are."""
        return code < 16 and bool(self.data_types >> (15 - code) & 1)

    def has_layout_format(self, code: int) -> bool:
        """Tell whether data layout format `code` is installed; codes above 31 never are."""
        return code < 32 and bool(self.layout_formats >> (31 - code) & 1)

    def function_codes(self) -> tuple[int, ...]:
        """Return the installed function codes, ascending."""
        return tuple(code for code in range(256) if self.has_function(code))

    def max_for_dim(self, dimension: int) -> int:
        """Return the largest index size of dimension 1 to 4, or 0 for any other number."""
        if not 1 <= dimension <= 4:
            return 0
        return self.max_dims[4 - dimension] or self.max_dim_idx_size


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine: its names, whether the hypervisor offers NNPA, and its QAF answer.

    `vector_nnp` tells whether the conversion instructions of the vector facility exist: z16 and
    later have them, also where NNPA itself is switched off.
    """

    name: str
    title: str
    aliases: tuple[str, ...]
    vector_nnp: bool
    qaf: QueryResult

    @property
    def label(self) -> str:
        """The name, and its aliases or its title: "telum1 (z16)", "z15 (IBM z15, no NNPA)"."""
        return f"{self.name} ({', '.join(self.aliases) or self.title})"

    @property
    def chip(self) -> str:
        """The processor, and the machine's aliases: "Telum II (z17)"."""
        return f"{self.title.rpartition(', ')[2]} ({', '.join(self.aliases)})"

    @property
    def nnpa_installed(self) -> bool:
        """Tell whether STFLE reports facility 165."""
        return self.qaf.functions != 0


# generated: begin machines
MACHINES: Mapping[str, Machine] = {
    machine.name: machine
    for machine in (
        Machine(
            "telum1",
            "IBM z16, Telum I",
            ("z16",),
            True,
            QueryResult(
                functions=0x8000FC00C00078008000C000C000E00000000000000000000000000000000000,
                parmblk_formats=msb_mask((0,), 128),
                data_types=0x8000,
                layout_formats=0xC0000000,
                conversions=0x6000,
                max_dim_idx_size=32768,
                max_tensor_size=4294967296,
            ),
        ),
        Machine(
            "telum2",
            "IBM z17, Telum II",
            ("z17",),
            True,
            QueryResult(
                functions=0x8000FC00F0007C00F000C000C000F0000000000000000000000000000000C000,
                parmblk_formats=msb_mask((0, 1), 128),
                data_types=0x82A0,
                layout_formats=0xE0000001,
                conversions=0x6000,
                max_dim_idx_size=32768,
                max_tensor_size=4294967296,
                max_dims=(32768, 32768, 1048576, 2097152),
            ),
        ),
        Machine("z15", "IBM z15, no NNPA", (), False, QueryResult()),
        Machine("telum1-nonnpa", "IBM z16, NNPA off", (), True, QueryResult()),
        Machine("telum2-nonnpa", "IBM z17, NNPA off", (), True, QueryResult()),
    )
}
# generated: end
TELUMS = tuple(machine.name for machine in MACHINES.values() if machine.nnpa_installed)
DEFAULT_MACHINE = "telum2"


def name_chips(code: int, parmblk_format: int = FORMAT_0) -> str:
    """Name the machines that have a function and a parameter block format: "Telum II (z17)"."""
    return " or ".join(
        machine.chip
        for machine in MACHINES.values()
        if machine.qaf.has_function(code) and machine.qaf.has_parmblk_format(parmblk_format)
    )


def find_machine(name: str) -> Machine:
    """Return the machine of a name or alias, in any case; `KeyError` if there is none."""
    lower = name.lower()
    for machine in MACHINES.values():
        if lower in (machine.name, *machine.aliases):
            return machine
    raise KeyError(name)


def machine_names() -> str:
    """Return the names of all machines with their aliases, for messages: "telum1 (z16), ..."."""
    machines = MACHINES.values()
    return ", ".join(machine.label if machine.aliases else machine.name for machine in machines)


# zDNN releases that a session may choose; which function came with which is in the op table.
LIBRARY_VERSIONS: Mapping[str, int] = {
    "1.0.0": 0x010000,
    "1.0.1": 0x010001,
    "1.1.0": 0x010100,
    "1.1.1": 0x010101,
    "1.1.2": 0x010102,
    "1.2.0": 0x010200,
}
DEFAULT_LIBRARY = "1.2.0"


# Versions of hardware that zDNN 1.2.0 knows, the newest first, by the machine that has it.
_SIGNATURES = {"telum2": 0x010100, "telum1": 0x010000}


def hardware_version(qaf: QueryResult) -> int:
    """Return the version of the newest known signature that a QAF answer satisfies, or 0."""
    for machine, version in _SIGNATURES.items():
        signature = MACHINES[machine].qaf
        masks_hold = all(
            getattr(qaf, name) & mask == mask
            for name, mask in (
                ("functions", signature.functions),
                ("parmblk_formats", signature.parmblk_formats),
                ("data_types", signature.data_types),
                ("layout_formats", signature.layout_formats),
                ("conversions", signature.conversions),
            )
        )
        sizes_hold = (
            qaf.max_dim_idx_size >= signature.max_dim_idx_size
            and qaf.max_tensor_size >= signature.max_tensor_size
        )
        if masks_hold and sizes_hold:
            return version
    return 0


Memory: TypeAlias = npt.NDArray[np.uint8]


def page_memory(size: int, *, zeroed: bool = True) -> Memory | None:
    """Return `size` bytes on a 4096-byte boundary; None if there is no storage.

    They are zero unless `zeroed` is False: for memory that is written whole before it is read.
    """
    try:
        raw = (np.zeros if zeroed else np.empty)(size + PAGE, np.uint8)
    except (MemoryError, ValueError):
        return None
    start = -raw.ctypes.data % PAGE
    return raw[start : start + size]


class LogLevel(IntEnum):
    """ZDNN_LOGLEVEL of a debug build."""

    OFF = 1
    FATAL = 2
    ERROR = 3
    WARN = 4
    INFO = 5
    DEBUG = 6
    TRACE = 7


def any_size(_size: int) -> None:
    """Accept any reuse of storage: nothing counts it."""


@dataclass(slots=True)
class Guest:
    """A program on a machine: the machine, its library, and the library's memory of the machine.

    The instruction sees `machine`; the library reads `cached`, the copy of the QAF block that
    `init` and `refresh_nnpa_query_result` made. The two differ after the guest moved. The library
    reads `precheck`, `status_diag`, `log_level` (None: a release build) and `log_module` from its
    environment.
    `numerics` "jitter" perturbs results within each operation's tolerance; `accumulate` is the type
    of sums of products. `allocate` returns storage for sticks, or None. `reserve` gets the bytes of
    storage that is reused, and raises if the session may not have them. `sequence` counts jittered
    calls.
    """

    machine: Machine
    library: str = DEFAULT_LIBRARY
    precheck: bool = False
    status_diag: int | None = None
    log_level: LogLevel | None = None
    log_module: str = ""
    numerics: Literal["exact", "jitter"] = "exact"
    jitter_seed: int = 0
    accumulate: Literal["fp32", "fp64"] = "fp32"
    allocate: Callable[[int], Memory | None] = page_memory
    reserve: Callable[[int], None] = any_size
    cached: QueryResult = field(init=False)
    sequence: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.cached = QueryResult()
        self.init()

    @property
    def machine_as_seen(self) -> str:
        """The machine; if the library remembers another one, also the call that refreshes it."""
        moved = ", remembered as another machine: call zdnn_refresh_nnpa_query_result"
        return self.machine.label + ("" if self.cached == self.machine.qaf else moved)

    @property
    def library_version(self) -> int:
        """The library's version number, 0x00[major][minor][patch]."""
        return LIBRARY_VERSIONS[self.library]

    @property
    def only_computes(self) -> bool:
        """Return True if calls that pass their checks do nothing but the arithmetic."""
        return self.numerics == "exact" and self.log_level is None and not self.precheck

    def init(self) -> None:
        """Read the query block if the facility is installed, as `zdnn_init` does."""
        if self.machine.nnpa_installed:
            self.cached = self.machine.qaf
