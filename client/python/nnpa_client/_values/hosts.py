# SPDX-License-Identifier: Apache-2.0
"""The facts about machines and functions that decide which function runs where."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Host:
    """The facts about a machine that decide which functions run on it.

    `parmblk_formats` are the parameter block formats of its NNPA, `vector_nnp` is whether it has
    vector instructions that convert DLFLOAT16, `base` is the machine that a custom one customises.
    `lacks` names, by function code, the functions of its formats that it does not have.
    """

    name: str
    title: str
    aliases: tuple[str, ...]
    parmblk_formats: frozenset[int]
    vector_nnp: bool = True
    base: str = ""
    lacks: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def model(self) -> str:
        """The base of a custom machine, or the machine's own name."""
        return self.base or self.name


@dataclass(frozen=True, slots=True)
class Function:
    """A zDNN function: the version that introduced it, and its requirements of the machine.

    `parmblk_format` is the parameter block format of the NNPA operations it issues, None if it
    issues none; `code` is their function code, None if the operands decide. A function with
    `needs_limits` compares sizes with the machine's limits, and so fails without NNPA.
    `on_format_0` says which part works on a machine with parameter block format 0 only, `on_1_0`
    which part works with libraries 1.0.x. A function with `converts_scalar` has a float parameter,
    which the library converts before the operation.
    """

    since: str
    code: int | None = None
    parmblk_format: int | None = None
    needs_limits: bool = False
    on_format_0: str = ""
    on_1_0: str = ""
    converts_scalar: bool = False
