# SPDX-License-Identifier: Apache-2.0
"""The machines: what the emulator, the client and the tables of the documents know of each."""

from collections.abc import Iterable
from dataclasses import dataclass

from nnpa.zdnn.v1 import options_pb2 as pb

from sdk.verbs import Constant, Enum, Verb

_PREFIX = "MACHINE_MODEL_"
_BIT_0 = 1 << 255  # of the functions that NNPA-QAF answers


def names(listed: Iterable[str]) -> str:
    """Return a tuple of names in Python."""
    return str(tuple(listed)).replace("'", '"')


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: its name, its options, its functions, and the formats that it lacks."""

    name: str
    options: pb.MachineOptions
    functions: tuple[Constant, ...]
    lacks: tuple[Constant, ...]

    @property
    def has_nnpa(self) -> bool:
        """True if the machine has the NNPA instruction."""
        return self.options.HasField("query")

    @property
    def formats(self) -> list[int]:
        """The formats of the parameter block that the machine accepts."""
        return list(self.options.query.parmblk_formats)

    @property
    def functions_mask(self) -> str:
        """The installed functions as NNPA-QAF reports them: a 256-bit number in Python."""
        return f"0x{sum(_BIT_0 >> code.number for code in self.functions):064X}"

    @property
    def arguments(self) -> list[str]:
        """The arguments that the emulator and the client share: name, title, aliases, in Python."""
        options = self.options
        return [f'"{self.name}"', f'"{options.title}"', names(options.aliases)]

    @property
    def heading(self) -> str:
        """The machine's name in a table: "Telum I (z16)"."""
        return f"{self.options.title.rpartition(', ')[2]} ({', '.join(self.options.aliases)})"

    def runs(self, verb: Verb) -> str:
        """Return how a function runs: "yes", "UF" if unavailable, or a clause that restricts it."""
        options = verb.options
        if options.on_format_0 and 1 not in self.formats:
            return options.on_format_0
        is_lacking = any(code.name == options.code for code in self.lacks)
        return "UF" if is_lacking or options.parmblk_format not in self.formats else "yes"


def machines(enums: Iterable[Enum]) -> list[Machine]:
    """Return the machines in the order of MachineModel."""
    constants = {enum.name: enum.constants for enum in enums}
    models = {
        model.name.removeprefix(_PREFIX).lower().replace("_", "-"): model.machine
        for model in constants["MachineModel"]
        if model.machine.title
    }
    codes = constants["NnpaFunctionCode"]
    unknown = [code.name for code in codes if code.options.machine not in ("", *models)]
    if unknown:
        raise SystemExit(f"{unknown[0]}: its first machine is none of MachineModel")
    described: list[Machine] = []
    for name, options in models.items():
        later = list(models)[len(described) + 1 :]
        formats = options.query.parmblk_formats
        of_formats = [code for code in codes if code.options.parmblk_format in formats]
        present = tuple(code for code in of_formats if code.options.machine not in later)
        lacks = tuple(code for code in of_formats if code.options.machine in later)
        described.append(Machine(name, options, present, lacks))
    return described
