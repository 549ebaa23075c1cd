# SPDX-License-Identifier: Apache-2.0
"""Compose how a program is run: the plain function, then the shortcuts that wrap it."""

from collections.abc import Callable, Collection, Mapping

from nnpa_network.running.host_groups import group_host_nodes
from nnpa_network.running.loading import LoadedProgram
from nnpa_network.running.plain import RunProgram, run_program
from nnpa_network.running.prepared_steps import prepare_steps
from nnpa_network.running.run_buffers import reuse_buffers
from nnpa_network.shortcuts import ShortcutName

_WRAPPERS: Mapping[ShortcutName, Callable[[LoadedProgram, RunProgram], RunProgram]] = {
    "prepared-steps": prepare_steps,
    "run-buffers": reuse_buffers,
    "host-groups": group_host_nodes,
}
"""What wraps `run_program`, the innermost first."""


def compose(loaded: LoadedProgram, shortcuts: Collection[str]) -> RunProgram:
    """Return the function that runs a program, with shortcuts by name."""
    run: RunProgram = run_program
    for name, wrap in _WRAPPERS.items():
        if name in shortcuts:
            run = wrap(loaded, run)
    return run
