# SPDX-License-Identifier: Apache-2.0
"""Options of an import: how a model is placed, and how much memory it may take."""

from dataclasses import dataclass

from nnpa_network.lowering.placement import Rule
from nnpa_network.placements import DEFAULT_PLACEMENT, Placement
from nnpa_network.shortcuts import SHORTCUTS


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How a model is placed.

    `strict` refuses the first node that only the host can run; `saturate` limits finite constants
    and inputs to DLFLOAT16's range (else they become non-numeric); `offload_integer` lets integer
    products go to the accelerator, which rounds them; `placement` is one of PLACEMENTS, within
    which `device_placement`, the rules of a device placement file, sends nodes to the host;
    `max_bytes` bounds the initializers, and every array and tensor; programs of at most
    `max_programs` sets of shapes are kept, and of them all at most `max_program_bytes`, without
    what they share; `shortcuts` are those that runs take, by name.
    """

    strict: bool = False
    saturate: bool = True
    offload_integer: bool = False
    placement: Placement = DEFAULT_PLACEMENT
    device_placement: tuple[Rule, ...] = ()
    max_bytes: int = 2 << 30
    max_programs: int = 16
    max_program_bytes: int = 256 << 20
    shortcuts: frozenset[str] = SHORTCUTS
