# SPDX-License-Identifier: Apache-2.0
"""How much of a network goes to the accelerator.

    compiler   what the open compiler for the machine places
    all        what zDNN can express beyond it, too

The module imports nothing: a server reads the names before the emulator is there.
"""

from typing import Literal, TypeAlias, get_args

Placement: TypeAlias = Literal["compiler", "all"]
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
DEFAULT_PLACEMENT: Placement = "compiler"
