# SPDX-License-Identifier: Apache-2.0
"""Machines and functions of zDNN as far as availability goes."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Host:
    """A machine as far as availability goes.

    `parmblk_formats` are those of its NNPA; `vector_nnp` tells whether it converts DLFLOAT16. A
    custom machine has the name of its `base`. `lacks` are functions of its formats, by code, that
    it has not.
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
        """The machine that a custom one is made of, the machine itself for any other."""
        return self.base or self.name


@dataclass(frozen=True, slots=True)
class Function:
    """A zDNN function: the version that brought it, and what it needs of the machine.

    `parmblk_format` is that of the NNPA operations it issues, None if it issues none; `code` is
    their function code, None where it depends on the operands. `needs_limits` marks functions that
    compare sizes with the machine's, and so fail where there is no NNPA. `on_format_0` says what
    remains on a machine that has only parameter block format 0, `on_1_0` what libraries 1.0.x have.
    `converts_scalar` marks functions with a float parameter, which the library converts first.
    """

    since: str
    code: int | None = None
    parmblk_format: int | None = None
    needs_limits: bool = False
    on_format_0: str = ""
    on_1_0: str = ""
    converts_scalar: bool = False
