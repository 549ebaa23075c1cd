# SPDX-License-Identifier: Apache-2.0
"""Names of the shortcuts of hosted networks; without them a network gives the same bytes, slower.

    prepared-steps      a step that ran clean goes straight to the emulator's arithmetic
    further-sizes       programs for further sizes are made from lowered ones
    run-buffers         the tensors of a run share an arena, which serves the next run
    host-groups         neighbouring host nodes run as one session of ONNX Runtime

The module imports nothing: a server reads the names before the emulator is there.
"""

from typing import Literal, TypeAlias, get_args

ShortcutName: TypeAlias = Literal["further-sizes", "prepared-steps", "run-buffers", "host-groups"]
SHORTCUTS: frozenset[str] = frozenset(get_args(ShortcutName))
