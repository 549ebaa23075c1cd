# SPDX-License-Identifier: Apache-2.0
"""Builds libnnpa-trap.so and nnpa-trap-static from source and puts them into the wheel."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "nnpa_trap"
FILES = ("libnnpa-trap.so", "nnpa-trap-static")


class TrapBuildHook(BuildHookInterface):  # type: ignore[type-arg] # untyped upstream
    """Runs `make`; the wheel is for any platform, since it is data to the host."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's interface
        """Build into a folder of its own, and name its files to the builder."""
        source = Path(self.root).resolve().parent
        self._out = tempfile.TemporaryDirectory(prefix="nnpa-trap-")
        out = Path(self._out.name)
        command = ["make", "-C", str(source), f"OUT={out}"]
        subprocess.run(command, check=True, env=dict(os.environ))
        for name in FILES:
            build_data["force_include"][str(out / name)] = f"{PACKAGE}/{name}"

    def finalize(self, *_build: Any) -> None:
        """Remove the folder."""
        self._out.cleanup()
