# SPDX-License-Identifier: Apache-2.0
"""Builds libnnpa-trap.so from source and puts it into the wheel."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "nnpa_trap"
LIBRARY = "libnnpa-trap.so"


class TrapBuildHook(BuildHookInterface):  # type: ignore[type-arg] # untyped upstream
    """Runs `make`; the wheel is for any platform, since it is data to the host."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's interface
        """Build into a folder of its own, and name the library to the builder."""
        source = Path(self.root).resolve().parent
        self._out = tempfile.TemporaryDirectory(prefix="nnpa-trap-")
        out = Path(self._out.name)
        command = ["make", "-C", str(source), f"OUT={out}"]
        subprocess.run(command, check=True, env=dict(os.environ))
        build_data["force_include"][str(out / LIBRARY)] = f"{PACKAGE}/{LIBRARY}"

    def finalize(self, *_build: Any) -> None:
        """Remove the folder."""
        self._out.cleanup()
